//! The communicator of network models of messages: what it carries takes as long as the same on its own, all bytes
//! arrive, nothing is faster than its bound, and steady flows take as long as message by message.

use std::collections::BTreeMap;

use crate::common::{dimension, exact, fabric, in_links, run, scenario};
use allrail_collective::Operation;
use allrail_collective::grid::{self, GridAllReduce};
use allrail_core::{Bytes, DimensionId, Rank, Time};
use allrail_fabric::Kind;
use allrail_fabric::graph::NodeId;
use allrail_fabric::topologies;
use allrail_network::flows::Splitting;
use allrail_network::{Flows, Links, OnePlane, Packets};
use allrail_schedule::{Algorithms as Named, Request};
use allrail_simulate::TrafficScenario;
use allrail_simulate::scenario::{Algorithms, AllToAll, Placement};
use allrail_simulate::traffic::{self};
use allrail_simulate::training::communicator::graph::GraphNetwork;
use allrail_simulate::training::communicator::ranks::{RankCommunicator, Wiring};
use allrail_simulate::training::communicator::{Ask, Communicator, Event, Submission};
use allrail_simulate::training::players::Players;
use allrail_workload::{Actor, Builder, Group, Node, Part, Pass, Purpose, StepGraph, Work};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A job of these dimensions, whose one group spans those of them.
fn job(sizes: &[u32], spanned: &[u32]) -> StepGraph {
    let mut builder = Builder::default();
    let ranks = (0..sizes.iter().product()).map(Rank).collect();
    let actor = builder.actor(Actor { name: "ranks".into(), ranks });
    let part = |d: &u32| Part { dimension: DimensionId(*d), size: sizes[*d as usize], stride: 1 };
    let group = builder.group(Group {
        name: "all".into(),
        parts: spanned.iter().map(part).collect(),
        ranks: Vec::new(),
        actors: vec![actor],
    });
    let work = Work::Collective {
        operation: Operation::AllReduce,
        bytes: Bytes::new(1),
        group,
        purpose: Purpose::Data,
    };
    builder.node("sum", Node { actor, work, tensor: None, pass: Pass::Unknown }, &[]);
    builder.finish().expect("a graph")
}

/// All of it from the same time on; when each was over, by tag, and what the network model was given.
fn carry(communicator: &mut RankCommunicator<'_>, asks: &[Ask]) -> Vec<Time> {
    let mut ends = vec![None; asks.len()];
    for (tag, ask) in (0u64..).zip(asks) {
        communicator.prepare(*ask).expect("it can be carried");
        let submission =
            Submission { ask: *ask, priority: 0, overhead: Time::ZERO, portion: None, tag };
        communicator.submit(Time::ZERO, submission);
    }
    let mut last = Time::ZERO;
    communicator.choose(last);
    while let Some(next) = communicator.next_time() {
        while let Some((time, event)) = communicator.next_event(next) {
            assert!(time >= last, "time goes on");
            last = time;
            if let Event::Delivered { tag } = event {
                assert!(ends[tag as usize].replace(time).is_none(), "over once");
            }
        }
        communicator.choose(next);
    }
    ends.into_iter().map(|end| end.expect("everything ends")).collect()
}

fn torus(rows: u32, columns: u32) -> Value {
    json!({ "topology": "torus", "shape": [rows, columns], "planes": 4 })
}

fn mesh(boards: u32) -> Value {
    json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [boards, boards], "planes": 4 })
}

fn tree(npus: u32) -> Value {
    json!({ "topology": "fat_tree", "npus": npus, "levels": 2, "switch_radix": 16 })
}

struct OnGraph {
    network: GraphNetwork,
    graph: StepGraph,
    sizes: Vec<u32>,
    algorithms: Algorithms,
    placement: Placement,
    overhead: Time,
}

impl OnGraph {
    fn new(fabric: Value, sizes: &[u32], spanned: &[u32], all_reduce: &str) -> Self {
        let algorithms = Algorithms { all_reduce: all_reduce.into(), ..Algorithms::default() };
        Self {
            network: GraphNetwork::new(topologies::read(fabric).expect("keys").into())
                .expect("a fabric"),
            graph: job(sizes, spanned),
            sizes: sizes.to_vec(),
            algorithms,
            placement: Placement::InOrder,
            overhead: Time::ZERO,
        }
    }

