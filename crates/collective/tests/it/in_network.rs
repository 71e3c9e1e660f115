//! All-reduce in switches: the tree's loads and heights, and the networks that cannot do it.

use allrail_collective::CollectiveError;
use allrail_collective::in_network::{InNetwork, in_network};
use allrail_core::{Bandwidth, Bytes, FieldError, Time};
use allrail_fabric::graph::{Builder, CableKind, Graph, NodeId, Wire};
use allrail_fabric::topologies::{GraphTopology, Summing};
use allrail_fabric::topologies::{
    dragonfly::{Dragonfly, Route},
    fat_tree::FatTree,
    hammingmesh::HammingMesh,
    hyperx::HyperX,
    torus::Torus,
};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

const SIZE: Bytes = Bytes::new(100_000_000);

fn wire(gigabytes: u64, nanoseconds: u64) -> Wire {
    let bandwidth = Bandwidth::from_bytes_per_second(gigabytes * 1_000_000_000).expect("positive");
    Wire { bandwidth, latency: Time::from_ns(nanoseconds) }
}

fn fat_tree(npus: u32, switch_radix: u32, levels: u32, taper: f64) -> Graph {
    let link = Wire::cable();
    let tree =
        FatTree { npus, switch_radix, levels, taper, planes: 1, link, in_network_reduction: true };
    tree.validate().expect("a fat tree");
    tree.build().expect("a graph")
}

fn sum(graph: &Graph) -> InNetwork {
    in_network(graph, Summing::Switches, SIZE).expect("NPUs are leaves")
}

