//! Networks that are no product of dimensions, alone and outside of domains: plans count over their cables.

use std::ops::ControlFlow;

use allrail_collective::{Operation, algorithm};
use allrail_fabric::topologies::{ALL, Planned, read};
use allrail_simulate::collectives::simulate;
use allrail_simulate::{CollectiveScenario, SimulationResult};
use serde_json::{Value, json};

const NETWORK_MODELS: [&str; 4] = ["dims", "links", "flows", "packets"];

/// Bytes of a collective: in packets few, for their number is the time of the test.
fn size(network_model: &str) -> f64 {
    if network_model == "packets" { 1e6 } else { 64e6 }
}

fn attempt(
    fabric: &Value,
    network_model: &str,
    kind: &str,
    algorithms: Option<&[&str]>,
) -> Option<f64> {
    in_chunks(1, fabric, network_model, kind, algorithms)
}

fn in_chunks(
    chunks: u32,
    fabric: &Value,
    network_model: &str,
    kind: &str,
    algorithms: Option<&[&str]>,
) -> Option<f64> {
    let mut tree = json!({"schema_version": 1, "fabric": fabric, "network_model": network_model,
        "collective": [{"kind": kind, "size": format!("{} B", size(network_model))}],
        "schedule": {"policy": "baseline", "chunks": chunks}});
    if let Some(algorithms) = algorithms {
        tree["schedule"]["algorithms"] = json!(algorithms);
    }
    let scenario = CollectiveScenario::from_json(&tree.to_string()).ok()?;
    Some(result(&scenario).ok()?.time_us)
}

/// With `auto` on all dimensions.
fn chosen(fabric: &Value, network_model: &str, kind: &str) -> f64 {
    let size = format!("{} B", size(network_model));
    let tree = json!({"schema_version": 1, "fabric": fabric, "network_model": network_model,
        "collective": [{"kind": kind, "size": size}],
        "schedule": {"policy": "baseline", "chunks": 1, "algorithms": "auto"}});
    let scenario = CollectiveScenario::from_json(&tree.to_string()).expect("a scenario");
    result(&scenario).expect("it runs").time_us
}

fn result(
    scenario: &CollectiveScenario,
) -> Result<SimulationResult, allrail_simulate::SimulateError> {
    simulate(scenario, None, false, &mut |_, _| ControlFlow::Continue(()))
}

fn time(fabric: &Value, network_model: &str, kind: &str) -> f64 {
    attempt(fabric, network_model, kind, None)
        .unwrap_or_else(|| panic!("{network_model} {kind} on {fabric}"))
}

/// NPUs at one switch each; switches in a row, `cables` between neighbours.
fn row(switches: u32, npus: u32, cables: u32) -> Value {
    let names: Vec<String> = (0..npus).map(|npu| format!("p{npu}")).collect();
    let mut links: Vec<Value> = (0..npus)
        .map(|npu| json!({"from": format!("p{npu}"), "to": format!("s{}", npu * switches / npus)}))
        .collect();
    links.extend((1..switches).map(
        |next| json!({"from": format!("s{}", next - 1), "to": format!("s{next}"), "count": cables}),
    ));
    let switches: Vec<String> = (0..switches).map(|switch| format!("s{switch}")).collect();
    json!({"topology": "graph", "npus": names, "switches": switches, "links": links,
           "link": {"bandwidth": "50 GB/s", "latency": "350 ns"}})
}

fn switch(size: u32, gigabytes: u32, latency: &str) -> Value {
    let bandwidth = format!("{gigabytes} GB/s");
    json!({"kind": "switch", "size": size, "links": 1, "bandwidth": bandwidth, "latency": latency})
}

fn domains(domains: u32, size: u32, outside: &Value) -> Value {
    json!({"topology": "composed", "domains": domains, "inside": switch(size, 400, "1 us"),
           "outside": outside})
}

fn dragonfly() -> Value {
    json!({"topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 9,
           "link": {"bandwidth": "50 GB/s", "latency": "100 ns"}})
}

