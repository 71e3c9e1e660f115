//! One rank: what decides, what it has in memory, and its frames.

use std::collections::BTreeMap;

use allrail_collective::StageRef;
use allrail_core::Bytes;
use allrail_engine::{CollectiveId, FrameAt, FrameName, Operations, Work, memory};
use allrail_schedule::operation::OperationName;

use super::bare::{Bare, Do};
use super::contents::{self, GUARD};
use super::matcher::Matcher;
use super::{Job, Launch, RankOutcome, Transport};

/// What tells the receiver which stage a frame belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Address {
    /// Its full name.
    Named(OperationName, StageRef),
    /// The number of the launch on this port, counted by each side.
    Counted(u32, usize),
}

/// A frame under way.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) address: Address,
    pub(crate) step: u32,
    pub(crate) index: u32,
    pub(crate) data: Vec<u8>,
}

/// Work that was handed out.
pub(crate) type Handed = (OperationName, u32, Work<Vec<u8>>);

struct Live {
    id: CollectiveId,
    tensor: usize,
    /// How many messages are not done.
    dtype: allrail_engine::Dtype,
}

/// See the module.
pub(crate) struct Node {
    rank: u32,
    transport: Transport,
    pub(crate) decider: Bare,
    operations: Operations<Vec<u8>>,
    live: BTreeMap<OperationName, Live>,
    names: BTreeMap<CollectiveId, OperationName>,
    /// By port: what has taken it.
    taken: Vec<Option<Launch>>,
    /// Launched stages that are not over: on which port, and as which launch of it.
    running: BTreeMap<Launch, (u32, usize)>,
    /// Frames of launches that this rank has not made yet.
    unmatched: Vec<Frame>,
    pub(crate) outcome: RankOutcome,
}

impl Node {
    pub(crate) fn new(job: &Job, rank: u32) -> Self {
        let ports = job.sizes.len();
        let memory = (0..job.tensors.len()).map(|tensor| contents::memory(job, tensor, rank));
        let outcome = RankOutcome {
            memory: memory.collect(),
            done: vec![false; job.tensors.len()],
            launched: vec![Vec::new(); ports],
            errors: Vec::new(),
        };
        Self {
            rank,
            transport: job.transport,
            decider: Bare::new(job, rank),
            operations: Operations::new(0, Bytes::new(1 << 30)),
            live: BTreeMap::new(),
            names: BTreeMap::new(),
            taken: vec![None; ports],
            running: BTreeMap::new(),
            unmatched: Vec::new(),
            outcome,
        }
    }

    fn note(&mut self, error: impl ToString) {
        self.outcome.errors.push(error.to_string());
    }

    /// Work that may be done now.
    pub(crate) fn next_work(&mut self) -> Option<Handed> {
        self.operations.next_work()
    }

    /// The rank has a tensor ready.
    pub(crate) fn submit(&mut self, job: &Job, tensor: usize, matcher: &mut Matcher) {
        let mut todo = Vec::new();
        self.decider.submit(tensor, &mut todo);
        self.carry_out(job, todo, matcher);
        self.settle(job, matcher);
    }

    fn settle(&mut self, job: &Job, matcher: &mut Matcher) {
        loop {
            let mut todo = Vec::new();
            self.decider.settle(&mut todo);
            if todo.is_empty() {
                return;
            }
            self.carry_out(job, todo, matcher);
        }
    }

    fn carry_out(&mut self, job: &Job, todo: Vec<Do>, matcher: &mut Matcher) {
        for one in todo {
            match one {
                Do::Begin { id, operation, part, tensor } => {
                    let live = Live { id, tensor, dtype: job.tensors[tensor].dtype };
                    self.live.insert(operation, live);
                    self.names.insert(id, operation);
                    if let Err(refused) = self.operations.open(operation, part) {
                        self.note(refused);
                    }
                }
                Do::Run(run) => {
                    let launch = (self.names[&run.collective], run.at);
                    self.launch(job, run.port, launch, matcher);
                }
                Do::Over { id } => {
                    let name = self.names.remove(&id).expect("it began");
                    let live = self.live.remove(&name).expect("it began");
                    self.outcome.done[live.tensor] = true;
                    if let Err(refused) = self.operations.close(name) {
                        self.note(refused);
                    }
                }
            }
        }
    }

