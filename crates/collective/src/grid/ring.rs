//! One ring through all NPUs, both ways at once, half of the buffer each way.
//!
//! Its order is [`hamiltonian::cycle`](super::hamiltonian::cycle), row after row, every other one
//! backwards: on a torus each hop is one cable, and on a tree no more hops leave a leaf than in the
//! order of the ranks (if there is an even number of rows). Two of an NPU's four links carry nothing.
//!
//! Steps 2(p − 1); bytes on a link S(p − 1)/p; the algorithm is [`crate::algorithm::ring`].

use allrail_core::Bytes;

use super::ring_steps::{Pair, RingSteps, Run};
use super::{
    GridAllReduce, GridCost, GridGroup, Half, LinkCost, Spread, block, check_size, hamiltonian,
    least_sent,
};
use crate::algorithm::ring;
use crate::{Algorithm, CollectiveError, Operation, Program, Steps};

/// The tag in scenario files.
const TAG: &str = "ring";

/// One ring through all ranks, both ways.
pub struct Ring;

impl GridAllReduce for Ring {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "one ring through all NPUs, half of the data each way"
    }

    fn check(&self, rows: u32, columns: u32) -> Result<(), CollectiveError> {
        check_size(TAG, rows, columns, false)
    }

    fn program(&self, rows: u32, columns: u32) -> Program {
        on(&hamiltonian::cycle(rows, columns))
    }

    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps> {
        let ranks = rows * columns;
        Box::new(RingSteps {
            pairs: vec![Pair::of_order(&hamiltonian::cycle(rows, columns))],
            runs: vec![Run { pair: 0, during: 0..2 * (ranks - 1), bytes: block(size, 2 * ranks) }],
        })
    }

    fn cost(&self, rows: u32, columns: u32) -> GridCost {
        let (ranks, sent) = (rows * columns, least_sent(rows, columns));
        let bytes = (sent.0, 2 * sent.1);
        GridCost { steps: 2 * (ranks - 1), sent, link: Some(LinkCost { bytes, in_step: bytes }) }
    }
}

impl GridGroup for Ring {
    fn half_program(&self, half: Half, rows: u32, columns: u32) -> Option<Program> {
        Some(half_on(half, &hamiltonian::cycle(rows, columns)))
    }

    fn half_steps(&self, _: Half, rows: u32, columns: u32, size: Bytes) -> Option<Box<dyn Steps>> {
        let ranks = rows * columns;
        Some(Box::new(RingSteps {
            pairs: vec![Pair::of_order(&hamiltonian::cycle(rows, columns))],
            runs: vec![Run { pair: 0, during: 0..ranks - 1, bytes: block(size, 2 * ranks) }],
        }))
    }

    fn broadcast(&self, rows: u32, columns: u32, root: u32) -> Vec<Spread> {
        Spread::both_ways(&hamiltonian::cycle(rows, columns), root).into()
    }
}

/// A half of the ring in both directions through the ranks in this order.
pub(super) fn half_on(half: Half, order: &[u32]) -> Program {
    let ranks = u32::try_from(order.len()).expect("ranks are counted in 32 bits");
    ring::Ring.program(half.operation(), ranks).relabelled_with_shards(order)
}

/// The ring in both directions through the ranks in this order.
pub(super) fn on(order: &[u32]) -> Program {
    let ranks = u32::try_from(order.len()).expect("ranks are counted in 32 bits");
    ring::Ring.program(Operation::AllReduce, ranks).relabelled(order)
}
