//! What a node knows, behind its one lock: the engine, the operations under way, the tensors, and what waits
//! to be sent, combined or said.
//!
//! Threads come with what has happened, and leave with what is to be done: the names of sends wait in a heap
//! for every peer, frames that may be combined in a list for every port. Bytes are touched outside of the
//! lock. Whoever changes something asks [`State::take_wakes`] in the end whom it has work for, and wakes
//! them once it has given the lock back.

mod calls;
mod carry;
mod elsewhere;
mod intake;
mod outgoing;
mod progress;
mod tensors;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use allrail_collective::StageRef;
use allrail_core::Bytes;
use allrail_engine::engine::{Action, Engine, Event};
use allrail_engine::{Broken, CollectiveId, Dtype, Operations, Ordering, SignatureHash};
use allrail_schedule::coordinate::Payload;
use allrail_schedule::{Key, OperationName};

pub(crate) use self::elsewhere::Elsewhere;
pub(crate) use self::intake::{Intake, Kept};
pub(crate) use self::outgoing::{Frame, Sending};

use self::calls::Calls;
use self::intake::Arrivals;
use self::outgoing::Heap;
use self::progress::Watch;
use self::tensors::{Completions, Tensor};
use crate::clock::Clock;
use crate::control::BadWord;
use crate::frame::BadFrame;
use crate::memory::{Buffer, InUse};
use crate::port::link::Damage;
use crate::record::{Ring, What};
use crate::timeline::Timeline;
use crate::{Fault, FaultKind, Settings};

/// How long after a broken data connection the control connection is waited for.
const GRACE: Duration = Duration::from_millis(200);

/// How many words of coordinators are kept until the job begins here.
const MOST_HELD: usize = 4096;

/// In the last word of a rank: how many calls are over there. No tensor has this key.
const CALLS: Key = Key(0);

/// How many notes are kept.
const MOST_NOTES: usize = 256;

/// A stage that was launched.
type Launch = (OperationName, StageRef);

/// An operation under way.
struct Live {
    id: CollectiveId,
    dtype: Dtype,
    buffer: Buffer,
    priority: i64,
    signature: SignatureHash,
}

/// Who has something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    /// A bit for each port.
    pub(crate) ports: u64,
    pub(crate) control: bool,
    pub(crate) waiters: bool,
}

/// What a port has to do.
#[derive(Default)]
struct Port {
    /// By peer: what is to be sent.
    heaps: BTreeMap<u32, Heap>,
    /// Peers for which something has come into an empty heap.
    fresh: Vec<u32>,
    /// Frames that have come whole and may be combined now.
    combines: VecDeque<usize>,
    /// The stage that has it.
    taken: Option<Launch>,
    /// Whether its thread may still touch memory.
    running: bool,
}

/// See the module.
pub(crate) struct State {
    pub(crate) engine: Engine,
    clock: Clock,
    rank: u32,
    /// By place in the group: ranks of the fabric.
    peers: Vec<u32>,
    operations: Operations<usize>,
    live: BTreeMap<OperationName, Live>,
    named: BTreeMap<CollectiveId, OperationName>,
    running: BTreeMap<Launch, u32>,
    ports: Vec<Port>,
    arrivals: Arrivals,
    sequence: u64,
    tensors: BTreeMap<Key, Tensor>,
    calls: Calls,
    /// Where others carry the data.
    pub(crate) elsewhere: Option<Elsewhere>,
    in_use: InUse<Key>,
    completions: Completions,
    /// What the coordinator wants sent, for whom; and how much that was.
    pub(crate) said: VecDeque<(u32, Vec<u8>)>,
    pub(crate) talked: u64,
    /// Why the job ends, where that is known before the engine says so.
    cause: Option<Fault>,
    fault: Option<Fault>,
    /// Peers that have closed their node, with how often each tensor was exchanged there.
    left: BTreeMap<u32, BTreeMap<Key, u64>>,
    /// Peers with a broken data connection: why, and when they are given up if nothing else is heard.
    suspects: BTreeMap<u32, (Instant, String)>,
    /// What coordinators have said before this rank's job has begun.
    held: VecDeque<Event>,
    started: bool,
    pub(crate) closing: bool,
    /// Ports with a connection that waits for room.
    stalled: u64,
    wakes: Wakes,
    todo: Vec<Action>,
    /// What each port was given to launch, where a test wants to know.
    pub(crate) launched: Option<Vec<Vec<Launch>>>,
    /// What has happened, the last of it.
    pub(crate) records: Ring,
    watch: Watch,
    /// What was seen that should not be, for the report; the first of them.
    notes: Vec<String>,
}

