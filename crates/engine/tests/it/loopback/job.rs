//! What is exchanged, from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use allrail_collective::algorithm::Own;
use allrail_collective::rank::Plans;
use allrail_collective::{Algorithm, CollectivePlan, DimensionSet, Operation};
use allrail_coordinate::{self as coordinate, CoordinationPolicy, Settings};
use allrail_core::{Bytes, DimensionId};
use allrail_engine::engine::{self, Coordination, FORGET_AFTER};
use allrail_engine::{Dtype, Ordering};
use allrail_schedule::Order;
use allrail_schedule::operation::Key;
use allrail_schedule::tensor::{self, TensorParameters};

use super::draw::Draw;
use super::faults::{Fault, TakenFor};
use super::plans::{any_plan, own_plan, sizes};

/// What the transport asks of the order of launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Transport {
    /// Frames carry their full name.
    Tagged,
    /// Frames carry the number of their launch on the dimension.
    InOrder,
}

/// A tensor, and what happens to it.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) elements: u64,
    pub(crate) operation: Operation,
    pub(crate) dimensions: Vec<DimensionId>,
    pub(crate) plan: Arc<CollectivePlan>,
    pub(crate) priority: i64,
    /// Of a broadcast: the place in the group that has what all get.
    pub(crate) root: u32,
}

/// What engines have to know beside.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) parameters: TensorParameters,
    pub(crate) coordination: Option<Coordination>,
    /// After how many equal rounds the order of launches is frozen.
    pub(crate) freeze: Option<u32>,
    /// The group of each tensor.
    pub(crate) groups: Vec<Option<u32>>,
    /// What a rank takes a tensor for, where that is wrong.
    pub(crate) differs: BTreeMap<(u32, usize), TakenFor>,
}

/// What all ranks do.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) seed: u64,
    /// The dimensions of the fabric, which all ranks fill.
    pub(crate) sizes: Vec<u32>,
    pub(crate) transport: Transport,
    pub(crate) order: Order,
    pub(crate) active_chunks: Option<u32>,
    pub(crate) granule: Bytes,
    pub(crate) tensors: Vec<Tensor>,
    /// For each rank the generations of tensors, in the order in which it submits them.
    pub(crate) submissions: Vec<Vec<(usize, usize)>>,
    /// Generation, rank and tensor: where a rank has nothing, and takes part with zeros.
    pub(crate) unused: BTreeSet<(usize, u32, usize)>,
    /// Whether tensors are calls, which have no name and are made in this order by all.
    pub(crate) calls: bool,
    /// Whether these calls have names all the same, and each rank makes them in its own order.
    pub(crate) named: bool,
    /// After how many calls with names one that was not used is forgotten.
    pub(crate) forget_after: u64,
    /// Without one, ranks decide by an executor alone.
    pub(crate) engine: Option<Setup>,
    pub(crate) fault: Option<Fault>,
}

impl Job {
    pub(crate) fn ranks(&self) -> u32 {
        self.sizes.iter().product()
    }

    /// The ranks that differ from `rank` on `dimensions` only, in the order of their shards.
    pub(crate) fn group(&self, dimensions: &[DimensionId], rank: u32) -> Vec<u32> {
        let mut group = vec![rank];
        let mut stride = 1;
        for (d, size) in (0..).map(DimensionId).zip(&self.sizes) {
            if dimensions.contains(&d) {
                let first = |rank: u32| rank - rank / stride % size * stride;
                let lines = (0..*size).flat_map(|i| {
                    group.iter().map(move |rank| first(*rank) + i * stride).collect::<Vec<_>>()
                });
                group = lines.collect();
            }
            stride *= size;
        }
        group
    }

