//! What a call of `hops` costs on 1,024 NPUs. It reports; nothing fails on a time.
//!
//! ```console
//! $ cargo test --release -p allrail-fabric --test it routing_speed -- --ignored --nocapture
//! ```

use std::hint::black_box;
use std::time::Instant;

use allrail_fabric::graph::NodeId;
use allrail_fabric::routing::hammingmesh::Variant;
use allrail_fabric::routing::{
    Adaptive, DragonflyRouting, HammingMeshRouting, HyperXRouting, RouteState, Routing,
    TorusRouting,
};
use allrail_fabric::topologies::hammingmesh::HammingMesh;
use allrail_fabric::topologies::read;
use serde_json::{Value, json};

/// Walks 100,000 packets to random destinations, then asks for all their hops again, in the order in
/// which a network model would: all packets' first hops, then all second ones.
fn report(
    what: &str,
    keys: Value,
    make: impl Fn(&allrail_fabric::graph::Graph) -> (Box<dyn Routing>, usize),
) {
    let graph = read(keys).expect("valid keys").simulated().expect("a graph");
    let start = Instant::now();
    let (routing, bytes) = make(&graph);
    let built = start.elapsed();
    let mut random = 1u64;
    let mut draw = |below: u32| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 33) as u32) % below
    };
    let mut packets: Vec<(NodeId, RouteState, NodeId)> = (0..100_000)
        .map(|_| (NodeId(draw(graph.npus())), RouteState::default(), NodeId(draw(graph.npus()))))
        .collect();
    let (mut asked, mut hops) = (Vec::new(), Vec::new());
    while !packets.is_empty() {
        packets.retain_mut(|(node, state, destination)| {
            if node == destination {
                return false;
            }
            let chance = draw(routing.draws());
            asked.push((*node, *state, *destination, chance));
            hops.clear();
            routing.hops(*node, *state, *destination, chance, &mut hops);
            let hop = hops[draw(hops.len() as u32) as usize];
            (*node, *state) = (graph.link(hop.link).to, hop.state);
            true
        });
    }
    let (mut best, mut offered) = (f64::INFINITY, 0);
    for _ in 0..25 {
        let start = Instant::now();
        offered = 0;
        for &(node, state, destination, draw) in &asked {
            hops.clear();
            routing.hops(node, state, destination, draw, &mut hops);
            offered += black_box(&hops).len();
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    eprintln!(
        "{what:12} {:6.1} ns a call, {:5.1} hops each, {:8} bytes of tables in {:5.0} ms, {}",
        best * 1e9 / asked.len() as f64,
        offered as f64 / asked.len() as f64,
        bytes,
        built.as_secs_f64() * 1e3,
        routing.about(),
    );
}

#[test]
#[ignore = "a measurement, not a check"]
fn hops_of_1024_npus() {
    report("fat tree", json!({ "topology": "fat_tree", "npus": 1024, "levels": 2 }), |graph| {
        let routing = Adaptive::new(graph).expect("a rule");
        let bytes = routing.bytes();
        (Box::new(routing), bytes)
    });
    for (what, side, grid) in [("Hx2Mesh", 2, 16), ("Hx4Mesh", 4, 8)] {
        let keys = json!({ "board": [side, side], "grid": [grid, grid] });
        let mesh: HammingMesh = serde_json::from_value(keys.clone()).expect("keys");
        let mut keys = keys;
        keys["topology"] = json!("hammingmesh");
        report(what, keys, |graph| {
            let routing = HammingMeshRouting::new(graph, &mesh.places(), Variant::default());
            let routing = routing.expect("short paths").expect("paths");
            let bytes = routing.bytes();
            (Box::new(routing), bytes)
        });
    }
    report("torus", json!({ "topology": "torus", "shape": [32, 32] }), |graph| {
        let routing = TorusRouting::new(graph, &[32, 32]).expect("a torus");
        let bytes = routing.bytes();
        (Box::new(routing), bytes)
    });
    report("torus, 3D", json!({ "topology": "torus", "shape": [16, 8, 8] }), |graph| {
        let routing = TorusRouting::new(graph, &[16, 8, 8]).expect("a torus");
        let bytes = routing.bytes();
        (Box::new(routing), bytes)
    });
    report("HyperX", json!({ "topology": "hyperx", "shape": [32, 32] }), |graph| {
        let routing = HyperXRouting::new(graph, [32, 32]).expect("a HyperX");
        let bytes = routing.bytes();
        (Box::new(routing), bytes)
    });
    let keys = json!({ "topology": "dragonfly", "a": 16, "p": 8, "h": 8, "groups": 8 });
    for (what, detours) in [("dragonfly", true), ("minimal", false)] {
        report(what, keys.clone(), |graph| {
            let routing = DragonflyRouting::new(graph, 8, detours).expect("a dragonfly");
            let bytes = routing.bytes();
            (Box::new(routing), bytes)
        });
    }
}
