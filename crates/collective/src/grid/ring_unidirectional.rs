//! One ring through all NPUs, one way: for NPUs that have one port.
//!
//! Its order is that of [`ring`](super::ring). A link carries all of the data, twice what it carries
//! both ways, but an NPU with one port sends as much as then, and its two messages of a step do not
//! wait for each other: where ranks are a little apart, both ways at once lose time.
//!
//! Steps 2(p − 1); bytes on a link 2S(p − 1)/p; the algorithm is
//! [`crate::algorithm::ring_unidirectional`].

use allrail_core::Bytes;

use super::{
    GridAllReduce, GridCost, GridGroup, Half, LinkCost, Spread, block, check_size, hamiltonian,
    least_sent,
};
use crate::algorithm::ring_unidirectional;
use crate::{Algorithm, CollectiveError, Operation, Program, Steps};

/// The tag in scenario files.
const TAG: &str = "ring_unidirectional";

pub(super) struct RingUnidirectional;

impl GridAllReduce for RingUnidirectional {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "one ring through all NPUs, one way"
    }

    fn check(&self, rows: u32, columns: u32) -> Result<(), CollectiveError> {
        check_size(TAG, rows, columns, false)
    }

    fn program(&self, rows: u32, columns: u32) -> Program {
        ring_unidirectional::RingUnidirectional
            .program(Operation::AllReduce, rows * columns)
            .relabelled(&hamiltonian::cycle(rows, columns))
    }

    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps> {
        Box::new(OneWay::new(rows, columns, size, 2 * (rows * columns - 1)))
    }

    fn halves(&self) -> &'static dyn GridAllReduce {
        &RingUnidirectional
    }

    fn cost(&self, rows: u32, columns: u32) -> GridCost {
        let sent = least_sent(rows, columns);
        let link = Some(LinkCost { bytes: sent, in_step: sent });
        GridCost { steps: 2 * (rows * columns - 1), sent, link }
    }
}

impl GridGroup for RingUnidirectional {
    fn half_program(&self, half: Half, rows: u32, columns: u32) -> Option<Program> {
        let whole = ring_unidirectional::RingUnidirectional;
        let program = whole.program(half.operation(), rows * columns);
        Some(program.relabelled_with_shards(&hamiltonian::cycle(rows, columns)))
    }

    fn half_steps(&self, _: Half, rows: u32, columns: u32, size: Bytes) -> Option<Box<dyn Steps>> {
        Some(Box::new(OneWay::new(rows, columns, size, rows * columns - 1)))
    }

    fn broadcast(&self, rows: u32, columns: u32, root: u32) -> Vec<Spread> {
        vec![Spread::chain(&hamiltonian::cycle(rows, columns), root)]
    }
}

/// Every rank sends the same to its next in every step.
struct OneWay {
    next: Vec<u32>,
    bytes: Bytes,
    steps: u32,
}

impl OneWay {
    fn new(rows: u32, columns: u32, size: Bytes, steps: u32) -> Self {
        let order = hamiltonian::cycle(rows, columns);
        let mut next = vec![0; order.len()];
        for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
            next[*from as usize] = *to;
        }
        Self { next, bytes: block(size, rows * columns), steps }
    }
}

impl Steps for OneWay {
    fn ranks(&self) -> u32 {
        u32::try_from(self.next.len()).expect("ranks are counted in 32 bits")
    }

    fn steps(&self) -> u32 {
        self.steps
    }

    fn sends(&self, rank: u32, _step: u32, out: &mut Vec<(u32, Bytes)>) {
        out.push((self.next[rank as usize], self.bytes));
    }

    fn expected(&self, _rank: u32, _step: u32) -> u32 {
        1
    }

    fn alike(&self) -> Vec<std::ops::Range<u32>> {
        std::iter::once(0..self.steps).filter(|run| run.len() > 1).collect()
    }
}
