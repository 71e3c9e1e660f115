//! Lower bounds on networks that are no product of dimensions: by hand, and beneath all that is simulated there.

use std::ops::ControlFlow;

use allrail_collective::{Operation, algorithm};
use allrail_fabric::topologies::{ALL, read};
use allrail_simulate::collectives::simulate;
use allrail_simulate::{CollectiveScenario, SimulationResult};
use serde_json::{Value, json};

/// Network models, and how many bytes each carries: in packets few, for their number is the time of the test.
const RUNS: [(&str, &str); 6] = [
    ("dims", "1 B"),
    ("dims", "999 kB"),
    ("links", "999 kB"),
    ("flows", "1 B"),
    ("flows", "999 kB"),
    ("packets", "20 kB"),
];

fn run(tree: &Value) -> Option<SimulationResult> {
    let scenario = CollectiveScenario::from_json(&tree.to_string()).ok()?;
    simulate(&scenario, None, false, &mut |_, _| ControlFlow::Continue(())).ok()
}

fn scenario(fabric: &Value, model: &str, kind: &str, size: &str) -> Value {
    json!({"schema_version": 1, "fabric": fabric, "network_model": model,
        "collective": [{"kind": kind, "size": size}],
        "schedule": {"policy": "baseline", "chunks": 1}})
}

/// The NPUs at the ends of the cable have three left: 15/16 of 1 GiB over 150 GB/s. With it there were four.
#[test]
fn a_torus_less_a_cable_has_the_bound_of_its_ends() {
    let torus = |failed: Value| {
        json!({"topology": "torus", "shape": [4, 4], "failed_links": failed,
        "link": {"bandwidth": "50 GB/s", "latency": "0 ns"}})
    };
    for model in ["dims", "links"] {
        let of = |fabric: &Value, kind| {
            let mut tree = scenario(fabric, model, kind, "1 GiB");
            // The time of one chunk alone does not count.
            tree["schedule"]["chunks"] = json!(16);
            run(&tree).expect("it runs").bound_time_us
        };
        let less = torus(json!([[0, 1]]));
        let gib = f64::from(1 << 30);
        for kind in ["all_gather", "reduce_scatter"] {
            let by_hand = gib * 15.0 / 16.0 / 150e3;
            assert!((of(&less, kind) / by_hand - 1.0).abs() < 1e-6, "{model} {kind}");
        }
        // All NPUs together take in 62 cables' worth.
        let by_hand = 2.0 * gib * 15.0 / (62.0 * 50e3);
        assert!((of(&less, "all_reduce") / by_hand - 1.0).abs() < 1e-6, "{model}");
        assert!((of(&less, "broadcast") / (gib / 150e3) - 1.0).abs() < 1e-6, "{model}");
        let whole = of(&torus(json!([])), "all_gather");
        assert!((whole / (gib * 15.0 / 16.0 / 200e3) - 1.0).abs() < 1e-6, "{model}");
    }
}

/// Networks that count over cables: those of the list's examples, and such outside of domains.
fn counted() -> Vec<Value> {
    let mut found = Vec::new();
    for entry in ALL {
        for example in entry.examples {
            let mut keys: Value = serde_json::from_str(example).expect("JSON");
            keys["topology"] = json!(entry.tag);
            let topology = read(keys.clone()).expect("an example");
            if topology.dimensions().is_err() && topology.counts().npus <= 24 {
                found.push(keys);
            }
        }
    }
    let inside =
        |kind: &str| json!({"kind": kind, "size": 4, "bandwidth": "60 GB/s", "latency": "1 us"});
    let outside = json!({"topology": "torus", "shape": [2, 4], "failed_links": [[0, 1], [2, 6]], "planes": 2});
    for (kind, domains, shared) in [("switch", 8, 4), ("ring", 4, 2), ("fully_connected", 2, 1)] {
        found.push(json!({"topology": "composed", "domains": domains, "inside": inside(kind),
            "npus_per_port": shared, "outside": outside}));
    }
    found.push(outside);
    found
}

#[test]
fn nothing_that_is_simulated_is_below_its_bound() {
    let networks = counted();
    assert!(networks.len() > 4, "{}", networks.len());
    let mut ran = 0;
    for fabric in &networks {
        // A root that alone sends has all of a port of which its ideal time counts one NPU's part.
        let shares = fabric["npus_per_port"].as_u64().is_some_and(|npus| npus > 1);
        let known = |one: &&Operation| !(shares && **one == Operation::Broadcast);
        for operation in Operation::ALL.iter().copied().filter(|one| known(&one)) {
            let of_this = algorithm::ALL.iter().filter(|one| one.operations().contains(&operation));
            for one in of_this {
                for (model, size) in RUNS {
                    for algorithms in [json!([one.tag()]), json!([one.tag(), one.tag()])] {
                        let mut tree = scenario(fabric, model, operation.tag(), size);
                        tree["schedule"]["algorithms"] = algorithms;
                        let Some(result) = run(&tree) else { continue };
                        ran += 1;
                        assert!(
                            result.time_us * (1.0 + 1e-9) >= result.bound_time_us,
                            "{} before {}: {tree}",
                            result.time_us,
                            result.bound_time_us
                        );
                    }
                }
            }
        }
    }
    assert!(ran > 300, "{ran}");
}
