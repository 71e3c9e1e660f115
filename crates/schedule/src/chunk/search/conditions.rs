//! The fabrics that schedules are timed on: as described, message by message, and a little off.

use allrail_collective::model::DimensionSet;
use allrail_core::{Bytes, DimensionId, Time};
use rand::Rng;
use rand_pcg::Pcg64Mcg;

use super::fast::{Condition, Fast};
use crate::chunk::Problem;
use crate::evaluate::Work;

/// The fabric as described; message by message, with switches that store what they pass on; and with
/// each bandwidth and latency off by up to a tenth. `None` if the schedule is not one for [`Fast`].
pub(super) fn clocks(
    problem: &Problem<'_>,
    work: &Work,
    rng: &mut Pcg64Mcg,
) -> Option<Vec<(u64, Fast)>> {
    let dimensions = problem.model.dimensions();
    let mut conditions =
        vec![(1, vec![Condition::AS_DESCRIBED; dimensions]), (4, by_message(problem))];
    for _ in 0..3 {
        let drawn = (0..dimensions).map(|_| Condition {
            occupancy: rng.random_range(922..=1126),
            latency: rng.random_range(922..=1126),
            ..Condition::AS_DESCRIBED
        });
        conditions.push((1, drawn.collect()));
    }
    let clock = |(weight, conditions)| {
        let clock = Fast::new(work, buffers(problem), conditions, problem.active_chunks)?;
        Some((weight, clock))
    };
    conditions.into_iter().map(clock).collect()
}

/// Every dimension as the network model `links` has it.
pub(super) fn by_message(problem: &Problem<'_>) -> Vec<Condition> {
    let ids =
        (0..u32::try_from(problem.model.dimensions()).expect("few dimensions")).map(DimensionId);
    ids.map(|id| Condition {
        relay: problem.model.relays(id) > 0,
        by_message: true,
        ..Condition::AS_DESCRIBED
    })
    .collect()
}

/// When the search expects a schedule to end in the network model `links`: a test compares it with that.
#[doc(hidden)]
#[must_use]
pub fn expected_in_links(problem: &Problem<'_>, work: &Work) -> Option<Time> {
    let clock = Fast::new(work, buffers(problem), by_message(problem), problem.active_chunks);
    clock.map(|mut clock| clock.finish())
}

/// Every buffer that a stage can handle, ascending.
pub(super) fn buffers(problem: &Problem<'_>) -> Vec<Bytes> {
    let mut sizes: Vec<u64> = problem.chunks.iter().map(|chunk| chunk.count()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut buffers: Vec<Bytes> = (0..1u32 << problem.dimensions.len())
        .flat_map(|subset| {
            let set = problem
                .dimensions
                .iter()
                .enumerate()
                .filter(|(place, _)| subset >> place & 1 == 1)
                .fold(DimensionSet::default(), |set, (_, dimension)| set.with(*dimension));
            let product = problem.model.product(set);
            sizes.iter().map(move |size| Bytes::new(size / product))
        })
        .collect();
    buffers.sort_unstable();
    buffers.dedup();
    buffers
}
