//! Reduce-scatter along rows, all-reduce along columns, all-gather along rows with half of the
//! buffer, and at the same time the same along columns first with the other half.
//!
//! Each half is [`super::hierarchical`]. On q × q the two never use the same links at once: 4(q − 1)
//! steps, (S/2)(1 − 1/p) on every link, as few bytes as `rings` in far fewer steps. With sides
//! `l > s` the links of the long side carry more, (S/2)(1 − 1/l)(1 + 1/s), and there is more waiting:
//! in a step the two halves send messages of different sizes, some over the same links. While ranks
//! keep step, it takes (2ls − s² − 1)/(2ls) of S: 0.734 on 8 × 4, whose busiest link carries 0.547.
//!
//! Source: Ying et al., "Image classification at supercomputer scale", 2018 (the 2D gradient
//! summation); Hoefler et al., "`HammingMesh`", SC'22, Section V. The coefficient printed there,
//! Sβ(1 + 2q)/(4q), is not the sum of its terms, (2 + 2q)/(4q), nor either of them the exact one.
//!
//! Ignored: the halves need not keep step with each other; here a rank begins a step of both at once.

use allrail_core::Bytes;

use super::ring_steps::{Pair, RingSteps};
use super::{
    GridAllReduce, GridCost, GridGroup, Half, LinkCost, Spread, block, check_size, hierarchical,
    least_sent,
};
use crate::{CollectiveError, Program, Steps};

/// The tag in scenario files.
const TAG: &str = "torus";

pub(super) struct Torus;

impl GridAllReduce for Torus {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "rows then columns with one half of the data, columns then rows with the other"
    }

    fn check(&self, rows: u32, columns: u32) -> Result<(), CollectiveError> {
        check_size(TAG, rows, columns, true)
    }

    fn program(&self, rows: u32, columns: u32) -> Program {
        let half = |rows_first| hierarchical::program(rows, columns, rows_first);
        half(true).beside(half(false))
    }

    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps> {
        let block = block(size, 8 * rows * columns);
        let mut runs = hierarchical::runs([(0, columns), (1, rows)], block);
        runs.extend(hierarchical::runs([(1, rows), (0, columns)], block));
        let pairs = vec![Pair::rows(rows, columns), Pair::columns(rows, columns)];
        Box::new(RingSteps { pairs, runs })
    }

    fn cost(&self, rows: u32, columns: u32) -> GridCost {
        let (long, short) = (u64::from(rows.max(columns)), u64::from(rows.min(columns)));
        let twice = 2 * long * short;
        let link = LinkCost {
            bytes: ((long - 1) * (short + 1), twice),
            in_step: (twice - short * short - 1, twice),
        };
        GridCost {
            steps: 2 * (rows - 1) + 2 * (columns - 1),
            sent: least_sent(rows, columns),
            link: Some(link),
        }
    }
}

impl GridGroup for Torus {
    fn half_program(&self, half: Half, rows: u32, columns: u32) -> Option<Program> {
        let part = |rows_first| hierarchical::half_program(half, rows, columns, rows_first);
        Some(part(true).beside_in_shards(part(false)))
    }

    fn half_steps(
        &self,
        half: Half,
        rows: u32,
        columns: u32,
        size: Bytes,
    ) -> Option<Box<dyn Steps>> {
        let block = block(size, 8 * rows * columns);
        let mut runs = hierarchical::half_runs(half, [(0, columns), (1, rows)], block);
        runs.extend(hierarchical::half_runs(half, [(1, rows), (0, columns)], block));
        let pairs = vec![Pair::rows(rows, columns), Pair::columns(rows, columns)];
        Some(Box::new(RingSteps { pairs, runs }))
    }

    fn broadcast(&self, rows: u32, columns: u32, root: u32) -> Vec<Spread> {
        let both = [true, false].map(|first| hierarchical::spreads(rows, columns, root, first));
        both.into_iter().flatten().collect()
    }
}
