//! Random plans, from a seed.

use allrail_collective::plan::{ChunkPlan, SCHEMA_VERSION};
use allrail_collective::rank::Buffer;
use allrail_collective::{Algorithm, CollectivePlan, Operation, SizeRange, Stage, algorithm};
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_fabric::{Dimension, Fabric, Kind};

/// Repeats on every machine (`SplitMix64`).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn shuffled(&mut self, mut list: Vec<usize>) -> Vec<usize> {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
        list
    }
}

pub(crate) fn named(tag: &str) -> &'static dyn Algorithm {
    algorithm::named(tag).expect("known")
}

/// A fabric of switches.
pub(crate) fn fabric(sizes: &[u32]) -> Fabric {
    let dimension = |size: &u32| {
        Dimension::new(
            Kind::Switch,
            *size,
            1,
            Bandwidth::from_bytes_per_second(1_000_000_000).expect("a bandwidth"),
            Time::ZERO,
        )
    };
    Fabric {
        memory_bandwidth: None,
        window: None,
        name: "test".to_owned(),
        dimensions: sizes.iter().map(dimension).collect(),
    }
}

/// A plan of these chunks, in the order in which they stand.
pub(crate) fn plan(
    sizes: &[u32],
    algorithms: &[&str],
    operation: Operation,
    dimensions: Vec<DimensionId>,
    chunks: Vec<ChunkPlan>,
) -> CollectivePlan {
    CollectivePlan {
        schema_version: SCHEMA_VERSION,
        policy: "test".to_owned(),
        fabric: fabric(sizes),
        operation,
        size: Bytes::new(chunks.iter().map(|chunk| chunk.bytes.count()).sum()),
        sizes: Some(SizeRange { from: Bytes::new(1), to: Bytes::new(u64::MAX) }),
        dimensions,
        algorithms: algorithms.iter().map(|&name| name.to_owned()).collect(),
        programs: Default::default(),
        endpoint_delay: Time::ZERO,
        chunks,
        dimension_order: vec![Vec::new(); sizes.len()],
        order_made_in: "dims".to_owned(),
        key: String::new(),
    }
}

pub(crate) fn stage(operation: Operation, dimension: usize) -> Stage {
    let dimension = DimensionId(u32::try_from(dimension).expect("few dimensions"));
    Stage { operation, dimension }
}

/// A plan, a size for it, and the ranks that it joins.
pub(crate) struct Case {
    pub(crate) plan: CollectivePlan,
    pub(crate) buffer: Buffer,
    /// The ranks of one group, in the order of their shards.
    pub(crate) ranks: Vec<u32>,
}

use Operation::{AllGather, AllReduce, AllToAll, ReduceScatter};

impl Case {
    /// A case of `operation` in which `on_first` is the algorithm of the first dimension visited.
    pub(crate) fn draw(
        draw: &mut Draw,
        operation: Operation,
        on_first: &'static dyn Algorithm,
        most_ranks: u64,
    ) -> Self {
        let spanned_sizes: Vec<u32> = loop {
            let count = 1 + draw.below(4);
            let sizes: Vec<u32> =
                (0..count).map(|_| draw.one_of(&[1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9])).collect();
            let ranks: u64 = sizes.iter().map(|size| u64::from(*size)).product();
            if (2..=most_ranks).contains(&ranks) {
                break sizes;
            }
        };
        // The group lies in a larger fabric, on some of its dimensions.
        let mut sizes = Vec::new();
        let mut spanned = Vec::new();
        for size in &spanned_sizes {
            while sizes.len() - spanned.len() < 2 && draw.below(4) == 0 {
                sizes.push(draw.one_of(&[2, 3]));
            }
            spanned.push(sizes.len());
            sizes.push(*size);
        }
        // An all-reduce may be one stage on some dimensions.
        let splits = on_first.operations().contains(&ReduceScatter);
        let sequential = draw.below(4) == 0;
        let mut merged = vec![false; sizes.len()];
        let mut algorithms = vec![on_first.tag(); sizes.len()];
        let special = draw.one_of(&spanned);
        for d in &spanned {
            let one_stage = sequential || draw.below(4) == 0;
            if operation == AllReduce && (one_stage || (*d == special && !splits)) {
                merged[*d] = true;
            }
            let needed = match (operation, merged[*d]) {
                (AllReduce, false) => ReduceScatter,
                (whole, _) => whole,
            };
            let fit: Vec<&'static dyn Algorithm> = algorithm::ALL
                .iter()
                .copied()
                .filter(|algorithm| algorithm.operations().contains(&needed))
                .collect();
            algorithms[*d] = if *d == special { on_first } else { draw.one_of(&fit) }.tag();
        }
        let chunks = 1 + draw.below(4);
        let chunks = (0..chunks).map(|_| ChunkPlan {
            bytes: Bytes::new(1 + draw.next() % 1000),
            stages: stages(draw, operation, &spanned, &merged),
        });
        let chunks = chunks.collect();
        let ids = spanned.iter().map(|d| stage(AllReduce, *d).dimension);
        let plan = plan(&sizes, &algorithms, operation, ids.collect(), chunks);

        let ranks = group(draw, &sizes, &spanned);
        let few = 2 * ranks.len() + 2;
        let mut elements = match draw.below(8) {
            0 => draw.below(few),
            1 => ranks.len() * draw.below(5),
            2 => 0,
            _ => draw.below(3000),
        };
        if operation == AllToAll {
            elements -= elements % ranks.len();
        }
        let granule = Bytes::new(draw.one_of(&[1, 4, 12, 64]));
        let buffer = Buffer::new(elements as u64, 4).expect("a buffer");
        Self { plan, buffer: buffer.cut_at(granule).expect("a granule"), ranks }
    }
}

fn stages(draw: &mut Draw, operation: Operation, spanned: &[usize], merged: &[bool]) -> Vec<Stage> {
    let down = draw.shuffled(spanned.to_vec());
    if operation != AllReduce {
        return down.into_iter().map(|d| stage(operation, d)).collect();
    }
    let up = draw.shuffled(spanned.to_vec()).into_iter().filter(|d| !merged[*d]);
    let mut all: Vec<Stage> = Vec::new();
    for d in down {
        all.push(stage(if merged[d] { AllReduce } else { ReduceScatter }, d));
    }
    all.extend(up.map(|d| stage(AllGather, d)));
    all
}

/// The ranks that differ only on `spanned`, in order, from a rank drawn.
fn group(draw: &mut Draw, sizes: &[u32], spanned: &[usize]) -> Vec<u32> {
    let base: Vec<u32> = sizes.iter().map(|size| (draw.next() % u64::from(*size)) as u32).collect();
    let all: u32 = sizes.iter().product();
    let coordinate = |rank: u32, d: usize| rank / sizes[..d].iter().product::<u32>() % sizes[d];
    (0..all)
        .filter(|rank| {
            (0..sizes.len()).all(|d| spanned.contains(&d) || coordinate(*rank, d) == base[d])
        })
        .collect()
}
