//! Two rings that share no link, each both ways at once: four rings, a quarter of the buffer each.
//!
//! The rings are the [two Hamiltonian cycles](super::hamiltonian::pair) of a torus. Every link carries
//! the same in every step, (S/2)(p − 1)/p in all; no algorithm does with less on four links an NPU.
//! Steps 2(p − 1): for small buffers `torus` is faster.
//!
//! Source: Hoefler et al., "`HammingMesh`", SC'22, Section V.

use allrail_core::Bytes;

use super::ring_steps::{Pair, RingSteps, Run};
use super::{
    GridAllReduce, GridCost, GridGroup, Half, LinkCost, Spread, block, check_size, hamiltonian,
    least_sent, ring,
};
use crate::{CollectiveError, Program, Steps};

pub(super) struct Rings;

impl GridAllReduce for Rings {
    fn tag(&self) -> &'static str {
        hamiltonian::RINGS
    }

    fn about(&self) -> &'static str {
        "two edge-disjoint Hamiltonian rings, both ways (HammingMesh, SC'22)"
    }

    fn check(&self, rows: u32, columns: u32) -> Result<(), CollectiveError> {
        hamiltonian::check_pair(rows, columns)?;
        check_size(hamiltonian::RINGS, rows, columns, true)
    }

    fn program(&self, rows: u32, columns: u32) -> Program {
        let [red, green] = cycles(rows, columns);
        ring::on(&red).beside(ring::on(&green))
    }

    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps> {
        let ranks = rows * columns;
        let run = |pair| Run { pair, during: 0..2 * (ranks - 1), bytes: block(size, 4 * ranks) };
        Box::new(RingSteps {
            pairs: cycles(rows, columns).iter().map(|order| Pair::of_order(order)).collect(),
            runs: vec![run(0), run(1)],
        })
    }

    fn cost(&self, rows: u32, columns: u32) -> GridCost {
        let (ranks, sent) = (rows * columns, least_sent(rows, columns));
        let bytes = (sent.0, 4 * sent.1);
        GridCost { steps: 2 * (ranks - 1), sent, link: Some(LinkCost { bytes, in_step: bytes }) }
    }
}

impl GridGroup for Rings {
    fn half_program(&self, half: Half, rows: u32, columns: u32) -> Option<Program> {
        let [red, green] = cycles(rows, columns).map(|order| ring::half_on(half, &order));
        Some(red.beside_in_shards(green))
    }

    fn half_steps(&self, _: Half, rows: u32, columns: u32, size: Bytes) -> Option<Box<dyn Steps>> {
        let ranks = rows * columns;
        let run = |pair| Run { pair, during: 0..ranks - 1, bytes: block(size, 4 * ranks) };
        Some(Box::new(RingSteps {
            pairs: cycles(rows, columns).iter().map(|order| Pair::of_order(order)).collect(),
            runs: vec![run(0), run(1)],
        }))
    }

    fn broadcast(&self, rows: u32, columns: u32, root: u32) -> Vec<Spread> {
        cycles(rows, columns).iter().flat_map(|ring| Spread::both_ways(ring, root)).collect()
    }
}

fn cycles(rows: u32, columns: u32) -> [Vec<u32>; 2] {
    hamiltonian::pair(rows, columns).expect("the grid was checked")
}