    fn flows(&self) -> Box<OnePlane<Flows>> {
        let network_model = Flows::new(&self.network.graph, Splitting::Ecmp);
        Box::new(OnePlane { network_model, planes: self.network.planes })
    }

    /// When each was over; messages and bytes given to the network model.
    fn run(&self, asks: &[Ask], steady: bool) -> (Vec<Time>, (u64, u64)) {
        let players = Players::ranks(&self.graph, &self.sizes).expect("players");
        let ranks = self.sizes.iter().product();
        let npus = self.network.graph.npus();
        let places: Vec<NodeId> = self.placement.places(ranks, npus, 1).expect("room");
        let wiring = Wiring::Graph {
            places: &places,
            algorithms: &self.algorithms,
            sizes: &self.sizes,
            reducing: self.network.topology.reduces().map(|_| &*self.network.graph),
        };
        let mut communicator =
            RankCommunicator::new(&self.graph, &players, wiring, self.flows(), self.overhead);
        if steady {
            communicator = communicator.steady(self.network.latency(Splitting::Ecmp));
        }
        let ends = carry(&mut communicator, asks);
        (ends, communicator.carried())
    }
}

fn ask(operation: Operation, bytes: u64, process_group: u32) -> Ask {
    Ask::Collective { operation, bytes: Bytes::new(bytes), process_group }
}

fn alone(fabric: &Value, traffic: Value) -> f64 {
    let mut traffic = traffic;
    traffic["paths"] = json!("ecmp");
    let text = json!({ "schema_version": 1, "fabric": fabric, "traffic": traffic, "network_model": "flows" });
    let scenario = TrafficScenario::from_json(&text.to_string()).expect("a scenario");
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    traffic::simulate(&scenario, go_on).expect("it runs").time_us
}

#[test]
fn one_all_reduce_takes_as_long_as_the_same_traffic() {
    let size = 1u64 << 20;
    for (fabric, [rows, columns]) in [(torus(4, 4), [4, 4]), (mesh(3), [6, 6]), (tree(32), [4, 8])]
    {
        for algorithm in by_neighbours() {
            if grid::named(algorithm).and_then(|found| found.check(rows, columns)).is_err() {
                continue;
            }
            let run = OnGraph::new(fabric.clone(), &[columns, rows], &[0, 1], algorithm);
            let (ends, _) = run.run(&[ask(Operation::AllReduce, size, 0)], false);
            let published = alone(
                &fabric,
                json!({ "pattern": "all_reduce", "algorithm": algorithm, "size": format!("{size} B"),
                        "shape": [rows, columns], "skip": false }),
            );
            // Traffic rounds a buffer up for each plane, the communicator each message.
            let difference = (ends[0].as_us() / published - 1.0).abs();
            assert!(difference < 1e-3, "{algorithm} on {fabric}: {} {published}", ends[0]);
        }
    }
}