fn why(graph: &Graph) -> String {
    match in_network(graph, Summing::Switches, SIZE) {
        Err(CollectiveError::Field(FieldError { why, hint, .. })) => {
            assert!(hint.contains("fat tree"));
            why
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn on_a_fat_tree_the_buffer_goes_up_and_down_once_even_if_tapered() {
    // (NPUs, radix, levels, taper, height)
    for (npus, radix, levels, taper, height) in [
        (64, 16, 2, 0.0, 2),
        (64, 16, 2, 0.5, 2),
        (1024, 64, 2, 0.0, 2),
        (1024, 64, 2, 0.75, 2),
        (128, 8, 3, 0.0, 3),
        (60, 64, 2, 0.0, 1),
    ] {
        let sum = sum(&fat_tree(npus, radix, levels, taper));
        assert_eq!((sum.roots.len(), sum.height, sum.busiest_link), (1, height, SIZE), "{npus}");
        // 100 MB at 50 GB/s is 2 ms; cables of 20 ns.
        assert_eq!(sum.latency, Time::from_ns(20 * u64::from(height)));
        assert_eq!(sum.time(), Some(Time::from_ns(2_000_000 + 40 * u64::from(height))));
    }
}

#[test]
fn a_dragonfly_sums_as_fast() {
    let link = Wire::cable();
    let dragonfly = Dragonfly {
        a: 4,
        p: 2,
        h: 2,
        groups: 9,
        switch_radix: 7,
        planes: 1,
        link,
        routing: Route::default(),
        in_network_reduction: true,
    };
    let sum = sum(&dragonfly.build().expect("a graph"));
    assert_eq!((sum.busiest_link, sum.roots.len()), (SIZE, 1));
    assert!((3..=4).contains(&sum.height), "{}", sum.height);
}

/// `rails` switches, an NPU with a cable to each.
fn rails(npus: u32, rails: u32, down: Wire) -> Graph {
    let mut builder = Builder::new(npus);
    for _ in 0..rails {
        let rail = builder.switch();
        for npu in 0..npus {
            builder.cable(NodeId(npu), rail, CableKind::Dac, down).expect("a cable");
        }
    }
    builder.build().expect("a graph")
}

#[test]
fn several_cables_of_an_npu_share_the_buffer() {
    for count in 1..=6 {
        let sum = sum(&rails(5, count, wire(50, 20)));
        assert_eq!(sum.roots.len(), count as usize);
        assert_eq!(sum.busiest_link.count(), SIZE.count().div_ceil(u64::from(count)));
        assert_eq!((sum.height, sum.latency), (1, Time::from_ns(20)));
    }
}

/// Two leaves of 3 NPUs, four spines with cables that are `slower` times slower than an NPU's.
fn slow_uplinks(slower: u64) -> Graph {
    let mut builder = Builder::new(6);
    let leaves = [builder.switch(), builder.switch()];
    for npu in 0..6 {
        let leaf = leaves[npu as usize / 3];
        builder.cable(NodeId(npu), leaf, CableKind::Dac, wire(48, 20)).expect("a cable");
    }
    for _ in 0..4 {
        let spine = builder.switch();
        for leaf in leaves {
            let cable = wire(48 / slower, 500);
            builder.cable(leaf, spine, CableKind::Aoc, cable).expect("a cable");
        }
    }
    builder.build().expect("a graph")
}

#[test]
fn slow_uplinks_take_as_many_spines_as_they_need_and_no_more() {
    for (slower, spines) in [(1, 1), (2, 2), (3, 3), (4, 4), (8, 4)] {
        let sum = sum(&slow_uplinks(slower));
        assert_eq!(sum.roots.len(), spines, "{slower} times slower");
        // Up to four times slower the NPUs' own cables are what takes longest.
        let expected = wire(48, 0).bandwidth.fraction(4, slower.max(4)).time_for(SIZE);
        assert_eq!(sum.serialisation, expected, "{slower} times slower");
        assert_eq!(sum.latency, Time::from_ns(520));
    }
}

#[test]
fn npus_that_are_no_leaves_are_refused_with_the_reason() {
    let torus = Torus {
        shape: vec![4, 4],
        board: vec![],
        twist: 0,
        planes: 1,
        link: Wire::cable(),
        board_link: Wire::trace(),
        in_network_reduction: false,
    };
    assert!(why(&torus.build().expect("a graph")).starts_with("NPU 0 has a cable to NPU "));
    let boards = |board| HammingMesh {
        board,
        grid: [4, 4],
        planes: 1,
        switch_radix: 64,
        rows: None,
        global: allrail_fabric::topologies::global::Global::FatTree,
        joined_lines: None,
        taper: 0.0,
        link: Wire::cable(),
        board_link: Wire::trace(),
        failed_boards: Vec::new(),
        in_network_reduction: false,
    };
    assert!(why(&boards([2, 2]).build().expect("a graph")).contains("no leaf"));
    assert!(why(&boards([1, 1]).build().expect("a graph")).contains("no switch reaches all NPUs"));
    // Direct HyperX: an NPU at each router.
    let hyperx = HyperX {
        shape: [4, 4],
        planes: 1,
        switch_radix: 64,
        link: Wire::cable(),
        npu_link: None,
        in_network_reduction: true,
    };
    assert_eq!(sum(&hyperx.direct().expect("a graph")).height, 3);
}

fn read(fabric: serde_json::Value) -> Graph {
    allrail_fabric::topologies::read(fabric).expect("a topology").simulated().expect("a graph")
}

/// On 2 x 2 NPUs a tree has three of the four cables: evened out, each carries three quarters,
/// to a hundredth.
#[test]
fn routers_of_npus_sum_on_boards_and_tori() {
    let routers = |fabric| in_network(&read(fabric), Summing::Routers, SIZE).expect("a sum");
    let square = routers(json!({ "topology": "torus", "shape": [2, 2] }));
    assert_eq!(square.height, 2);
    let busiest = square.busiest_link.count();
    assert!((75_000_000..76_000_000).contains(&busiest), "{busiest}");
    // At 50 GB/s; two cables up, two down, 20 ns each.
    let serial = Time::from_ps(20 * busiest);
    let off = square.time().expect("a time") - serial;
    assert!(off > Time::from_ns(79) && off < Time::from_ns(81), "{off:?}");
    for (fabric, height) in [
        (json!({ "topology": "torus", "shape": [8, 8] }), 8),
        (json!({ "topology": "torus", "shape": [4, 4, 4] }), 6),
        (json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [4, 4] }), 4),
        (json!({ "topology": "hammingmesh_3d", "board": [2, 2, 1], "grid": [2, 2, 2] }), 6),
    ] {
        let graph = read(fabric.clone());
        let sum = in_network(&graph, Summing::Routers, SIZE).expect("a sum");
        assert!(sum.height <= height, "{fabric}: {}", sum.height);
        // Every NPU sends all of its buffer over its own cables, and so does what the trees carry.
        let ports = graph.neighbours(NodeId(0)).len() as u64;
        let least = SIZE.count() / ports;
        let trees = SIZE.count() * (u64::from(graph.npus()) - 1) / graph.cables().len() as u64;
        let busiest = sum.busiest_link.count();
        assert!(busiest >= least.max(trees), "{fabric}: {busiest}");
        assert!(busiest < SIZE.count() * 7 / 10, "{fabric}: {busiest}");
        assert!(sum.roots.len() <= 64);
    }
}

#[test]
fn a_buffer_beyond_what_time_holds_has_no_time() {
    let graph = rails(
        2,
        1,
        Wire {
            bandwidth: Bandwidth::from_bytes_per_second(1).expect("positive"),
            latency: Time::ZERO,
        },
    );
    assert_eq!(
        in_network(&graph, Summing::Switches, Bytes::new(u64::MAX)).expect("leaves").time(),
        None
    );
}

/// Switches joined as a tree, NPUs below any of them: paths are unique, so there is nothing to choose.
fn tree(switches: &[(Index, u64, u64)], npus: &[(Index, u64, u64)]) -> Graph {
    let mut builder = Builder::new(u32::try_from(npus.len()).expect("few"));
    let mut laid: Vec<NodeId> = Vec::new();
    for (above, bandwidth, latency) in switches {
        let switch = builder.switch();
        if !laid.is_empty() {
            let cable = wire(*bandwidth, *latency);
            builder.cable(switch, *above.get(&laid), CableKind::Aoc, cable).expect("a cable");
        }
        laid.push(switch);
    }
    for (npu, (above, bandwidth, latency)) in (0..).zip(npus) {
        let cable = wire(*bandwidth, *latency);
        builder.cable(NodeId(npu), *above.get(&laid), CableKind::Dac, cable).expect("a cable");
    }
    builder.build().expect("a graph")
}

/// (Cables, latency) from every node to every other, by Floyd and Warshall.
fn all_pairs(graph: &Graph) -> Vec<Vec<(u32, Time)>> {
    let nodes = graph.nodes();
    let mut pairs = vec![vec![(1000, Time::ZERO); nodes]; nodes];
    for (node, from) in (0..).map(NodeId).zip(&mut pairs) {
        from[node.index()] = (0, Time::ZERO);
        for &(next, link) in graph.neighbours(node) {
            from[next.index()] = (1, graph.link(link).wire.latency);
        }
    }
    for via in 0..nodes {
        for from in 0..nodes {
            for to in 0..nodes {
                let (first, second) = (pairs[from][via], pairs[via][to]);
                if first.0 + second.0 < pairs[from][to].0 {
                    pairs[from][to] = (first.0 + second.0, first.1 + second.1);
                }
            }
        }
    }
    pairs
}

proptest! {
    #[test]
    fn where_paths_are_unique_all_follows_from_them(
        switches in prop::collection::vec((any::<Index>(), 1u64..=5, 1u64..=900), 1..=9),
        npus in prop::collection::vec((any::<Index>(), 1u64..=5, 1u64..=900), 2..=12),
    ) {
        let graph = tree(&switches, &npus);
        let sum = sum(&graph);
        let pairs = all_pairs(&graph);
        let farthest = |switch: usize| pairs[switch][..npus.len()].iter().map(|pair| pair.0).max();
        let least = (npus.len()..graph.nodes()).filter_map(farthest).min();
        prop_assert_eq!(sum.roots.len(), 1);
        let root = sum.roots[0].index();
        prop_assert_eq!((Some(sum.height), least), (farthest(root), Some(sum.height)));
        let latency = pairs[root][..npus.len()].iter().map(|pair| pair.1).max();
        prop_assert_eq!(Some(sum.latency), latency);
        // The sum crosses each cable that has NPUs on both sides.
        let crossed = graph.cables().iter().filter(|cable| {
            let [a, b] = cable.ends.map(NodeId::index);
            let nearer_a = (0..npus.len()).filter(|npu| pairs[a][*npu].0 < pairs[b][*npu].0);
            (1..npus.len()).contains(&nearer_a.count())
        });
        let slowest = crossed.map(|cable| cable.wire.bandwidth).min_by_key(|b| b.bytes_per_second());
        prop_assert_eq!(sum.serialisation, slowest.and_then(|slowest| slowest.time_for(SIZE)));
        prop_assert_eq!(sum.busiest_link, SIZE);
    }
}
