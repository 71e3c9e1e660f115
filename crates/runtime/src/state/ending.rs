//! Who is not there any more, who may not be, and why the job ends.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use allrail_schedule::Key;

use super::group::Group;
use crate::error::Fault;

/// How long after a broken data connection the control connection is waited for.
const GRACE: Duration = Duration::from_millis(200);

/// How a job comes to its end on this rank.
#[derive(Default)]
pub(super) struct Ending {
    /// Why the job ends, where that is known before the engine says so.
    pub(super) cause: Option<Fault>,
    pub(super) fault: Option<Fault>,
    /// Peers that have closed their node, with how often each tensor was exchanged there.
    left: BTreeMap<u32, BTreeMap<Key, u64>>,
    /// Peers with a broken data connection: why, and when they are given up if nothing else is heard.
    suspects: BTreeMap<u32, (Instant, String)>,
}

impl Ending {
    pub(super) fn is_over(&self) -> bool {
        self.fault.is_some()
    }

    /// A peer has closed its node, after so many exchanges of each tensor.
    pub(super) fn leave(&mut self, peer: u32, done: BTreeMap<Key, u64>) {
        self.left.insert(peer, done);
    }

    pub(super) fn has_left(&self, peer: u32) -> bool {
        self.left.contains_key(&peer)
    }

    pub(super) fn has_anybody_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// A rank of the group that has left before the `count`-th exchange of a tensor.
    pub(super) fn gone_before(&self, group: &Group, key: Key, count: u64) -> Option<u32> {
        let short = |done: &BTreeMap<Key, u64>| done.get(&key).is_none_or(|done| *done < count);
        let gone = self.left.iter().find(|(peer, done)| group.has(**peer) && short(done));
        gone.map(|(peer, _)| *peer)
    }

    /// A data connection is broken; whether that is news.
    pub(super) fn suspect(&mut self, peer: u32, how: String) -> bool {
        let is_news = !self.is_over() && !self.has_left(peer);
        if is_news {
            self.suspects.entry(peer).or_insert((Instant::now() + GRACE, how));
        }
        is_news
    }

    /// A peer that was suspected for long enough, and why.
    pub(super) fn take_suspect(&mut self, now: Instant) -> Option<(u32, String)> {
        let (peer, _) = self.suspects.iter().find(|(_, (until, _))| *until <= now)?;
        let peer = *peer;
        self.suspects.remove(&peer).map(|(_, how)| (peer, how))
    }

    /// When the next one is given up.
    pub(super) fn next_suspect(&self) -> Option<Instant> {
        self.suspects.values().map(|(until, _)| *until).min()
    }
}
