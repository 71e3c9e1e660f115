//! The loop: players run the nodes of a step graph, iteration after iteration.
//!
//! A node is ready when everything that it waits for is over. Then
//!
//! - a *compute* node waits for its player's compute engine, which runs one at a time, the earliest
//!   iteration and node first; one of no time is over at once, and a *delay* when its time has
//!   passed, without the engine;
//! - a *collective* waits until all players of its instance have come: the k-th of one meets the k-th
//!   of the others. If it exchanges a gradient it is handed to the tensor scheduler ([`super::tensors`]),
//!   else to the carrier;
//! - a *send* is handed to the carrier and is over when it has left; a *receive* is over when its
//!   message has arrived: the k-th from a peer takes the k-th that the peer sends.
//!
//! The next iteration's nodes wait for those of this one that the graph says; with a *global barrier*
//! they wait for all of these. A node that waits for nothing at all waits for its player's last
//! iteration to end.
//!
//! At one time, everything that ends is taken in before anything that waits is chosen.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::ControlFlow;

use allrail_core::{EventQueue, Time};
use allrail_workload::{ActorId, GroupId, NodeId, Peer, StepGraph, Work};

use super::carrier::{Ask, Carrier, Event, Submission, Usage};
use super::players::Players;
use super::record::{Gap, Idle, Ran, Record};
use super::tensors::{Step, Tensors};
use crate::SimulateError;
use crate::driver::Observer;

/// How a step graph is run.
pub struct Settings<'a> {
    /// How many iterations; one at least.
    pub iterations: u32,
    /// How many of them are measured: where iterations overlap, one more runs so that the last one
    /// measured shares the network as the others do.
    pub measured: u32,
    /// Whether all nodes that wait for the previous iteration wait for all that any waits for.
    pub barrier: bool,
    /// Which of several collectives goes first where a dimension can choose.
    pub priority: Priority,
    /// How much longer than nominal a compute node takes; 1 where absent.
    pub slowness: Option<&'a dyn Fn(u32, NodeId, u32) -> f64>,
    /// Whether compute spans are kept.
    pub timeline: bool,
}

/// Which communication goes first where a carrier can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// What was issued first.
    #[default]
    Fifo,
    /// What was issued last.
    Lifo,
    /// What a pass waits for, then gradients by the tensor scheduler's word, then what came first.
    Tensor,
}

/// What a run gave.
#[derive(Default)]
pub struct Outcome {
    /// When each iteration was over.
    pub ends: Vec<Time>,
    /// For each player, when its compute engine had nothing to do.
    pub gaps: Vec<Vec<Gap>>,
    /// The carrier's usage at the end of the first and of the last iteration.
    pub usage: (Usage, Usage),
    /// The compute nodes as they ran: (player, node, iteration, start, end), where asked for.
    pub spans: Vec<(Ran, Time, Time)>,
    /// For tags of the carrier's spans: who asked, and for what.
    pub asked: Vec<(Ran, Ask)>,
    /// What was over last in the last iteration measured.
    pub last: Option<Ran>,
    /// What happened to the nodes of the last iterations.
    pub records: Records,
}

/// What happened to the nodes of the last iterations.
#[derive(Default)]
pub struct Records {
    local: Vec<u32>,
    offsets: Vec<usize>,
    iterations: Vec<(u32, Vec<Record>)>,
}

impl Records {
    /// Of a node; `None` where it is too long ago.
    #[must_use]
    pub fn get(&self, ran: Ran) -> Option<&Record> {
        let (_, records) = self.iterations.iter().find(|(number, _)| *number == ran.iteration)?;
        let offset = *self.offsets.get(ran.player as usize)?;
        records.get(offset + *self.local.get(ran.node.index())? as usize)
    }
}

/// One iteration under way, or just over.
struct Iteration {
    number: u32,
    /// For every player's node, how much it still waits for.
    missing: Vec<u32>,
    /// For every player, how many nodes are not over.
    left: Vec<u32>,
    /// For every player, how many nodes that the next iteration waits for are not over.
    sources_left: Vec<u32>,
    total_left: u64,
    records: Vec<Record>,
}

/// A player's compute engine.
#[derive(Default)]
struct Engine {
    running: Option<Ran>,
    last: Option<Ran>,
    idle_since: Time,
    ready: BinaryHeap<Reverse<(u32, NodeId)>>,
    choosing: bool,
}