    /// What a rank's engine is made with: settings, plans, and the ranks of its group.
    pub(crate) fn engine_of(&self, rank: u32) -> (engine::Settings, Plans, Vec<u32>) {
        let setup = self.engine.as_ref().expect("a job for engines");
        let tensor = &self.tensors[0];
        let peers = self.group(&tensor.dimensions, rank);
        let mut plans = Plans::new(rank, 64);
        for kind in Operation::ALL {
            let one = self.tensors.iter().find(|tensor| tensor.operation == kind);
            one.into_iter().for_each(|one| plans.add((*one.plan).clone()).expect("a right plan"));
        }
        let settings = engine::Settings {
            rank: self.place(rank),
            ranks: peers.len() as u32,
            operation: tensor.operation,
            dimensions: tensor.dimensions.iter().fold(DimensionSet::default(), |s, d| s.with(*d)),
            ports: self.sizes.len(),
            order: self.order,
            active_chunks: self.active_chunks,
            tensor: setup.parameters.clone(),
            coordination: setup.coordination.clone(),
            ordering: match self.transport {
                Transport::Tagged => Ordering::Tagged,
                Transport::InOrder => Ordering::Common,
            },
            granule: self.granule,
            named_calls: self.named,
            forget_after: self.forget_after,
            freeze: setup.freeze,
            ..engine::Settings::default()
        };
        (settings, plans, peers)
    }

    /// A rank's place in its group.
    pub(crate) fn place(&self, rank: u32) -> u32 {
        let group = self.group(&self.tensors[0].dimensions, rank);
        group.iter().position(|one| *one == rank).expect("of its own group") as u32
    }

    pub(crate) fn name(&self, tensor: usize) -> String {
        format!("layer{tensor}.weight")
    }

    /// As errors name it: a call has no name.
    pub(crate) fn tensor_name(&self, tensor: usize) -> Option<String> {
        (!self.calls || self.named).then(|| self.name(tensor))
    }

    pub(crate) fn key(&self, tensor: usize) -> Key {
        let numbered = self.calls && !self.named;
        if numbered { Key::call(tensor as u64) } else { Key::of(&self.name(tensor)) }
    }

    /// What a rank calls a tensor.
    pub(crate) fn key_of(&self, rank: u32, tensor: usize) -> Key {
        let differs = self.differs(rank, tensor).filter(|_| !self.calls);
        differs.map_or_else(|| self.key(tensor), |other| Key::of(&other.name))
    }

    fn differs(&self, rank: u32, tensor: usize) -> Option<&TakenFor> {
        self.engine.as_ref()?.differs.get(&(rank, tensor))
    }

    /// What a rank takes a tensor for.
    pub(crate) fn taken_for(&self, rank: u32, tensor: usize) -> TakenFor {
        let Tensor { dtype, elements, operation, root, .. } = self.tensors[tensor];
        let right = || TakenFor { name: self.name(tensor), dtype, elements, operation, root };
        self.differs(rank, tensor).cloned().unwrap_or_else(right)
    }

    pub(crate) fn dtype(&self, rank: u32, tensor: usize) -> Dtype {
        self.taken_for(rank, tensor).dtype
    }

    pub(crate) fn elements(&self, rank: u32, tensor: usize) -> u64 {
        self.taken_for(rank, tensor).elements
    }

    /// Several collectives, submitted in another order by every rank.
    pub(crate) fn tagged(seed: u64, most_ranks: u32) -> Self {
        let mut draw = Draw(seed);
        let orders: Vec<Order> = Order::all().filter(|order| !order.is_strict()).collect();
        let order = draw.one_of(&orders);
        let mut job = Self::draw(&mut draw, seed, most_ranks, Transport::Tagged, order);
        for _ in 0..draw.below(4) {
            job.add(&mut draw);
        }
        for submissions in &mut job.submissions {
            draw.shuffle(submissions);
        }
        job
    }

    /// One collective as a user's own program, alone or behind another dimension.
    pub(crate) fn own(seed: u64, own: Own) -> Self {
        let mut draw = Draw(seed);
        let ranks = own.ranks().expect("a program is of so many");
        let sizes = if draw.one_in(2) { vec![ranks] } else { vec![2, ranks] };
        let all: u32 = sizes.iter().product();
        let operation = own.operation();
        let elements = u64::from(all) * draw.below(400) as u64;
        let plan = own_plan(&mut draw, &sizes, own, Order::FIFO);
        let tensor = Tensor {
            dtype: draw.one_of(&Dtype::ALL),
            elements: match operation {
                Operation::AllToAll => elements,
                _ => elements + draw.below(3) as u64,
            },
            operation,
            dimensions: plan.dimensions.clone(),
            plan: Arc::new(plan),
            priority: 0,
            root: 0,
        };
        Self {
            seed,
            sizes,
            transport: Transport::Tagged,
            order: Order::FIFO,
            active_chunks: None,
            granule: Bytes::new(draw.one_of(&[1, 4, 12, 64])),
            tensors: vec![tensor],
            submissions: vec![vec![(0, 0)]; all as usize],
            unused: BTreeSet::new(),
            calls: false,
            named: false,
            forget_after: FORGET_AFTER,
            engine: None,
            fault: None,
        }
    }

