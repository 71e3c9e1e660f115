//! One rank: what decides, what it has in memory, and its frames.

use std::collections::BTreeMap;

use allrail_collective::StageRef;
use allrail_coordinate::Payload;
use allrail_coordinate::wire::{Limits, decode, encode};
use allrail_core::{Bytes, Time};
use allrail_engine::chunk_run::{FrameAt, Work};
use allrail_engine::engine::{Action, Call, Event, Home};
use allrail_engine::operations::{FrameName, Operations, Refused};
use allrail_engine::signature_hash::Differs;
use allrail_engine::{Broken, CollectiveId, Dtype, memory};
use allrail_schedule::operation::{Key, OperationName};

use super::bare::Bare;
use super::contents::{self, GUARD};
use super::decider::{Decider, Share};
use super::engines::OfEngine;
use super::faults::TakenFor;
use super::frame::{Address, Frame, Handed};
use super::matcher::Matcher;
use super::{Job, Launch, RankOutcome, Transport};

/// An operation under way.
struct Live {
    id: CollectiveId,
    dtype: Dtype,
    shares: Vec<Share>,
    /// Where its elements lie together, if they are of several tensors.
    packed: Option<Vec<u8>>,
}

/// What a rank has to work with.
pub(crate) struct Around<'a> {
    pub(crate) job: &'a Job,
    pub(crate) matcher: &'a mut Matcher,
    /// What its clock shows.
    pub(crate) now: Time,
}

/// See the module.
pub(crate) struct Node {
    rank: u32,
    decider: Box<dyn Decider>,
    operations: Operations<Vec<u8>>,
    /// What of the job it submits, in this order.
    submissions: Vec<(usize, usize)>,
    submitted: usize,
    memory: Vec<Vec<u8>>,
    /// Of each tensor, the last that is done.
    generations: BTreeMap<Key, u64>,
    live: BTreeMap<OperationName, Live>,
    names: BTreeMap<CollectiveId, OperationName>,
    /// By port: what has taken it.
    taken: Vec<Option<Launch>>,
    /// Launched stages that are not over: on which port, and as which launch of it.
    running: BTreeMap<Launch, (u32, usize)>,
    /// Frames of launches that this rank has not made yet.
    unmatched: Vec<Frame>,
    /// What its coordinator wants sent: to whom in the fabric, as bytes.
    pub(crate) said: Vec<(u32, Vec<u8>)>,
    /// Whether its next call has no number until something was heard.
    undecided: bool,
    /// How often its decider was told something, and wanted something that is no message.
    pub(crate) events: u64,
    pub(crate) progress: u64,
    pub(crate) outcome: RankOutcome,
}

impl Node {
    pub(crate) fn new(job: &Job, rank: u32) -> Self {
        let (ports, tensors) = (job.sizes.len(), job.tensors.len());
        let decider: Box<dyn Decider> = match job.engine {
            Some(_) => Box::new(OfEngine::new(job, rank)),
            None => Box::new(Bare::new(job, rank)),
        };
        let outcome = RankOutcome {
            results: vec![Vec::new(); tensors],
            launched: vec![Vec::new(); ports],
            errors: Vec::new(),
            stopped: None,
            left: Vec::new(),
            packed: false,
            frozen: (0, 0),
            renewed: 0,
        };
        Self {
            rank,
            decider,
            operations: Operations::new(0, Bytes::new(1 << 30)),
            submissions: job.submissions[rank as usize].clone(),
            submitted: 0,
            memory: vec![Vec::new(); tensors],
            generations: BTreeMap::new(),
            live: BTreeMap::new(),
            names: BTreeMap::new(),
            taken: vec![None; ports],
            running: BTreeMap::new(),
            unmatched: Vec::new(),
            said: Vec::new(),
            undecided: false,
            events: 0,
            progress: 0,
            outcome,
        }
    }

    fn note(&mut self, error: &(impl ToString + ?Sized)) {
        self.outcome.errors.push(error.to_string());
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.outcome.stopped.is_some()
    }

    /// Whether all that it submits is done.
    pub(crate) fn is_done(&self) -> bool {
        let done: usize = self.outcome.results.iter().map(Vec::len).sum();
        done == self.submissions.len()
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.decider.deadline()
    }

    /// Tells the decider, and does what it wants.
    pub(crate) fn tell(&mut self, around: &mut Around<'_>, event: Event) {
        self.tell_alone(around, event);
        self.settle(around);
    }