/// Fabrics whose switches sum: trees of two and three levels, tapered ones, a dragonfly, a graph of one's
/// own with unlike leaves.
fn reducing() -> Vec<(Value, u32)> {
    let own = json!({
        "topology": "graph", "npus": ["a", "b", "c", "d", "e"], "switches": ["x", "y", "z"],
        "links": [{ "from": "a", "to": "x" }, { "from": "b", "to": "y" }, { "from": "c", "to": "x" },
                  { "from": "d", "to": "y" }, { "from": "e", "to": "z" },
                  { "from": "x", "to": "y" }, { "from": "y", "to": "z" }],
    });
    let mut deep = tree(64);
    (deep["levels"], deep["switch_radix"]) = (3.into(), 8.into());
    let mut tapered = tree(40);
    tapered["taper"] = json!(0.5);
    let dragonfly = json!({ "topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 9 });
    let all = [(tree(32), 32), (deep, 64), (tapered, 40), (dragonfly, 72), (own, 5)];
    let reduces = |(mut fabric, npus): (Value, u32)| {
        fabric["in_network_reduction"] = true.into();
        (fabric, npus)
    };
    all.map(reduces).to_vec()
}

#[test]
fn switches_sum_as_fast_in_training_as_on_their_own() {
    let size = 8u64 << 20;
    for (fabric, npus) in reducing() {
        let run = OnGraph::new(fabric.clone(), &[npus], &[0], "in_network");
        let (ends, (messages, bytes)) = run.run(&[ask(Operation::AllReduce, size, 0)], false);
        assert_eq!((messages, bytes), (npus.into(), u64::from(npus) * size));
        let published = alone(
            &fabric,
            json!({ "pattern": "all_reduce", "algorithm": "in_network", "size": format!("{size} B") }),
        );
        // A dragonfly has shorter ways between some NPUs than by way of the root.
        let difference = ends[0].as_us() / published - 1.0;
        assert!(difference.abs() < 1e-3, "{fabric}: {} {published}", ends[0]);
    }
}

#[test]
fn groups_whose_sums_meet_share_the_cables() {
    let size = 8u64 << 20;
    let time = |taper: f64| {
        let mut fabric = tree(64);
        fabric["in_network_reduction"] = true.into();
        fabric["taper"] = taper.into();
        // Eight groups, each with every eighth NPU.
        let run = OnGraph::new(fabric, &[8, 8], &[1], "in_network");
        let asks: Vec<Ask> = (0..8).map(|group| ask(Operation::AllReduce, size, group)).collect();
        run.run(&asks, false).0.into_iter().max().expect("eight").as_us()
    };
    // 8 MiB at 50 GB/s where every leaf has an uplink for each of its NPUs. With six for ten NPUs it is the
    // eight sums that share them, not what ten NPUs have sent.
    let least = size as f64 / 50e3;
    assert!((time(0.0) / least - 1.0).abs() < 0.01, "{}", time(0.0));
    assert!((time(0.5) / least - 8.0 / 6.0).abs() < 0.01, "{}", time(0.5));
}

#[test]
fn switches_that_do_not_sum_are_refused() {
    let refused = |fabric: Value| {
        let run = OnGraph::new(fabric, &[16], &[0], "in_network");
        let players = Players::ranks(&run.graph, &run.sizes).expect("players");
        let places: Vec<NodeId> = run.placement.places(16, 16, 1).expect("room");
        let wiring = Wiring::Graph {
            places: &places,
            algorithms: &run.algorithms,
            sizes: &run.sizes,
            reducing: run.network.topology.reduces().map(|_| &*run.network.graph),
        };
        let network_model = run.flows();
        let mut communicator =
            RankCommunicator::new(&run.graph, &players, wiring, network_model, Time::ZERO);
        let error = communicator.prepare(ask(Operation::AllReduce, 1, 0)).expect_err("refused");
        error.report().why
    };
    assert_eq!(refused(tree(16)), "the switches do not reduce");
    // A switch for each NPU, which are joined to each other: but NPUs that are joined directly are none.
    let mut direct = json!({
        "topology": "graph", "npus": (0..16).map(|i| format!("n{i}")).collect::<Vec<_>>(),
        "in_network_reduction": true,
    });
    direct["links"] = (0..15)
        .map(|i| json!({ "from": format!("n{i}"), "to": format!("n{}", i + 1) }))
        .collect::<Vec<_>>()
        .into();
    assert!(refused(direct).contains("switches alone do not join its ranks"));
}

#[test]
fn an_all_to_all_takes_as_long_as_uniform_traffic() {
    let fabric = torus(4, 4);
    let run = OnGraph::new(fabric.clone(), &[16], &[0], "ring");
    let (ends, _) = run.run(&[ask(Operation::AllToAll, 16 << 20, 0)], false);
    let published = alone(&fabric, json!({ "pattern": "uniform", "size": "1 MiB" }));
    // In closed form, all bytes flow at the rate of the fullest link; here some end earlier.
    let share = ends[0].as_us() / published;
    assert!(share > 0.99 && share < 1.1, "{} {published}", ends[0]);
}

#[test]
fn a_pairwise_all_to_all_sends_as_much_step_by_step() {
    let mut run = OnGraph::new(tree(16), &[8], &[0], "ring");
    let asks = [ask(Operation::AllToAll, 8 << 20, 0)];
    let (direct, at_once) = run.run(&asks, false);
    run.algorithms.all_to_all = AllToAll::Pairwise;
    let (pairwise, one_by_one) = run.run(&asks, false);
    assert_eq!(at_once, one_by_one);
    // One switch: the same bytes over the same cables, and a latency for each of 7 steps.
    let more = pairwise[0] - direct[0];
    assert_eq!(more, Time::from_ns(6 * 40));
}

#[test]
fn the_overhead_is_paid_in_every_step() {
    let mut run = OnGraph::new(torus(4, 4), &[16], &[0], "ring");
    let asks = [ask(Operation::AllReduce, 16 << 20, 0)];
    let without = run.run(&asks, false).0[0];
    run.overhead = Time::from_ns(830);
    assert_eq!(run.run(&asks, false).0[0] - without, Time::from_ns(30 * 830));
}

#[test]
fn undisturbed_steady_flows_are_exact() {
    for (fabric, [rows, columns]) in [(torus(8, 8), [8, 8]), (torus(8, 4), [8, 4])] {
        for algorithm in by_neighbours() {
            // On an oblong grid, the two halves of `torus` share links unevenly: disturbed.
            if algorithm == "torus" && rows != columns {
                continue;
            }
            let mut run = OnGraph::new(fabric.clone(), &[columns, rows], &[0, 1], algorithm);
            run.overhead = Time::from_ns(500);
            let asks = [ask(Operation::AllReduce, 8 << 20, 0)];
            let (steady, plain) = (run.run(&asks, true).0[0], run.run(&asks, false).0[0]);
            let difference = steady.max(plain) - steady.min(plain);
            // A picosecond of rounding a step.
            assert!(difference < Time::from_ps(200), "{algorithm}: {steady} {plain}");
        }
    }
}

#[test]
fn a_collective_in_links_takes_as_long_as_by_its_plan() {
    let (four, two) = (Time::from_ns(400), Time::from_ns(200));
    let fabrics = [
        fabric(vec![exact(Kind::Ring, 8, four)]),
        fabric(vec![exact(Kind::Switch, 4, two), exact(Kind::Ring, 3, four)]),
        fabric(vec![
            exact(Kind::FullyConnected, 4, two),
            dimension(Kind::Switch, 2, 1, 20_000_000_000, four),
        ]),
    ];
    for fabric in fabrics {
        for operation in Operation::ALL {
            let scenario = in_links(&scenario(fabric.clone(), operation, 3 << 20));
            let whole = run(&scenario).time_us;
            let sizes: Vec<u32> = fabric.dimensions.iter().map(|d| d.size).collect();
            let spanned: Vec<u32> = (0..sizes.len() as u32).collect();
            let graph = job(&sizes, &spanned);
            let players = Players::ranks(&graph, &sizes).expect("players");
            let request = scenario.request(&scenario.job[0]);
            let network_model = Box::new(Links::new(&fabric));
            let wiring = dimensions(&request);
            let mut communicator =
                RankCommunicator::new(&graph, &players, wiring, network_model, Time::ZERO);
            let ends = carry(&mut communicator, &[ask(operation, 3 << 20, 0)]);
            assert!(
                (ends[0].as_us() - whole).abs() < 1e-6,
                "{operation} on {sizes:?}: {} {whole}",
                ends[0]
            );
        }
    }
}

/// Every collective by the request's algorithms.
fn dimensions(request: &Request) -> Wiring<'_> {
    static NONE: BTreeMap<Operation, Named> = BTreeMap::new();
    Wiring::Dimensions { request, algorithms: &NONE, groups: None }
}

#[test]
fn a_message_in_links_takes_one_dimension_after_the_other() {
    let fabric = fabric(vec![
        exact(Kind::Ring, 4, Time::from_ns(100)),
        exact(Kind::Switch, 2, Time::from_ns(200)),
    ]);
    let graph = job(&[4, 2], &[0, 1]);
    let players = Players::ranks(&graph, &[4, 2]).expect("players");
    let scenario = scenario(fabric.clone(), Operation::AllReduce, 1);
    let request = scenario.request(&scenario.job[0]);
    let mut communicator = RankCommunicator::new(
        &graph,
        &players,
        dimensions(&request),
        Box::new(Links::new(&fabric)),
        Time::ZERO,
    );
    let message = Ask::Message {
        bytes: Bytes::new(50_000),
        process_group: 0,
        source: 0,
        destination: 5,
        ranks: (Rank(0), Rank(5)),
    };
    // 1 us on a link of the ring, then on two of the switch, and latencies.
    assert_eq!(carry(&mut communicator, &[message]), [Time::from_ns(3 * 1000 + 100 + 200)]);
}

#[test]
fn instances_on_cables_of_their_own_do_not_notice_each_other() {
    // Rows of a torus: four process groups of a ring.
    let run = OnGraph::new(torus(4, 4), &[4, 4], &[0], "ring");
    let asks: Vec<Ask> = (0..4).map(|i| ask(Operation::AllReduce, 1 << 20, i)).collect();
    let (one, _) = run.run(&asks[..1], false);
    let (all, _) = run.run(&asks, false);
    assert!(all.iter().all(|end| *end == one[0]), "{all:?} {one:?}");
}

#[test]
fn what_cannot_run_is_refused_with_its_group() {
    let run = OnGraph::new(torus(4, 4), &[4, 4], &[0], "torus");
    let players = Players::ranks(&run.graph, &run.sizes).expect("players");
    let places: Vec<NodeId> = (0..16).map(NodeId).collect();
    let wiring = Wiring::Graph {
        places: &places,
        algorithms: &run.algorithms,
        sizes: &run.sizes,
        reducing: None,
    };
    let network_model = run.flows();
    let mut communicator =
        RankCommunicator::new(&run.graph, &players, wiring, network_model, Time::ZERO);
    // Four ranks in a row are a grid of 2 x 2.
    communicator.prepare(ask(Operation::AllReduce, 1 << 20, 0)).expect("it runs");
    let algorithms = Algorithms { all_reduce: "star".into(), ..Algorithms::default() };
    let wiring = Wiring::Graph {
        places: &places,
        algorithms: &algorithms,
        sizes: &run.sizes,
        reducing: None,
    };
    let network_model = run.flows();
    let mut communicator =
        RankCommunicator::new(&run.graph, &players, wiring, network_model, Time::ZERO);
    let refused =
        communicator.prepare(ask(Operation::AllReduce, 1 << 20, 0)).expect_err("no such").report();
    assert!(refused.value.contains("`all`"), "{}", refused.value);
}

#[test]
fn places_are_checked() {
    let network = 16;
    let refused = |placement: Placement, ranks: u32| {
        placement.places(ranks, network, 1).expect_err("refused").report().why
    };
    assert!(refused(Placement::InOrder, 17).contains("16 NPUs"));
    assert!(refused(Placement::Npus(vec![1, 1]), 2).contains("two ranks"));
    assert!(refused(Placement::Npus(vec![1, 16]), 2).contains("0 to 15"));
    assert!(refused(Placement::Npus(vec![1]), 2).contains("2 ranks"));
    let scattered = Placement::Scattered.places(8, network, 3).expect("places");
    assert_eq!(scattered, Placement::Scattered.places(8, network, 3).expect("the same again"));
    assert_ne!(scattered, Placement::Scattered.places(8, network, 4).expect("others"));
    let mut shuffled = Placement::Shuffled.places(8, network, 3).expect("places");
    shuffled.sort_unstable();
    assert_eq!(shuffled, Placement::InOrder.places(8, network, 3).expect("places"));
}

/// Every algorithm whose messages go to neighbours, so that its time has a closed form.
fn by_neighbours() -> impl Iterator<Item = &'static str> {
    grid::ALL.iter().filter(|one| one.cost(2, 2).link.is_some()).map(|one| one.tag())
}