/// Cables that are a switch are counted as one: to the picosecond in `dims` and in `links`. (Of trees a switch's closed form
/// leaves out that several send to one: their messages take longer.)
#[test]
fn a_star_is_a_switch() {
    for npus in [2, 5, 8] {
        let of_cables = row(1, npus, 1);
        let of_dimensions = json!({"name": "switch", "dimensions": [switch(npus, 50, "700 ns")]});
        for operation in Operation::ALL {
            let kind = operation.tag();
            for one in algorithm::ALL.iter().filter(|one| one.operations().contains(&operation)) {
                for network_model in ["dims", "links"] {
                    let of = |fabric| attempt(fabric, network_model, kind, Some(&[one.tag()]));
                    let (counted, closed) = (of(&of_cables), of(&of_dimensions));
                    let (Some(counted), Some(closed)) = (counted, closed) else { continue };
                    let what = format!("{} {kind} of {npus} in {network_model}", one.tag());
                    let close = (counted - closed).abs() < 1e-5 * closed;
                    let tree = one.tag().contains("tree") || one.tag() == "parameter_server";
                    assert!(close || tree && counted > closed, "{what}: {counted} {closed}");
                }
            }
        }
    }
}

/// Nor does it matter that domains are before it.
#[test]
fn domains_at_a_star_are_two_dimensions() {
    let of_dimensions = json!({"name": "product", "dimensions":
        [switch(4, 400, "1 us"), switch(6, 50, "702 ns")]});
    let of_cables = domains(6, 4, &row(1, 24, 1));
    for kind in ["all_reduce", "all_gather", "all_to_all", "broadcast"] {
        for network_model in ["dims", "links"] {
            let of = |fabric| {
                attempt(fabric, network_model, kind, Some(&["direct"; 2])).expect("it runs")
            };
            let (counted, closed) = (of(&of_cables), of(&of_dimensions));
            assert!(
                (counted - closed).abs() < 1e-5 * closed,
                "{kind} {network_model}: {counted} {closed}"
            );
        }
    }
}

/// What crosses a cut takes what the cut carries: of an all-reduce of `S` over two domains of four, half of each of four
/// quarters goes over twice, each way.
#[test]
fn bytes_over_a_cut_are_all_there() {
    for cables in [1, 2] {
        let fabric = domains(2, 4, &row(2, 8, cables));
        let cut = 64e6 / (50e3 * f64::from(cables));
        let inside = 2.0 * 0.75 * 64e6 / 400e3;
        let halving = Some(&["halving_doubling"; 2][..]);
        let of = |network_model| {
            attempt(&fabric, network_model, "all_reduce", halving).expect("it runs")
        };
        let counted = of("dims");
        let latencies = 2.0 * 2.0 + 2.0 * 1.052;
        let expected = cut + inside + latencies;
        assert!((counted - expected).abs() < 1e-2, "{counted} {expected}");
        for network_model in ["links", "flows", "packets"] {
            let took = of(network_model);
            let cut = cut * size(network_model) / 64e6;
            assert!(took > cut, "{network_model}: {took}, and the cut alone takes {cut}");
        }
    }
}

/// In one step nobody runs ahead: fluids take what is counted, where there is one shortest path.
#[test]
fn one_step_takes_as_long_as_fluids() {
    for fabric in
        [dragonfly(), row(3, 12, 2), domains(18, 4, &dragonfly()), domains(4, 4, &row(3, 16, 2))]
    {
        for kind in ["all_to_all", "reduce_scatter", "all_gather"] {
            let inside = fabric["topology"] == "composed";
            let direct: &[&str] = if inside { &["direct"; 2] } else { &["direct"] };
            let of = |network_model| {
                attempt(&fabric, network_model, kind, Some(direct)).expect("it runs")
            };
            let (counted, fluid) = (of("dims"), of("flows"));
            assert!((counted - fluid).abs() < 2e-2 * counted, "{fabric} {kind}: {counted} {fluid}");
        }
    }
}