    fn tell_alone(&mut self, around: &mut Around<'_>, event: Event) {
        self.events += 1;
        let mut todo = Vec::new();
        let frozen = self.decider.is_frozen();
        if let Err(broken) = self.decider.on(around.now, event, &mut todo) {
            self.note(&broken);
        }
        if frozen && self.decider.is_frozen() {
            let is_said = |one: &&Action| match one {
                Action::Send { payload, .. } => !matches!(payload, Payload::Thaw(_)),
                _ => false,
            };
            let is_done = |one: &&Action| matches!(one, Action::Done { .. });
            self.outcome.frozen.0 += todo.iter().filter(is_done).count() as u64;
            self.outcome.frozen.1 += todo.iter().filter(is_said).count() as u64;
        }
        self.carry_out(around, todo);
    }

    fn settle(&mut self, around: &mut Around<'_>) {
        loop {
            let mut todo = Vec::new();
            self.decider.settle(&mut todo);
            if todo.is_empty() {
                return;
            }
            self.carry_out(around, todo);
        }
    }

    /// A coordinator's message has come from a place in the group.
    pub(crate) fn hear(&mut self, around: &mut Around<'_>, from: u32, bytes: &[u8]) {
        let (ranks, tensors) = (self.decider.peers().1.len() as u32, self.memory.len() as u32);
        let limits = Limits { ranks, tensors, ..Limits::default() };
        self.undecided = false;
        match decode(bytes, &limits) {
            Ok(payload) => self.tell(around, Event::Frame { from, epoch: 0, payload }),
            // As a driver with checksums knows it, whatever was changed.
            Err(_) => self.tell(around, Event::Misspoke { from }),
        }
    }

    /// Whether it can submit what is next; a tensor waits for its exchange before.
    pub(crate) fn can_submit(&self) -> bool {
        let next = self.submissions.get(self.submitted);
        !self.has_stopped()
            && !self.undecided
            && next.is_some_and(|(generation, tensor)| {
                self.outcome.results[*tensor].len() == *generation
            })
    }

    /// The rank has its next tensor ready.
    pub(crate) fn submit(&mut self, around: &mut Around<'_>) {
        if !self.can_submit() {
            return;
        }
        let (generation, tensor) = self.submissions[self.submitted];
        self.submitted += 1;
        let which = (generation, tensor);
        self.memory[tensor] = contents::memory(around.job, which, self.rank);
        if around.job.calls {
            self.call(around, tensor);
            return;
        }
        let key = around.job.key_of(self.rank, tensor);
        let unused = around.job.unused.contains(&(generation, self.rank, tensor));
        self.tell(around, if unused { Event::Unused { key } } else { Event::Submit { key } });
    }

    fn call(&mut self, around: &mut Around<'_>, number: usize) {
        self.events += 1;
        let TakenFor { dtype, elements, operation, root, .. } =
            around.job.taken_for(self.rank, number);
        let call = Call {
            operation,
            root,
            dtype: dtype.name(),
            shape: &[elements],
            width: dtype.width(),
            priority: around.job.tensors[number].priority,
            signature: None,
        };
        let mut todo = Vec::new();
        let name = around.job.named.then(|| around.job.name(number));
        let made = match &name {
            None => self.decider.call(around.now, &call, &mut todo),
            Some(name) => self.decider.call_named(around.now, (name, &call), &mut todo),
        };
        match made {
            Ok(name) if name.key == around.job.key(number) => {}
            Ok(name) => self.note(&format!("call {number} is called {name}")),
            Err(Broken::Undecided { .. }) => {
                self.undecided = true;
                self.submitted -= 1;
            }
            Err(broken) => self.note(&broken),
        }
        self.carry_out(around, todo);
        self.settle(around);
    }

    fn carry_out(&mut self, around: &mut Around<'_>, todo: Vec<Action>) {
        for action in todo {
            self.progress += u64::from(!matches!(action, Action::Send { .. }));
            match action {
                Action::Send { to, payload } => {
                    let (_, peers) = self.decider.peers();
                    let mut bytes = Vec::new();
                    encode(&payload, &mut bytes).expect("a payload of this crate");
                    self.said.push((peers[to as usize], bytes));
                }
                Action::Begin { id, operation, signature, part, .. } => {
                    let numbers = 0..around.job.tensors.len();
                    let of_key = |number: &usize| around.job.key(*number) == operation.key;
                    let shares = match numbers.into_iter().find(of_key) {
                        Some(call) if around.job.calls => {
                            vec![(call, 0..around.job.elements(self.rank, call))]
                        }
                        _ => self.decider.shares(id),
                    };
                    let dtype = around.job.dtype(self.rank, shares[0].0);
                    let mut live = Live { id, dtype, shares, packed: None };
                    if live.shares.len() > 1 {
                        self.outcome.packed = true;
                        live.packed = Some(self.pack(&live));
                    }
                    self.live.insert(operation, live);
                    self.names.insert(id, operation);
                    if let Err(refused) = self.operations.open(operation, signature, part) {
                        let from = refused.from().expect("a frame that was kept");
                        self.refuse(
                            around,
                            (from, operation),
                            (refused.to_string(), differs(&refused)),
                        );
                    }
                }
                Action::Run(run) => {
                    let launch = (self.names[&run.collective], run.at);
                    self.launch(around, run.port, launch);
                }
                Action::Over { id, operation } => {
                    self.names.remove(&id);
                    if let Some(live) = self.live.remove(&operation) {
                        self.unpack(&live);
                    }
                    if let Err(refused) = self.operations.close(operation) {
                        self.note(&refused);
                    }
                }
                Action::Done { key, generation } => {
                    self.done(around.job, key, generation);
                    if let Err(refused) = self.operations.exchanged(0, key, generation) {
                        let Refused::Beyond(name) = refused else { panic!("{refused}") };
                        self.refuse(
                            around,
                            (name.at.from, name.operation),
                            (refused.to_string(), differs(&refused)),
                        );
                    }
                }
                Action::Idle { keys } => {
                    keys.into_iter().for_each(|key| self.operations.forget(0, key));
                }
                Action::Warn { .. } => {}
                Action::Stop(stopped) => {
                    let again = self.outcome.stopped.replace(*stopped);
                    again.into_iter().for_each(|_| self.note("it stops again"));
                    self.outcome.left = self.memory.clone();
                }
            }
        }
    }