    fn launch(&mut self, job: &Job, port: u32, launch: Launch, matcher: &mut Matcher) {
        let launched = &mut self.outcome.launched[port as usize];
        let count = launched.len();
        launched.push(launch);
        if self.transport == Transport::InOrder {
            matcher.launch(self.rank, port, count, launch);
        }
        self.taken[port as usize] = Some(launch);
        self.running.insert(launch, (port, count));
        if let Err(refused) = self.operations.begin(launch.0, launch.1) {
            self.note(refused);
        }
        let counted = |frame: &Frame| matches!(frame.address, Address::Counted(p, c) if (p, c) == (port, count));
        let here: Vec<Frame> = self.unmatched.extract_if(.., |frame| counted(frame)).collect();
        here.into_iter().for_each(|frame| self.accept(launch, frame));
        self.advance(job, launch, matcher);
    }

    /// A frame has come.
    pub(crate) fn frame(&mut self, frame: Frame) {
        match frame.address {
            Address::Named(operation, at) => self.accept((operation, at), frame),
            Address::Counted(port, count) => {
                match self.outcome.launched[port as usize].get(count).copied() {
                    Some(launch) => self.accept(launch, frame),
                    None => self.unmatched.push(frame),
                }
            }
        }
    }

    fn accept(&mut self, (operation, StageRef { chunk, stage }): Launch, frame: Frame) {
        let at = FrameAt { stage, step: frame.step, from: frame.from, index: frame.index };
        let bytes = frame.data.len() as u64;
        let name = FrameName { operation, chunk, at };
        if let Err(refused) = self.operations.frame(name, bytes, frame.data) {
            self.note(refused);
        }
    }

    /// Does work that was handed out; a send is returned as the frame that leaves.
    pub(crate) fn work(
        &mut self,
        job: &Job,
        (operation, chunk, work): Handed,
        matcher: &mut Matcher,
    ) -> Option<Frame> {
        let Live { tensor, dtype, .. } = self.live[&operation];
        let run = self.operations.run(operation, chunk).expect("open while work is under way");
        let message = run.message(work.place()).expect("it was handed out").clone();
        let held = &mut self.outcome.memory[tensor];
        let end = held.len() - GUARD;
        let held = &mut held[GUARD..end];
        let place = work.place();
        let launch = (operation, StageRef { chunk, stage: message.stage });
        let sent = match work {
            Work::Send { .. } => {
                let mut data = Vec::new();
                let read = memory::read(run.chunk(), &message, dtype, held, &mut data);
                read.expect("memory as large as the buffer");
                let address = match self.transport {
                    Transport::Tagged => Address::Named(launch.0, launch.1),
                    Transport::InOrder => {
                        let (port, count) = self.running[&launch];
                        Address::Counted(port, count)
                    }
                };
                let (from, to) = (self.rank, message.peer);
                Some(Frame { from, to, address, step: message.step, index: message.index, data })
            }
            Work::Combine { frame, .. } => {
                let done = memory::combine(run.chunk(), &message, dtype, held, &frame);
                done.expect("as long as planned");
                None
            }
        };
        if let Err(refused) = self.operations.done(operation, chunk, place) {
            self.note(refused);
        }
        self.advance(job, launch, matcher);
        self.settle(job, matcher);
        sent
    }

    /// Tells the decider of a stage that is over, and of a port that is free.
    fn advance(&mut self, job: &Job, launch: Launch, matcher: &mut Matcher) {
        let Some((port, _)) = self.running.get(&launch).copied() else { return };
        let over = self.operations.is_over(launch.0, launch.1);
        // With names, a link that has nothing to send serves another stage; a blocking call ends first.
        let free = over
            || (self.transport == Transport::Tagged
                && !self.operations.is_sending(launch.0, launch.1));
        if free && self.taken[port as usize] == Some(launch) {
            self.taken[port as usize] = None;
            self.decider.port_free(port);
        }
        if over {
            self.running.remove(&launch);
            let mut todo = Vec::new();
            self.decider.stage_over(self.live[&launch.0].id, launch.1, &mut todo);
            self.carry_out(job, todo, matcher);
        }
    }

    /// Whether nothing is left to be done for what was submitted.
    pub(crate) fn is_idle(&self) -> bool {
        self.live.is_empty() && self.unmatched.is_empty() && self.decider.is_idle()
    }
}