/// Whatever the algorithm: one chunk takes what is counted, and of several none is quicker than their most loaded cable.
#[test]
fn fluids_are_no_quicker_than_what_is_counted() {
    let mesh = json!({"topology": "mesh", "shape": [4, 4]});
    for fabric in [domains(18, 4, &dragonfly()), domains(4, 4, &mesh)] {
        for algorithm in ["halving_doubling", "ring", "direct"] {
            for (chunks, above) in [(1, 1.02), (4, f64::INFINITY)] {
                let algorithms: &[&str] = &["direct", algorithm];
                let of = |network_model| {
                    in_chunks(chunks, &fabric, network_model, "all_reduce", Some(algorithms))
                };
                let [counted, fluid] =
                    ["dims", "flows"].map(|network_model| of(network_model).expect("it runs"));
                let ratio = fluid / counted;
                assert!(ratio > 0.98 && ratio < above, "{algorithm} {chunks}: {counted} {fluid}");
            }
        }
    }
}

/// Every network that is no product of dimensions is planned on some, over all of its NPUs, and runs in every network model.
#[test]
fn every_topology_runs_planned_collectives_in_every_network_model() {
    let mut counted = 0;
    for entry in ALL {
        for text in entry.examples {
            let mut keys: Value = serde_json::from_str(text).expect("JSON");
            keys["topology"] = entry.tag.into();
            let topology = read(keys.clone()).expect("a network");
            let planned = Planned::of(&*topology).expect("a graph");
            let npus: u64 = planned.dimensions.iter().map(|one| u64::from(one.size)).product();
            assert_eq!(npus, topology.counts().npus, "{keys}");
            let wired = planned.dimensions.iter().filter(|one| one.wiring.is_some()).count();
            assert_eq!(wired, usize::from(planned.counted.is_some()), "{keys}");
            counted += wired;
            for network_model in NETWORK_MODELS {
                assert!(time(&keys, network_model, "all_reduce") > 0.0, "{keys} {network_model}");
            }
        }
    }
    assert!(counted > 2, "{counted}");
}

/// Nobody says which algorithm: the one that is counted to be the fastest.
#[test]
fn what_is_taken_by_itself_is_the_fastest_that_is_counted() {
    let mesh = json!({"topology": "mesh", "shape": [4, 4]});
    let twisted = json!({"topology": "torus", "shape": [3, 6], "twist": 3});
    let mut gained = 0;
    for fabric in [dragonfly(), row(3, 12, 1), mesh, domains(4, 4, &row(3, 16, 2)), twisted] {
        for kind in ["all_reduce", "all_gather", "all_to_all", "broadcast"] {
            let taken = time(&fabric, "dims", kind);
            let auto = chosen(&fabric, "dims", kind);
            assert!(
                (taken - auto).abs() < 1e-9 * auto,
                "{fabric} {kind}: {taken}, by `auto` {auto}"
            );
            for one in algorithm::ALL {
                let of = |names: &[&str]| attempt(&fabric, "dims", kind, Some(names));
                let alone = of(&[one.tag()]);
                let usual = if fabric["topology"] == "torus" { "ring" } else { "halving_doubling" };
                let other = alone.or_else(|| of(&[usual, one.tag()]));
                let Some(other) = other else { continue };
                assert!(
                    taken <= other * 1.000_001,
                    "{fabric} {kind} {}: {taken} {other}",
                    one.tag()
                );
                gained += u32::from(one.tag() == "halving_doubling" && other > 1.5 * taken);
            }
        }
    }
    assert!(gained > 0, "the usual one of a switch would have done");
}

/// A collective's messages take the paths that are asked for, in `flows` alone.
#[test]
fn paths_of_a_collective_can_be_named() {
    let mesh = json!({"topology": "mesh", "shape": [4, 4]});
    let of = |network_model: &str, paths: &str| {
        let tree = json!({"schema_version": 1, "fabric": mesh, "network_model": network_model,
            "collective": [{"kind": "all_to_all", "size": "1 MB"}],
            "schedule": {"chunks": 1, "algorithms": ["direct"]}, "messages": {"paths": paths}});
        result(&CollectiveScenario::from_json(&tree.to_string())?).map(|result| result.time_us)
    };
    let usual = attempt(&mesh, "flows", "all_to_all", Some(&["direct"])).expect("it runs");
    let [minimal, single, ideal] =
        ["minimal", "single", "ideal"].map(|paths| of("flows", paths).expect("it runs"));
    assert!(single > 1.01 * minimal, "{single} {minimal}");
    assert!(ideal <= 1.001 * minimal, "{ideal} {minimal}");
    assert!((usual / minimal / 64.0 - 1.0).abs() < 0.05, "64 MB of the same: {usual} {minimal}");
    let refused = of("packets", "single").expect_err("packets choose their own").to_string();
    assert!(refused.contains("messages.paths"), "{refused}");
}