impl State {
    pub(crate) fn new(
        engine: Engine,
        clock: Clock,
        (rank, peers): (u32, Vec<u32>),
        lines: &[Vec<u32>],
        settings: &Settings,
    ) -> Self {
        let epoch = engine.settings().epoch;
        let port = |line: &Vec<u32>| Port {
            heaps: line.iter().map(|peer| (*peer, Heap::default())).collect(),
            ..Port::default()
        };
        Self {
            engine,
            clock,
            rank,
            peers,
            operations: Operations::new(epoch, Bytes::default()),
            live: BTreeMap::new(),
            named: BTreeMap::new(),
            running: BTreeMap::new(),
            ports: lines.iter().map(port).collect(),
            arrivals: Arrivals::default(),
            sequence: 0,
            tensors: BTreeMap::new(),
            calls: Calls::default(),
            elsewhere: None,
            in_use: InUse::default(),
            completions: Completions::default(),
            said: VecDeque::new(),
            talked: 0,
            cause: None,
            fault: None,
            left: BTreeMap::new(),
            suspects: BTreeMap::new(),
            held: VecDeque::new(),
            started: false,
            closing: false,
            stalled: 0,
            wakes: Wakes::default(),
            todo: Vec::new(),
            launched: None,
            records: Ring::new(settings.records),
            watch: Watch::new(settings, rank),
            notes: Vec::new(),
        }
    }

