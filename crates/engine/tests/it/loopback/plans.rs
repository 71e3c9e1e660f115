//! Fabrics and plans for them, from a seed.

use allrail_collective::algorithm::{self, Own};
use allrail_collective::{Algorithm, CollectivePlan, Operation, SizeRange};
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_fabric::{Dimension, Fabric, Kind};
use allrail_schedule::chunk::{self, Composition, Parameters};
use allrail_schedule::{Order, Request, plan};

use super::draw::Draw;

/// One to four dimensions, primes among their sizes; one of one rank is left out, as fabrics ask.
pub(super) fn sizes(draw: &mut Draw, most_ranks: u32) -> Vec<u32> {
    loop {
        let count = 1 + draw.below(4);
        let of = [1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9];
        let sizes: Vec<u32> =
            (0..count).map(|_| draw.one_of(&of)).filter(|size| *size > 1).collect();
        if !sizes.is_empty() && sizes.iter().product::<u32>() <= most_ranks {
            return sizes;
        }
    }
}

fn fabric(draw: &mut Draw, sizes: &[u32]) -> Fabric {
    let dimension = |size: &u32| {
        Dimension::new(
            Kind::Switch,
            *size,
            1,
            Bandwidth::from_bytes_per_second(draw.one_of(&[1, 2, 5]) * 1_000_000_000)
                .expect("a bandwidth"),
            Time::from_us(1),
        )
    };
    Fabric {
        memory_bandwidth: None,
        window: None,
        name: "test".to_owned(),
        dimensions: sizes.iter().map(dimension).collect(),
    }
}

/// A plan that takes a user's own program on the last dimension, for any size.
pub(super) fn own_plan(draw: &mut Draw, sizes: &[u32], own: Own, order: Order) -> CollectivePlan {
    let operation = own.operation();
    let mut algorithms = vec!["ring".to_owned(); sizes.len() - 1];
    algorithms.push(own.tag().to_owned());
    let chunks = 1 + draw.below(4) as u32;
    let request = Request {
        programs: std::iter::once(own).collect(),
        plugins: Default::default(),
        fabric: fabric(draw, sizes),
        operation,
        size: Bytes::new(u64::from(chunks) * (1 + draw.next() % 100_000)),
        dimensions: Vec::new(),
        policy: "baseline".to_owned(),
        order,
        chunks,
        algorithms: Some(algorithms.into()),
        active_chunks: None,
        endpoint_delay: Time::ZERO,
        parameters: Parameters { composition: Composition::Merged, ..Parameters::default() },
        seed: draw.next(),
    };
    let mut plan = plan(&request).unwrap_or_else(|error| panic!("{error}: {request:?}"));
    plan.sizes = Some(SizeRange { from: Bytes::new(1), to: Bytes::new(u64::MAX) });
    plan
}

/// What a chunk scheduler makes of this, with any algorithms, for any size.
pub(super) fn any_plan(
    draw: &mut Draw,
    sizes: &[u32],
    operation: Operation,
    dimensions: &[DimensionId],
    order: Order,
) -> CollectivePlan {
    let policy = chunk::ALL[draw.below(chunk::ALL.len())];
    let mut parameters = Parameters::default();
    if policy.composes(Composition::Merged) {
        let all = [Composition::Stages, Composition::Merged, Composition::Sequential];
        parameters.composition = draw.one_of(&all);
    }
    let whole = operation != Operation::AllReduce
        || parameters.composition == Composition::Sequential
        || (dimensions.len() == 1 && draw.one_in(2));
    let parts = [Operation::ReduceScatter, Operation::AllGather, operation];
    let does = |one: &dyn Algorithm, wanted: &[Operation]| {
        wanted.iter().all(|operation| one.operations().contains(operation))
    };
    let wanted: &[Operation] = if whole { &[operation] } else { &parts };
    let all = algorithm::ALL.iter().copied();
    let fit: Vec<&dyn Algorithm> = all.filter(|one| does(*one, wanted)).collect();
    // Few algorithms do the whole alone: half of the time one of them.
    let alone: Vec<&dyn Algorithm> =
        fit.iter().copied().filter(|one| !does(*one, &parts)).collect();
    let fit = if alone.is_empty() || draw.one_in(2) { fit } else { alone };
    let algorithms = sizes.iter().map(|_| draw.one_of(&fit).tag().to_owned()).collect();
    let chunks = 1 + draw.below(4) as u32;
    let request = Request {
        programs: Default::default(),
        plugins: Default::default(),
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
