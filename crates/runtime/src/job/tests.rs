use allrail_collective::Operation;
use allrail_core::FieldError;
use serde_json::json;

use allrail_collective::CollectivePlan;
use allrail_fabric::Fabric;
use allrail_schedule::Order;
use allrail_schedule::tensor::TensorParameters;

use super::*;
use crate::plans;
use crate::settings::Settings;

#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn job(keys: Value) -> Job {
    let mut tree = json!({"schema_version": 1});
    for (key, value) in keys.as_object().expect("keys") {
        tree[key] = value.clone();
    }
    Job::from_json(&tree.to_string()).expect("a job")
}

fn fabric(sizes: &[u32]) -> Fabric {
    let dimensions = sizes.iter().map(
        |size| json!({"kind": "switch", "size": size, "bandwidth": "1 Gb/s", "latency": "50 us"}),
    );
    let dimensions: Vec<Value> = dimensions.collect();
    serde_json::from_value(json!({"dimensions": dimensions})).expect("a fabric")
}

fn of_four() -> Here {
    Here { rank: 1, ranks: 4, one_host: true, ..Here::default() }
}

fn plan_of(sizes: &[u32], megabytes: u64) -> CollectivePlan {
    let mut settings = crate::settings::tests::local(0, sizes);
    for (ours, one) in settings.dimensions.iter_mut().zip(fabric(sizes).dimensions) {
        (ours.bandwidth, ours.latency) = (one.bandwidth, one.latency);
    }
    let plans = plans::of(&settings, Operation::AllReduce).expect("plans");
    let size = Bytes::new(megabytes << 20);
    let plan = plans.iter().find(|plan| plan.holds_for().contains(size)).expect("one");
    plan.for_size(size).expect("cut")
}

