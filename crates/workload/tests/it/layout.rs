//! Degrees of parallelism on dimensions and their factors.

use std::collections::BTreeSet;

use allrail_core::DimensionId;
use allrail_workload::Part;
use allrail_workload::parallelism::layout::Layout;
use allrail_workload::spec::{Axis, Parallelism};
use proptest::prelude::*;
use serde_json::{Value, json};

fn layout(parallelism: Value, sizes: &[u32]) -> Layout {
    let parallelism: Parallelism = serde_json::from_value(parallelism).expect("a layout");
    Layout::new(&parallelism, sizes).unwrap_or_else(|error| panic!("{error}; {}", error.hint))
}

#[test]
fn degrees_take_the_inner_dimensions_first() {
    let cases = [
        (json!({}), vec![16, 64], "dp 1024 on dim1 × dim2"),
        (
            json!({"tp": 8, "pp": 12}),
            vec![8, 12, 128],
            "tp 8 on dim1, pp 12 on dim2, dp 128 on dim3",
        ),
        // Transformer-1T on Themis' two-dimensional platform.
        (json!({"tp": 128}), vec![16, 64], "tp 128 on dim1 × dim2[1:8], dp 8 on dim2[8:64]"),
        (
            json!({"tp": 4, "pp": 2}),
            vec![8, 4],
            "tp 4 on dim1[1:4], pp 2 on dim1[4:8], dp 4 on dim2",
        ),
        (json!({"tp": 6}), vec![4, 3, 2], "tp 6 on dim1[1:2] × dim2, dp 4 on dim1[2:4] × dim3"),
        (json!({"tp": 2, "map": {"dp": [0]}}), vec![4, 2], "tp 2 on dim2, dp 4 on dim1"),
        (
            json!({"tp": 8, "map": {"tp": ["1[0:8]"], "dp": [0, "1[8:]"]}}),
            vec![16, 64],
            "tp 8 on dim2[1:8], dp 128 on dim1 × dim2[8:64]",
        ),
        (
            json!({"map": {"pp": ["0[2:4]"]}, "pp": 2, "tp": 2}),
            vec![8],
            "tp 2 on dim1[1:2], pp 2 on dim1[2:4], dp 2 on dim1[4:8]",
        ),
    ];
    for (parallelism, sizes, words) in cases {
        assert_eq!(layout(parallelism, &sizes).words(), words);
    }
}

#[test]
fn neighbouring_factors_are_one_part() {
    let layout = layout(json!({"ep": 4, "dp": 16}), &[8, 8]);
    let part = |dimension, size, stride| Part { dimension: DimensionId(dimension), size, stride };
    assert_eq!(layout.parts(Axis::Dp), [part(0, 2, 4), part(1, 8, 1)]);
    assert_eq!(layout.together(&[Axis::Dp, Axis::Ep]), [part(0, 8, 1), part(1, 8, 1)]);
}

proptest! {
    /// However degrees divide the dimensions, they partition the ranks: no two ranks have the same
    /// position in every degree, and every position has its rank.
    #[test]
    fn degrees_partition_the_ranks(
        sizes in prop::collection::vec(prop::sample::select(vec![1u32, 2, 3, 4, 6, 8]), 1..4),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 5),
    ) {
        let npus: u32 = sizes.iter().product();
        let mut left = npus;
        let mut degree = |pick: &prop::sample::Index| {
            let divisors: Vec<u32> = (1..=left).filter(|d| left.is_multiple_of(*d)).collect();
            let chosen = divisors[pick.index(divisors.len())];
            left /= chosen;
            chosen
        };
        let [tp, op, ep, pp, cp] = [0, 1, 2, 3, 4].map(|i| degree(&picks[i]));
        let layout = layout(json!({"tp": tp, "op": op, "ep": ep, "pp": pp, "cp": cp}), &sizes);
        prop_assert_eq!(layout.degree(Axis::Dp), left);
        for (axis, expected) in [(Axis::Tp, tp), (Axis::Op, op), (Axis::Ep, ep), (Axis::Pp, pp), (Axis::Cp, cp)] {
            prop_assert_eq!(layout.degree(axis), expected);
        }
        let mut seen = BTreeSet::new();
        for rank in 0..npus {
            seen.insert(Axis::ALL.map(|axis| layout.position(axis, rank)));
        }
        prop_assert_eq!(seen.len(), npus as usize);
        let stages = layout.stages();
        prop_assert_eq!(stages.len(), pp as usize);
        prop_assert!(stages.iter().all(|ranks| ranks.len() == (npus / pp) as usize));
    }
}