/// A collective whose players come one by one.
#[derive(Default)]
struct Gathering {
    came: Vec<Ran>,
}

/// What a tag stands for.
enum Flying {
    Collective(Vec<Ran>),
    Message { key: MessageKey, sender: Option<Ran> },
    Tensor { step: Step },
    Free,
}

/// (source, destination, group, direction, count): one message.
type MessageKey = (u32, u32, GroupId, i32, u64);

/// Where a message and its receive meet.
#[derive(Default)]
struct Mailbox {
    arrived: bool,
    receiver: Option<Ran>,
}

enum Timer {
    Computed { player: u32 },
    Passed { ran: Ran },
    Tensor { scheduler: u32, id: u64 },
}

/// Runs a step graph.
pub struct Driver<'a> {
    graph: &'a StepGraph,
    players: &'a Players,
    carrier: &'a mut dyn Carrier,
    tensors: Tensors,
    settings: &'a Settings<'a>,
    shape: Shape,
    iterations: VecDeque<Iteration>,
    engines: Vec<Engine>,
    gatherings: BTreeMap<(u32, u32, u32), Gathering>,
    mailboxes: BTreeMap<MessageKey, Mailbox>,
    flying: Vec<Flying>,
    free: Vec<u64>,
    timers: EventQueue<Timer>,
    /// Over, and not yet told to those that wait for them.
    over: Vec<Ran>,
    choosing: Vec<u32>,
    issued: i64,
    nodes_done: u64,
    out: Outcome,
}

/// What is worked out of a graph once.
struct Shape {
    /// Place of each node among its actor's.
    local: Vec<u32>,
    /// Every actor's nodes.
    nodes: Vec<Vec<NodeId>>,
    /// Where each player's nodes begin in the state of an iteration.
    offsets: Vec<usize>,
    /// How many player's nodes there are in all.
    states: usize,
    successors: (Vec<u32>, Vec<NodeId>),
    /// For each node, those of the next iteration that wait for it: `carried[starts[n]..]`.
    carried: (Vec<u32>, Vec<NodeId>),
    /// For each actor, its nodes that the next iteration waits for, and those that wait.
    sources: Vec<u32>,
    waiters: Vec<Vec<NodeId>>,
    /// For each actor, its nodes that wait for nothing.
    gated: Vec<Vec<NodeId>>,
    /// Among its like: collectives of a group, messages of a channel.
    ordinal: Vec<u32>,
    /// For each actor, how many messages of each channel an iteration has.
    messages: BTreeMap<(ActorId, GroupId, Peer, bool), u32>,
    /// In `dims`: for each message node, the player and ranks at its other end.
    peers: BTreeMap<NodeId, (u32, allrail_core::Rank)>,
}

