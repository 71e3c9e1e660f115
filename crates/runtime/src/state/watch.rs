//! What is known of peers: how far each is, what it waits for, and how its clock goes.
//!
//! Clocks are compared by the middle of round trips: a sign of life says when the last one of its receiver was heard.
//! Of the last [`TRIPS`] the quickest counts, as it was delayed the least.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use allrail_schedule::Key;

use super::calls::CALLS;
use super::group::Group;
use crate::clock::duration;
use crate::control::{MOST_PROGRESS, Progress, Sign};
use crate::settings::Settings;
use crate::warning::Warning;

/// Of how many round trips the quickest counts.
const TRIPS: usize = 64;
/// How many samples of lateness are kept of a peer.
const SAMPLES: usize = 256;
/// How much is remembered of what a peer has submitted and this rank has not yet.
const AHEAD: usize = MOST_PROGRESS;
/// How many warnings wait to be taken.
const MOST_WARNINGS: usize = 16;

/// What is known of a peer.
#[derive(Default)]
pub(super) struct Peer {
    counts: BTreeMap<Key, u64>,
    /// Round trips, and how far its clock is ahead by each.
    trips: VecDeque<(u64, i64)>,
    /// By how much it has submitted something later than this rank, the last times.
    pub(super) later: VecDeque<(Key, i64)>,
    /// What it has submitted and this rank has not.
    ahead: VecDeque<Progress>,
    /// Of calls with names, as its last sign told: how often it has begun them.
    named: BTreeMap<Key, u64>,
    /// What it waits for, in words.
    waits: Vec<String>,
}

impl Peer {
    /// The quickest round trip, and by how much its clock is ahead.
    pub(super) fn offset(&self) -> Option<(u64, i64)> {
        self.trips.iter().min().copied()
    }

    /// Takes in the times of a sign of life, which came at this time of the machine's clock.
    pub(super) fn hear_times(&mut self, sign: &Sign, came: u64) {
        if sign.echo == 0 {
            return;
        }
        let signed = |from: u64, to: u64| i128::from(to) - i128::from(from);
        let trip = signed(sign.echo, came) - signed(sign.heard, sign.sent);
        let ahead = i128::midpoint(signed(sign.echo, sign.heard), signed(came, sign.sent));
        if let (Ok(trip), Ok(ahead)) = (u64::try_from(trip), i64::try_from(ahead)) {
            push_bounded(&mut self.trips, TRIPS, (trip, ahead));
        }
    }

    /// Takes in how far it is with what this rank knows, and, where calls have names, with others: of these only
    /// the last is kept, as a peer shall not fill this rank's memory.
    pub(super) fn hear_counts(&mut self, sign: &Sign, names: bool, is_known: impl Fn(Key) -> bool) {
        let (counts, named): (Vec<&Progress>, Vec<&Progress>) =
            sign.progress.iter().partition(|one| is_known(one.key));
        self.counts.extend(counts.iter().map(|one| (one.key, one.count)));
        if names {
            self.named = named.into_iter().map(|one| (one.key, one.count)).collect();
        }
    }

    /// Compares when it has submitted what the sign tells of with when this rank has: none of what is long ago.
    pub(super) fn compare(
        &mut self,
        sign: &Sign,
        submitted_at: impl Fn(Key, u64) -> Result<Option<u64>, NotYet>,
    ) {
        let Some((_, ahead)) = self.offset() else { return };
        let fresh = sign.progress.iter().filter(|one| one.count > 0).copied();
        let older = std::mem::take(&mut self.ahead);
        for one in older.into_iter().chain(fresh) {
            match submitted_at(one.key, one.count - 1) {
                Ok(Some(mine)) => {
                    let theirs = i128::from(one.at) - i128::from(ahead);
                    let later = i64::try_from(theirs - i128::from(mine)).unwrap_or(i64::MAX);
                    // Told twice, if nothing has happened since.
                    if self.later.iter().rev().take(MOST_PROGRESS).all(|(_, at)| *at != later) {
                        push_bounded(&mut self.later, SAMPLES, (one.key, later));
                    }
                }
                Ok(None) => {}
                Err(NotYet) => push_bounded(&mut self.ahead, AHEAD, one),
            }
        }
    }
}

/// This rank has not come to it.
pub(super) struct NotYet;

/// What this rank knows of its peers, and has told them.
pub(super) struct Watch {
    pub(super) warn: Duration,
    pub(super) stalled: Duration,
    pub(super) heartbeat: Duration,
    peers: BTreeMap<u32, Peer>,
    /// The first key that the next sign of life tells of.
    pub(super) turn: Key,
    warned: Option<(Key, u64)>,
    warnings: VecDeque<Warning>,
    /// Whether peers were told that this rank waits.
    told_waits: bool,
}

impl Watch {
    pub(super) fn new(settings: &Settings) -> Self {
        let (warn, stalled) = (settings.timeouts.warn, settings.timeouts.stalled);
        Self {
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

    /// The peers that were heard, by rank.
    pub(super) fn peers(&self) -> impl Iterator<Item = (u32, &Peer)> + '_ {
        self.peers.iter().map(|(rank, one)| (*rank, one))
    }

    /// A peer, heard or not.
    pub(super) fn peer(&mut self, rank: u32) -> &mut Peer {
        self.peers.entry(rank).or_default()
    }

    /// The calls with names that peers' last signs of life have told of.
    pub(super) fn named(&self) -> impl Iterator<Item = Key> + '_ {
        self.peers.values().flat_map(|peer| peer.named.keys().copied())
    }

    /// What a peer waits for.
    pub(super) fn hear_waits(&mut self, peer: u32, waits: Vec<String>) {
        self.peer(peer).waits = waits;
    }

    /// What a peer waits for the longest, in words, as far as it has said so.
    pub(super) fn waits_of(&self, rank: u32) -> Option<&String> {
        self.peers.get(&rank)?.waits.first()
    }

    /// Whether peers are told what this rank waits for, if that is anything: not where they know already that it is
    /// nothing.
    pub(super) fn tells_waits(&mut self, waits: bool) -> bool {
        let told = std::mem::replace(&mut self.told_waits, waits);
        waits || told
    }

    /// Who has not submitted something so often, as far as is known.
    pub(super) fn missing(&self, group: &Group, key: Key, count: u64) -> Vec<u32> {
        let late = |peer: &u32| {
            let known = self.peers.get(peer);
            let known = known.and_then(|one| one.counts.get(&key).or(one.named.get(&key)));
            known.is_none_or(|known| *known < count)
        };
        group.others().filter(late).collect()
    }

    /// Whether every peer was heard of a call with this name.
    pub(super) fn is_heard(&self, group: &Group, key: Key) -> bool {
        let heard = |peer| self.peers.get(&peer).is_some_and(|one| one.named.contains_key(&key));
        group.others().all(heard)
    }

    /// Something is warned of; whether that is news.
    pub(super) fn is_news(&mut self, key: Key, count: u64) -> bool {
        self.warned.replace((key, count)) != Some((key, count))
    }

    pub(super) fn warn(&mut self, warning: Warning) {
        push_bounded(&mut self.warnings, MOST_WARNINGS, warning);
    }

    pub(super) fn take_warnings(&mut self) -> Vec<Warning> {
        self.warnings.drain(..).collect()
    }
}

fn push_bounded<T>(list: &mut VecDeque<T>, most: usize, one: T) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(one);
}