    /// One collective, whose planned order all ranks keep to.
    pub(crate) fn planned(seed: u64, most_ranks: u32) -> Self {
        let mut draw = Draw(seed);
        Self::draw(&mut draw, seed, most_ranks, Transport::InOrder, Order::PLANNED)
    }

    /// Tensors of a training job, exchanged a few times by engines.
    pub(crate) fn engines(seed: u64, most_ranks: u32, transport: Transport) -> Self {
        let mut draw = Draw(seed ^ 1 << 50);
        let orders: Vec<Order> =
            Order::all().filter(|o| (transport == Transport::InOrder) == o.is_strict()).collect();
        let order = draw.one_of(&orders);
        let mut job = Self::draw(&mut draw, seed, most_ranks, transport, order);
        for _ in 0..draw.below(6) {
            // One kind of exchange, and one plan for all sizes.
            let mut tensor = job.tensor(&mut draw);
            let Tensor { operation, dimensions, plan, .. } = job.tensors[0].clone();
            let ranks = job.group(&dimensions, 0).len() as u64;
            if operation == Operation::AllToAll {
                tensor.elements -= tensor.elements % ranks;
            }
            (tensor.operation, tensor.dimensions, tensor.plan) = (operation, dimensions, plan);
            job.tensors.push(tensor);
        }
        if transport == Transport::InOrder && draw.one_in(2) {
            job.active_chunks = Some(1 + draw.below(3) as u32);
        }
        let tensors = job.tensors.len();
        let generations = 1 + draw.below(3);
        for submissions in &mut job.submissions {
            submissions.clear();
            for generation in 0..generations {
                let from = submissions.len();
                submissions.extend((0..tensors).map(|tensor| (generation, tensor)));
                draw.shuffle(&mut submissions[from..]);
            }
        }
        for _ in 0..draw.below(4) {
            let rank = draw.below(job.ranks() as usize) as u32;
            job.unused.insert((draw.below(generations), rank, draw.below(tensors)));
        }
        let groups = (0..tensors).map(|_| draw.one_in(3).then(|| draw.below(2) as u32)).collect();
        let parameters = job.parameters(&mut draw);
        let coordination = coordination(&mut draw, transport);
        let differs = BTreeMap::new();
        job.engine = Some(Setup { parameters, coordination, freeze: None, groups, differs });
        job
    }

    /// A training job of many steps: every rank submits in an order of its own, mostly the same in every
    /// step, and orders of launches freeze.
    pub(crate) fn steps(seed: u64, most_ranks: u32) -> Self {
        let drawn = |i: u64| Self::engines(seed ^ i << 32, most_ranks, Transport::InOrder);
        let all_reduces = |job: &Self| job.tensors[0].operation == Operation::AllReduce;
        let mut job = (0..).map(drawn).find(all_reduces).expect("one in five");
        let mut draw = Draw(seed ^ 1 << 51);
        let (ranks, tensors) = (job.ranks() as usize, job.tensors.len());
        let generations = 4 + draw.below(6);
        let mut order: Vec<usize> = (0..tensors).collect();
        for submissions in &mut job.submissions {
            draw.shuffle(&mut order);
            let step = |generation| order.iter().map(move |tensor| (generation, *tensor));
            *submissions = (0..generations).flat_map(step).collect();
        }
        // Now and then a rank does something else.
        job.unused.clear();
        for _ in 0..draw.below(4) {
            let (rank, generation) = (draw.below(ranks), draw.below(generations));
            if draw.one_in(2) {
                job.unused.insert((generation, rank as u32, draw.below(tensors)));
            } else {
                let from = generation * tensors;
                draw.shuffle(&mut job.submissions[rank][from..from + tensors]);
            }
        }
        let setup = job.engine.as_mut().expect("a job for engines");
        setup.freeze = Some(1 + draw.below(2) as u32);
        if draw.one_in(2) {
            // Without a cycle, so that silence is silence.
            let policy = &coordinate::agreed::AgreedPolicy;
            setup.coordination = Some(Coordination { policy, settings: policy.defaults() });
        }
        job
    }

