//! Walks along allowed hops, chosen at random, on random small instances: they end at the destination
//! after the fewest links.

use allrail_fabric::graph::{Builder, CableKind, Graph, NodeId, Wire};
use allrail_fabric::routing::{Adaptive, Dependencies, Hop, RouteState, Routing};
use allrail_fabric::topologies::read;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::NextHops;

/// The number of links from `source` to `destination`, choosing by `choices`; each hop is checked.
fn walk(
    graph: &Graph,
    routing: &dyn Routing,
    [source, destination]: [u32; 2],
    choices: &[u32],
) -> Vec<Hop> {
    let (mut node, mut state, mut taken) = (NodeId(source), RouteState::default(), Vec::new());
    let mut choices = choices.iter().cycle();
    let mut choose = |many: u32| choices.next().expect("a choice") % many;
    while node.0 != destination {
        assert!(taken.len() < 100, "a packet walks for ever");
        let (mut hops, draw) = (Vec::new(), choose(routing.draws()));
        routing.hops(node, state, NodeId(destination), draw, &mut hops);
        assert!(!hops.is_empty(), "no hop at {node:?}");
        let hop = hops[choose(hops.len() as u32) as usize];
        assert!(hop.channel < routing.channels());
        assert_eq!(graph.link(hop.link).from, node);
        (node, state) = (graph.link(hop.link).to, hop.state);
        taken.push(hop);
    }
    taken
}

fn minimal() -> impl Strategy<Value = Value> {
    let torus = prop::collection::vec(2u32..6, 2..4)
        .prop_map(|shape| json!({ "topology": "torus", "shape": shape }));
    let hyperx =
        (2u32..6, 1u32..6).prop_map(|(x, y)| json!({ "topology": "hyperx", "shape": [x, y] }));
    let tree =
        (9u32..65, 2u32..4, 0usize..3).prop_filter_map("it fits", |(npus, levels, taper)| {
            let keys = json!({
                "topology": "fat_tree", "npus": npus, "switch_radix": 8, "levels": levels,
                "taper": ([0.0, 0.5, 0.75][taper]),
            });
            read(keys.clone()).is_ok().then_some(keys)
        });
    let mesh = ([1u32..5, 1u32..5], [2u32..5, 1u32..5], 0usize..3, any::<u64>()).prop_filter_map(
        "it is whole",
        |(board, [x, y], radix, seed)| {
            // One board in eight fails.
            let failed: Vec<[u32; 2]> = (0..x * y)
                .filter(|board| seed >> (3 * board) & 7 == 0)
                .map(|board| [board % x, board / x])
                .collect();
            let keys = json!({
                "topology": "hammingmesh", "board": board, "grid": [x, y],
                "switch_radix": ([4, 8, 64][radix]), "failed_boards": failed,
            });
            read(keys.clone()).is_ok_and(|mesh| mesh.build().is_ok()).then_some(keys)
        },
    );
    prop_oneof![torus, hyperx, tree, mesh]
}

