//! How fast a player computes while its gradients are exchanged.
//!
//! Reducing takes something from computing: NCCL's blocks occupy multiprocessors of the GPU, and its copies
//! its memory's bandwidth. While an exchange is under way, what takes `t` takes `t · (1 + slowdown)`; no
//! exchange takes longer for it. A node that runs when an exchange begins or ends goes on at the other speed.
//!
//! Ignored: that kernels differ (those bound by memory suffer more), what other communication takes, and what
//! exchanging takes from memory copies and the host.

use allrail_core::Time;

use super::state::{Driver, Timer};
use crate::training::driver::record::Ran;

const MILLION: u64 = 1_000_000;

/// A time by a fraction; what is left of a picosecond is left out.
fn scaled(time: Time, numerator: u64, denominator: u64) -> Time {
    let scaled = u128::from(time.as_ps()) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).map_or(Time::MAX, Time::from_ps)
}

impl Driver<'_> {
    /// What a second of work takes, in millionths of a second.
    fn stretched(&self, player: u32) -> u64 {
        if self.engines[player as usize].exchanges == 0 {
            return MILLION;
        }
        MILLION + (self.settings.slowdown * MILLION as f64).round() as u64
    }

    /// An engine begins a node of so much work.
    pub(super) fn begin(&mut self, now: Time, ran: Ran, work: Time) {
        let end = now + scaled(work, self.stretched(ran.player), MILLION);
        self.engines[ran.player as usize].pace = (now, work, end);
        if self.settings.timeline && self.settings.slowdown == 0.0 {
            self.out.spans.push((ran, now, end));
        }
        self.timers.push(end, 0, Timer::Computed { player: ran.player });
    }

    /// Whether an engine's timer was set at another speed.
    pub(super) fn is_stale(&self, now: Time, player: u32) -> bool {
        let engine = &self.engines[player as usize];
        engine.running.is_none() || engine.pace.2 != now
    }

    /// An engine has ended a node.
    pub(super) fn paced(&mut self, now: Time, ran: Ran) {
        if self.settings.timeline && self.settings.slowdown > 0.0 {
            let start = self.record(ran).map_or(now, |record| record.start);
            self.out.spans.push((ran, start, now));
        }
    }

    /// An exchange of gradients begins or ends among the players of a process group.
    pub(super) fn exchange(&mut self, now: Time, process_group: u32, begins: bool) {
        if self.settings.slowdown == 0.0 {
            return;
        }
        let players = self.players;
        for player in &players.process_groups[process_group as usize].players {
            let before = self.stretched(*player);
            let engine = &mut self.engines[*player as usize];
            if begins {
                engine.exchanges += 1;
            } else {
                engine.exchanges -= 1;
            }
            let after = self.stretched(*player);
            let engine = &mut self.engines[*player as usize];
            let (since, left, end) = engine.pace;
            // What is over now is over, at whatever speed.
            if engine.running.is_none() || before == after || end == now {
                continue;
            }
            let left = left.saturating_sub(scaled(now - since, MILLION, before));
            let end = now + scaled(left, after, MILLION);
            engine.pace = (now, left, end);
            self.timers.push(end, 0, Timer::Computed { player: *player });
        }
    }
}