impl Shape {
    fn new(graph: &StepGraph, players: &Players) -> Result<Self, SimulateError> {
        let count = graph.len();
        let actors = graph.actors().len();
        let mut shape = Self {
            local: vec![0; count],
            nodes: vec![Vec::new(); actors],
            offsets: Vec::new(),
            states: 0,
            successors: graph.successors(),
            carried: (vec![0; count + 1], vec![NodeId::default(); graph.carried().len()]),
            sources: vec![0; actors],
            waiters: vec![Vec::new(); actors],
            gated: vec![Vec::new(); actors],
            ordinal: vec![0; count],
            messages: BTreeMap::new(),
            peers: BTreeMap::new(),
        };
        let mut collectives: BTreeMap<(ActorId, GroupId), u32> = BTreeMap::new();
        let mut waits = vec![false; count];
        let mut source = vec![false; count];
        for (node, before) in graph.carried() {
            waits[node.index()] = true;
            source[before.index()] = true;
            shape.carried.0[before.index() + 1] += 1;
        }
        for i in 0..count {
            shape.carried.0[i + 1] += shape.carried.0[i];
        }
        let mut place = shape.carried.0.clone();
        for (node, before) in graph.carried() {
            shape.carried.1[place[before.index()] as usize] = *node;
            place[before.index()] += 1;
        }
        for id in graph.ids() {
            let node = graph.node(id);
            let actor = node.actor.index();
            shape.local[id.index()] = u32::try_from(shape.nodes[actor].len()).expect("few nodes");
            shape.nodes[actor].push(id);
            shape.sources[actor] += u32::from(source[id.index()]);
            if waits[id.index()] {
                shape.waiters[actor].push(id);
            } else if graph.after(id).is_empty() {
                shape.gated[actor].push(id);
            }
            let next = match node.work {
                Work::Compute { .. } => continue,
                Work::Collective { group, .. } => {
                    collectives.entry((node.actor, group)).or_default()
                }
                Work::Send { group, peer, .. } => {
                    shape.messages.entry((node.actor, group, peer, true)).or_default()
                }
                Work::Receive { group, peer, .. } => {
                    shape.messages.entry((node.actor, group, peer, false)).or_default()
                }
            };
            shape.ordinal[id.index()] = *next;
            *next += 1;
            if let Work::Send { group, peer, .. } | Work::Receive { group, peer, .. } = node.work
                && players.are_classes()
            {
                let group = &graph.groups()[group.index()];
                let end = players.peer(node.actor.0, group, peer).ok_or_else(|| {
                    SimulateError::Field {
                        field: "workload".to_owned(),
                        value: graph.name(id).to_owned(),
                        why: format!("its peer {peer:?} is not in group `{}`", group.name),
                        hint: "a peer is a position within the group's instance".to_owned(),
                    }
                })?;
                shape.peers.insert(id, end);
            }
        }
        for actor in &players.actors {
            shape.offsets.push(shape.states);
            shape.states += shape.nodes[actor.index()].len();
        }
        shape.matched(graph, players)?;
        Ok(shape)
    }

    /// Refuses sends without receives, and receives without sends.
    fn matched(&self, graph: &StepGraph, players: &Players) -> Result<(), SimulateError> {
        let mut balance: BTreeMap<(u32, u32, GroupId, i32), i64> = BTreeMap::new();
        for (player, actor) in (0u32..).zip(&players.actors) {
            let channels = self
                .messages
                .range((*actor, GroupId(0), Peer::At(0), false)..)
                .take_while(|((of, ..), _)| of == actor);
            for ((_, group, peer, sends), count) in channels {
                let found = players.peer(player, &graph.groups()[group.index()], *peer);
                let Some((other, _)) = found else { continue };
                let key = message_channel(player, other, *group, *peer, *sends);
                let count = i64::from(*count);
                *balance.entry(key).or_default() += if *sends { count } else { -count };
            }
        }
        let Some(((source, destination, group, _), left)) = balance.iter().find(|(_, n)| **n != 0)
        else {
            return Ok(());
        };
        let name = |player: u32| &graph.actors()[players.actors[player as usize].index()].name;
        Err(SimulateError::Field {
            field: "workload".to_owned(),
            value: graph.groups()[group.index()].name.clone(),
            why: format!(
                "{} sends {} {} {} than that receives",
                name(*source),
                name(*destination),
                left.abs(),
                if *left > 0 { "messages more" } else { "messages fewer" },
            ),
            hint: "every send has its receive, and both name each other alike: by position, or by \
                   distance"
                .to_owned(),
        })
    }

    fn index(&self, player: u32, node: NodeId) -> usize {
        self.offsets[player as usize] + self.local[node.index()] as usize
    }
}

fn message_channel(
    player: u32,
    other: u32,
    group: GroupId,
    peer: Peer,
    sends: bool,
) -> (u32, u32, GroupId, i32) {
    let direction = match peer {
        Peer::At(_) => 0,
        Peer::Next(offset) if sends => offset,
        Peer::Next(offset) => -offset,
    };
    if sends { (player, other, group, direction) } else { (other, player, group, direction) }
}

impl<'a> Driver<'a> {
    /// Prepares a run.
    ///
    /// # Errors
    /// A peer that does not exist; sends without receives.
    pub fn new(
        graph: &'a StepGraph,
        players: &'a Players,
        carrier: &'a mut dyn Carrier,
        tensors: Tensors,
        settings: &'a Settings<'a>,
    ) -> Result<Self, SimulateError> {
        let shape = Shape::new(graph, players)?;
        let mut engines = Vec::new();
        engines.resize_with(players.len(), Engine::default);
        Ok(Self {
            graph,
            players,
            carrier,
            tensors,
            settings,
            shape,
            iterations: VecDeque::new(),
            engines,
            gatherings: BTreeMap::new(),
            mailboxes: BTreeMap::new(),
            flying: Vec::new(),
            free: Vec::new(),
            timers: EventQueue::new(),
            over: Vec::new(),
            choosing: Vec::new(),
            issued: 0,
            nodes_done: 0,
            out: Outcome { gaps: vec![Vec::new(); players.len()], ..Outcome::default() },
        })
    }