    /// Calls of all kinds without a name, made in one order by all ranks, any number at a time.
    pub(crate) fn calls(seed: u64, most_ranks: u32) -> Self {
        let mut draw = Draw(seed ^ 1 << 52);
        let orders: Vec<Order> = Order::all().filter(|order| !order.is_strict()).collect();
        let order = draw.one_of(&orders);
        let mut job = Self::draw(&mut draw, seed, most_ranks, Transport::Tagged, order);
        job.calls = true;
        let dimensions = job.tensors[0].dimensions.clone();
        let ranks = job.group(&dimensions, 0).len();
        // One plan for all calls of a kind.
        let mut plans: BTreeMap<Operation, Arc<CollectivePlan>> = BTreeMap::new();
        plans.insert(job.tensors[0].operation, Arc::clone(&job.tensors[0].plan));
        for _ in 0..draw.below(6) {
            let mut call = job.tensor(&mut draw);
            call.dimensions.clone_from(&dimensions);
            if call.operation == Operation::AllToAll {
                call.elements -= call.elements % ranks as u64;
            }
            let plan = plans.entry(call.operation).or_insert_with(|| {
                let plan = any_plan(&mut draw, &job.sizes, call.operation, &dimensions, order);
                Arc::new(plan)
            });
            call.plan = Arc::clone(plan);
            job.tensors.push(call);
        }
        for call in job.tensors.iter_mut().filter(|one| one.operation == Operation::Broadcast) {
            call.root = draw.below(ranks) as u32;
        }
        let all: Vec<(usize, usize)> = (0..job.tensors.len()).map(|call| (0, call)).collect();
        job.submissions.fill(all);
        job.engine = Some(Setup {
            parameters: TensorParameters { policy: "fifo".to_owned(), ..Default::default() },
            coordination: None,
            freeze: None,
            groups: Vec::new(),
            differs: BTreeMap::new(),
        });
        job
    }

    /// The same with names, made by each rank in its own order.
    pub(crate) fn named_calls(seed: u64, most_ranks: u32) -> Self {
        let mut job = Self::calls(seed, most_ranks);
        let mut draw = Draw(seed ^ 1 << 53);
        job.submissions.iter_mut().for_each(|all| draw.shuffle(all));
        Self { named: true, ..job }
    }

    /// The same names used again and again, and forgotten in between: in each round every rank uses some of
    /// them, the same as the others and in its own order.
    pub(crate) fn names_used_again(seed: u64, most_ranks: u32) -> Self {
        let mut job = Self::named_calls(seed, most_ranks);
        let mut draw = Draw(seed ^ 1 << 54);
        let mut used = vec![0; job.tensors.len()];
        let mut rounds: Vec<Vec<(usize, usize)>> = Vec::new();
        for _ in 0..4 + draw.below(8) {
            let mut round = Vec::new();
            for (name, used) in used.iter_mut().enumerate() {
                if !draw.one_in(3) {
                    round.push((*used, name));
                    *used += 1;
                }
            }
            rounds.push(round);
        }
        for all in &mut job.submissions {
            all.clear();
            for round in &rounds {
                let mut round = round.clone();
                draw.shuffle(&mut round);
                all.extend(round);
            }
        }
        // As seldom as it may be that a name is forgotten before it is used again.
        let forget_after = draw.below(4) as u64;
        Self { forget_after, ..job }
    }

