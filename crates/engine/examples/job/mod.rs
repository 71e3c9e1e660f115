//! A job of several ranks in one process whose stages take no time: what is left is deciding.

use std::collections::VecDeque;

use allrail_collective::rank::Plans;
use allrail_collective::{DimensionSet, Operation};
use allrail_coordinate::{self as coordinate, Payload};
use allrail_core::{Bytes, DimensionId, Time};
use allrail_engine::Run;
use allrail_engine::engine::{
    Action, Call, Coordination, Engine, Event, Ordering, Registration, Settings,
};
use allrail_schedule::signature::Signature;
use allrail_schedule::tensor::TensorParameters;
use allrail_schedule::{Key, Order};

use self::switches::plan;

#[path = "../../tests/it/switches.rs"]
mod switches;

/// How many tensors a model has.
pub(crate) const TENSORS: usize = 160;
/// Into how many parts each is cut.
pub(crate) const PARTS: u64 = 8;
const PART: u64 = 1 << 20;

/// What ranks exchange, and over which transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Tensors, over a tagged one.
    Tagged,
    /// Tensors, over one with a common order.
    Common,
    /// Calls without a name, as many as tensors have parts: every other one a broadcast from another rank.
    Calls,
}

/// What happens at a rank next.
enum Next {
    Run(Run),
    Frame { from: u32, payload: Payload },
}

/// All ranks.
pub(crate) struct Job {
    load: Load,
    engines: Vec<Engine>,
    keys: Vec<Key>,
    now: Time,
    next: VecDeque<(usize, Next)>,
    out: Vec<Action>,
    done: usize,
    /// How many events were told.
    pub(crate) events: u64,
}

impl Job {
    /// On switches of these sizes, chunks a collective.
    pub(crate) fn new(sizes: &[u32], chunks: u32, load: Load) -> Self {
        let kinds = [(Operation::AllReduce, "themis"), (Operation::Broadcast, "baseline")];
        let plans = kinds.map(|(kind, policy)| plan(sizes, kind, policy, Bytes::new(PART), chunks));
        let ranks: u32 = sizes.iter().product();
        let (order, credit, coordination) = match load {
            Load::Tagged | Load::Calls => (Order::SMALLEST_FIRST, None, None),
            Load::Common => {
                let policy = coordinate::named("cached").expect("listed");
                let settings = coordinate::Settings::default();
                let credit = Some(Bytes::new(16 * PART));
                (Order::STRICT, credit, Some(Coordination { policy, settings }))
            }
        };
        let tensor = TensorParameters {
            policy: "bytescheduler".to_owned(),
            partition: Some(Bytes::new(PART)),
            credit,
            ..TensorParameters::default()
        };
        let dimensions = (0u32..).map(DimensionId).take(sizes.len());
        let settings = Settings {
            ranks,
            dimensions: dimensions.fold(DimensionSet::default(), DimensionSet::with),
            ports: sizes.len(),
            order,
            tensor,
            coordination,
            ordering: if load == Load::Common { Ordering::Common } else { Ordering::Tagged },
            ..Settings::default()
        };
        let engine = |rank| {
            let mut of_rank = Plans::new(rank, 4 * ranks as usize);
            for plan in &plans {
                of_rank.add(plan.clone()).expect("a plan for the rank");
            }
            let settings = Settings { rank, ..settings.clone() };
            let mut engine = Engine::new(settings, of_rank).expect("settings that go together");
            for layer in 0..TENSORS {
                let signature = Signature {
                    name: format!("layer{layer:03}"),
                    dtype: "float32".to_owned(),
                    shape: vec![PARTS * PART / 4],
                    strides: Vec::new(),
                };
                let place = u32::try_from(layer).expect("few");
                let tensor = Registration { signature, width: 4, place, group: None };
                engine.register(tensor).expect("a tensor");
            }
            engine
        };
        let keys = (0..TENSORS).map(|layer| Key::of(&format!("layer{layer:03}"))).collect();
        let mut job = Self {
            load,
            engines: (0..ranks).map(engine).collect(),
            keys,
            now: Time::ZERO,
            next: VecDeque::new(),
            out: Vec::new(),
            done: 0,
            events: 0,
        };
        for rank in 0..job.engines.len() {
            job.tell(rank, Event::Start);
        }
        job
    }

    fn tell(&mut self, rank: usize, event: Event) {
        self.events += 1;
        self.engines[rank].on(self.now, event, &mut self.out).expect("an event that can be");
        self.carry_out(rank);
    }

    fn carry_out(&mut self, rank: usize) {
        self.engines[rank].settle(&mut self.out);
        for action in self.out.drain(..) {
            match action {
                Action::Run(run) => self.next.push_back((rank, Next::Run(run))),
                Action::Send { to, payload } => {
                    let from = u32::try_from(rank).expect("few ranks");
                    self.next.push_back((to as usize, Next::Frame { from, payload }));
                }
                Action::Done { .. } => self.done += 1,
                Action::Begin { .. } | Action::Over { .. } | Action::Idle { .. } => {}
                Action::Warn { key, missing } => panic!("{key:?} waits for {missing:?}"),
                Action::Stop(stopped) => panic!("{}", stopped.error),
            }
        }
    }

    fn call(&mut self, rank: usize, number: usize) {
        let broadcast = number % 2 == 1;
        let call = Call {
            operation: if broadcast { Operation::Broadcast } else { Operation::AllReduce },
            root: if broadcast { (number % self.engines.len()) as u32 } else { 0 },
            dtype: "float32",
            shape: &[PART / 4],
            width: 4,
            priority: 0,
            signature: None,
        };
        self.events += 1;
        self.engines[rank].call(self.now, &call, &mut self.out).expect("a call that can be");
        self.carry_out(rank);
    }

    /// One step of the training: every tensor once, the last layer's first; or as many calls.
    pub(crate) fn step(&mut self) {
        self.done = 0;
        let ranks = self.engines.len();
        let each = if self.load == Load::Calls { TENSORS * PARTS as usize } else { TENSORS };
        for number in (0..each).rev() {
            for rank in 0..ranks {
                if self.load == Load::Calls {
                    self.call(rank, number);
                } else {
                    self.tell(rank, Event::Submit { key: self.keys[number] });
                }
            }
        }
        let all = each * ranks;
        loop {
            while let Some((rank, next)) = self.next.pop_front() {
                match next {
                    Next::Run(Run { collective: id, at, port, .. }) => {
                        self.tell(rank, Event::PortFree { port });
                        self.tell(rank, Event::StageOver { id, at });
                    }
                    Next::Frame { from, payload } => {
                        self.tell(rank, Event::Frame { from, epoch: 0, payload });
                    }
                }
            }
            if self.done == all {
                return;
            }
            self.now = self.engines.iter().filter_map(Engine::deadline).min().expect("no stall");
            for rank in 0..self.engines.len() {
                if self.engines[rank].deadline().is_some_and(|at| at <= self.now) {
                    self.tell(rank, Event::Time);
                }
            }
        }
    }
}
