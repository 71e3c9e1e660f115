//! How far the ranks are: what this one tells others with each sign of life, and what follows from what it hears.
//!
//! A sign of life has the counts and times of some tensors, in turn, so that all are told within 16 of them. From
//! these it is known who has not submitted what others wait for (a [`Warning`] at `timeouts.warn`, the end at
//! `timeouts.stalled`), and how much later than this rank a peer is. Nothing waits for it.
//!
//! Of calls with names a sign tells those that are under way for a while; that asks its receiver, whose next signs
//! say how often it has begun those. What a rank waits for, in words, goes along once it does so for two signs of
//! life: whoever misses it learns what it does instead.
//!
//! Clocks are compared by the middle of round trips: a sign says when the last one of its receiver was heard. Of
//! the last [`TRIPS`] the quickest counts, as it was delayed the least.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use allrail_schedule::{Key, OperationName};

use super::{CALLS, State};
use crate::clock::duration;
use crate::control::{MOST_PROGRESS, Progress, Sign};
use crate::report::{PeerReport, WaitsFor};
use crate::warning::{Warning, seconds};
use crate::{Fault, FaultKind, Settings};

/// Of how many submissions the times are kept: what is heard of is a heartbeat old.
const TIMES: usize = 32;
/// Of how many round trips the quickest counts.
const TRIPS: usize = 64;
/// How many samples of lateness are kept of a peer.
const SAMPLES: usize = 256;
/// How much is remembered of what a peer has submitted and this rank has not yet.
const AHEAD: usize = MOST_PROGRESS;
/// A sign of life tells of so many tensors, or of a sixteenth of all.
const TOLD: usize = 64;
/// Of so many calls with names a sign tells, and of up to four times as many that peers have asked about.
const NAMED: usize = 64;
/// How much of what it waits for a rank says in words.
const MOST_WAITS: usize = 4;
/// How many frames that have come too early are looked at.
const MOST_EARLY: usize = 64;
/// How many warnings wait to be taken.
const MOST_WARNINGS: usize = 16;

/// When something was submitted, the last times, in nanoseconds of the machine's clock.
#[derive(Default)]
pub(super) struct Times {
    count: u64,
    ring: [u64; TIMES],
}

impl Times {
    pub(super) fn push(&mut self, at: u64) {
        self.ring[self.count as usize % TIMES] = at;
        self.count += 1;
    }