fn refused(job: &Job, here: Here) -> (String, String) {
    match job.settings(here) {
        Err(RuntimeError::Setting(FieldError { field, why, hint, .. })) => {
            assert!(!hint.is_empty(), "{field}");
            (field, why)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_empty_file_is_four_ranks_on_a_switch_of_this_host() {
    let settings = job(json!({})).settings(of_four()).expect("settings");
    assert_eq!((settings.rank, settings.ranks, settings.dimensions.len()), (1, 4, 1));
    assert_eq!(settings.dimensions[0].interface, "127.0.0.1");
    // Defaults are those of a node, but for what is chosen.
    let plain = crate::settings::tests::local(1, &[4]);
    let chosen = Settings {
        dimensions: plain.dimensions.clone(),
        timeouts: plain.timeouts,
        partition: None,
        ..settings.clone()
    };
    assert_eq!(chosen, plain);
    assert_eq!(settings.partition, Some(Bytes::new(4 << 20)));
    assert_eq!(settings.pack, Bytes::new(1 << 20));
    let alone = Here { ranks: 1, ..Here::default() };
    assert_eq!(job(json!({})).settings(alone).expect("settings").dimensions, []);
}

#[test]
fn every_key_has_its_default_in_the_schema() {
    let schema = serde_json::to_value(Job::schema()).expect("a schema");
    assert_eq!(schema["required"], json!(["schema_version"]));
    let tree = serde_json::to_value(job(json!({}))).expect("a tree");
    assert_eq!(tree["timeouts"]["link"], "10 s");
    assert_eq!(tree["schedule"]["tensor"]["partition"], "auto");
    for key in ["interfaces", "port", "plan", "secret", "fabric"] {
        assert!(schema["properties"][key]["description"].is_string(), "{key}");
    }
}

#[test]
fn a_pack_is_no_larger_than_a_piece_unless_the_file_says_so() {
    let pack = |tensor: Value| {
        let job = job(json!({"schedule": {"tensor": tensor}}));
        job.settings(of_four()).expect("settings").pack.count()
    };
    assert_eq!(pack(json!({"partition": "64 KiB"})), 64 << 10);
    assert_eq!(pack(json!({"partition": "8 MiB"})), 1 << 20);
    assert_eq!(pack(json!({"policy": "fifo"})), 1 << 20);
    assert_eq!(pack(json!({"partition": "64 KiB", "pack": "3 MiB"})), 3 << 20);
    assert_eq!(pack(json!({"pack": "0 B"})), 0);
}

#[test]
fn what_the_tensor_scheduler_is_told_reaches_it() {
    let parameters = |tensor: Value| {
        let job = job(json!({"schedule": {"tensor": tensor}}));
        job.settings(of_four()).expect("settings").tensor_parameters()
    };
    let fused = parameters(json!({
        "policy": "fusion", "threshold": "8 MiB", "cycle": "2 ms", "groups": 3
    }));
    let wanted = TensorParameters {
        policy: "fusion".to_owned(),
        threshold: Some(Bytes::new(8 << 20)),
        cycle: Some(Time::from_us(2_000)),
        groups: Some(3),
        ..TensorParameters::default()
    };
    assert_eq!(fused, wanted);
    assert_eq!(parameters(json!({"credit": "1 MiB"})).credit, Some(Bytes::new(1 << 20)));
    let buckets = parameters(json!({"policy": "ddp", "bucket": "2 MiB", "first_bucket": "1 KiB"}));
    let both = (Some(Bytes::new(2 << 20)), Some(Bytes::new(1 << 10)));
    assert_eq!((buckets.bucket, buckets.first_bucket), both);
}

#[test]
fn a_coordination_that_is_named_is_what_ranks_agree_by() {
    let coordination = json!({"policy": "cached", "cycle": "3 ms", "cache": 7});
    let job = job(json!({"schedule": {"coordination": coordination}}));
    let settings = Settings { elsewhere: true, ..job.settings(of_four()).expect("settings") };
    let (engine, _) = plans::decider(&settings).expect("an engine");
    let agreed = engine.coordination.expect("ranks agree");
    assert_eq!((agreed.policy.tag(), agreed.settings.cache), ("cached", 7));
    assert_eq!((agreed.settings.cycle, engine.freeze), (Time::from_us(3_000), None));
    let plain = Settings { coordination: None, ..settings };
    let (engine, _) = plans::decider(&plain).expect("an engine");
    let agreed = engine.coordination.expect("ranks agree");
    assert_eq!(agreed.policy.tag(), "agreed");
    assert!(engine.freeze.is_some() && agreed.settings.threshold > Bytes::default());
    // A policy that packs is handed tensors one by one, or its own keys would mean nothing.
    let packs = Settings { tensor: "fusion".to_owned(), partition: None, ..plain };
    let (engine, _) = plans::decider(&packs).expect("an engine");
    let agreed = engine.coordination.expect("ranks agree");
    assert_eq!(agreed.settings.threshold, Bytes::default());
}

#[test]
fn mistakes_name_the_key_of_the_file() {
    let plain = || json!({});
    let two = || Here { fabric: Some(fabric(&[2, 2])), ..of_four() };
    let far = || Here { one_host: false, ..of_four() };
    let mut reduces = fabric(&[4]);
    reduces.dimensions[0].in_network_reduction = true;
    let table: Vec<(Value, Here, &str)> = vec![
        (plain(), Here { fabric: Some(fabric(&[8])), ..of_four() }, "fabric"),
        (plain(), Here { fabric: Some(reduces), ..of_four() }, "fabric.dimensions[0].in_network"),
        (json!({"interfaces": ["lo", "lo", "lo"]}), two(), "interfaces"),
        (json!({"interfaces": ["lo", "eth99"]}), two(), "interfaces[1]"),
        (json!({"interfaces": ["203.0.113.0/24"]}), two(), "interfaces[0]"),
        (plain(), far(), "interfaces"),
        (json!({"interfaces": ["203.0.113.7"]}), far(), "secret"),
        (json!({"port": 65535}), two(), "port"),
        (json!({"port": 0}), two(), "port"),
        (json!({"schedule": {"policy": "fastest"}}), two(), "schedule.policy"),
        (json!({"schedule": {"order": "alphabetical"}}), two(), "schedule.order"),
        (json!({"schedule": {"chunks": 0}}), two(), "schedule.chunks"),
        (json!({"schedule": {"threshold": 0}}), two(), "schedule.threshold"),
        (json!({"schedule": {"send_ahead": "1 B"}}), two(), "schedule.send_ahead"),
        (json!({"schedule": {"tensor": {"policy": "lifo"}}}), two(), "schedule.tensor.policy"),
        (
            json!({"schedule": {"tensor": {"policy": "fifo", "partition": "1 MiB"}}}),
            two(),
            "schedule.tensor.partition",
        ),
        (
            json!({"schedule": {"tensor": {"partition": "256 Kib/s"}}}),
            two(),
            "schedule.tensor.partition",
        ),
        (json!({"schedule": {"tensor": {"pack": "many"}}}), two(), "schedule.tensor.pack"),
        (
            json!({"schedule": {"tensor": {"policy": "fifo", "credit": "1 MiB"}}}),
            two(),
            "schedule.tensor.credit",
        ),
        (
            json!({"schedule": {"coordination": {"policy": "tree", "cache": 4}}}),
            two(),
            "schedule.coordination.cache",
        ),
        (json!({"timeouts": {"link": "0 s"}}), two(), "timeouts.link"),
        (plain(), Here { plans: vec![plan_of(&[4], 1)], ..two() }, "plan.fabric"),
        (plain(), Here { plans: vec![plan_of(&[8], 1)], ..of_four() }, "plan.fabric"),
    ];
    for (keys, here, field) in table {
        let (got, why) = refused(&job(keys), here);
        assert!(got.starts_with(field), "{field}: {got}: {why}");
    }
}

#[test]
fn a_plan_is_for_one_fabric_which_may_be_left_out() {
    let here = |bandwidth: &str| {
        let mut fabric = fabric(&[2, 2]);
        fabric.dimensions[1].bandwidth = bandwidth.parse().expect("a rate");
        Here { fabric: Some(fabric), plans: vec![plan_of(&[2, 2], 16)], ..of_four() }
    };
    let (field, why) = refused(&job(json!({})), here("2 Gb/s"));
    assert_eq!(field, "plan.fabric.dimensions[1].bandwidth");
    assert!(why.contains("250 MB/s") || why.contains("2 Gb/s"), "{why}");
    let settings = job(json!({})).settings(here("1 Gb/s")).expect("settings");
    assert_eq!(settings.partition, Some(Bytes::new(16 << 20)));
    assert_eq!(settings.order, Order::PLANNED);
    let without = Here { fabric: None, ..here("1 Gb/s") };
    assert_eq!(job(json!({})).settings(without).expect("settings").dimensions.len(), 2);
}

#[test]
fn ports_count_up_from_the_first() {
    let here = |local_rank| Here { local_rank, fabric: Some(fabric(&[2, 2])), ..of_four() };
    let ports = |local_rank| -> Vec<u16> {
        let settings = job(json!({"port": 29600})).settings(here(local_rank)).expect("settings");
        settings.dimensions.iter().map(|one| one.port).collect()
    };
    assert_eq!([ports(0), ports(3)], [[29600, 29601], [29606, 29607]]);
}

#[test]
fn ranks_are_alike_but_for_what_each_host_has() {
    let alike = |keys: Value, here: &Here| job(keys).alike(here).expect("plain data");
    let here = of_four();
    let one = alike(json!({}), &here);
    let other = Here { rank: 3, local_rank: 3, secret: Some("12".into()), ..here.clone() };
    let host = json!({"interfaces": ["lo"], "port": 29600, "secret": "file"});
    assert_eq!(one, alike(host, &other));
    let differs = |keys: Value, here: &Here| -> Vec<String> {
        let other = alike(keys, here);
        let keys = one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key));
        keys.cloned().collect()
    };
    let chunks = json!({"schedule": {"chunks": 4}, "timeouts": {"link": "3 s"}});
    assert_eq!(differs(chunks, &here)[..2], ["schedule.chunks", "timeouts.link"]);
    let planned = Here { plans: vec![plan_of(&[4], 1)], ..here.clone() };
    assert!(differs(json!({}), &planned).contains(&"plan".to_owned()));
    let on = Here { fabric: Some(fabric(&[4])), ..here };
    assert!(differs(json!({}), &on).contains(&"fabric[0].bandwidth".to_owned()));
}