fn dragonfly() -> impl Strategy<Value = Value> {
    (1u32..6, 1u32..3, 1u32..4, 2u32..8, any::<bool>(), any::<bool>()).prop_filter_map(
        "it is one",
        |(a, p, h, groups, wide, ugal)| {
            let keys = json!({
                "topology": "dragonfly", "a": a, "p": p, "h": h, "groups": groups,
                "switch_radix": if wide { 64 } else { ((a + p + h) / 2 * 2).max(4) },
                "routing": if ugal { "ugal" } else { "minimal" },
            });
            read(keys.clone()).is_ok().then_some(keys)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn random_instances_are_free_of_deadlock(keys in prop_oneof![minimal(), dragonfly()]) {
        let topology = read(keys).expect("valid keys");
        let graph = topology.simulated().expect("a graph");
        prop_assume!(graph.npus() <= 64);
        let routing = topology.routing(&graph).expect("a rule");
        let found = Dependencies::explore(&graph, &*routing);
        prop_assert!(found.sound(), "{:?}", found.in_words(&graph));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn minimal_walks_take_the_fewest_links(
        keys in minimal(),
        pair: [u32; 2],
        choices in prop::collection::vec(any::<u32>(), 20),
    ) {
        let topology = read(keys).expect("valid keys");
        let graph = topology.simulated().expect("a graph");
        let routing = topology.routing(&graph).expect("a rule");
        let pair = pair.map(|npu| npu % graph.npus());
        let next = NextHops::new(&graph);
        let hops = walk(&graph, &*routing, pair, &choices);
        let [source, destination] = pair.map(NodeId);
        prop_assert_eq!(hops.len() as u32, next.distance(source, destination));
        for (hop, left) in hops.iter().rev().zip(1..) {
            prop_assert_eq!(hop.weight, left);
        }
    }

    /// Odd rings leave no choice of direction, so that nothing is lost with the choice of a network.
    #[test]
    fn tori_offer_every_minimal_path(
        shape in prop::collection::vec((1u32..4).prop_map(|half| 2 * half + 1), 2..4),
        pair: [u32; 2],
        choices in prop::collection::vec(any::<u32>(), 20),
    ) {
        let topology = read(json!({ "topology": "torus", "shape": shape })).expect("valid keys");
        let graph = topology.build().expect("a graph");
        let routing = topology.routing(&graph).expect("a rule");
        let [source, destination] = pair.map(|npu| NodeId(npu % graph.npus()));
        let next = NextHops::new(&graph);
        let (mut node, mut state) = (source, RouteState::default());
        for hop in walk(&graph, &*routing, [source.0, destination.0], &choices) {
            let mut hops = Vec::new();
            routing.hops(node, state, destination, 0, &mut hops);
            let mut links: Vec<u32> = hops.iter().map(|hop| hop.link).collect();
            links.sort_unstable();
            links.dedup();
            let mut all = next.links(node, destination).to_vec();
            all.sort_unstable();
            prop_assert_eq!(links, all);
            (node, state) = (graph.link(hop.link).to, hop.state);
        }
    }

    /// Minimal: local, global, local, and the NPUs' own cables. A detour takes a global and a local
    /// cable more.
    #[test]
    fn dragonfly_walks_are_short(
        keys in dragonfly(),
        pair: [u32; 2],
        choices in prop::collection::vec(any::<u32>(), 20),
    ) {
        let topology = read(keys.clone()).expect("valid keys");
        let graph = topology.simulated().expect("a graph");
        let routing = topology.routing(&graph).expect("a rule");
        let pair = pair.map(|npu| npu % graph.npus());
        let hops = walk(&graph, &*routing, pair, &choices);
        let (most, globals_at_most) = if keys["routing"] == "ugal" { (7, 2) } else { (5, 1) };
        prop_assert!(hops.len() <= most, "{} hops", hops.len());
        let globals = hops.iter().filter(|hop| {
            graph.cables()[hop.link as usize / 2].kind == CableKind::Aoc
        });
        prop_assert!(globals.count() <= globals_at_most);
        // Where it may choose, it knows how long the way is at most.
        if let Some(hop) = hops.get(1).filter(|_| hops.len() > 2) {
            prop_assert!(hops.len() - 2 <= usize::from(hop.weight));
        }
    }

    /// The rule for any graph is sound on any graph.
    #[test]
    fn random_graphs_are_free_of_deadlock(
        (npus, switches) in (2u32..8, 0u32..8),
        ends in prop::collection::vec(any::<[u32; 2]>(), 0..30),
        pair: [u32; 2],
        choices in prop::collection::vec(any::<u32>(), 20),
    ) {
        let nodes = npus + switches;
        let mut builder = Builder::new(npus);
        for _ in 0..switches {
            builder.switch();
        }
        let (kind, wire) = (CableKind::Dac, Wire::cable());
        // A random tree, so that it is connected, and random cables.
        let tree = (1..nodes).map(|node| [node, choices[node as usize] % node]);
        for [a, b] in tree.chain(ends.iter().map(|ends| ends.map(|end| end % nodes))) {
            builder.cable(NodeId(a), NodeId(b), kind, wire).ok();
        }
        let graph = builder.build().expect("it is connected");
        let routing = Adaptive::new(&graph).expect("few channels");
        let found = Dependencies::explore(&graph, &routing);
        prop_assert!(found.sound(), "{:?}", found.in_words(&graph));
        let pair = pair.map(|npu| npu % npus);
        let hops = walk(&graph, &routing, pair, &choices);
        let [source, destination] = pair.map(NodeId);
        prop_assert_eq!(hops.len() as u32, NextHops::new(&graph).distance(source, destination));
    }
}