    fn done(&mut self, job: &Job, key: Key, generation: u64) {
        let tensor = (0..job.tensors.len()).find(|tensor| job.key_of(self.rank, *tensor) == key);
        let tensor = tensor.expect("a tensor of the job");
        let results = &mut self.outcome.results[tensor];
        results.push(self.memory[tensor].clone());
        // Of a name that was forgotten they count from 0 again.
        self.outcome.renewed += u64::from(job.named && generation == 0 && results.len() > 1);
        let next = self.generations.insert(key, generation).map_or(0, |last| last + 1);
        if generation != next && !(job.named && generation == 0) {
            self.note(&format!("generation {generation} of tensor {tensor} is done out of turn"));
        }
    }

    /// The bytes of a share, in the memory of its tensor.
    fn bytes(&mut self, dtype: Dtype, (tensor, elements): &Share) -> &mut [u8] {
        let byte = |element: u64| GUARD + (element * u64::from(dtype.width())) as usize;
        &mut self.memory[*tensor][byte(elements.start)..byte(elements.end)]
    }

    fn pack(&mut self, live: &Live) -> Vec<u8> {
        let mut all = Vec::new();
        live.shares.iter().for_each(|share| all.extend_from_slice(self.bytes(live.dtype, share)));
        all
    }

    fn unpack(&mut self, live: &Live) {
        let mut packed = live.packed.as_deref().unwrap_or_default();
        for share in live.shares.iter().filter(|_| live.packed.is_some()) {
            let held = self.bytes(live.dtype, share);
            let (mine, rest) = packed.split_at(held.len());
            held.copy_from_slice(mine);
            packed = rest;
        }
    }

    fn launch(&mut self, around: &mut Around<'_>, port: u32, launch: Launch) {
        let launched = &mut self.outcome.launched[port as usize];
        let count = launched.len();
        launched.push(launch);
        let in_order = around.job.transport == Transport::InOrder;
        if in_order {
            around.matcher.launch(self.rank, port, count, launch);
        }
        if self.taken[port as usize].replace(launch).is_some() {
            self.note(&format!("port {port} is taken twice"));
        }
        self.running.insert(launch, (port, count));
        if let Err(refused) = self.operations.begin(launch.0, launch.1) {
            self.note(&refused);
        }
        let (here, others) = std::mem::take(&mut self.unmatched).into_iter().partition(
            |frame| matches!(frame.address, Address::Counted(p, c) if (p, c) == (port, count)),
        );
        self.unmatched = others;
        let here: Vec<Frame> = here;
        here.into_iter().for_each(|frame| self.accept(around, launch, frame));
        self.advance(around, launch);
    }

    /// A frame has come.
    pub(crate) fn frame(&mut self, around: &mut Around<'_>, frame: Frame) {
        match frame.address {
            Address::Named(launch) => self.accept(around, launch, frame),
            Address::Counted(port, count) => {
                match self.outcome.launched[port as usize].get(count).copied() {
                    Some(launch) => self.accept(around, launch, frame),
                    None => self.unmatched.push(frame),
                }
            }
        }
    }

