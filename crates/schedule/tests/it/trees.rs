//! Spanning trees that carry an all-gather at the bound: on drawn networks, and by hand.

use std::collections::BTreeSet;

use allrail_collective::Operation;
use allrail_collective::program::Waits;
use allrail_collective::verify::verify;
use allrail_core::Time;
use allrail_schedule::cuts::{Network, Pair, gather};
use allrail_schedule::trees::{Forest, NoTrees, forest, program};
use proptest::prelude::*;

fn network(nodes: usize, ends: &[(u32, u32, u64)]) -> Network {
    let pair = |&(a, b, rate)| Pair { ends: [a, b], rates: [rate, rate], latency: Time::ZERO };
    Network::new(nodes, ends.iter().map(pair))
}

/// Every tree spans, every root's copies are all there, and no arc has more than it carries in the least time.
fn check(network: &Network, members: &[u32], forest: &Forest) {
    let mut loads = vec![0u128; network.arcs() as usize];
    for &root in members {
        let trees = forest.trees.iter().filter(|tree| tree.root == root);
        assert_eq!(trees.map(|tree| tree.multiplicity).sum::<u128>(), forest.copies, "of {root}");
    }
    for tree in &forest.trees {
        let mut has = BTreeSet::from([tree.root]);
        for edge in &tree.edges {
            assert!(has.contains(&edge.from) && has.insert(edge.to), "{edge:?} of {tree:?}");
            let copies: u128 = edge.paths.iter().map(|path| path.multiplicity).sum();
            assert_eq!(copies, tree.multiplicity, "{edge:?}");
            for path in &edge.paths {
                let mut at = edge.from;
                for &arc in &path.arcs {
                    assert_eq!(network.tail(arc), at, "{edge:?}");
                    at = network.head(arc);
                    loads[arc as usize] += path.multiplicity;
                }
                assert_eq!(at, edge.to, "{edge:?}");
            }
        }
        assert_eq!(has, members.iter().copied().collect(), "{tree:?}");
    }
    let worst = gather(network, members).expect("joined");
    let [numerator, denominator] = forest.per_unit;
    for arc in 0..network.arcs() {
        let most = network.capacity(arc) * numerator;
        assert!(loads[arc as usize] * denominator <= most, "arc {arc}: {loads:?}");
        // And that is the bound: a copy takes 1 / (N * copies) of the result.
        let (trees, bound) =
            (numerator * worst.capacity, denominator * worst.members * forest.copies);
        if forest.copies < 64 {
            assert_eq!(trees, bound);
        } else {
            assert!(bound <= trees && trees * 8 <= bound * 9, "{trees} for {bound}");
        }
    }
}

#[test]
fn on_a_switch_all_send_to_all() {
    let star = network(4, &[(0, 3, 1), (1, 3, 1), (2, 3, 1)]);
    let found = forest(&star, &[0, 1, 2]).expect("joined");
    check(&star, &[0, 1, 2], &found);
    assert!(found.trees.iter().all(|tree| tree.edges.len() == 2));
}

#[test]
fn two_rings_of_a_torus_less_a_cable() {
    let torus = network(16, &torus(4, 4)[1..]);
    let members: Vec<u32> = (0..16).collect();
    check(&torus, &members, &forest(&torus, &members).expect("joined"));
}

/// Rates that have nothing in common would need a million copies.
#[test]
fn few_copies_come_near_the_bound_of_awkward_rates() {
    let cables = [(0, 1, 100_003), (1, 2, 99_991), (2, 3, 70_001), (3, 0, 99_989), (0, 2, 33_301)];
    let ring = network(4, &cables);
    let found = forest(&ring, &[0, 1, 2, 3]).expect("joined");
    check(&ring, &[0, 1, 2, 3], &found);
    assert_eq!(found.copies, 64);
}

