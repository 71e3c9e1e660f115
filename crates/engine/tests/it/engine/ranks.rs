//! Several engines in one process: stages end, frames arrive and clocks go in an order that a seed draws.

use std::collections::VecDeque;

use allrail_collective::rank::Plans;
use allrail_collective::{DimensionSet, Operation, StageRef};
use allrail_coordinate::{self as coordinate, CoordinationPolicy, Payload};
use allrail_core::{Bytes, DimensionId, Time};
use allrail_engine::engine::{
    Action, Coordination, Engine, Event, Registration, Settings, Stopped,
};
use allrail_engine::{Broken, Ordering, Run, Slice};
use allrail_schedule::signature::Signature;
use allrail_schedule::tensor::TensorParameters;
use allrail_schedule::{Key, OperationName, Order};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::switches::plan;

/// The largest buffer that plans are for.
pub(crate) const LARGEST: u64 = 1 << 20;

/// A tensor of so many elements of four bytes.
pub(crate) fn tensor(name: &str, elements: u64, place: u32) -> Registration {
    let signature = Signature {
        name: name.to_owned(),
        dtype: "float32".to_owned(),
        shape: vec![elements],
        strides: Vec::new(),
    };
    Registration { signature, width: 4, place, group: None }
}

/// Tensors `t0`, `t1`, … of these sizes; the first is needed first.
pub(crate) fn tensors(elements: &[u64]) -> Vec<Registration> {
    let of = |(place, elements): (u32, &u64)| tensor(&format!("t{place}"), *elements, place);
    (0..).zip(elements).map(of).collect()
}

/// A tensor scheduler by its tag.
pub(crate) fn policy(tag: &str) -> TensorParameters {
    TensorParameters { policy: tag.to_owned(), ..TensorParameters::default() }
}

/// Settings for a transport without an order.
pub(crate) fn tagged(tensor: TensorParameters) -> Settings {
    Settings { tensor, order: Order::SMALLEST_FIRST, ..Settings::default() }
}

/// Settings for one with one order.
pub(crate) fn common(tensor: TensorParameters, by: &'static dyn CoordinationPolicy) -> Settings {
    let settings = coordinate::Settings { fan_out: 2, ..by.defaults() };
    Settings {
        tensor,
        order: Order::STRICT,
        ordering: Ordering::Common,
        coordination: Some(Coordination { policy: by, settings }),
        ..Settings::default()
    }
}

/// An engine of `rank` on switches of these sizes.
pub(crate) fn engine(rank: u32, sizes: &[u32], settings: &Settings) -> Result<Engine, Broken> {
    let mut plans = Plans::new(rank, 8);
    let whole = plan(sizes, Operation::AllReduce, "themis", Bytes::new(LARGEST), 2);
    plans.add(whole).expect("a plan for the rank");
    let dimensions = (0u32..).map(DimensionId).take(sizes.len());
    let settings = Settings {
        rank,
        ranks: sizes.iter().product(),
        dimensions: dimensions.fold(DimensionSet::default(), DimensionSet::with),
        ports: sizes.len(),
        ..settings.clone()
    };
    Engine::new(settings, plans)
}

/// An operation that began at a rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Began {
    pub(crate) name: OperationName,
    /// Number, first element and the one after the last of each slice.
    pub(crate) slices: Vec<(u32, u64, u64)>,
    pub(crate) unused: Vec<bool>,
}

/// One rank, and what it has done.
pub(crate) struct Node {
    pub(crate) engine: Engine,
    /// Its clock is ahead of the world's by so much.
    skew: Time,
    /// Frames from each rank, in order.
    inbox: Vec<VecDeque<Payload>>,
    running: Vec<Run>,
    pub(crate) began: Vec<Began>,
    /// On each port: operation and stage, in order.
    pub(crate) launched: Vec<Vec<(OperationName, StageRef)>>,
    names: Vec<(allrail_engine::CollectiveId, OperationName)>,
    pub(crate) done: Vec<(Key, u64)>,
    pub(crate) stopped: Vec<Stopped>,
    pub(crate) warned: Vec<(Key, Vec<u32>)>,
    /// A lost rank neither hears nor speaks.
    pub(crate) lost: bool,
}

