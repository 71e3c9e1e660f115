//! How long it takes to make one rank's part of a plan, and to look one up.
//!
//! `cargo run --release -p allrail-collective --example rank_plans`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::hint::black_box;
use std::time::Instant;

use allrail_collective::plan::{ChunkPlan, SCHEMA_VERSION};
use allrail_collective::rank::{Buffer, Plans, RankPlan, RankPlanner};
use allrail_collective::{
    CollectiveError, CollectivePlan, DimensionSet, Operation, SizeRange, Stage, StageRef,
    algorithm, hierarchical,
};
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_fabric::{Dimension, Fabric, Kind};

const SIZE: u64 = 100 << 20;
const CHUNKS: usize = 64;

/// Chunks that begin on each dimension in turn, as Themis' do.
fn plan(sizes: &[u32], algorithm: &str, operation: Operation) -> CollectivePlan {
    use Operation::{AllGather, AllReduce, ReduceScatter};
    let count = sizes.len();
    let stage = |operation, d: usize| Stage { operation, dimension: DimensionId(d as u32) };
    let chunks = (0..CHUNKS).map(|c| {
        let order = (0..count).map(move |d| (d + c) % count);
        let stages = match operation {
            AllReduce => order
                .clone()
                .map(|d| stage(ReduceScatter, d))
                .chain(order.rev().map(|d| stage(AllGather, d)))
                .collect(),
            whole => order.map(|d| stage(whole, d)).collect(),
        };
        ChunkPlan { bytes: Bytes::new(SIZE / CHUNKS as u64), stages }
    });
    let chunks: Vec<ChunkPlan> = chunks.collect();
    let mut dimension_order = vec![Vec::new(); count];
    for (c, chunk) in (0u32..).zip(&chunks) {
        for (s, stage) in (0u32..).zip(&chunk.stages) {
            dimension_order[stage.dimension.index()].push(StageRef { chunk: c, stage: s });
        }
    }
    let dimension = |size: &u32| {
        Dimension::new(
            Kind::Switch,
            *size,
            1,
            Bandwidth::from_bytes_per_second(50_000_000_000).expect("a bandwidth"),
            Time::from_us(1),
        )
    };
    CollectivePlan {
        schema_version: SCHEMA_VERSION,
        policy: "example".to_owned(),
        fabric: Fabric {
            memory_bandwidth: None,
            window: None,
            name: String::new(),
            dimensions: sizes.iter().map(dimension).collect(),
        },
        operation,
        size: Bytes::new(SIZE),
        sizes: Some(SizeRange { from: Bytes::new(1), to: Bytes::new(1 << 40) }),
        dimensions: (0..count).map(|d| DimensionId(d as u32)).collect(),
        algorithms: vec![algorithm.to_owned(); count],
        programs: Default::default(),
        endpoint_delay: Time::ZERO,
        chunks,
        dimension_order,
        order_made_in: "dims".to_owned(),
        key: String::new(),
    }
}

/// Median microseconds of 51 runs.
fn median(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..51)
        .map(|_| {
            let begin = Instant::now();
            run();
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn making() -> Result<(), CollectiveError> {
    println!(
        "{:<8} {:<17} {:<15} {:>9} {:>9} {:>8} {:>8} {:>10} {:>12}",
        "fabric",
        "algorithm",
        "operation",
        "messages",
        "ranges",
        "plan_us",
        "cut_us",
        "in_all_us",
        "compose_us"
    );
    for sizes in [&[8][..], &[8, 8], &[4, 4, 4], &[8, 8, 8], &[16, 8, 8], &[4, 4, 4, 4]] {
        for name in ["ring", "halving_doubling", "direct"] {
            for operation in [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather]
            {
                let plan = plan(sizes, name, operation);
                let rank = sizes.iter().product::<u32>() / 2 + 1;
                // A remainder: nothing divides evenly.
                let buffer = Buffer::new(SIZE / 4 + 1003, 4)?;
                let planner = RankPlanner::new(&plan, rank)?;
                let part = planner.plan(buffer)?;
                let once = median(|| drop(black_box(RankPlanner::new(&plan, rank))));
                let cut = median(|| drop(black_box(planner.plan(buffer))));
                let both = median(|| drop(black_box(RankPlan::new(&plan, rank, buffer))));
                let messages =
                    part.chunks.iter().flat_map(|c| c.messages().iter().map(move |m| (c, m)));
                let ranges: usize = messages.clone().map(|(c, m)| c.ranges(m).len()).sum();
                println!(
                    "{:<8} {:<17} {:<15} {:>9} {:>9} {:>8.0} {:>8.0} {:>10.0} {:>12}",
                    sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("x"),
                    name,
                    operation.tag(),
                    messages.count(),
                    ranges,
                    once,
                    cut,
                    both,
                    composed(&plan)?
                );
            }
        }
    }
    Ok(())
}

/// Microseconds to compose one chunk for all ranks: once, it may be long.
fn composed(plan: &CollectivePlan) -> Result<String, CollectiveError> {
    let of = plan.fabric.dimensions.iter().zip(&plan.algorithms);
    let of = of.map(|(d, name)| Ok((d.size, algorithm::named(name)?)));
    let of = of.collect::<Result<Vec<_>, CollectiveError>>()?;
    let begin = Instant::now();
    drop(black_box(hierarchical::compose(&of, &plan.chunks[0].stages, plan.operation)?));
    Ok(format!("{:.0}", begin.elapsed().as_secs_f64() * 1e6))
}

fn looking_up() -> Result<(), CollectiveError> {
    const RANGES: u64 = 24;
    const BUFFERS: u64 = 256;
    let operation = Operation::AllReduce;
    let mut plans = Plans::new(3, BUFFERS as usize);
    for power in 0..RANGES {
        let whole = plan(&[8, 8, 8], "ring", operation);
        let mut plan = whole.for_size(Bytes::new(1024 << power))?;
        let (from, to) = (Bytes::new(1024 << power), Bytes::new((1024 << (power + 1)) - 1));
        plan.sizes = Some(SizeRange { from, to });
        plans.add(plan)?;
    }
    let spanned =
        [0, 1, 2].map(DimensionId).into_iter().fold(DimensionSet::default(), DimensionSet::with);
    let buffers = (0..BUFFERS).map(|i| Buffer::new((256 << (i % RANGES)) + i / RANGES, 4));
    let buffers = buffers.collect::<Result<Vec<Buffer>, _>>()?;
    for buffer in &buffers {
        plans.part(operation, spanned, *buffer)?;
    }
    const ROUNDS: u32 = 2000;
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        for buffer in &buffers {
            black_box(plans.find(operation, spanned, buffer.size())?);
        }
    }
    let find = begin.elapsed() / (ROUNDS * BUFFERS as u32);
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        for buffer in &buffers {
            black_box(plans.part(operation, spanned, *buffer)?);
        }
    }
    let part = begin.elapsed() / (ROUNDS * BUFFERS as u32);
    println!(
        "\n{RANGES} plans: a look-up takes {} ns; with the rank's part, of {} kept, {} ns",
        find.as_nanos(),
        plans.kept(),
        part.as_nanos()
    );
    Ok(())
}

fn main() -> Result<(), CollectiveError> {
    making()?;
    looking_up()
}