    /// Runs to the end of the last iteration.
    ///
    /// # Errors
    /// [`SimulateError::Stalled`] with who waits for what; [`SimulateError::Interrupted`].
    pub fn run(mut self, observer: Observer<'_>) -> Result<Outcome, SimulateError> {
        const OBSERVE_EVERY: u32 = 1 << 14;
        let total = self.shape.states as u64 * u64::from(self.settings.iterations);
        let mut countdown = OBSERVE_EVERY;
        let mut now = Time::ZERO;
        self.open(now);
        loop {
            self.settle(now);
            while self.next_time() == Some(now) {
                self.take_event(now);
                self.settle(now);
                countdown -= 1;
                if countdown == 0 {
                    countdown = OBSERVE_EVERY;
                    if observer(self.nodes_done, total) == ControlFlow::Break(()) {
                        return Err(SimulateError::Interrupted);
                    }
                }
            }
            if self.feed(now) {
                continue;
            }
            self.choose(now);
            self.carrier.choose(now);
            match self.next_time() {
                Some(next) => now = next,
                None => break,
            }
        }
        if self.out.ends.len() < self.settings.iterations as usize {
            return Err(SimulateError::Stalled {
                time_us: now.as_us(),
                waits: self.waits(),
                hint: "every member of a group must come to each of its collectives, and every \
                       receive needs its send",
            });
        }
        for (player, engine) in self.engines.iter().enumerate() {
            if engine.idle_since < now {
                // What was over last is what everybody waited for.
                let cause = self.out.last;
                let start = engine.idle_since;
                let gaps = self.attribute(start, now, cause);
                self.out.gaps[player].extend(gaps);
            }
        }
        let mut out = self.out;
        out.ends.truncate(self.settings.measured as usize);
        out.records = Records {
            local: self.shape.local,
            offsets: self.shape.offsets,
            iterations: self.iterations.into_iter().map(|it| (it.number, it.records)).collect(),
        };
        Ok(out)
    }