/// 128 NPUs as a TPU v4 slice of 4 x 4 x 8: planned along its last dimension, and not by a switch's algorithm.
#[test]
fn a_twisted_torus_is_planned_along_its_rings() {
    let of = |keys: Value| {
        let link = json!({"bandwidth": "400 Gb/s", "latency": "100 ns"});
        let mut fabric = json!({"topology": "torus", "shape": [4, 4, 8], "link": link});
        fabric.as_object_mut().expect("keys").extend(keys.as_object().expect("keys").clone());
        fabric
    };
    let twisted = of(json!({"twist": 4}));
    let scenario = |fabric: &Value| {
        let tree = json!({"schema_version": 1, "fabric": fabric,
            "collective": [{"kind": "all_reduce", "size": "256 MiB"}],
            "schedule": {"chunks": 4}});
        CollectiveScenario::from_json(&tree.to_string()).expect("a scenario")
    };
    let planned = scenario(&twisted);
    let sizes: Vec<u32> = planned.fabric.dimensions.iter().map(|one| one.size).collect();
    assert_eq!(sizes, [8, 16]);
    assert!(planned.fabric.dimensions[0].wiring.is_none(), "rings along the last dimension");
    let straight = result(&scenario(&of(json!({})))).expect("it runs").time_us;
    let time = result(&planned).expect("it runs").time_us;
    assert!(time < 1.25 * straight, "{time} {straight}");
}

#[test]
fn more_bandwidth_outside_is_never_slower() {
    let with = |rate: &str| {
        let mut outside = dragonfly();
        outside["link"]["bandwidth"] = rate.into();
        domains(18, 4, &outside)
    };
    for network_model in NETWORK_MODELS {
        let [slow, fast] =
            ["25 GB/s", "100 GB/s"].map(|rate| time(&with(rate), network_model, "all_reduce"));
        assert!(fast < slow, "{network_model}: {fast} {slow}");
    }
    // All but the inside and latencies goes with it.
    let [slow, fast] = ["25 GB/s", "100 GB/s"].map(|rate| time(&with(rate), "dims", "all_reduce"));
    let inside = 2.0 * 0.75 * 64e6 / 400e3;
    let ratio = (slow - inside) / (fast - inside);
    assert!((3.8..=4.0).contains(&ratio), "{ratio}");
}

/// What is planned depends on the cables: nobody takes the plan of another network for its own.
#[test]
fn other_cables_have_other_keys() {
    let key = |fabric: &Value| {
        let tree = json!({"schema_version": 1, "fabric": fabric,
            "collective": [{"kind": "all_reduce", "size": "64 MB"}], "schedule": {"chunks": 1}});
        let scenario = CollectiveScenario::from_json(&tree.to_string()).expect("a scenario");
        (
            scenario.fabric.dimensions[0].written(),
            allrail_simulate::plan_key(&scenario).expect("a key"),
        )
    };
    let (one, other) = (key(&row(2, 8, 1)), key(&row(2, 8, 2)));
    assert_eq!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

#[test]
fn a_result_says_how_it_was_counted() {
    let tree = json!({"schema_version": 1, "fabric": dragonfly(),
        "collective": [{"kind": "all_reduce", "size": "64 MB"}], "schedule": {"chunks": 1}});
    let scenario = CollectiveScenario::from_json(&tree.to_string()).expect("a scenario");
    let counted = result(&scenario).expect("a result").counted.expect("a note");
    assert!(counted.contains("shortest paths") && counted.contains("global cables"), "{counted}");
    assert!(counted.contains("detours"), "{counted}");
}