    /// The last was none.
    pub(super) fn pop(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Of the n-th from 0, if it is among the last.
    fn of(&self, number: u64) -> Option<u64> {
        let kept = number < self.count && number + TIMES as u64 >= self.count;
        kept.then(|| self.ring[number as usize % TIMES])
    }

    fn last(&self) -> u64 {
        self.count.checked_sub(1).and_then(|number| self.of(number)).unwrap_or(0)
    }
}

/// What is known of a peer.
#[derive(Default)]
struct Peer {
    counts: BTreeMap<Key, u64>,
    /// Round trips, and how far its clock is ahead by each.
    trips: VecDeque<(u64, i64)>,
    later: VecDeque<(Key, i64)>,
    ahead: VecDeque<Progress>,
    /// Of calls with names, as its last sign told: how often it has begun them.
    named: BTreeMap<Key, u64>,
    /// What it waits for, in words.
    waits: Vec<String>,
}

impl Peer {
    fn offset(&self) -> Option<(u64, i64)> {
        self.trips.iter().min().copied()
    }
}

/// See the module.
pub(super) struct Watch {
    rank: u32,
    warn: Duration,
    stalled: Duration,
    heartbeat: Duration,
    peers: BTreeMap<u32, Peer>,
    /// The first key that the next sign of life tells of.
    turn: Key,
    warned: Option<(Key, u64)>,
    warnings: VecDeque<Warning>,
    /// Whether peers were told that this rank waits.
    told_waits: bool,
}

impl Watch {
    pub(super) fn new(settings: &Settings, rank: u32) -> Self {
        let (warn, stalled) = (settings.timeouts.warn, settings.timeouts.stalled);
        Self {
            rank,
            warn: duration(warn),
            stalled: duration(stalled),
            heartbeat: duration(settings.timeouts.heartbeat),
            peers: BTreeMap::new(),
            turn: CALLS,
            warned: None,
            warnings: VecDeque::new(),
            told_waits: false,
        }
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, most: usize, one: T) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(one);
}

impl State {
    /// How far this rank is with the tensors whose turn it is.
    pub(crate) fn next_progress(&mut self) -> Vec<Progress> {
        let (made, times) = self.calls.made();
        let calls = Progress { key: CALLS, count: made, at: times.last() };
        let most = TOLD.max(self.tensors.len() / 16 + 1).min(MOST_PROGRESS - 1);
        let (after, before) =
            (self.tensors.range(self.watch.turn..), self.tensors.range(..self.watch.turn));
        let mut turn = after.chain(before);
        let tensors = turn.by_ref().take(most);
        let told = tensors.map(|(key, one)| Progress {
            key: *key,
            count: one.submitted,
            at: one.times.last(),
        });
        let mut all: Vec<Progress> = std::iter::once(calls).chain(told).collect();
        self.watch.turn = turn.next().map_or(CALLS, |(key, _)| *key);
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
        for key in self.watch.peers.values().flat_map(|peer| peer.named.keys()) {
            if told.len() >= 4 * NAMED {
                break;
            }
            let count = self.engine.begun(*key).unwrap_or(0);
            told.entry(*key).or_insert(Progress { key: *key, count, at: 0 });
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
        let tells = !all.is_empty() || self.watch.told_waits;
        self.watch.told_waits = !all.is_empty();
        tells.then_some(all)
    }

    /// What a peer waits for.
    pub(crate) fn heard_waits(&mut self, peer: u32, waits: Vec<String>) {
        self.watch.peers.entry(peer).or_default().waits = waits;
    }

    /// A peer has given a sign of life, which came at this time of the machine's clock.
    pub(crate) fn heard_sign(&mut self, peer: u32, sign: &Sign, came: u64) {
        let mut known = self.watch.peers.remove(&peer).unwrap_or_default();
        if sign.echo > 0 {
            let signed = |from: u64, to: u64| i128::from(to) - i128::from(from);
            let trip = signed(sign.echo, came) - signed(sign.heard, sign.sent);
            let ahead = i128::midpoint(signed(sign.echo, sign.heard), signed(came, sign.sent));
            if let (Ok(trip), Ok(ahead)) = (u64::try_from(trip), i64::try_from(ahead)) {
                push_bounded(&mut known.trips, TRIPS, (trip, ahead));
            }
        }
        // Of others only the last is kept: a peer shall not fill this rank's memory.
        let is_known = |key: &Key| *key == CALLS || self.tensors.contains_key(key);
        let (counts, named): (Vec<&Progress>, Vec<&Progress>) =
            sign.progress.iter().partition(|one| is_known(&one.key));
        known.counts.extend(counts.iter().map(|one| (one.key, one.count)));
        if self.engine.settings().named_calls {
            known.named = named.into_iter().map(|one| (one.key, one.count)).collect();
        }
        if let Some((_, ahead)) = known.offset() {
            let fresh = sign.progress.iter().filter(|one| one.count > 0).copied();
            let older = std::mem::take(&mut known.ahead);
            for one in older.into_iter().chain(fresh) {
                match self.submitted_at(one.key, one.count - 1) {
                    Ok(Some(mine)) => {
                        let theirs = i128::from(one.at) - i128::from(ahead);
                        let later = i64::try_from(theirs - i128::from(mine)).unwrap_or(i64::MAX);
                        // Told twice, if nothing has happened since.
                        if known.later.iter().rev().take(MOST_PROGRESS).all(|(_, at)| *at != later)
                        {
                            push_bounded(&mut known.later, SAMPLES, (one.key, later));
                        }
                    }
                    Ok(None) => {}
                    Err(NotYet) => push_bounded(&mut known.ahead, AHEAD, one),
                }
            }
        }
        self.watch.peers.insert(peer, known);
    }

    /// When this rank has submitted something; none if that is long ago, or nobody knows of what it is.
    fn submitted_at(&self, key: Key, number: u64) -> Result<Option<u64>, NotYet> {
        let (count, times) = match self.tensors.get(&key) {
            Some(tensor) => (tensor.submitted, &tensor.times),
            None if key == CALLS => self.calls.made(),
            None => return Ok(None),
        };
        if number >= count { Err(NotYet) } else { Ok(times.of(number)) }
    }

    /// What is under way, the longest first: since when, which, and how often it was submitted with this.
    fn under_way(&self) -> Vec<(u64, Key, u64)> {
        let tensors = self.tensors.iter().filter(|(_, one)| one.submitted > one.done);
        let mut all: Vec<_> =
            tensors.map(|(key, one)| (one.times.last(), *key, one.submitted)).collect();
        let (made, times) = self.calls.made();
        let oldest = self.calls.all_before();
        if oldest < made {
            let first_known = oldest.max(made.saturating_sub(TIMES as u64));
            all.push((times.of(first_known).unwrap_or(0), CALLS, oldest + 1));
        }
        all.extend(self.calls.named().map(|(key, one)| (one.at, key, one.count)));
        all.sort_unstable();
        all
    }

    /// Who has not submitted something so often, as far as is known.
    fn missing(&self, key: Key, count: u64) -> Vec<u32> {
        let late = |peer: &u32| {
            let known = self.watch.peers.get(peer);
            let known = known.and_then(|one| one.counts.get(&key).or(one.named.get(&key)));
            known.is_none_or(|known| *known < count)
        };
        let others = self.peers.iter().filter(|peer| **peer != self.watch.rank);
        others.filter(|peer| late(peer)).copied().collect()
    }

    fn called(&self, key: Key, count: u64) -> String {
        let tensor = self.tensors.get(&key).map(|one| one.name.as_str());
        let name = tensor.or_else(|| self.calls.name(key)).map(str::to_owned);
        name.unwrap_or_else(|| self.calls.called(count - 1))
    }

    /// Whether some peer has not been heard of a call with this name since it was asked.
    fn is_unheard(&self, key: Key) -> bool {
        let heard = |peer: &u32| {
            *peer == self.watch.rank
                || self.watch.peers.get(peer).is_some_and(|one| one.named.contains_key(&key))
        };
        self.calls.name(key).is_some() && !self.peers.iter().all(heard)
    }

    /// Frames that have come of calls which this rank has not begun: from whom, and of which.
    fn early(&self) -> Vec<(u32, String)> {
        let mut early: Vec<(u32, String)> = Vec::new();
        for (from, OperationName { key, .. }) in self.operations.early_names().take(MOST_EARLY) {
            let what = match key.number_of_call() {
                Some(number) => format!("frames of call {number}"),
                None if self.tensors.contains_key(&key) => continue,
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
        let missing = self.missing(key, count);
        let under_way = self.under_way();
        let others = under_way.iter().filter(|(at, ..)| waited(*at) >= self.watch.warn).count();
        let waits = |rank: &u32| Some((*rank, self.watch.peers.get(rank)?.waits.first()?.clone()));
        let instead: Vec<(u32, String)> = missing.iter().filter_map(waits).collect();
        let unknown = |(rank, _): &(u32, String)| instead.iter().all(|(other, _)| other != rank);
        Warning {
            tensor: self.called(key, count),
            is_call: !self.tensors.contains_key(&key),
            others: others.saturating_sub(1),
            seconds: seconds(waited(at)),
            waiting: self.peers.iter().copied().filter(|peer| !missing.contains(peer)).collect(),
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
            ranks: self.missing(key, count),
        };
        self.under_way().into_iter().map(one).collect()
    }

    /// Warns of what waits for long, and ends the job where it does for too long.
    pub(crate) fn check_stalls(&mut self) {
        if self.fault.is_some() || self.peers.len() == 1 {
            return;
        }
        let now = self.clock.machine();
        let waited = |at: u64| Duration::from_nanos(now.saturating_sub(at));
        let Some((at, key, count)) = self.under_way().first().copied() else { return };
        // An answer takes two signs of life, if nothing is in its way.
        let patience = if self.is_unheard(key) { 4 * self.watch.heartbeat } else { Duration::ZERO };
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
        if self.watch.warned.replace((key, count)) == Some((key, count)) {
            return;
        }
        self.note(warning.to_string());
        push_bounded(&mut self.watch.warnings, MOST_WARNINGS, warning);
        self.wakes.waiters = true;
    }

    pub(crate) fn take_warnings(&mut self) -> Vec<Warning> {
        self.watch.warnings.drain(..).collect()
    }

    /// Of each peer that was heard.
    pub(crate) fn peer_reports(&self) -> Vec<PeerReport> {
        let name = |key: &Key| self.tensors.get(key).map_or("calls", |one| one.name.as_str());
        let report = |(rank, one): (&u32, &Peer)| PeerReport {
            rank: *rank,
            offset: one.offset().map(|(_, ahead)| ahead),
            round_trip: one.offset().map(|(trip, _)| trip),
            later: one.later.iter().map(|(key, later)| (name(key).to_owned(), *later)).collect(),
        };
        self.watch.peers.iter().map(report).collect()
    }
}

/// This rank has not come to it.
struct NotYet;