impl Node {
    /// An operation that is not over here.
    pub(crate) fn under_way(&self) -> Option<OperationName> {
        let run = self.running.first()?;
        let name = self.names.iter().rev().find(|(id, _)| *id == run.collective);
        name.map(|(_, name)| *name)
    }
}

/// All ranks.
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    now: Time,
    pub(crate) draw: Pcg64Mcg,
}

impl World {
    /// On switches of these sizes; every rank registers what `registered` says for it.
    pub(crate) fn new(
        seed: u64,
        sizes: &[u32],
        settings: &Settings,
        registered: impl Fn(u32) -> Vec<Registration>,
    ) -> Self {
        let mut draw = Pcg64Mcg::seed_from_u64(seed);
        let ranks: u32 = sizes.iter().product();
        let node = |rank: u32| {
            let mut engine = engine(rank, sizes, settings).expect("settings that go together");
            let mut tensors = registered(rank);
            let turn = draw.random_range(0..tensors.len().max(1));
            tensors.rotate_left(turn);
            for tensor in tensors {
                engine.register(tensor).expect("a new tensor");
            }
            Node {
                engine,
                skew: Time::from_us(draw.random_range(0..5_000)),
                inbox: (0..ranks).map(|_| VecDeque::new()).collect(),
                running: Vec::new(),
                began: Vec::new(),
                launched: vec![Vec::new(); sizes.len()],
                names: Vec::new(),
                done: Vec::new(),
                stopped: Vec::new(),
                warned: Vec::new(),
                lost: false,
            }
        };
        let nodes = (0..ranks).map(node).collect();
        let mut world = Self { nodes, now: Time::ZERO, draw };
        for rank in 0..world.nodes.len() {
            world.tell(rank, Event::Start).expect("all are registered");
        }
        world
    }

    /// Tells a rank, and carries out what it wants.
    pub(crate) fn tell(&mut self, rank: usize, event: Event) -> Result<(), Broken> {
        let node = &mut self.nodes[rank];
        let now = self.now.checked_add(node.skew).expect("an early time");
        let mut out = Vec::new();
        node.engine.on(now, event, &mut out)?;
        node.engine.settle(&mut out);
        for action in out {
            let node = &mut self.nodes[rank];
            match action {
                Action::Send { to, payload } => {
                    self.nodes[to as usize].inbox[rank].push_back(payload);
                }
                Action::Begin { id, operation, part, .. } => {
                    let slices = node.engine.slices(id).expect("it has begun");
                    let elements: u64 =
                        slices.iter().map(|s| s.elements.end - s.elements.start).sum();
                    assert_eq!((elements, part.rank as usize), (part.buffer.elements(), rank));
                    let of = |s: &Slice| (s.tensor, s.elements.start, s.elements.end);
                    let (unused, slices) = (
                        slices.iter().map(|s| s.unused).collect(),
                        slices.iter().map(of).collect(),
                    );
                    node.began.push(Began { name: operation, slices, unused });
                    node.names.push((id, operation));
                }
                Action::Run(run) => {
                    let name = node.names.iter().rev().find(|(id, _)| *id == run.collective);
                    let name = name.expect("it has begun").1;
                    node.launched[run.port as usize].push((name, run.at));
                    node.running.push(run);
                }
                Action::Over { .. } | Action::Idle { .. } => {}
                Action::Done { key, generation } => node.done.push((key, generation)),
                Action::Warn { key, missing } => node.warned.push((key, missing)),
                Action::Stop(stopped) => node.stopped.push(*stopped),
            }
        }
        Ok(())
    }

    /// Lets one thing happen, as the draw has it; else time goes on. False if nothing can happen.
    pub(crate) fn go(&mut self) -> bool {
        let mut can: Vec<(usize, Option<usize>)> = Vec::new();
        for (rank, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.lost) {
            if node.stopped.is_empty() {
                can.extend(node.running.iter().map(|_| (rank, None)));
            }
            let from = (0..node.inbox.len()).filter(|from| !node.inbox[*from].is_empty());
            can.extend(from.map(|from| (rank, Some(from))));
        }
        if can.is_empty() {
            return self.wait();
        }
        let (rank, from) = can[self.draw.random_range(0..can.len())];
        let node = &mut self.nodes[rank];
        match from.map(|from| (from, node.inbox[from].pop_front())) {
            None => {
                let place = self.draw.random_range(0..node.running.len());
                let run = node.running.remove(place);
                self.end(rank, run);
            }
            Some((from, payload)) => {
                let payload = payload.expect("there is one");
                let from = u32::try_from(from).expect("few");
                let epoch = self.nodes[rank].engine.settings().epoch;
                self.tell(rank, Event::Frame { from, epoch, payload }).expect("a peer's frame");
            }
        }
        true
    }

