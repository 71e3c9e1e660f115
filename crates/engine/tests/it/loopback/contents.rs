//! What ranks bring to an exchange, and what they must hold after it.

use allrail_collective::Operation;
use allrail_collective::rank::shard;
use allrail_engine::Dtype;

use super::RankOutcome;
use super::draw::Draw;
use super::job::{Job, Tensor};

/// Bytes before and behind each tensor that nobody may write.
pub(crate) const GUARD: usize = 64;
const PATTERN: u8 = 0xa5;

/// A number that a rank brings; integers are small.
fn number(job: &Job, (generation, tensor): (usize, usize), rank: u32, element: u64) -> f64 {
    if job.unused.contains(&(generation, rank, tensor)) {
        return 0.0;
    }
    let place = (generation << 24 ^ tensor << 16 ^ rank as usize) as u64;
    let mut draw = Draw(job.seed ^ place << 32 ^ element);
    match job.tensors[tensor].dtype {
        Dtype::Int32 | Dtype::Int64 => draw.below(2001) as f64 - 1000.0,
        // Of many sizes, so that another order of adding gives another sum.
        Dtype::Float32 | Dtype::Float64 => {
            let number =
                (draw.below(2_000_001) as f64 - 1e6) * 2f64.powi(draw.below(17) as i32 - 8);
            f64::from(number as f32)
        }
    }
}

fn store(dtype: Dtype, number: f64, out: &mut Vec<u8>) {
    match dtype {
        Dtype::Float32 => out.extend((number as f32).to_le_bytes()),
        Dtype::Float64 => out.extend(number.to_le_bytes()),
        Dtype::Int32 => out.extend((number as i32).to_le_bytes()),
        Dtype::Int64 => out.extend((number as i64).to_le_bytes()),
    }
}

fn load(dtype: Dtype, bytes: &[u8]) -> f64 {
    let wide = || bytes.try_into().expect("8 bytes");
    let narrow = || bytes.try_into().expect("4 bytes");
    match dtype {
        Dtype::Float32 => f64::from(f32::from_le_bytes(narrow())),
        Dtype::Float64 => f64::from_le_bytes(wide()),
        Dtype::Int32 => f64::from(i32::from_le_bytes(narrow())),
        Dtype::Int64 => i64::from_le_bytes(wide()) as f64,
    }
}

/// The memory of a tensor before the exchange, with its guards.
pub(crate) fn memory(job: &Job, which: (usize, usize), rank: u32) -> Vec<u8> {
    let Tensor { dtype, elements, .. } = job.tensors[which.1];
    let mut memory = vec![PATTERN; GUARD];
    for element in 0..elements {
        store(dtype, number(job, which, rank, element), &mut memory);
    }
    memory.resize(memory.len() + GUARD, PATTERN);
    memory
}

/// Panics unless every rank holds what it must, and nothing outside was touched.
pub(crate) fn check(job: &Job, ranks: &[RankOutcome], what: &str) {
    for (rank, outcome) in (0u32..).zip(ranks) {
        for (t, tensor) in job.tensors.iter().enumerate() {
            let first = job.group(&tensor.dimensions, rank)[0] as usize;
            for (generation, memory) in outcome.results[t].iter().enumerate() {
                let which = (generation, t);
                let guards = memory[..GUARD].iter().chain(&memory[memory.len() - GUARD..]);
                let untouched = guards.into_iter().all(|byte| *byte == PATTERN);
                assert!(untouched, "{what}: rank {rank} wrote outside tensor {which:?}");
                let held = &memory[GUARD..memory.len() - GUARD];
                check_tensor(job, which, rank, held, what);
                let theirs = ranks[first].results[t].get(generation);
                let same = tensor.operation != Operation::AllReduce || theirs == Some(memory);
                assert!(same, "{what}: tensor {which:?} differs between {first} and {rank}");
            }
        }
    }
}

fn check_tensor(job: &Job, which: (usize, usize), rank: u32, held: &[u8], what: &str) {
    let tensor = &job.tensors[which.1];
    let group = job.group(&tensor.dimensions, rank);
    let place = group.iter().position(|one| *one == rank).expect("of its own group");
    let count = group.len() as u32;
    let owned = |place: usize| shard(tensor.elements, place as u32, count);
    let brings = |place: usize, element: u64| number(job, which, group[place], element);
    let width = tensor.dtype.width() as usize;
    let epsilon = match tensor.dtype {
        Dtype::Float32 => f64::from(f32::EPSILON),
        Dtype::Float64 => f64::EPSILON,
        Dtype::Int32 | Dtype::Int64 => 0.0,
    };
    let mut owner = 0;
    for (element, bytes) in (0u64..).zip(held.chunks_exact(width)) {
        while !owned(owner).contains(&element) {
            owner += 1;
        }
        let (wanted, within) = match tensor.operation {
            Operation::ReduceScatter if owner != place => continue,
            Operation::AllReduce | Operation::ReduceScatter => {
                let all = (0..group.len()).map(|one| brings(one, element));
                let (sum, size) = all.fold((0.0, 0.0), |(s, a), x| (s + x, a + x.abs()));
                (sum, 2.0 * f64::from(count) * epsilon * size)
            }
            Operation::AllGather => (brings(owner, element), 0.0),
            Operation::AllToAll => {
                let offset = element - owned(owner).start;
                (brings(owner, owned(place).start + offset), 0.0)
            }
            Operation::Broadcast => (brings(0, element), 0.0),
        };
        let is = load(tensor.dtype, bytes);
        let right = (is - wanted).abs() <= within;
        assert!(
            right,
            "{what}: rank {rank}, tensor {which:?}, element {element}: {is}, not {wanted}"
        );
    }
}