    fn accept(
        &mut self,
        around: &mut Around<'_>,
        (operation, StageRef { chunk, stage }): Launch,
        frame: Frame,
    ) {
        if self.has_stopped() {
            return;
        }
        let at = FrameAt { stage, step: frame.step, from: frame.from, index: frame.index };
        let bytes = frame.data.len() as u64;
        let name = FrameName { operation, chunk, at };
        let home = self.decider.home(&operation);
        let known = matches!(home, Ok(Home::Running(_)));
        if known != self.live.contains_key(&operation) {
            self.note(&format!("{operation} is at home as {home:?}"));
        }
        let taken = match home {
            Err(broken) => Err((broken.to_string(), None)),
            Ok(_) => {
                // Where frames carry no name, they carry nothing beside it either.
                let ours = || self.operations.signature(operation).unwrap_or_default();
                let signature = frame.signature.unwrap_or_else(ours);
                let taken = self.operations.frame(name, signature, bytes, frame.data);
                taken.map_err(|no| (no.to_string(), differs(&no)))
            }
        };
        if let Err(why) = taken {
            self.refuse(around, (frame.from, operation), why);
        }
    }

    /// A frame is not what it should be.
    fn refuse(
        &mut self,
        around: &mut Around<'_>,
        (from, operation): (u32, OperationName),
        (why, differs): (String, Option<Differs>),
    ) {
        self.note(&why);
        if around.job.engine.is_some() {
            let from = around.job.place(from);
            let event = match differs {
                Some(differs) => Event::Differs { from, operation, differs },
                None => Event::Refused { from, operation, why },
            };
            self.tell_alone(around, event);
        }
    }

    /// An operation that is under way cannot be carried on.
    pub(crate) fn fail(&mut self, around: &mut Around<'_>, operation: OperationName) {
        self.tell(around, Event::Failed { operation, why: "a link is down".to_owned() });
    }

    /// Work that may be done now.
    pub(crate) fn next_work(&mut self) -> Option<Handed> {
        self.operations.next_work()
    }

    /// Does work that was handed out; a send is returned as the frame that leaves.
    pub(crate) fn work(&mut self, around: &mut Around<'_>, handed: Handed) -> Option<Frame> {
        let (operation, chunk, work) = handed;
        if self.has_stopped() {
            return None;
        }
        let live = self.live.get_mut(&operation).expect("under way while there is work");
        let run = self.operations.run(operation, chunk).expect("open while there is work");
        let place = work.place();
        let message = run.message(place).expect("it was handed out").clone();
        let launch = (operation, StageRef { chunk, stage: message.stage });
        let held = match (&mut live.packed, live.shares.as_slice()) {
            (Some(packed), _) => packed.as_mut_slice(),
            (None, [(tensor, elements), ..]) => {
                let byte =
                    |element: u64| GUARD + (element * u64::from(live.dtype.width())) as usize;
                &mut self.memory[*tensor][byte(elements.start)..byte(elements.end)]
            }
            (None, []) => &mut [],
        };
        let sent = match work {
            Work::Send { .. } => {
                let mut data = Vec::new();
                memory::read(run.chunk(), &message, live.dtype, held, &mut data)
                    .expect("memory as large as the buffer");
                let address = match around.job.transport {
                    Transport::Tagged => Address::Named(launch),
                    Transport::InOrder => {
                        let (port, count) = self.running[&launch];
                        Address::Counted(port, count)
                    }
                };
                let (from, to) = (self.rank, message.peer);
                let signature = match address {
                    Address::Named(_) => self.operations.signature(operation),
                    Address::Counted(..) => None,
                };
                let (step, index) = (message.step, message.index);
                Some(Frame { from, to, address, signature, step, index, data })
            }
            Work::Combine { frame, .. } => {
                memory::combine(run.chunk(), &message, live.dtype, held, &frame)
                    .expect("as long as planned");
                None
            }
        };
        if let Err(refused) = self.operations.done(operation, chunk, place) {
            self.note(&refused);
        }
        self.progress += 1;
        self.advance(around, launch);
        self.settle(around);
        sent
    }

    /// Tells the decider of a port that is free, and of a stage that is over.
    fn advance(&mut self, around: &mut Around<'_>, launch: Launch) {
        let Some((port, _)) = self.running.get(&launch).copied() else { return };
        let over = self.operations.is_over(launch.0, launch.1);
        // With names, a link that has nothing to send serves another stage; a blocking call ends first.
        let free = over
            || (around.job.transport == Transport::Tagged
                && !self.operations.is_sending(launch.0, launch.1));
        let id = self.live[&launch.0].id;
        if over {
            self.running.remove(&launch);
        }
        if free && self.taken[port as usize] == Some(launch) {
            self.taken[port as usize] = None;
            self.tell_alone(around, Event::PortFree { port });
        }
        if over && !self.has_stopped() {
            self.tell_alone(around, Event::StageOver { id, at: launch.1 });
        }
    }
}

/// What differs, of a frame of another operation than is under its name.
fn differs(refused: &Refused) -> Option<Differs> {
    match refused {
        Refused::Signature { differs, .. } => Some(*differs),
        _ => None,
    }
}