    /// Whom the last calls have made work for.
    pub(crate) fn take_wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Whether no thread touches a tensor's memory any more, now that the job is over.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.ports.iter().any(|port| port.running)
    }

    pub(crate) fn port_runs(&mut self, port: u32, runs: bool) {
        self.ports[port as usize].running = runs;
        self.wakes.waiters = true;
    }

    /// Tells the engine, and does what it wants.
    pub(crate) fn tell(&mut self, event: Event) -> Result<(), Broken> {
        self.tell_alone(event)?;
        self.settle();
        Ok(())
    }

    fn tell_alone(&mut self, event: Event) -> Result<(), Broken> {
        let mut todo = std::mem::take(&mut self.todo);
        let now = self.clock.now();
        let told = self.records.is_on().then(|| event.clone());
        let result = self.engine.on(now, event, &mut todo);
        if let (Some(told), true) = (told, result.is_ok()) {
            self.records.push_all(now, What::Told(told), &todo);
        }
        self.carry_out(&mut todo);
        // A call in between may have left a list of its own.
        if self.todo.capacity() < todo.capacity() {
            self.todo = todo;
        }
        result
    }

    fn settle(&mut self) {
        loop {
            let mut todo = std::mem::take(&mut self.todo);
            self.engine.settle(&mut todo);
            let over = todo.is_empty();
            if !over {
                self.records.push_all(self.clock.now(), What::Settled, &todo);
            }
            self.carry_out(&mut todo);
            self.todo = todo;
            if over {
                break;
            }
        }
        self.hand_out();
    }

    /// The time has come that the engine asked to be told.
    pub(crate) fn time(&mut self) {
        let _ = self.tell(Event::Time);
    }

    /// All tensors are registered: the job begins, and hears what was said before.
    pub(crate) fn start(&mut self) -> Result<(), Broken> {
        self.tell(Event::Start)?;
        self.started = true;
        while let Some(event) = self.held.pop_front() {
            self.tell(event)?;
        }
        Ok(())
    }

    /// A peer's coordinator has spoken.
    pub(crate) fn hear(&mut self, peer: u32, epoch: u32, payload: Payload) {
        let Some(from) = self.place_of(peer) else { return };
        if !self.started && self.held.len() >= MOST_HELD {
            let how = "it says too much before this rank has started";
            return self.lose(peer, FaultKind::BadFrame, how);
        }
        self.tell_when_started(Event::Frame { from, epoch, payload });
    }

    fn tell_when_started(&mut self, event: Event) {
        // A call may wait until peers have said whether its name is forgotten.
        self.wakes.waiters |= self.engine.settings().named_calls;
        if !self.started {
            self.held.push_back(event);
            return;
        }
        let from = match event {
            Event::Frame { from, .. } => self.peers.get(from as usize).copied(),
            _ => None,
        };
        match (self.tell(event), from) {
            (Err(broken @ Broken::NoCoordination { .. }), Some(peer)) => {
                self.misspoke(peer, &broken);
            }
            (Err(broken), Some(_)) if self.fault.is_none() => self.note(broken.to_string()),
            _ => {}
        }
    }

    /// What a peer says cannot be understood: all ranks end with that, whoever has heard it.
    pub(crate) fn misspoke(&mut self, peer: u32, why: &dyn std::fmt::Display) {
        self.note(format!("what rank {peer} says cannot be understood: {why}"));
        let what = format!("what rank {peer} says cannot be understood");
        self.end(Fault { kind: FaultKind::BadFrame, rank: Some(peer), tensor: None, what });
    }

    /// A data connection is broken. If its rank has left or died, its control connection says so at once.
    pub(crate) fn suspect(&mut self, peer: u32, how: String) {
        if self.fault.is_none() && !self.has_left(peer) {
            self.suspects.entry(peer).or_insert((Instant::now() + GRACE, how));
            self.wakes.control = true;
        }
    }

    /// Gives up whoever is suspected for too long; when to come back for the others.
    pub(crate) fn check_suspects(&mut self) -> Option<Instant> {
        let now = Instant::now();
        while let Some((peer, (_, how))) =
            self.suspects.iter().find(|(_, (until, _))| *until <= now).map(|(p, w)| (*p, w.clone()))
        {
            self.suspects.remove(&peer);
            if !self.has_left(peer) {
                self.lose(
                    peer,
                    FaultKind::Link,
                    &format!("a data connection to it has ended: {how}"),
                );
            }
        }
        self.suspects.values().map(|(until, _)| *until).min()
    }

    /// What has come is no frame, and nobody knows where the next begins; or its elements are not what was
    /// sent. `key` is that of its header, where that was whole.
    pub(crate) fn bad_frame(&mut self, peer: u32, key: Option<Key>, bad: &BadFrame) {
        let (kind, how) = match bad.is_damage() {
            true => (FaultKind::Damaged, "damaged"),
            false => (FaultKind::BadFrame, "malformed"),
        };
        let what = format!("a frame from rank {peer} to rank {} is {how}: {bad}", self.rank);
        let named = key.and_then(|key| self.tensors.get(&key)).map(|one| one.name.clone());
        let tensor = named.or_else(|| self.waited_for());
        self.end(Fault { kind, rank: Some(peer), tensor, what });
    }

    /// A session of TLS has found that what came is not what was sent; both sides say so in the same words.
    pub(crate) fn damaged(&mut self, peer: u32, whose: Damage) {
        let (from, to) = match whose {
            Damage::Came => (peer, self.rank),
            Damage::Sent => (self.rank, peer),
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
        let me = self.rank;
        let what = format!("a control message from rank {peer} to rank {me} is {how}: {why}");
        self.end(Fault { kind, rank: Some(peer), tensor: None, what });
    }

    /// A peer is not there any more, or is as good as gone.
    pub(crate) fn lose(&mut self, peer: u32, kind: FaultKind, how: &str) {
        let what = format!("rank {peer} is lost: {how}");
        self.end(Fault { kind, rank: Some(peer), tensor: self.waited_for(), what });
    }

    /// Ends the job on this rank, for a reason that is known by words.
    pub(crate) fn end(&mut self, fault: Fault) {
        if self.fault.is_some() || self.cause.is_some() {
            return;
        }
        let lost = fault.rank.filter(|rank| *rank != self.rank);
        let misspoke = matches!(fault.kind, FaultKind::BadFrame | FaultKind::Damaged);
        self.cause = Some(fault);
        let event = match lost.and_then(|rank| self.place_of(rank)) {
            Some(from) if misspoke => Event::Misspoke { from },
            Some(rank) => Event::PeerLost { rank },
            None => Event::Shutdown,
        };
        let told = self.tell(event);
        if (told.is_err() || self.fault.is_none())
            && let Some(fault) = self.cause.take()
        {
            // It has not begun, or was over; or it asks others first, and they hear it from this rank.
            self.stop(fault);
        }
    }

    /// The place in the group of a rank of the fabric.
    fn place_of(&self, rank: u32) -> Option<u32> {
        self.peers.iter().position(|one| *one == rank).and_then(|place| u32::try_from(place).ok())
    }

    /// A tensor that is under way, if any: the first by name.
    fn waited_for(&self) -> Option<String> {
        let under_way = self.tensors.values().filter(|one| one.submitted > one.done);
        under_way.map(|one| one.name.clone()).min()
    }

    fn stop(&mut self, fault: Fault) {
        self.fault = Some(fault);
        self.elsewhere.iter_mut().for_each(Elsewhere::clear);
        for (place, port) in self.ports.iter_mut().enumerate() {
            port.heaps.values_mut().for_each(Heap::clear);
            port.combines.clear();
            self.wakes.ports |= 1 << place;
        }
        (self.wakes.control, self.wakes.waiters) = (true, true);
    }

    /// A peer has closed its node, after so many exchanges of each tensor.
    pub(crate) fn peer_left(&mut self, peer: u32, done: BTreeMap<Key, u64>) {
        self.left.insert(peer, done);
        if let Some(rank) = self.place_of(peer) {
            self.tell_when_started(Event::PeerLeft { rank });
        }
        let submitted: Vec<(Key, u64)> = self
            .tensors
            .iter()
            .filter(|(_, one)| one.submitted > one.done)
            .map(|(key, one)| (*key, one.submitted))
            .collect();
        for (key, count) in submitted {
            self.check_left(key, count);
        }
        self.check_calls_left();
    }

    /// Whether everyone whom the `count`-th exchange of a tensor needs is there.
    fn check_left(&mut self, key: Key, count: u64) {
        let short = |done: &BTreeMap<Key, u64>| done.get(&key).is_none_or(|done| *done < count);
        let gone = self.left.iter().find(|(peer, done)| self.peers.contains(peer) && short(done));
        if let Some(peer) = gone.map(|(peer, _)| *peer) {
            let name = self.tensors.get(&key).map(|one| one.name.as_str());
            let name = name.or_else(|| self.calls.name(key)).unwrap_or_default().to_owned();
            let what = format!(
                "rank {peer} has closed its node, and exchange {count} of tensor `{name}` needs it"
            );
            self.end(Fault { kind: FaultKind::Left, rank: Some(peer), tensor: Some(name), what });
        }
    }

    /// How often each tensor was exchanged here: the last word to peers.
    pub(crate) fn exchanges(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        let calls = std::iter::once((CALLS, self.calls.all_before()));
        let tensors = self.tensors.iter().map(|(key, one)| (*key, one.done));
        tensors.chain(calls).chain(self.engine.named_calls())
    }

    fn is_tagged(&self) -> bool {
        self.engine.settings().ordering == Ordering::Tagged
    }

    /// Ranks that have left for good.
    pub(crate) fn has_left(&self, peer: u32) -> bool {
        self.left.contains_key(&peer)
    }

    /// Something beside the engine that belongs into the records.
    pub(crate) fn record(&mut self, what: What) {
        self.records.push(self.clock.now(), what);
    }

    /// What tensors are called.
    pub(crate) fn names(&self) -> BTreeMap<Key, String> {
        self.tensors.iter().map(|(key, one)| (*key, one.name.clone())).collect()
    }

    /// What is recorded, as spans.
    pub(crate) fn timeline(&self) -> Timeline {
        let name_of = |key: Key| self.tensors.get(&key).map(|one| one.name.clone());
        Timeline::new(self.records.iter(), self.records.lost(), self.clock.origin(), name_of)
    }

    /// Remembers something for the report.
    pub(crate) fn note(&mut self, what: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(what);
        }
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The caller is done with this node.
    pub(crate) fn close(&mut self) {
        self.closing = true;
        if self.fault.is_none() {
            let what = "this node was closed".to_owned();
            self.stop(Fault { kind: FaultKind::Closed, rank: None, tensor: None, what });
        }
        self.wakes.ports = u64::MAX;
        (self.wakes.control, self.wakes.waiters) = (true, true);
    }

    /// How much is kept of what peers send ahead.
    pub(crate) fn allow_early(&mut self, most: Bytes) {
        self.operations = Operations::new(self.engine.settings().epoch, most);
    }
}
