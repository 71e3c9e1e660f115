//! How far the ranks are: what this one tells others with each sign of life, and what follows from what it hears.
//!
//! A sign of life has the counts and times of some tensors, in turn, so that all are told within 16 of them. From
//! these it is known who has not submitted what others wait for (a [`Warning`] at `timeouts.warn`, the end at
//! `timeouts.stalled`), and how much later than this rank a peer is. Nothing is asked and nothing waits for it.
//!
//! Clocks are compared by the middle of round trips: a sign says when the last one of its receiver was heard. Of
//! the last [`TRIPS`] the quickest counts, as it was delayed the least.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use allrail_schedule::Key;

use super::{CALLS, State};
use crate::clock::duration;
use crate::control::{MOST_PROGRESS, Progress, Sign};
use crate::report::{PeerReport, WaitsFor};
use crate::warning::{Warning, ranks, seconds};
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
    peers: BTreeMap<u32, Peer>,
    /// The first key that the next sign of life tells of.
    turn: Key,
    warned: Option<(Key, u64)>,
    warnings: VecDeque<Warning>,
}

impl Watch {
    pub(super) fn new(settings: &Settings, rank: u32) -> Self {
        let (warn, stalled) = (settings.timeouts.warn, settings.timeouts.stalled);
        Self {
            rank,
            warn: duration(warn),
            stalled: duration(stalled),
            peers: BTreeMap::new(),
            turn: CALLS,
            warned: None,
            warnings: VecDeque::new(),
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
        let all = std::iter::once(calls).chain(told).collect();
        self.watch.turn = turn.next().map_or(CALLS, |(key, _)| *key);
        all
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
        // Of others nothing is kept: a peer shall not fill this rank's memory.
        let is_known = |key: &Key| *key == CALLS || self.tensors.contains_key(key);
        let counts = sign.progress.iter().filter(|one| is_known(&one.key));
        known.counts.extend(counts.map(|one| (one.key, one.count)));
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
        all.sort_unstable();
        all
    }

    /// Who has not submitted something so often, as far as is known.
    fn missing(&self, key: Key, count: u64) -> Vec<u32> {
        let late = |peer: &u32| {
            let known = self.watch.peers.get(peer).and_then(|one| one.counts.get(&key));
            known.is_none_or(|known| *known < count)
        };
        let others = self.peers.iter().filter(|peer| **peer != self.watch.rank);
        others.filter(|peer| late(peer)).copied().collect()
    }

    fn called(&self, key: Key, count: u64) -> String {
        let call = || format!("call {}", count - 1);
        self.tensors.get(&key).map_or_else(call, |one| one.name.clone())
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
        let under_way = self.under_way();
        let Some((at, key, count)) = under_way.first().copied() else { return };
        if waited(at) < self.watch.warn {
            return;
        }
        let (tensor, missing) = (self.called(key, count), self.missing(key, count));
        if waited(at) >= self.watch.stalled {
            let after = seconds(waited(at));
            let who = match missing.as_slice() {
                [] => "all ranks have submitted it".to_owned(),
                some => format!("{} did not submit it", ranks(some)),
            };
            let what = format!("tensor `{tensor}` is not exchanged after {after} s: {who}");
            let (kind, rank) = (FaultKind::Stalled, missing.first().copied());
            return self.end(Fault { kind, rank, tensor: Some(tensor), what });
        }
        if self.watch.warned.replace((key, count)) == Some((key, count)) {
            return;
        }
        let others = under_way.iter().filter(|(at, ..)| waited(*at) >= self.watch.warn).count() - 1;
        let waiting = self.peers.iter().copied().filter(|peer| !missing.contains(peer)).collect();
        let ends = seconds(self.watch.stalled);
        let seconds = seconds(waited(at));
        let warning = Warning { tensor, others, seconds, missing, waiting, ends };
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
