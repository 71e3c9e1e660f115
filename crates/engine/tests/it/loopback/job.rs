//! What is exchanged, from a seed.

use std::collections::BTreeSet;
use std::sync::Arc;

use allrail_collective::{Algorithm, CollectivePlan, Operation, SizeRange, algorithm};
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_engine::Dtype;
use allrail_fabric::{Contention, Dimension, Fabric, Kind};
use allrail_schedule::chunk::{self, Composition, Parameters};
use allrail_schedule::{Order, Request, plan};

use super::draw::Draw;

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
    /// For each rank the tensors in the order in which it submits them.
    pub(crate) submissions: Vec<Vec<usize>>,
    /// Ranks that have nothing for a tensor, and take part with zeros.
    pub(crate) unused: BTreeSet<(u32, usize)>,
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

    /// Several collectives, submitted in another order by every rank.
    pub(crate) fn tagged(seed: u64, most_ranks: u32) -> Self {
        let mut draw = Draw(seed);
        let orders: Vec<Order> = Order::all().collect();
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

    /// One collective, whose planned order all ranks keep to.
    pub(crate) fn planned(seed: u64, most_ranks: u32) -> Self {
        let mut draw = Draw(seed);
        Self::draw(&mut draw, seed, most_ranks, Transport::InOrder, Order::PLANNED)
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
        };
        job.add(draw);
        job
    }

    /// Adds a tensor, which every rank submits last.
    fn add(&mut self, draw: &mut Draw) {
        let (number, tensor) = (self.tensors.len(), self.tensor(draw));
        self.tensors.push(tensor);
        self.submissions.iter_mut().for_each(|list| list.push(number));
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
        }
    }
}

/// One to four dimensions, small primes among their sizes.
fn sizes(draw: &mut Draw, most_ranks: u32) -> Vec<u32> {
    loop {
        let count = 1 + draw.below(4);
        let of = [1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9];
        let sizes: Vec<u32> = (0..count).map(|_| draw.one_of(&of)).collect();
        if (2..=most_ranks).contains(&sizes.iter().product()) {
            return sizes;
        }
    }
}

fn fabric(draw: &mut Draw, sizes: &[u32]) -> Fabric {
    let dimension = |size: &u32| Dimension {
        kind: Kind::Switch,
        size: *size,
        links: 1,
        bandwidth: Bandwidth::from_bytes_per_second(draw.one_of(&[1, 2, 5]) * 1_000_000_000)
            .expect("a bandwidth"),
        latency: Time::from_us(1),
        in_network_reduction: false,
        contention: Contention::Shared,
    };
    Fabric { name: "test".to_owned(), dimensions: sizes.iter().map(dimension).collect() }
}

/// What a chunk scheduler makes of this, with any algorithms, for any size.
pub(crate) fn any_plan(
    draw: &mut Draw,
    sizes: &[u32],
    operation: Operation,
    dimensions: &[DimensionId],
    order: Order,
) -> CollectivePlan {
    let policy = chunk::ALL[draw.below(chunk::ALL.len())];
    let mut parameters = Parameters::default();
    if policy.composes() {
        let all = [Composition::Stages, Composition::Merged, Composition::Sequential];
        parameters.composition = draw.one_of(&all);
    }
    let whole = operation != Operation::AllReduce
        || parameters.composition == Composition::Sequential
        || (dimensions.len() == 1 && draw.one_in(2));
    let fits = |one: &&&dyn Algorithm| {
        let does = one.operations();
        let parts = [Operation::ReduceScatter, Operation::AllGather, operation];
        if whole { does.contains(&operation) } else { parts.iter().all(|o| does.contains(o)) }
    };
    let fit: Vec<&dyn Algorithm> = algorithm::ALL.iter().filter(fits).copied().collect();
    let algorithms = sizes.iter().map(|_| draw.one_of(&fit).tag().to_owned()).collect();
    let chunks = 1 + draw.below(4) as u32;
    let request = Request {
        fabric: fabric(draw, sizes),
        operation,
        size: Bytes::new(u64::from(chunks) * (1 + draw.next() % 100_000)),
        dimensions: dimensions.to_vec(),
        policy: policy.tag().to_owned(),
        order,
        chunks,
        algorithms: Some(algorithms),
        active_chunks: None,
        endpoint_delay: Time::ZERO,
        parameters,
        seed: draw.next(),
    };
    let mut plan = plan(&request).unwrap_or_else(|error| panic!("{error}: {request:?}"));
    plan.sizes = Some(SizeRange { from: Bytes::new(1), to: Bytes::new(u64::MAX) });
    plan
}