    /// Any tensor scheduler that this transport and operation allow.
    fn parameters(&self, draw: &mut Draw) -> TensorParameters {
        let tagged = self.transport == Transport::Tagged;
        let mut fit = Vec::new();
        for policy in tensor::ALL {
            let mut parameters =
                TensorParameters { policy: policy.tag().to_owned(), ..TensorParameters::default() };
            let cuts = policy.partition(&parameters).is_some();
            let limited = policy.credit(&parameters).is_some();
            let mut set =
                |key: &str, field: fn(&mut TensorParameters) -> &mut Option<Bytes>, most| {
                    if policy.reads().contains(&key) && !(tagged && key == "credit") {
                        *field(&mut parameters) = Some(Bytes::new(1 + draw.next() % most));
                    }
                };
            set("partition", |one| &mut one.partition, 4000);
            set("credit", |one| &mut one.credit, 8000);
            set("bucket", |one| &mut one.bucket, 8000);
            set("first_bucket", |one| &mut one.first_bucket, 2000);
            set("threshold", |one| &mut one.threshold, 8000);
            if let Some(partition) = &mut parameters.partition {
                // Not into a thousand parts.
                *partition = Bytes::new(partition.count().max(500));
            }
            let limited = limited && !policy.reads().contains(&"credit");
            let sharded = self.tensors[0].operation.is_sharded();
            if !(sharded && cuts || tagged && (policy.packs_by_time() || limited)) {
                fit.push(parameters);
            }
        }
        let at = draw.below(fit.len());
        fit.swap_remove(at)
    }

    fn draw(
        draw: &mut Draw,
        seed: u64,
        most_ranks: u32,
        transport: Transport,
        order: Order,
    ) -> Self {
        let sizes = sizes(draw, most_ranks);
        let ranks: u32 = sizes.iter().product();
        let mut job = Self {
            seed,
            sizes,
            transport,
            order,
            active_chunks: None,
            granule: Bytes::new(draw.one_of(&[1, 4, 12, 64])),
            tensors: Vec::new(),
            submissions: vec![Vec::new(); ranks as usize],
            unused: BTreeSet::new(),
            calls: false,
            named: false,
            forget_after: FORGET_AFTER,
            engine: None,
            fault: None,
        };
        job.add(draw);
        job
    }

    /// Adds a tensor, which every rank submits last.
    fn add(&mut self, draw: &mut Draw) {
        let (number, tensor) = (self.tensors.len(), self.tensor(draw));
        self.tensors.push(tensor);
        self.submissions.iter_mut().for_each(|list| list.push((0, number)));
    }

    fn tensor(&self, draw: &mut Draw) -> Tensor {
        let all: Vec<DimensionId> = (0..).map(DimensionId).take(self.sizes.len()).collect();
        let mut dimensions: Vec<_> = all.iter().copied().filter(|_| !draw.one_in(4)).collect();
        if dimensions.is_empty() {
            dimensions = all;
        }
        let operation = draw.one_of(&Operation::ALL);
        let ranks = self.group(&dimensions, 0).len();
        let elements = match draw.below(8) {
            0 => draw.below(2 * ranks + 2),
            1 => ranks * draw.below(5),
            2 => 0,
            _ => draw.below(1500),
        };
        let elements =
            if operation == Operation::AllToAll { elements - elements % ranks } else { elements };
        Tensor {
            dtype: draw.one_of(&Dtype::ALL),
            elements: elements as u64,
            operation,
            plan: Arc::new(any_plan(draw, &self.sizes, operation, &dimensions, self.order)),
            dimensions,
            priority: draw.below(3) as i64,
            root: 0,
        }
    }
}

/// Any coordinator; with names, often none.
pub(super) fn coordination(draw: &mut Draw, transport: Transport) -> Option<Coordination> {
    let policy = coordinate::ALL[draw.below(coordinate::ALL.len())];
    let settings = Settings {
        threshold: Bytes::new(draw.one_of(&[0, 3000, 64 << 20])),
        fan_out: 2 + draw.below(4) as u32,
        cache: draw.one_of(&[2, 1024]),
        ..policy.defaults()
    };
    let none = transport == Transport::Tagged && draw.one_in(2);
    (!none).then_some(Coordination { policy, settings })
}
