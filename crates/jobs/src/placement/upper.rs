//! The part of the jobs' traffic that crosses the upper levels of the trees.
//!
//! For the all-to-all of a job on `u × v` boards, an ordered pair of boards in unlike columns uses a
//! row's tree and one in unlike rows a column's tree; it crosses the upper level where the two lines
//! stand under unlike leaves. For rings, the neighbours of the `u × v` torus take the place of all
//! pairs: each row's ring through its columns in order and back, each column's through its rows. The
//! part is over all jobs together, rows and columns added up (`HammingMesh`, SC'22, Fig. 9 leaves its
//! counting open):
//!
//! ```text
//! part = Σ pairs across leaves / Σ pairs that use a tree
//! ```
//!
//! What it ignores: traces (pairs on one board use no tree), and that a packet may take either tree.

use allrail_fabric::placement::{Leaves, pairs_across};

use super::place::Placed;

/// Parts of the traffic, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Upper {
    /// Of all-to-all traffic.
    pub all_to_all: f64,
    /// Of rings along rows and columns.
    pub rings: f64,
}

/// The parts for all `jobs` together; `None` where no job uses a tree.
#[must_use]
pub fn upper(jobs: &[Placed], leaves: &Leaves) -> Option<Upper> {
    let [mut pairs, mut all_pairs, mut edges, mut all_edges] = [0u64; 4];
    for job in jobs {
        let lines = [(&job.rows, &leaves.of_rows), (&job.columns, &leaves.of_columns)];
        let [u, v] = [job.rows.len() as u64, job.columns.len() as u64];
        for ((lines, leaves), across) in lines.into_iter().zip([v, u]) {
            let count = lines.len() as u64;
            pairs += across * across * pairs_across(leaves, lines);
            all_pairs += across * across * count * (count - 1);
            edges += across * edges_across(leaves, lines);
            all_edges += across * if count > 2 { count } else { count - 1 };
        }
    }
    (all_pairs > 0).then(|| Upper {
        all_to_all: pairs as f64 / all_pairs as f64,
        rings: edges as f64 / all_edges as f64,
    })
}

/// Neighbours across leaves on the ring through `lines` in order.
fn edges_across(leaves: &[u32], lines: &[u32]) -> u64 {
    let unlike = |a: u32, b: u32| u64::from(leaves[a as usize] != leaves[b as usize]);
    let inner: u64 = lines.windows(2).map(|pair| unlike(pair[0], pair[1])).sum();
    let back = if lines.len() > 2 { unlike(lines[0], lines[lines.len() - 1]) } else { 0 };
    inner + back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_pairs_and_neighbours_across_leaves() {
        let leaves = Leaves::of(8, 8, 4);
        let job = |rows: &[u32], columns: &[u32]| Placed {
            job: 0,
            rows: rows.to_vec(),
            columns: columns.to_vec(),
        };
        assert_eq!(upper(&[job(&[3], &[3])], &leaves), None);
        // One row: columns 2 and 3 | 4: 4 of 6 ordered pairs, 2 of 3 edges of the ring.
        let line = upper(&[job(&[0], &[2, 3, 4])], &leaves).expect("it uses its row's tree");
        assert!((line.all_to_all - 4.0 / 6.0).abs() < 1e-12);
        assert!((line.rings - 2.0 / 3.0).abs() < 1e-12);
        // 2 x 2, its rows apart: of 4 · 2 pairs by rows and 4 · 2 by columns, all of one kind.
        let square = upper(&[job(&[3, 4], &[0, 1])], &leaves).expect("it uses trees");
        assert!((square.all_to_all - 0.5).abs() < 1e-12);
        assert!((square.rings - 0.5).abs() < 1e-12);
    }
}
