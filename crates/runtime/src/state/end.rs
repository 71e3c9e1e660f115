//! How a job ends on this rank: what a peer did or says, who is lost or has left, and the words that all ranks
//! have for it.

use std::collections::BTreeMap;
use std::time::Instant;

use allrail_coordinate::{Cause, Payload};
use allrail_engine::Broken;
use allrail_engine::engine::{Event, Stopped};
use allrail_schedule::Key;

use super::State;
use super::calls::CALLS;
use super::elsewhere::Elsewhere;
use super::group::Group;
use crate::control::BadWord;
use crate::error::{Fault, FaultKind};
use crate::frame::BadFrame;
use crate::port::link::Damage;

impl State {
    /// A peer's coordinator has spoken.
    pub(crate) fn hear(&mut self, peer: u32, epoch: u32, payload: Payload) {
        let Some(from) = self.group.place_of(peer) else { return };
        if self.talk.is_full() {
            let how = "it says too much before this rank has started";
            return self.lose(peer, FaultKind::BadFrame, how);
        }
        self.tell_when_started(Event::Frame { from, epoch, payload });
    }

    fn tell_when_started(&mut self, event: Event) {
        // A call may wait until peers have said whether its name is forgotten.
        self.wakes.waiters |= self.engine.settings().named_calls;
        if !self.talk.has_started() {
            self.talk.hold(event);
            return;
        }
        let from = match event {
            Event::Frame { from, .. } => self.group.rank_at(from),
            _ => None,
        };
        match (self.tell(event), from) {
            (Err(broken @ Broken::NoCoordination { .. }), Some(peer)) => {
                self.misspoke(peer, &broken);
            }
            (Err(broken), Some(_)) if !self.ending.is_over() => self.log.note(broken.to_string()),
            _ => {}
        }
    }

    /// What a peer says cannot be understood: all ranks end with that, whoever has heard it.
    pub(crate) fn misspoke(&mut self, peer: u32, why: &dyn std::fmt::Display) {
        self.log.note(format!("what rank {peer} says cannot be understood: {why}"));
        let what = format!("what rank {peer} says cannot be understood");
        self.end(Fault { kind: FaultKind::BadFrame, rank: Some(peer), tensor: None, what });
    }

    /// A data connection is broken. If its rank has left or died, its control connection says so at once.
    pub(crate) fn suspect(&mut self, peer: u32, how: String) {
        self.wakes.control |= self.ending.suspect(peer, how);
    }

    /// Gives up whoever is suspected for too long; when to come back for the others.
    pub(crate) fn check_suspects(&mut self) -> Option<Instant> {
        let now = Instant::now();
        while let Some((peer, how)) = self.ending.take_suspect(now) {
            if !self.has_left(peer) {
                let how = format!("a data connection to it has ended: {how}");
                self.lose(peer, FaultKind::Link, &how);
            }
        }
        self.ending.next_suspect()
    }

    /// What has come is no frame, and nobody knows where the next begins; or its elements are not what was
    /// sent. `key` is that of its header, where that was whole.
    pub(crate) fn bad_frame(&mut self, peer: u32, key: Option<Key>, bad: &BadFrame) {
        let (kind, how) = match bad.is_damage() {
            true => (FaultKind::Damaged, "damaged"),
            false => (FaultKind::BadFrame, "malformed"),
        };
        let what = format!("a frame from rank {peer} to rank {} is {how}: {bad}", self.group.rank);
        let named = key.and_then(|key| self.tensors.name(key)).map(str::to_owned);
        let tensor = named.or_else(|| self.tensors.waited_for());
        self.end(Fault { kind, rank: Some(peer), tensor, what });
    }

    /// A session of TLS has found that what came is not what was sent; both sides say so in the same words.
    pub(crate) fn damaged(&mut self, peer: u32, whose: Damage) {
        let (from, to) = match whose {
            Damage::Came => (peer, self.group.rank),
            Damage::Sent => (self.group.rank, peer),
        };
        let what = format!("what rank {from} has sent to rank {to} over TLS is damaged");
        self.end(Fault { kind: FaultKind::Damaged, rank: Some(from), tensor: None, what });
    }

    /// What a peer says on its control connection is not what it has sent, or is no word.
    pub(crate) fn bad_word(&mut self, peer: u32, bad: &BadWord) {
        let (kind, how, why) = match bad {
            BadWord::Damaged(why) => (FaultKind::Damaged, "damaged", why),
            BadWord::Malformed(why) => (FaultKind::BadFrame, "malformed", why),
        };
        let me = self.group.rank;
        let what = format!("a control message from rank {peer} to rank {me} is {how}: {why}");
        self.end(Fault { kind, rank: Some(peer), tensor: None, what });
    }

    /// A peer is not there any more, or is as good as gone.
    pub(crate) fn lose(&mut self, peer: u32, kind: FaultKind, how: &str) {
        let what = format!("rank {peer} is lost: {how}");
        self.end(Fault { kind, rank: Some(peer), tensor: self.tensors.waited_for(), what });
    }

