//! How far the ranks are: what this one tells others with each sign of life, and what follows from what it hears.
//!
//! A sign of life has the counts and times of some tensors, in turn, so that all are told within 16 of them. From
//! these it is known who has not submitted what others wait for (a [`Warning`] at `timeouts.warn`, the end at
//! `timeouts.stalled`), and how much later than this rank a peer is. Nothing waits for it.
//!
//! Of calls with names a sign tells those that are under way for a while; that asks its receiver, whose next signs
//! say how often it has begun those. What a rank waits for, in words, goes along once it does so for two signs of
//! life: whoever misses it learns what it does instead.

use std::collections::BTreeMap;
use std::time::Duration;

use allrail_schedule::{Key, OperationName};

use super::State;
use super::calls::CALLS;
use super::times::TIMES;
use super::watch::{NotYet, Peer};
use crate::control::{MOST_PROGRESS, Progress, Sign};
use crate::error::{Fault, FaultKind};
use crate::report::{PeerReport, WaitsFor};
use crate::warning::{Warning, seconds};

/// A sign of life tells of so many tensors, or of a sixteenth of all.
const TOLD: usize = 64;
/// Of so many calls with names a sign tells, and of up to four times as many that peers have asked about.
const NAMED: usize = 64;
/// How much of what it waits for a rank says in words.
const MOST_WAITS: usize = 4;
/// How many frames that have come too early are looked at.
const MOST_EARLY: usize = 64;

impl State {
    /// How far this rank is with the tensors whose turn it is.
    pub(crate) fn next_progress(&mut self) -> Vec<Progress> {
        let (made, times) = self.calls.made();
        let calls = Progress { key: CALLS, count: made, at: times.last() };
        let most = TOLD.max(self.tensors.len() / 16 + 1).min(MOST_PROGRESS - 1);
        let mut turn = self.tensors.turn(self.watch.turn);
        let tensors = turn.by_ref().take(most);
        let told =
            tensors.map(|(key, one)| Progress { key, count: one.submitted, at: one.times.last() });
        let mut all: Vec<Progress> = std::iter::once(calls).chain(told).collect();
        self.watch.turn = turn.next().map_or(CALLS, |(key, _)| key);
        self.named_progress(&mut all);
        all
    }

    /// Calls with names that are under way for a while, and those that peers have asked about.
    fn named_progress(&self, all: &mut Vec<Progress>) {
        let now = self.clock.machine();
        let old = self.watch.heartbeat / 2;
        let waits = |at: u64| Duration::from_nanos(now.saturating_sub(at)) >= old;
        let mine = self.calls.named().filter(|(_, one)| waits(one.at)).take(NAMED);
        let mine = mine.map(|(key, one)| Progress { key, count: one.count, at: one.at });
        let mut told: BTreeMap<Key, Progress> = mine.map(|one| (one.key, one)).collect();
        for key in self.watch.named() {
            if told.len() >= 4 * NAMED {
                break;
            }
            let count = self.engine.begun(key).unwrap_or(0);
            told.entry(key).or_insert(Progress { key, count, at: 0 });
        }
        all.extend(told.into_values().take(MOST_PROGRESS.saturating_sub(all.len())));
    }

    /// What this rank waits for, in words, if it does for two signs of life; none where peers know already that
    /// it does not.
    pub(crate) fn next_waits(&mut self) -> Option<Vec<String>> {
        let now = self.clock.machine();
        let old = 2 * self.watch.heartbeat;
        let waits = |at: u64| Duration::from_nanos(now.saturating_sub(at)) >= old;
        let under_way = self.under_way();
        let oldest = under_way.iter().filter(|(at, ..)| waits(*at)).take(MOST_WAITS);
        let all: Vec<String> = oldest.map(|(_, key, count)| self.called(*key, *count)).collect();
        self.watch.tells_waits(!all.is_empty()).then_some(all)
    }

    /// What a peer waits for.
    pub(crate) fn heard_waits(&mut self, peer: u32, waits: Vec<String>) {
        self.watch.hear_waits(peer, waits);
    }

    /// A peer has given a sign of life, which came at this time of the machine's clock.
    pub(crate) fn heard_sign(&mut self, peer: u32, sign: &Sign, came: u64) {
        let names = self.engine.settings().named_calls;
        let mut known = std::mem::take(self.watch.peer(peer));
        known.hear_times(sign, came);
        known.hear_counts(sign, names, |key| key == CALLS || self.tensors.has(key));
        known.compare(sign, |key, number| self.submitted_at(key, number));
        *self.watch.peer(peer) = known;
    }

    /// When this rank has submitted something; none if that is long ago, or nobody knows of what it is.
    fn submitted_at(&self, key: Key, number: u64) -> Result<Option<u64>, NotYet> {
        let (count, times) = match self.tensors.get(key) {
            Some(tensor) => (tensor.submitted, &tensor.times),
            None if key == CALLS => self.calls.made(),
            None => return Ok(None),
        };
        if number >= count { Err(NotYet) } else { Ok(times.at(number)) }
    }