/// With as many to each neighbour as there are, each NPU of a switch sends to one other.
#[test]
fn trees_past_a_switch_go_round() {
    let star = network(6, &[0, 1, 2, 3, 4].map(|npu| (npu, 5, 1)));
    let found = forest(&star, &[0, 1, 2, 3, 4]).expect("joined");
    let pairs: BTreeSet<_> =
        found.trees.iter().flat_map(|tree| &tree.edges).map(|edge| (edge.from, edge.to)).collect();
    assert_eq!(pairs.len(), 5, "{pairs:?}");
}

/// Cables of a torus of so many rows and columns.
fn torus(rows: u32, columns: u32) -> Vec<(u32, u32, u64)> {
    let at = |row: u32, column: u32| row % rows * columns + column % columns;
    let cables = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let of = |(row, column)| {
        [(at(row, column), at(row, column + 1), 50), (at(row, column), at(row + 1, column), 50)]
    };
    cables.flat_map(of).collect()
}

/// Where nothing is to spare, almost every step has to be the right one.
#[test]
fn a_whole_torus_into_whose_members_no_more_leads_than_has_to() {
    let torus = network(36, &torus(6, 6));
    let members: Vec<u32> = (0..36).collect();
    check(&torus, &members, &forest(&torus, &members).expect("joined"));
}

/// Switches with more neighbours than are joined all with all: nodes of eight, one switch inside and a rail for each
/// NPU, two of which have lost theirs.
#[test]
fn nodes_with_rails_of_which_two_are_missing() {
    let inside = (0..160).map(|npu| (npu, 160 + npu / 8, 300));
    let rails = (0..160).filter(|npu| ![5, 77].contains(npu)).map(|npu| (npu, 180 + npu % 8, 50));
    let nodes = network(188, &inside.chain(rails).collect::<Vec<_>>());
    let members: Vec<u32> = (0..160).collect();
    let found = forest(&nodes, &members).expect("joined");
    check(&nodes, &members, &found);
    // Batches are divided seldom.
    assert!(found.trees.len() < 2 * members.len(), "{}", found.trees.len());
}

/// As many NPUs as make a flow for every step of every tree too many.
#[test]
fn a_large_torus_less_a_cable() {
    let torus = network(400, &torus(20, 20)[1..]);
    let members: Vec<u32> = (0..400).collect();
    check(&torus, &members, &forest(&torus, &members).expect("joined"));
}

#[test]
fn what_has_no_trees_says_why() {
    let parts = network(4, &[(0, 1, 1), (2, 3, 1)]);
    assert_eq!(forest(&parts, &[0, 1, 2, 3]), Err(NoTrees::Apart));
    let pair = |ends, rates| Pair { ends, rates, latency: Time::ZERO };
    let lopsided = Network::new(3, [pair([0, 2], [1, 2]), pair([1, 2], [1, 1])]);
    assert_eq!(forest(&lopsided, &[0, 1]), Err(NoTrees::Lopsided(2)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn trees_reach_the_bound_of_any_network(
        nodes in 3u32..10,
        others in 0u32..5,
        path in prop::collection::vec(1u64..=6, 9),
        more in prop::collection::vec((0u32..10, 1u32..10, 1u64..=6), 0..16),
    ) {
        let members: Vec<u32> = (0..nodes.saturating_sub(others).max(2)).collect();
        let path = (1..nodes).zip(&path).map(|(node, rate)| (node - 1, node, *rate));
        let more = more.iter().map(|(a, by, rate)| (a % nodes, (a + by) % nodes, *rate));
        let cables: Vec<_> = path.chain(more.filter(|(a, b, _)| a != b)).collect();
        let network = network(nodes as usize, &cables);
        check(&network, &members, &forest(&network, &members).expect("joined"));
        for operation in Operation::ALL {
            let Some(found) = program(&network, nodes, operation).expect("joined") else {
                prop_assert!(matches!(operation, Operation::AllToAll | Operation::Broadcast));
                continue;
            };
            prop_assert_eq!(found.waits, Waits::Blocks);
            prop_assert!(verify(&found, operation).is_ok(), "{:?}", operation);
        }
    }
}
