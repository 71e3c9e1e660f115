//! Group collectives over grids: proved, steps equal to messages, halves half of an all-reduce.

use std::collections::BTreeMap;

use allrail_collective::grid::{GridAllReduce, Half, Spread, group, named};
use allrail_collective::steps::Sized;
use allrail_collective::verify::verify;
use allrail_collective::{Operation, Steps};
use allrail_core::Bytes;

use crate::grid::{cases, sends, sorted};

const SHAPES: [(u32, u32); 13] = [
    (2, 2),
    (4, 2),
    (2, 3),
    (3, 3),
    (4, 4),
    (5, 3),
    (3, 5),
    (1, 6),
    (6, 1),
    (1, 2),
    (8, 4),
    (4, 8),
    (9, 3),
];

#[test]
fn halves_are_proved_and_their_steps_are_their_messages() {
    let mut proved = 0;
    for (algorithm, rows, columns) in cases(&SHAPES) {
        for half in Half::BOTH {
            let what = format!("{algorithm:?} {rows}x{columns}, {half:?}");
            let Some(program) = algorithm.half_program(half, rows, columns) else {
                assert!(algorithm.half_steps(half, rows, columns, Bytes::new(1)).is_none());
                continue;
            };
            let proof = verify(&program, half.operation())
                .unwrap_or_else(|violation| panic!("{what}: {violation}"));
            assert_eq!(2 * proof.steps, algorithm.cost(rows, columns).steps, "{what}");
            let oracle = Sized { program: &program, block: Bytes::new(1000) };
            let size = Bytes::new(u64::from(program.blocks) * 1000 - 1);
            let steps = algorithm.half_steps(half, rows, columns, size).expect("as the program");
            assert_eq!((steps.ranks(), steps.steps()), (oracle.ranks(), oracle.steps()), "{what}");
            for rank in 0..oracle.ranks() {
                for step in 0..oracle.steps() {
                    let expected = sorted(sends(&oracle, rank, step));
                    assert_eq!(
                        sorted(sends(&*steps, rank, step)),
                        expected,
                        "{what}: {rank}, {step}"
                    );
                    assert_eq!(steps.expected(rank, step), oracle.expected(rank, step), "{what}");
                }
            }
            proved += 1;
        }
    }
    assert!(proved > 80, "{proved}");
}

/// What each directed pair of ranks exchanges.
fn loads(steps: &dyn Steps) -> BTreeMap<(u32, u32), u64> {
    let mut loads = BTreeMap::new();
    for step in 0..steps.steps() {
        for rank in 0..steps.ranks() {
            for (to, bytes) in sends(steps, rank, step) {
                *loads.entry((rank, to)).or_default() += bytes.count();
            }
        }
    }
    loads
}

#[test]
fn a_half_loads_every_link_with_half_of_the_all_reduce() {
    for (algorithm, rows, columns) in cases(&SHAPES) {
        let size = Bytes::new(8 * u64::from(rows * columns) * 64);
        let whole = loads(&*algorithm.steps(rows, columns, size));
        for half in Half::BOTH {
            let Some(steps) = algorithm.half_steps(half, rows, columns, size) else { continue };
            let twice: BTreeMap<_, _> =
                loads(&*steps).into_iter().map(|(link, bytes)| (link, 2 * bytes)).collect();
            assert_eq!(twice, whole, "{algorithm:?} {rows}x{columns} {half:?}");
        }
    }
}

#[test]
fn broadcasts_are_proved_and_reach_everyone_from_any_root() {
    for (algorithm, rows, columns) in cases(&SHAPES) {
        let what = format!("{algorithm:?} {rows}x{columns}");
        let trees = algorithm.broadcast(rows, columns, 0);
        let proof = verify(&group::program(&trees, 3), Operation::Broadcast)
            .unwrap_or_else(|violation| panic!("{what}: {violation}"));
        let depth = trees.iter().map(Spread::depth).max().expect("a tree");
        assert_eq!(proof.steps, 3 + depth - 1, "{what}");
        for root in 0..rows * columns {
            for tree in algorithm.broadcast(rows, columns, root) {
                assert_eq!(tree.root(), root, "{what}");
                assert!(tree.depths().iter().all(Option::is_some), "{what} from {root}");
            }
        }
    }
}

/// On a torus with sides of 3 or more: trees of the busiest link, and whether all hops are one cable.
fn busiest(algorithm: &dyn GridAllReduce, rows: u32, columns: u32, root: u32) -> usize {
    let mut trees: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    for tree in algorithm.broadcast(rows, columns, root) {
        for (parent, children) in (0..).zip(tree.children()) {
            for child in children {
                let apart = |a: u32, b: u32, size: u32| a.abs_diff(b).min(size - a.abs_diff(b));
                let hops = apart(parent / columns, child / columns, rows)
                    + apart(parent % columns, child % columns, columns);
                assert_eq!(hops, 1, "{}: from {parent} to {child}", algorithm.tag());
                *trees.entry((parent, child)).or_default() += 1;
            }
        }
    }
    trees.into_values().max().unwrap_or(0)
}

/// Two disjoint rings give four trees that share no link: no broadcast over four links does with less.
#[test]
fn links_of_a_torus_carry_what_the_table_says() {
    for (rows, columns) in [(4, 4), (8, 4), (9, 3)] {
        for root in [0, 1, rows * columns - 1] {
            for (tag, trees, most, depth) in [
                ("rings", 4, 1, rows * columns - 1),
                ("ring", 2, 1, rows * columns - 1),
                ("ring_unidirectional", 1, 1, rows * columns - 1),
                ("torus", 4, 2, rows + columns - 2),
                ("hierarchical", 2, 1, rows + columns - 2),
            ] {
                let algorithm = named(tag).expect("known");
                let all = algorithm.broadcast(rows, columns, root);
                assert_eq!((all.len(), busiest(algorithm, rows, columns, root)), (trees, most));
                assert!(all.iter().all(|tree| tree.depth() == depth), "{tag} {rows}x{columns}");
            }
        }
    }
}

#[test]
fn a_tree_that_reaches_not_everyone_is_seen() {
    // Ranks 2 and 3 pass it to each other.
    let tree = Spread::new(0, vec![0, 0, 3, 2]);
    assert_eq!(tree.depths(), [Some(0), Some(1), None, None]);
    assert!(verify(&group::program(&[tree], 1), Operation::Broadcast).is_err());
}