    /// Ends the job on this rank, for a reason that is known by words.
    pub(crate) fn end(&mut self, fault: Fault) {
        if self.ending.is_over() || self.ending.cause.is_some() {
            return;
        }
        let lost = fault.rank.filter(|rank| *rank != self.group.rank);
        let misspoke = matches!(fault.kind, FaultKind::BadFrame | FaultKind::Damaged);
        self.ending.cause = Some(fault);
        let event = match lost.and_then(|rank| self.group.place_of(rank)) {
            Some(from) if misspoke => Event::Misspoke { from },
            Some(rank) => Event::PeerLost { rank },
            None => Event::Shutdown,
        };
        let told = self.tell(event);
        if (told.is_err() || !self.ending.is_over())
            && let Some(fault) = self.ending.cause.take()
        {
            // It has not begun, or was over; or it asks others first, and they hear it from this rank.
            self.stop(fault);
        }
    }

    pub(super) fn stop(&mut self, fault: Fault) {
        self.ending.fault = Some(fault);
        self.elsewhere.iter_mut().for_each(Elsewhere::clear);
        self.ports.clear().for_each(|port| self.wakes.port(port));
        (self.wakes.control, self.wakes.waiters) = (true, true);
    }

    /// The engine has stopped.
    pub(super) fn stopped(&mut self, stopped: &Stopped) {
        if self.ending.is_over() {
            return;
        }
        let cause = self.ending.cause.take();
        let fault = cause.unwrap_or_else(|| fault_of(&self.group, &stopped.error));
        self.stop(fault);
    }

    /// A peer has closed its node, after so many exchanges of each tensor.
    pub(crate) fn peer_left(&mut self, peer: u32, done: BTreeMap<Key, u64>) {
        self.ending.leave(peer, done);
        if let Some(rank) = self.group.place_of(peer) {
            self.tell_when_started(Event::PeerLeft { rank });
        }
        let submitted: Vec<(Key, u64)> =
            self.tensors.under_way().map(|(key, one)| (key, one.submitted)).collect();
        for (key, count) in submitted {
            self.check_left(key, count);
        }
        self.check_calls_left();
    }

    /// Whether everyone whom the `count`-th exchange of a tensor needs is there.
    pub(super) fn check_left(&mut self, key: Key, count: u64) {
        if let Some(peer) = self.ending.gone_before(&self.group, key, count) {
            let name = self.tensors.name(key).or_else(|| self.calls.name(key));
            let name = name.unwrap_or_default().to_owned();
            let what = format!(
                "rank {peer} has closed its node, and exchange {count} of tensor `{name}` needs it"
            );
            self.end(Fault { kind: FaultKind::Left, rank: Some(peer), tensor: Some(name), what });
        }
    }

    /// Whether everyone whom the calls under way need is there.
    pub(super) fn check_calls_left(&mut self) {
        let named: Vec<(Key, u64)> =
            self.calls.named().map(|(key, one)| (key, one.count)).collect();
        named.into_iter().for_each(|(key, count)| self.check_left(key, count));
        let Some(newest) = self.calls.newest() else { return };
        if let Some(peer) = self.ending.gone_before(&self.group, CALLS, newest + 1) {
            let what = format!("rank {peer} has closed its node, and call {newest} needs it");
            self.end(Fault { kind: FaultKind::Left, rank: Some(peer), tensor: None, what });
        }
    }

    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.ending.fault.as_ref()
    }

    /// Ranks that have left for good.
    pub(crate) fn has_left(&self, peer: u32) -> bool {
        self.ending.has_left(peer)
    }

    /// The caller is done with this node.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        if !self.ending.is_over() {
            let what = "this node was closed".to_owned();
            self.stop(Fault { kind: FaultKind::Closed, rank: None, tensor: None, what });
        }
        self.wakes.ports = u64::MAX;
        (self.wakes.control, self.wakes.waiters) = (true, true);
    }
}

/// In the words of the engine, where nobody else has any. It counts places of the group.
fn fault_of(group: &Group, error: &Broken) -> Fault {
    let rank_of = |place: &u32| group.rank_at(*place);
    let (kind, rank, tensor) = match error {
        Broken::Fault(Cause::Lost { rank }) => (FaultKind::Died, rank_of(rank), None),
        Broken::Fault(Cause::Failed { by, about, .. }) => {
            (FaultKind::Stopped, rank_of(by), about.tensor.clone())
        }
        Broken::Fault(Cause::Frame { from, about, .. }) => {
            (FaultKind::BadFrame, rank_of(from), about.tensor.clone())
        }
        // Its words name what it is about.
        Broken::Fault(Cause::Differs { .. }) => (FaultKind::Differs, None, None),
        Broken::Fault(Cause::Word { from }) => (FaultKind::BadFrame, rank_of(from), None),
        Broken::Fault(Cause::Mismatch { tensor, .. }) => {
            (FaultKind::Differs, None, Some(tensor.clone()))
        }
        Broken::Fault(Cause::Rank { by, .. }) => (FaultKind::Stopped, rank_of(by), None),
        Broken::Silent { ranks, .. } => (FaultKind::Silent, ranks.first().and_then(rank_of), None),
        Broken::Stalled { name, missing } => {
            (FaultKind::Stopped, missing.first().and_then(rank_of), Some(name.clone()))
        }
        _ => (FaultKind::Stopped, None, None),
    };
    Fault { kind, rank, tensor, what: error.to_string() }
}
