//! Reduce-scatter along rows, all-reduce along columns, all-gather along rows.
//!
//! Rings both ways within each line. At any time either the links of rows or those of columns are
//! idle, which is what `torus` makes use of. Steps 2(r − 1) + 2(c − 1); a link of a row carries
//! S(c − 1)/c, one of a column S(r − 1)/(rc), one after the other: S(p − 1)/p, as long as `ring` takes,
//! in fewer steps. The composition is [`crate::hierarchical`].

use allrail_core::{Bytes, DimensionId};

use super::ring_steps::{Pair, RingSteps, Run};
use super::{
    GridAllReduce, GridCost, GridGroup, Half, LinkCost, Spread, block, check_size, least_sent,
};
use crate::algorithm::ring;
use crate::hierarchical::compose;
use crate::{CollectiveError, Operation, Program, Stage, Steps};

/// The tag in scenario files.
const TAG: &str = "hierarchical";

pub(super) struct Hierarchical;

impl GridAllReduce for Hierarchical {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "reduce-scatter along rows, all-reduce along columns, all-gather along rows"
    }

    fn check(&self, rows: u32, columns: u32) -> Result<(), CollectiveError> {
        check_size(TAG, rows, columns, true)
    }

    fn program(&self, rows: u32, columns: u32) -> Program {
        program(rows, columns, true)
    }

    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps> {
        Box::new(RingSteps {
            pairs: vec![Pair::rows(rows, columns), Pair::columns(rows, columns)],
            runs: runs([(0, columns), (1, rows)], block(size, 4 * rows * columns)),
        })
    }

    fn cost(&self, rows: u32, columns: u32) -> GridCost {
        let (c, sent) = (u64::from(columns), least_sent(rows, columns));
        let link = LinkCost { bytes: (c - 1, c), in_step: (sent.0, 2 * sent.1) };
        GridCost { steps: 2 * (rows - 1) + 2 * (columns - 1), sent, link: Some(link) }
    }
}

impl GridGroup for Hierarchical {
    fn half_program(&self, half: Half, rows: u32, columns: u32) -> Option<Program> {
        Some(half_program(half, rows, columns, true))
    }

    fn half_steps(
        &self,
        half: Half,
        rows: u32,
        columns: u32,
        size: Bytes,
    ) -> Option<Box<dyn Steps>> {
        Some(Box::new(RingSteps {
            pairs: vec![Pair::rows(rows, columns), Pair::columns(rows, columns)],
            runs: half_runs(half, [(0, columns), (1, rows)], block(size, 4 * rows * columns)),
        }))
    }

    fn broadcast(&self, rows: u32, columns: u32, root: u32) -> Vec<Spread> {
        spreads(rows, columns, root, true).into()
    }
}

/// A half on a buffer of `4 · rows · columns` blocks: scattered along rows first or columns first,
/// gathered the other way about.
pub(super) fn half_program(half: Half, rows: u32, columns: u32, rows_first: bool) -> Program {
    let dimensions = [(columns, &ring::Ring as _), (rows, &ring::Ring as _)];
    let scattered = if rows_first { [0, 1] } else { [1, 0] };
    let order = match half {
        Half::ReduceScatter => scattered,
        Half::AllGather => [scattered[1], scattered[0]],
    };
    let stage = |d| Stage { operation: half.operation(), dimension: DimensionId(d) };
    compose(&dimensions, &order.map(stage), half.operation()).expect("the grid was checked")
}

/// The runs of [`half_program`], as [`runs`].
pub(super) fn half_runs(half: Half, [first, second]: [(usize, u32); 2], block: Bytes) -> Vec<Run> {
    let blocks = |count: u32| Bytes::new(u64::from(count) * block.count());
    let [long, short] = [first.1 - 1, second.1 - 1];
    let (outer, inner) = match half {
        Half::ReduceScatter => (0..long, long..long + short),
        Half::AllGather => (short..short + long, 0..short),
    };
    vec![
        Run { pair: first.0, during: outer, bytes: blocks(2 * second.1) },
        Run { pair: second.0, during: inner, bytes: blocks(2) },
    ]
}

/// Both ways from `root` along its row, and from there along all columns; or along its column first.
pub(super) fn spreads(rows: u32, columns: u32, root: u32, row_first: bool) -> [Spread; 2] {
    let home = [root / columns, root % columns];
    [true, false].map(|forward| {
        let before = |at: u32, size: u32| (at + if forward { size - 1 } else { 1 }) % size;
        let parent = |rank: u32| {
            let [row, column] = [rank / columns, rank % columns];
            let along_row = if row_first { row == home[0] } else { column != home[1] };
            match (rank == root, along_row) {
                (true, _) => root,
                (false, true) => row * columns + before(column, columns),
                (false, false) => before(row, rows) * columns + column,
            }
        };
        Spread::new(root, (0..rows * columns).map(parent).collect())
    })
}

/// The whole algorithm on a buffer of `4 · rows · columns` blocks, along rows first or columns first.
pub(super) fn program(rows: u32, columns: u32, rows_first: bool) -> Program {
    use Operation::{AllGather, AllReduce, ReduceScatter};
    let dimensions = [(columns, &ring::Ring as _), (rows, &ring::Ring as _)];
    let (first, second) = if rows_first { (0, 1) } else { (1, 0) };
    let stages = [(ReduceScatter, first), (AllReduce, second), (AllGather, first)]
        .map(|(operation, d)| Stage { operation, dimension: DimensionId(d) });
    compose(&dimensions, &stages, AllReduce).expect("the grid was checked")
}

/// The runs of [`program`]: (pair, ranks of its lines) of the first and the second dimension. A line
/// of the first passes on one of its blocks, each as many as the second divides it into; one of the
/// second a block of its shard, one for each direction of the first.
pub(super) fn runs([first, second]: [(usize, u32); 2], block: Bytes) -> Vec<Run> {
    let blocks = |count: u32| Bytes::new(u64::from(count) * block.count());
    let (scatter, gather) = (first.1 - 1, first.1 - 1 + 2 * (second.1 - 1));
    let whole = blocks(2 * second.1);
    vec![
        Run { pair: first.0, during: 0..scatter, bytes: whole },
        Run { pair: second.0, during: scatter..gather, bytes: blocks(2) },
        Run { pair: first.0, during: gather..gather + first.1 - 1, bytes: whole },
    ]
}
