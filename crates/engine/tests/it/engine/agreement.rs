//! Where one order is needed, all ranks launch the same in the same order, whatever comes first where.

use allrail_coordinate::{self as coordinate, CoordinationPolicy};
use allrail_core::{Bytes, Time};
use allrail_engine::engine::{Coordination, Registration, Settings};
use allrail_schedule::tensor::{self, TensorParameters};

use super::ranks::{World, common, policy, tagged, tensor, tensors};

const NAMES: [&str; 8] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];

fn run(seed: u64, settings: &Settings) -> World {
    let elements = [900, 17, 2000, 64, 5, 1200, 333, 48];
    let mut world = World::new(seed, &[3, 2], settings, |_| tensors(&elements));
    for step in 0..2 {
        world.submit_in_any_order(&NAMES);
        world.run_until_done((step + 1) * NAMES.len());
    }
    world
}

/// A policy with a small credit, buckets and cycles.
fn small(one: &dyn tensor::TensorPolicy) -> TensorParameters {
    let bytes = |key, bytes| one.reads().contains(&key).then_some(Bytes::new(bytes));
    TensorParameters {
        partition: bytes("partition", 1024),
        credit: bytes("credit", 3000),
        bucket: bytes("bucket", 2048),
        first_bucket: bytes("first_bucket", 512),
        threshold: bytes("threshold", 3000),
        cycle: one.reads().contains(&"cycle").then_some(Time::from_us(700)),
        ..policy(one.tag())
    }
}

#[test]
fn every_policy_launches_in_one_order_under_every_coordinator() {
    for by in coordinate::ALL {
        for one in tensor::ALL {
            for seed in 0..5 {
                let world = run(seed, &common(small(*one), *by));
                let what = format!("`{}` with `{}`, seed {seed}", one.tag(), by.tag());
                let (first, others) = world.nodes.split_first().expect("there are ranks");
                for (rank, other) in others.iter().enumerate() {
                    assert_eq!(other.began, first.began, "rank {}, {what}", rank + 1);
                    assert_eq!(other.launched, first.launched, "rank {}, {what}", rank + 1);
                    assert_eq!(other.done, first.done, "rank {}, {what}", rank + 1);
                }
            }
        }
    }
}

#[test]
fn a_tagged_transport_lets_every_rank_go_its_own_way() {
    let world = run(1, &tagged(policy("fifo")));
    let orders = world.nodes.iter().map(|node| &node.launched);
    assert!(orders.clone().any(|order| order != &world.nodes[0].launched), "the draw is too tame");
}

#[test]
fn a_coordinator_beside_a_tagged_transport_holds_nothing_up() {
    for by in coordinate::ALL {
        let coordination = Coordination { policy: *by, settings: by.defaults() };
        let settings =
            Settings { coordination: Some(coordination), ..tagged(policy("bytescheduler")) };
        let mut world = World::new(5, &[2, 2], &settings, |_| tensors(&[100, 50]));
        // Stages end at once, and no frame arrives: the coordinator is steps behind.
        for step in 0..20 {
            for rank in 0..world.nodes.len() {
                for name in ["t0", "t1"] {
                    let key = allrail_schedule::Key::of(name);
                    let event = allrail_engine::Event::Submit { key };
                    world.tell(rank, event).expect("it is done");
                }
            }
            world.end_stages();
            assert!(world.nodes.iter().all(|node| node.done.len() == 2 * (step + 1)));
        }
        for _ in 0..2_000 {
            world.go();
        }
        let warned = world.nodes.iter().any(|node| !node.warned.is_empty());
        let stopped = world.nodes.iter().any(|node| !node.stopped.is_empty());
        assert!(!warned && !stopped, "`{}` has caught up", by.tag());
    }
}

fn fused(dtypes: &[&str], by: &'static dyn CoordinationPolicy) -> World {
    let settings = common(policy("fifo"), by);
    let registered = |_| {
        let of = |(place, dtype): (u32, &&str)| {
            let mut one: Registration = tensor(&format!("t{place}"), 32, place);
            one.signature.dtype = (*dtype).to_owned();
            one
        };
        (0..).zip(dtypes).map(of).collect()
    };
    let mut world = World::new(2, &[2], &settings, registered);
    let names = &NAMES[..dtypes.len()];
    for rank in 0..2 {
        for name in names {
            let key = allrail_schedule::Key::of(name);
            world.tell(rank, allrail_engine::Event::Submit { key }).expect("it is registered");
        }
    }
    world.run_until_done(names.len());
    world
}

/// Those that gather what is ready before they speak.
#[test]
fn what_the_coordinator_fuses_travels_together_where_types_allow() {
    for by in coordinate::ALL.iter().filter(|by| by.defaults().cycle > Time::ZERO) {
        let slices = |world: &World| -> Vec<usize> {
            world.nodes[0].began.iter().map(|one| one.slices.len()).collect()
        };
        let alike = slices(&fused(&["float32"; 4], *by));
        assert!(alike.iter().any(|count| *count > 1), "`{}`: {alike:?}", by.tag());
        assert_eq!(alike.iter().sum::<usize>(), 4, "`{}`", by.tag());
        let mixed = slices(&fused(&["float32", "float16", "float32", "float16"], *by));
        assert_eq!(mixed, [1; 4], "`{}`", by.tag());
    }
}
