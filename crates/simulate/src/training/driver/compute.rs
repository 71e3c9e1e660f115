//! The compute engines, and why they have nothing to do.

use std::cmp::Reverse;

use allrail_core::Time;
use allrail_workload::{Pass, Work};

use super::state::{Driver, Turn};
use crate::training::driver::record::{ByPass, Gap, Idle, Ran};

impl Driver<'_> {
    pub(super) fn attend(&mut self, player: u32) {
        let engine = &mut self.engines[player as usize];
        let can = engine.running.is_none() && !engine.ready.is_empty();
        if (can || engine.turns.iter().any(Turn::can)) && !engine.choosing {
            engine.choosing = true;
            self.choosing.push(player);
        }
    }

    /// Lets idle compute engines start the earliest node that is ready.
    pub(super) fn choose(&mut self, now: Time) {
        let mut choosing = std::mem::take(&mut self.choosing);
        choosing.sort_unstable();
        for player in choosing.drain(..) {
            let engine = &mut self.engines[player as usize];
            engine.choosing = false;
            self.take_turns(now, player);
            let engine = &mut self.engines[player as usize];
            if engine.running.is_some() {
                continue;
            }
            let Some(Reverse((iteration, node))) = engine.ready.pop() else { continue };
            let ran = Ran { player, node, iteration };
            let (idle_since, last) = (engine.idle_since, engine.last);
            engine.running = Some(ran);
            let index = self.shape.index(player, node);
            let held = self.iteration(iteration).expect("it is under way");
            if held.records[index].start < now {
                // It was ready before: the engine is what it waited for.
                held.records[index].cause = last;
            }
            held.records[index].start = now;
            let cause = held.records[index].cause;
            if idle_since < now {
                let gaps = self.attribute(player, (idle_since, now), cause);
                self.out.gaps[player as usize].extend(gaps);
            }
            let Work::Compute { time } = self.graph.node(node).work else { continue };
            let time = match self.settings.slowness {
                Some(slowness) => scaled(time, slowness(player, node, iteration)),
                None => time,
            };
            self.begin(now, ran, time);
        }
        choosing.append(&mut self.choosing);
        self.choosing = choosing;
    }

    /// Why an engine had nothing to do from `start` to `end`: what it waited for last, what that
    /// waited for last, and so on back to `start`. Communication of its own actor is exposed; all else
    /// is waiting. What a delay takes counts to what it follows.
    pub(super) fn attribute(
        &self,
        player: u32,
        (start, end): (Time, Time),
        cause: Option<Ran>,
    ) -> Vec<Gap> {
        let actor = self.players.actors[player as usize];
        let mut gaps: Vec<Gap> = Vec::new();
        let mut until = end;
        let mut add = |from: Time, until: &mut Time, idle: Idle, pass: Pass| {
            let from = from.clamp(start, *until);
            match gaps.last_mut() {
                Some(later) if later.idle == idle && later.pass == pass => later.start = from,
                _ if from < *until => gaps.push(Gap { start: from, end: *until, idle, pass }),
                _ => {}
            }
            *until = from;
        };
        let mut at = cause;
        let mut delayed = false;
        while until > start {
            let Some((ran, record)) = at.and_then(|ran| Some((ran, self.record(ran)?))) else {
                break;
            };
            at = record.cause;
            let purpose = self.graph.communication(ran.node);
            let delay = self.graph.is_delay(ran.node);
            if purpose.is_none() && (record.start == record.finish || delay) {
                delayed |= delay;
                continue;
            }
            let pass = self.graph.node(ran.node).pass;
            if record.finish < until && !delayed {
                add(record.finish, &mut until, Idle::Waiting, pass);
            }
            delayed = false;
            let idle = match purpose {
                Some(purpose) if self.players.actors[ran.player as usize] == actor => {
                    Idle::Exposed(purpose)
                }
                _ => Idle::Waiting,
            };
            add(record.start, &mut until, idle, pass);
        }
        if until > start {
            add(start, &mut until, Idle::Waiting, Pass::Unknown);
        }
        gaps
    }

    /// A compute node is over.
    pub(super) fn count(&mut self, now: Time, ran: Ran) {
        let start = self.record(ran).map_or(now, |record| record.start);
        let pass = self.graph.node(ran.node).pass;
        self.computed[ran.player as usize][pass.index()] += now.saturating_sub(start);
    }

    /// How long each player has computed up to now, by pass.
    pub(super) fn computed(&self, now: Time) -> Vec<ByPass> {
        let mut computed = self.computed.clone();
        let running = self.engines.iter().filter_map(|engine| engine.running);
        for (ran, record) in running.filter_map(|ran| Some((ran, self.record(ran)?))) {
            let pass = self.graph.node(ran.node).pass;
            computed[ran.player as usize][pass.index()] += now.saturating_sub(record.start);
        }
        computed
    }
}

/// A time, scaled; never to nothing.
fn scaled(time: Time, factor: f64) -> Time {
    Time::from_ps(((time.as_ps() as f64 * factor).round() as u64).max(1))
}
