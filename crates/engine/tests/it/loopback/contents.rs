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
        // So small that no sum of theirs wraps around, and halves hold it.
        Dtype::Float16 | Dtype::Int16 => draw.below(201) as f64 - 100.0,
        Dtype::Bfloat16 | Dtype::Int8 | Dtype::Uint8 => f64::from(u8::from(draw.one_in(4))),
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
        Dtype::Int16 => out.extend((number as i16).to_le_bytes()),
        Dtype::Int8 | Dtype::Uint8 => out.push(number as u8),
        Dtype::Bfloat16 => out.extend(&(number as f32).to_le_bytes()[2..]),
        // Whole numbers, all exact; what another type has, and is taken for this one, need not be.
        Dtype::Float16 => {
            let (sign, size) = (u16::from(number < 0.0) << 15, number.abs().min(2047.0) as u16);
            let exponent = size.checked_ilog2().unwrap_or_default() as u16;
            let fraction = (size << (10 - exponent)) & 0x3ff;
            let bits = if size == 0 { 0 } else { (exponent + 15) << 10 | fraction };
            out.extend((sign | bits).to_le_bytes());
        }
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
        Dtype::Int16 => f64::from(i16::from_le_bytes([bytes[0], bytes[1]])),
        Dtype::Int8 => f64::from(bytes[0] as i8),
        Dtype::Uint8 => f64::from(bytes[0]),
        Dtype::Bfloat16 => f64::from(f32::from_le_bytes([0, 0, bytes[0], bytes[1]])),
        Dtype::Float16 => {
            let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
            let size = match bits >> 10 & 0x1f {
                0 => f64::from(bits & 0x3ff) * 2f64.powi(-24),
                e => f64::from(bits & 0x3ff | 0x400) * 2f64.powi(i32::from(e) - 25),
            };
            if bits >> 15 == 1 { -size } else { size }
        }
    }
}

/// The memory of a tensor before the exchange, with its guards.
pub(crate) fn memory(job: &Job, which: (usize, usize), rank: u32) -> Vec<u8> {
    let dtype = job.dtype(rank, which.1);
    let mut memory = vec![PATTERN; GUARD];
    for element in 0..job.elements(rank, which.1) {
        store(dtype, number(job, which, rank, element), &mut memory);
    }
    memory.resize(memory.len() + GUARD, PATTERN);
    memory
}

/// Panics unless every rank holds what it must, and nothing outside was touched; but for a tensor that a
/// rank has taken for another.
pub(crate) fn check(job: &Job, ranks: &[RankOutcome], odd: Option<usize>, what: &str) {
    for t in (0..job.tensors.len()).filter(|t| Some(*t) != odd) {
        let exchanges = ranks.iter().map(|rank| rank.results[t].len()).max().unwrap_or(0);
        for generation in 0..exchanges {
            let held = |rank: u32| ranks[rank as usize].results[t].get(generation);
            check_exchange(job, (generation, t), held, what);
        }
    }
}

/// Checks what is left of tensors whose exchange was reported as finished when a rank stopped, but for one
/// that a rank has taken for another.
pub(crate) fn check_left(job: &Job, ranks: &[RankOutcome], odd: Option<usize>, what: &str) {
    for t in (0..job.tensors.len()).filter(|t| Some(*t) != odd) {
        let name = job.name(t);
        let report = |rank: u32| {
            let stopped = ranks[rank as usize].stopped.as_ref()?;
            let report = stopped.tensors.iter().find(|report| report.name == name)?;
            (report.finished && report.submitted > 0).then_some(report)
        };
        let all = (0..).take(ranks.len()).filter_map(report).map(|report| report.submitted);
        let all: std::collections::BTreeSet<u64> = all.collect();
        for submitted in all {
            let held = |rank: u32| {
                let finished = report(rank).is_some_and(|report| report.submitted == submitted);
                finished.then(|| &ranks[rank as usize].left[t])
            };
            check_exchange(job, (submitted as usize - 1, t), held, what);
        }
    }
}

/// One exchange of a tensor, on the ranks that say that they hold its result.
fn check_exchange<'a>(
    job: &Job,
    which: (usize, usize),
    held: impl Fn(u32) -> Option<&'a Vec<u8>>,
    what: &str,
) {
    let tensor = &job.tensors[which.1];
    for first in (0..job.ranks()).filter(|rank| job.group(&tensor.dimensions, *rank)[0] == *rank) {
        let group = job.group(&tensor.dimensions, first);
        let brought: Vec<Vec<f64>> = group
            .iter()
            .map(|rank| (0..tensor.elements).map(|i| number(job, which, *rank, i)).collect())
            .collect();
        let all = |i: usize| brought.iter().map(move |numbers| numbers[i]);
        let sums: Vec<(f64, f64)> = (0..tensor.elements as usize)
            .map(|i| (all(i).sum(), all(i).map(f64::abs).sum()))
            .collect();
        let mut of_first: Option<&Vec<u8>> = None;
        for (place, rank) in group.iter().enumerate() {
            let Some(memory) = held(*rank) else { continue };
            let what = format!("{what}: rank {rank}, tensor {which:?}");
            let guards = memory[..GUARD].iter().chain(&memory[memory.len() - GUARD..]);
            assert!(guards.into_iter().all(|byte| *byte == PATTERN), "{what}: written outside");
            check_tensor(tensor, place, (&brought, &sums), &memory[GUARD..], &what);
            if tensor.operation == Operation::AllReduce {
                let first = *of_first.get_or_insert(memory);
                assert!(memory == first, "{what}: not the bits of the first of the group");
            }
        }
    }
}

fn check_tensor(
    tensor: &Tensor,
    place: usize,
    (brought, sums): (&[Vec<f64>], &[(f64, f64)]),
    held: &[u8],
    what: &str,
) {
    let count = brought.len() as u32;
    let owned = |place: usize| shard(tensor.elements, place as u32, count);
    let width = tensor.dtype.width() as usize;
    let epsilon = match tensor.dtype {
        Dtype::Float32 => f64::from(f32::EPSILON),
        Dtype::Float64 => f64::EPSILON,
        Dtype::Float16 => 2f64.powi(-10),
        Dtype::Bfloat16 => 2f64.powi(-7),
        Dtype::Int8 | Dtype::Uint8 | Dtype::Int16 | Dtype::Int32 | Dtype::Int64 => 0.0,
    };
    let mut owner = 0;
    for (element, bytes) in (0..tensor.elements).zip(held.chunks_exact(width)) {
        while !owned(owner).contains(&element) {
            owner += 1;
        }
        let at = element as usize;
        let (wanted, within) = match tensor.operation {
            Operation::ReduceScatter if owner != place => continue,
            Operation::AllReduce | Operation::ReduceScatter => {
                (sums[at].0, 2.0 * f64::from(count) * epsilon * sums[at].1)
            }
            Operation::AllGather => (brought[owner][at], 0.0),
            Operation::AllToAll => {
                let offset = element - owned(owner).start;
                (brought[owner][(owned(place).start + offset) as usize], 0.0)
            }
            Operation::Broadcast => (brought[tensor.root as usize][at], 0.0),
        };
        let is = load(tensor.dtype, bytes);
        let right = (is - wanted).abs() <= within;
        assert!(right, "{what}, element {element}: {is}, not {wanted}");
    }
}