    fn next_time(&self) -> Option<Time> {
        let own = match (self.timers.next_time(), self.tensors.next_time()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        match (own, self.carrier.next_time()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn take_event(&mut self, now: Time) {
        if self.timers.next_time() == Some(now) {
            let Some((_, timer)) = self.timers.pop() else { return };
            match timer {
                Timer::Computed { player } => {
                    let engine = &mut self.engines[player as usize];
                    let ran = engine.running.take().expect("an engine that ends was running");
                    engine.last = Some(ran);
                    engine.idle_since = now;
                    self.attend(player);
                    self.over.push(ran);
                }
                Timer::Passed { ran } => self.over.push(ran),
                Timer::Tensor { scheduler, id } => self.tensors.timer(scheduler, id),
            }
            return;
        }
        if self.tensors.next_time() == Some(now) {
            self.tensors.take_agreed(now);
            return;
        }
        let Some((_, event)) = self.carrier.next_event(now) else { return };
        match event {
            Event::Sent { tag } => {
                let tag = usize::try_from(tag).expect("a tag is an index");
                if let Flying::Message { sender, .. } = &mut self.flying[tag]
                    && let Some(ran) = sender.take()
                {
                    self.over.push(ran);
                }
            }
            Event::Delivered { tag } => self.delivered(tag),
        }
    }

    fn delivered(&mut self, tag: u64) {
        let index = usize::try_from(tag).expect("a tag is an index");
        let flying = std::mem::replace(&mut self.flying[index], Flying::Free);
        if !self.settings.timeline {
            self.free.push(tag);
        }
        match flying {
            Flying::Collective(came) => self.over.extend(came),
            Flying::Message { key, sender } => {
                self.over.extend(sender);
                let mailbox = self.mailboxes.entry(key).or_default();
                mailbox.arrived = true;
                if let Some(receiver) = mailbox.receiver {
                    self.mailboxes.remove(&key);
                    self.over.push(receiver);
                }
            }
            Flying::Tensor { step } => self.tensors.finished(step),
            Flying::Free => unreachable!("a carrier delivers what was submitted, once"),
        }
    }

    /// Creates the next iteration, if there is one.
    fn open(&mut self, now: Time) {
        let number = self.iterations.back().map_or(0, |iteration| iteration.number + 1);
        if number == self.settings.iterations {
            return;
        }
        // Records are kept of the iterations under way and of two that are over.
        while self.iterations.len() > 2 && self.iterations[1].total_left == 0 {
            self.iterations.pop_front();
        }
        let mut missing = Vec::with_capacity(self.shape.states);
        for actor in &self.players.actors {
            missing.extend(self.shape.nodes[actor.index()].iter().map(|id| {
                u32::try_from(self.graph.after(*id).len()).expect("fewer than 2^32 dependencies")
            }));
        }
        let left: Vec<u32> = self
            .players
            .actors
            .iter()
            .map(|actor| u32::try_from(self.shape.nodes[actor.index()].len()).expect("few nodes"))
            .collect();
        if number > 0 {
            for (player, actor) in (0u32..).zip(&self.players.actors) {
                for id in &self.shape.gated[actor.index()] {
                    missing[self.shape.index(player, *id)] += 1;
                }
                if self.settings.barrier {
                    for id in &self.shape.waiters[actor.index()] {
                        missing[self.shape.index(player, *id)] += 1;
                    }
                } else {
                    for id in &self.shape.waiters[actor.index()] {
                        let known = self.graph.carried();
                        let from = known.partition_point(|(node, _)| node < id);
                        let to = known.partition_point(|(node, _)| node <= id);
                        missing[self.shape.index(player, *id)] +=
                            u32::try_from(to - from).expect("few dependencies");
                    }
                }
            }
        }
        self.iterations.push_back(Iteration {
            number,
            total_left: self.shape.states as u64,
            left,
            sources_left: self
                .players
                .actors
                .iter()
                .map(|actor| self.shape.sources[actor.index()])
                .collect(),
            records: vec![Record::default(); self.shape.states],
            missing,
        });
        if number == 0 {
            if self.settings.iterations > 1 {
                self.open(now);
            }
            for player in 0..u32::try_from(self.players.len()).expect("few players") {
                let actor = self.players.actors[player as usize];
                for place in 0..self.shape.nodes[actor.index()].len() {
                    let node = self.shape.nodes[actor.index()][place];
                    if self.iterations[0].missing[self.shape.index(player, node)] == 0 {
                        self.ready(now, Ran { player, node, iteration: 0 }, None);
                    }
                }
            }
        }
    }

    fn iteration(&mut self, number: u32) -> Option<&mut Iteration> {
        let first = self.iterations.front()?.number;
        self.iterations.get_mut(number.checked_sub(first)? as usize)
    }

    fn record(&self, ran: Ran) -> Option<&Record> {
        let first = self.iterations.front()?.number;
        let iteration = self.iterations.get(ran.iteration.checked_sub(first)? as usize)?;
        iteration.records.get(self.shape.index(ran.player, ran.node))
    }

    /// Tells everybody who waits for what is over, until nothing is.
    fn settle(&mut self, now: Time) {
        while let Some(ran) = self.over.pop() {
            let index = self.shape.index(ran.player, ran.node);
            let iteration = self.iteration(ran.iteration).expect("it is under way");
            iteration.records[index].finish = now;
            iteration.left[ran.player as usize] -= 1;
            iteration.total_left -= 1;
            let (player_over, all_over) =
                (iteration.left[ran.player as usize] == 0, iteration.total_left == 0);
            self.nodes_done += 1;
            let (from, to) = (
                self.shape.successors.0[ran.node.index()] as usize,
                self.shape.successors.0[ran.node.index() + 1] as usize,
            );
            for place in from..to {
                let next = self.shape.successors.1[place];
                self.release(now, Ran { node: next, ..ran }, ran);
            }
            let (from, to) = (
                self.shape.carried.0[ran.node.index()] as usize,
                self.shape.carried.0[ran.node.index() + 1] as usize,
            );
            let following = ran.iteration + 1;
            if from < to && following < self.settings.iterations {
                if self.settings.barrier {
                    let iteration = self.iteration(ran.iteration).expect("it is under way");
                    let left = &mut iteration.sources_left[ran.player as usize];
                    *left -= 1;
                    if *left == 0 {
                        let actor = self.players.actors[ran.player as usize].index();
                        for place in 0..self.shape.waiters[actor].len() {
                            let node = self.shape.waiters[actor][place];
                            self.release(now, Ran { node, iteration: following, ..ran }, ran);
                        }
                    }
                } else {
                    for place in from..to {
                        let node = self.shape.carried.1[place];
                        self.release(now, Ran { node, iteration: following, ..ran }, ran);
                    }
                }
            }
            if player_over && following < self.settings.iterations {
                let actor = self.players.actors[ran.player as usize].index();
                for place in 0..self.shape.gated[actor].len() {
                    let node = self.shape.gated[actor][place];
                    self.release(now, Ran { node, iteration: following, ..ran }, ran);
                }
            }
            if all_over {
                self.out.ends.push(now);
                if self.out.ends.len() == 1 {
                    self.out.usage.0 = self.carrier.usage();
                }
                if self.out.ends.len() == self.settings.measured as usize {
                    self.out.usage.1 = self.carrier.usage();
                    self.out.last = Some(ran);
                }
            }
        }
    }

    /// One thing less to wait for.
    fn release(&mut self, now: Time, ran: Ran, cause: Ran) {
        if self.iteration(ran.iteration).is_none() {
            self.open(now);
        }
        let index = self.shape.index(ran.player, ran.node);
        let iteration = self.iteration(ran.iteration).expect("it is under way");
        iteration.missing[index] -= 1;
        if iteration.missing[index] == 0 {
            self.ready(now, ran, Some(cause));
        }
    }

    /// A node that waits for nothing any more.
    fn ready(&mut self, now: Time, ran: Ran, cause: Option<Ran>) {
        let index = self.shape.index(ran.player, ran.node);
        let iteration = self.iteration(ran.iteration).expect("it is under way");
        iteration.records[index] = Record { start: now, finish: now, cause };
        let node = self.graph.node(ran.node);
        match node.work {
            Work::Compute { time } if time == Time::ZERO => self.over.push(ran),
            Work::Compute { time } if self.graph.is_delay(ran.node) => {
                self.timers.push(now + time, 0, Timer::Passed { ran });
            }
            Work::Compute { .. } => {
                self.engines[ran.player as usize].ready.push(Reverse((ran.iteration, ran.node)));
                self.attend(ran.player);
            }
            Work::Collective { group, .. } => self.come(now, ran, group),
            Work::Send { bytes, group, peer, .. } => {
                let (key, ranks) = self.message(ran, group, peer, true);
                let instance = self.players.instance(ran.player, group);
                let ask =
                    Ask::Message { bytes, instance, source: key.0, destination: key.1, ranks };
                let priority = self.priority(ran.node);
                let waiting = self.mailboxes.entry(key).or_default().receiver;
                if let Some(receiver) = waiting {
                    // What the sender waited for is what the receiver waited for.
                    let index = self.shape.index(receiver.player, receiver.node);
                    let iteration = self.iteration(receiver.iteration).expect("it is under way");
                    iteration.records[index].start = now;
                    if cause.is_some() {
                        iteration.records[index].cause = cause;
                    }
                }
                let flying = Flying::Message { key, sender: Some(ran) };
                self.submit(now, ran, Submission::of(ask, priority), flying);
            }
            Work::Receive { group, peer, .. } => {
                let (key, _) = self.message(ran, group, peer, false);
                let mailbox = self.mailboxes.entry(key).or_default();
                if mailbox.arrived {
                    self.mailboxes.remove(&key);
                    self.over.push(ran);
                } else {
                    mailbox.receiver = Some(ran);
                }
            }
        }
    }

    /// The message that a send or receive is about, and the ranks that it stands for.
    fn message(
        &self,
        ran: Ran,
        group: GroupId,
        peer: Peer,
        sends: bool,
    ) -> (MessageKey, (allrail_core::Rank, allrail_core::Rank)) {
        let (other, rank) = match self.shape.peers.get(&ran.node) {
            Some(end) => *end,
            None => self
                .players
                .peer(ran.player, &self.graph.groups()[group.index()], peer)
                .expect("a checked graph's peers exist"),
        };
        let channel = message_channel(ran.player, other, group, peer, sends);
        let actor = self.players.actors[ran.player as usize];
        let each = self.shape.messages[&(actor, group, peer, sends)];
        let count = u64::from(ran.iteration) * u64::from(each)
            + u64::from(self.shape.ordinal[ran.node.index()]);
        let own = self.players.ranks[ran.player as usize];
        let ranks = if sends { (own, rank) } else { (rank, own) };
        ((channel.0, channel.1, channel.2, channel.3, count), ranks)
    }

    /// A player comes to a collective; the last one starts it.
    fn come(&mut self, now: Time, ran: Ran, group: GroupId) {
        let instance = self.players.instance(ran.player, group);
        let players = &self.players.instances[instance as usize].players;
        let expected = players.len();
        if self.tensors.takes(ran.node) {
            let position = players.iter().position(|player| *player == ran.player);
            let position = position.expect("a player is in its instance");
            self.tensors.come(now, instance, ran, position);
        }
        if expected == 1 {
            self.gathered(now, instance, vec![ran]);
            return;
        }
        let key = (instance, ran.iteration, self.shape.ordinal[ran.node.index()]);
        let gathering = self.gatherings.entry(key).or_default();
        gathering.came.push(ran);
        if gathering.came.len() == expected {
            let came = self.gatherings.remove(&key).expect("it is there").came;
            self.gathered(now, instance, came);
        }
    }

    /// All have come to a collective; the last of `came` was the last.
    fn gathered(&mut self, now: Time, instance: u32, came: Vec<Ran>) {
        let last = came[came.len() - 1];
        let cause = self.record(last).and_then(|record| record.cause);
        for ran in &came {
            let index = self.shape.index(ran.player, ran.node);
            let iteration = self.iteration(ran.iteration).expect("it is under way");
            iteration.records[index].start = now;
            if *ran != last {
                iteration.records[index].cause = cause;
            }
        }
        let node = self.graph.node(last.node);
        let Work::Collective { operation, bytes, .. } = node.work else {
            unreachable!("only collectives gather")
        };
        if self.tensors.takes(last.node) {
            self.tensors.ready(instance, came);
            return;
        }
        let priority = self.priority(last.node);
        let ask = Ask::Collective { operation, bytes, instance };
        self.submit(now, last, Submission::of(ask, priority), Flying::Collective(came));
    }

    /// The priority of what no tensor scheduler speaks for: a pass waits for it.
    fn priority(&mut self, node: NodeId) -> i64 {
        const FIRST: i64 = 1 << 60;
        const URGENT: i64 = 1 << 61;
        self.issued += 1;
        match self.settings.priority {
            _ if self.graph.is_urgent(node) => URGENT - self.issued,
            Priority::Fifo => -self.issued,
            Priority::Lifo => self.issued,
            Priority::Tensor => FIRST - self.issued,
        }
    }

    fn submit(&mut self, now: Time, by: Ran, submission: Submission, flying: Flying) {
        let tag = match self.free.pop() {
            Some(tag) => {
                self.flying[usize::try_from(tag).expect("a tag is an index")] = flying;
                tag
            }
            None => {
                self.flying.push(flying);
                self.flying.len() as u64 - 1
            }
        };
        if self.settings.timeline {
            self.out.asked.push((by, submission.ask));
        }
        self.carrier.submit(now, Submission { tag, ..submission });
    }

    /// Lets the tensor schedulers act on what has come; whether any did.
    fn feed(&mut self, now: Time) -> bool {
        let Some(wanted) = self.tensors.act(now) else { return false };
        for (scheduler, id, at) in wanted.timers {
            self.timers.push(at, 1, Timer::Tensor { scheduler, id });
        }
        for start in wanted.starts {
            self.issued += 1;
            let priority = match self.settings.priority {
                Priority::Fifo => -self.issued,
                Priority::Lifo => self.issued,
                Priority::Tensor => (start.priority.clamp(-(1 << 27), 1 << 27) << 32) - self.issued,
            };
            let flying = Flying::Tensor { step: start.step };
            let submission = Submission {
                overhead: start.overhead,
                piece: start.piece,
                ..Submission::of(start.ask, priority)
            };
            self.submit(now, start.by, submission, flying);
        }
        self.over.extend(wanted.over);
        true
    }

    fn attend(&mut self, player: u32) {
        let engine = &mut self.engines[player as usize];
        if engine.running.is_none() && !engine.choosing && !engine.ready.is_empty() {
            engine.choosing = true;
            self.choosing.push(player);
        }
    }

    /// Lets idle compute engines start the earliest node that is ready.
    fn choose(&mut self, now: Time) {
        let mut choosing = std::mem::take(&mut self.choosing);
        choosing.sort_unstable();
        for player in choosing.drain(..) {
            let engine = &mut self.engines[player as usize];
            engine.choosing = false;
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
                let gaps = self.attribute(idle_since, now, cause);
                self.out.gaps[player as usize].extend(gaps);
            }
            let Work::Compute { time } = self.graph.node(node).work else { continue };
            let time = match self.settings.slowness {
                Some(slowness) => scaled(time, slowness(player, node, iteration)),
                None => time,
            };
            if self.settings.timeline {
                self.out.spans.push((ran, now, now + time));
            }
            self.timers.push(now + time, 0, Timer::Computed { player });
        }
        choosing.append(&mut self.choosing);
        self.choosing = choosing;
    }

    /// Why an engine had nothing to do from `start` to `end`: what it waited for last.
    fn attribute(&self, start: Time, end: Time, cause: Option<Ran>) -> Vec<Gap> {
        let waiting = vec![Gap { start, end, idle: Idle::Waiting }];
        let mut cause = cause;
        // A join of dependencies has a cause of its own.
        let (ran, record) = loop {
            let Some(ran) = cause else { return waiting };
            let Some(record) = self.record(ran) else { return waiting };
            match self.graph.node(ran.node).work {
                Work::Compute { .. }
                    if record.start == record.finish || self.graph.is_delay(ran.node) =>
                {
                    cause = record.cause;
                }
                _ => break (ran, record),
            }
        };
        let (purpose, begun) = match self.graph.node(ran.node).work {
            Work::Compute { .. } => return waiting,
            Work::Collective { purpose, .. }
            | Work::Send { purpose, .. }
            | Work::Receive { purpose, .. } => (purpose, record.start),
        };
        let begun = begun.max(start).min(end);
        let mut gaps = Vec::new();
        if start < begun {
            gaps.push(Gap { start, end: begun, idle: Idle::Waiting });
        }
        if begun < end {
            gaps.push(Gap { start: begun, end, idle: Idle::Exposed(purpose) });
        }
        gaps
    }

    /// Who waits for what.
    fn waits(&self) -> String {
        const SHOWN: usize = 12;
        let name = |ran: &Ran| {
            let actor = &self.graph.actors()[self.players.actors[ran.player as usize].index()];
            format!("{} (iteration {})", actor.name, ran.iteration)
        };
        let mut lines: Vec<String> = Vec::new();
        for ((instance, ..), gathering) in &self.gatherings {
            let instance = &self.players.instances[*instance as usize];
            let missing = instance
                .players
                .iter()
                .find(|player| gathering.came.iter().all(|ran| ran.player != **player));
            let Some(first) = gathering.came.first() else { continue };
            lines.push(format!(
                "  {}: `{}` waits in group `{}` for {} of {} players, among them {}",
                name(first),
                self.graph.name(first.node),
                self.graph.groups()[instance.group.index()].name,
                instance.players.len() - gathering.came.len(),
                instance.players.len(),
                missing.map_or_else(String::new, |player| {
                    let actor = self.players.actors[*player as usize];
                    self.graph.actors()[actor.index()].name.clone()
                }),
            ));
        }
        for mailbox in self.mailboxes.values() {
            let Some(receiver) = &mailbox.receiver else { continue };
            lines.push(format!(
                "  {}: `{}` waits for a message",
                name(receiver),
                self.graph.name(receiver.node)
            ));
        }
        lines.extend(self.tensors.waits());
        if lines.len() > SHOWN {
            lines.truncate(SHOWN);
            lines.push("  and more".to_owned());
        }
        lines.join("\n")
    }
}

/// A time, scaled; never to nothing.
fn scaled(time: Time, factor: f64) -> Time {
    Time::from_ps(((time.as_ps() as f64 * factor).round() as u64).max(1))
}