    /// Ends every stage that runs, and those that follow; no frame arrives.
    pub(crate) fn end_stages(&mut self) {
        for rank in 0..self.nodes.len() {
            while let Some(run) = self.nodes[rank].running.pop() {
                self.end(rank, run);
            }
        }
    }

    /// Ends so many stages of a rank, the first ones first.
    pub(crate) fn end_some(&mut self, rank: usize, count: usize) {
        for _ in 0..count {
            let run = self.nodes[rank].running.remove(0);
            self.end(rank, run);
        }
    }

    /// All ranks are there, in another epoch, and what they have done is forgotten.
    pub(crate) fn begin_anew(&mut self, epoch: u32) {
        let ranks = u32::try_from(self.nodes.len()).expect("few");
        for rank in 0..self.nodes.len() {
            let node = &mut self.nodes[rank];
            node.inbox.iter_mut().for_each(VecDeque::clear);
            node.running.clear();
            node.names.clear();
            (node.began, node.done, node.stopped) = (Vec::new(), Vec::new(), Vec::new());
            node.lost = false;
        }
        for rank in 0..self.nodes.len() {
            self.tell(rank, Event::Membership { epoch, ranks }).expect("a later epoch");
        }
    }

    fn end(&mut self, rank: usize, run: Run) {
        let Run { collective: id, at, port, .. } = run;
        self.tell(rank, Event::PortFree { port }).expect("a port");
        self.tell(rank, Event::StageOver { id, at }).expect("it ran");
    }

    /// Time goes on to the first deadline.
    fn wait(&mut self) -> bool {
        let living = self.nodes.iter().filter(|node| !node.lost);
        let due = |node: &Node| Some(node.engine.deadline()?.saturating_sub(node.skew));
        let Some(at) = living.filter_map(due).min() else { return false };
        self.now = self.now.max(at);
        for rank in 0..self.nodes.len() {
            let node = &self.nodes[rank];
            let now = self.now.checked_add(node.skew).expect("an early time");
            if !node.lost && node.engine.deadline().is_some_and(|at| at <= now) {
                self.tell(rank, Event::Time).expect("time passes");
            }
        }
        true
    }

    /// Goes on until every rank has done so many exchanges.
    pub(crate) fn run_until_done(&mut self, exchanges: usize) {
        for _ in 0..2_000_000 {
            if self.nodes.iter().all(|node| node.done.len() >= exchanges) {
                return;
            }
            assert!(self.go(), "{exchanges} exchanges, and all wait: {:?}", self.reports());
        }
        panic!("it takes for ever: {:?}", self.reports());
    }

    /// Goes on until every rank that is there has stopped.
    pub(crate) fn run_until_stopped(&mut self) {
        for _ in 0..2_000_000 {
            if self.nodes.iter().all(|node| node.lost || !node.stopped.is_empty()) {
                return;
            }
            assert!(self.go(), "not all stop: {:?}", self.reports());
        }
        panic!("it takes for ever: {:?}", self.reports());
    }

    fn reports(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("{:?}", node.engine.report())).collect()
    }

    /// All ranks submit these tensors, each in an order of its own, while other things happen.
    pub(crate) fn submit_in_any_order(&mut self, names: &[&str]) {
        let mut left: Vec<Vec<&str>> = self.nodes.iter().map(|_| names.to_vec()).collect();
        while left.iter().any(|names| !names.is_empty()) {
            let rank = self.draw.random_range(0..left.len());
            if left[rank].is_empty() {
                continue;
            }
            let place = self.draw.random_range(0..left[rank].len());
            let key = Key::of(left[rank].swap_remove(place));
            self.tell(rank, Event::Submit { key }).expect("it is done");
            for _ in 0..self.draw.random_range(0..4) {
                self.go();
            }
        }
    }
}