    /// What is under way, the longest first: since when, which, and how often it was submitted with this.
    fn under_way(&self) -> Vec<(u64, Key, u64)> {
        let tensors = self.tensors.under_way();
        let mut all: Vec<_> =
            tensors.map(|(key, one)| (one.times.last(), key, one.submitted)).collect();
        let (made, times) = self.calls.made();
        let oldest = self.calls.all_before();
        if oldest < made {
            let first_known = oldest.max(made.saturating_sub(TIMES as u64));
            all.push((times.at(first_known).unwrap_or(0), CALLS, oldest + 1));
        }
        all.extend(self.calls.named().map(|(key, one)| (one.at, key, one.count)));
        all.sort_unstable();
        all
    }

    fn called(&self, key: Key, count: u64) -> String {
        let name = self.tensors.name(key).or_else(|| self.calls.name(key)).map(str::to_owned);
        name.unwrap_or_else(|| self.calls.called(count - 1))
    }

    /// Frames that have come of calls which this rank has not begun: from whom, and of which.
    fn early(&self) -> Vec<(u32, String)> {
        let mut early: Vec<(u32, String)> = Vec::new();
        for (from, OperationName { key, .. }) in
            self.carrying.operations.early_names().take(MOST_EARLY)
        {
            let what = match key.number_of_call() {
                Some(number) => format!("frames of call {number}"),
                None if self.tensors.has(key) => continue,
                None => "frames of a call with another name".to_owned(),
            };
            if !early.contains(&(from, what.clone())) {
                early.push((from, what));
            }
        }
        early
    }

    /// What is known of something that waits for so long.
    fn warning(&self, (at, key, count): (u64, Key, u64)) -> Warning {
        let waited = |at: u64| Duration::from_nanos(self.clock.machine().saturating_sub(at));
        let missing = self.watch.missing(&self.group, key, count);
        let under_way = self.under_way();
        let others = under_way.iter().filter(|(at, ..)| waited(*at) >= self.watch.warn).count();
        let waits = |rank: &u32| Some((*rank, self.watch.waits_of(*rank)?.clone()));
        let instead: Vec<(u32, String)> = missing.iter().filter_map(waits).collect();
        let unknown = |(rank, _): &(u32, String)| instead.iter().all(|(other, _)| other != rank);
        Warning {
            tensor: self.called(key, count),
            is_call: !self.tensors.has(key),
            others: others.saturating_sub(1),
            seconds: seconds(waited(at)),
            waiting: self
                .group
                .peers
                .iter()
                .copied()
                .filter(|peer| !missing.contains(peer))
                .collect(),
            early: self.early().into_iter().filter(unknown).collect(),
            missing,
            instead,
            ends: seconds(self.watch.stalled),
        }
    }

    /// What waits, and for whom.
    pub(crate) fn waits_for(&self) -> Vec<WaitsFor> {
        let now = self.clock.machine();
        let one = |(at, key, count): (u64, Key, u64)| WaitsFor {
            tensor: self.called(key, count),
            since: now.saturating_sub(at),
            ranks: self.watch.missing(&self.group, key, count),
        };
        self.under_way().into_iter().map(one).collect()
    }

    /// Warns of what waits for long, and ends the job where it does for too long.
    pub(crate) fn check_stalls(&mut self) {
        if self.ending.is_over() || self.group.is_alone() {
            return;
        }
        let now = self.clock.machine();
        let waited = |at: u64| Duration::from_nanos(now.saturating_sub(at));
        let Some((at, key, count)) = self.under_way().first().copied() else { return };
        // An answer takes two signs of life, if nothing is in its way.
        let is_heard = self.calls.name(key).is_none() || self.watch.is_heard(&self.group, key);
        let patience = if is_heard { Duration::ZERO } else { 4 * self.watch.heartbeat };
        if waited(at) < self.watch.warn + patience {
            return;
        }
        let warning = self.warning((at, key, count));
        if waited(at) >= self.watch.stalled + patience {
            let Warning { tensor, seconds, missing, is_call, .. } = &warning;
            let who = warning.who();
            let what = match is_call {
                true => format!("`{tensor}` is not over after {seconds} s: {who}"),
                false => format!("tensor `{tensor}` is not exchanged after {seconds} s: {who}"),
            };
            let (kind, rank) = (FaultKind::Stalled, missing.first().copied());
            return self.end(Fault { kind, rank, tensor: Some(tensor.clone()), what });
        }
        if !self.watch.is_news(key, count) {
            return;
        }
        self.log.note(warning.to_string());
        self.watch.warn(warning);
        self.wakes.waiters = true;
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<Warning> {
        self.watch.take_warnings()
    }

    /// Of each peer that was heard.
    pub(crate) fn peer_reports(&self) -> Vec<PeerReport> {
        let name = |key: Key| self.tensors.name(key).unwrap_or("calls").to_owned();
        let report = |(rank, one): (u32, &Peer)| PeerReport {
            rank,
            offset: one.offset().map(|(_, ahead)| ahead),
            round_trip: one.offset().map(|(trip, _)| trip),
            later: one.later.iter().map(|(key, later)| (name(*key), *later)).collect(),
        };
        self.watch.peers().map(report).collect()
    }
}