fn algorithms() -> impl Strategy<Value = &'static str> {
    prop::sample::select(by_neighbours().collect::<Vec<_>>())
}

fn fabrics() -> impl Strategy<Value = (Value, [u32; 2])> {
    prop_oneof![
        (2u32..6, 2u32..6).prop_map(|(r, c)| (torus(r, c), [r, c])),
        (2u32..4).prop_map(|boards| (mesh(boards), [2 * boards, 2 * boards])),
        Just((tree(24), [4, 6])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// One message for a run of alike steps ends when message by message does, on its own.
    #[test]
    fn steady_flows_take_as_long_as_message_by_message(
        (fabric, [rows, columns]) in fabrics(),
        algorithm in algorithms(),
        size in 1u64..1 << 26,
        overhead in prop::sample::select(vec![0u64, 830]),
    ) {
        prop_assume!(grid::named(algorithm).and_then(|a: &dyn GridAllReduce| a.check(rows, columns)).is_ok());
        let mut run = OnGraph::new(fabric, &[columns, rows], &[0, 1], algorithm);
        run.overhead = Time::from_ns(overhead);
        let asks = [ask(Operation::AllReduce, size, 0)];
        let (steady, (few, bytes)) = run.run(&asks, true);
        let (plain, (many, all)) = run.run(&asks, false);
        prop_assert!(few <= many);
        prop_assert_eq!(bytes, all);
        let (steady, plain) = (steady[0].as_us(), plain[0].as_us());
        // Where links are shared by messages of one step, ranks drift apart and use them better.
        let tolerance = if algorithm == "torus" { 0.30 } else { 0.12 };
        prop_assert!((steady / plain - 1.0).abs() < tolerance, "{steady} {plain}");
    }

    /// What everyone sends is what the algorithm says, and nothing is faster than an NPU can send.
    #[test]
    fn bytes_are_conserved_and_bounds_kept(
        (fabric, [rows, columns]) in fabrics(),
        sizes in prop::collection::vec(1u64..1 << 24, 1..4),
        operation in prop::sample::select(Operation::ALL.to_vec()),
    ) {
        let run = OnGraph::new(fabric, &[columns, rows], &[0, 1], "ring");
        let asks: Vec<Ask> = sizes.iter().map(|size| ask(operation, *size, 0)).collect();
        let (ends, (_, bytes)) = run.run(&asks, false);
        let ranks = u64::from(rows * columns);
        let blocks = |size: u64, of: u64| of * size.div_ceil(of);
        let least: u64 = sizes.iter().map(|size| match operation {
            Operation::AllReduce => 2 * (ranks - 1) * blocks(*size, 2 * ranks),
            Operation::ReduceScatter | Operation::AllGather => (ranks - 1) * blocks(*size, 2 * ranks),
            Operation::AllToAll => (ranks - 1) * blocks(*size, ranks),
            Operation::Broadcast => (ranks - 1) * size,
        }).sum();
        if operation == Operation::Broadcast {
            prop_assert!(bytes >= least);
        } else {
            prop_assert_eq!(bytes, least);
        }
        let network = &run.network;
        let injection: f64 = (0..network.graph.npus())
            .map(|npu| network.graph.injection(NodeId(npu)).bytes_per_second() as f64)
            .sum::<f64>() * network.planes as f64;
        let last = ends.iter().max().expect("one at least").as_s();
        prop_assert!(last >= bytes as f64 / injection * (1.0 - 1e-9));
        // Together they take about as long as one after the other at most: max-min fair is not best.
        let alone: f64 = asks.iter().map(|ask| run.run(&[*ask], false).0[0].as_s()).sum();
        prop_assert!(last <= alone * 1.25, "{last} {alone}");
        prop_assert_eq!(run.run(&asks, false).0, ends);
    }
}

#[test]
fn packets_carry_the_same_collective() {
    let run = OnGraph::new(torus(4, 4), &[4, 4], &[0, 1], "ring");
    let players = Players::ranks(&run.graph, &run.sizes).expect("players");
    let places: Vec<NodeId> = (0..16).map(NodeId).collect();
    let network_model = {
        let GraphNetwork { topology, graph, planes } = &run.network;
        let routing = topology.routing(graph).expect("a routing");
        let network_model = Packets::new(graph.clone(), routing, &Default::default(), 0);
        OnePlane { network_model: network_model.expect("a network model"), planes: *planes }
    };
    let wiring = Wiring::Graph {
        places: &places,
        algorithms: &run.algorithms,
        sizes: &run.sizes,
        reducing: None,
    };
    let mut communicator =
        RankCommunicator::new(&run.graph, &players, wiring, Box::new(network_model), Time::ZERO);
    let asks = [ask(Operation::AllReduce, 4 << 20, 0)];
    let packets = carry(&mut communicator, &asks)[0].as_us();
    let flows = run.run(&asks, false).0[0].as_us();
    assert!(packets >= flows && packets < 1.5 * flows, "{packets} {flows}");
}
