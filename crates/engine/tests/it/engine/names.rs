//! Operations are called alike on all ranks, and cover every element once.

use allrail_coordinate as coordinate;
use allrail_core::Bytes;
use allrail_engine::Ordering;
use allrail_engine::engine::{Event, Settings};
use allrail_schedule::Key;
use allrail_schedule::tensor::{self, TensorParameters};

use super::ranks::{Began, World, common, engine, policy, tagged, tensors};

const ELEMENTS: [u64; 6] = [1000, 7, 0, 4096, 333, 2];
const NAMES: [&str; 6] = ["t0", "t1", "t2", "t3", "t4", "t5"];

/// Every policy, cutting small where it cuts.
fn policies() -> impl Iterator<Item = TensorParameters> {
    tensor::ALL.iter().map(|one| {
        let small = |key| one.reads().contains(&key).then_some(Bytes::new(1003));
        TensorParameters {
            partition: small("partition"),
            bucket: small("bucket"),
            threshold: small("threshold"),
            ..policy(one.tag())
        }
    })
}

/// Every setting that an engine takes; how many of each transport.
fn settings() -> Vec<Settings> {
    let tagged = policies().map(tagged).filter(|one| engine(0, &[2, 2], one).is_ok());
    let common = policies()
        .flat_map(|tensor| coordinate::ALL.iter().map(move |by| common(tensor.clone(), *by)));
    tagged.chain(common).collect()
}

/// Of one generation, each element of each tensor once.
fn assert_covered(began: &[Began], generation: u64, what: &str) {
    for (number, elements) in (0u32..).zip(ELEMENTS) {
        let of_tensor = began.iter().filter(|one| one.name.generation == generation);
        let slices = of_tensor.flat_map(|one| &one.slices).filter(|slice| slice.0 == number);
        let mut covered: Vec<(u64, u64)> = slices.map(|slice| (slice.1, slice.2)).collect();
        covered.sort_unstable();
        let end = covered.iter().try_fold(0, |at, (from, to)| (*from == at).then_some(*to));
        assert_eq!(end, Some(elements), "t{number} of {generation}, {what}: {covered:?}");
    }
}

#[test]
fn operations_have_one_name_everywhere_and_cover_every_element_once() {
    for (seed, settings) in (0u64..).zip(settings()) {
        let what = format!("{:?} {:?}", settings.ordering, settings.tensor.policy);
        let mut world = World::new(seed, &[2, 3], &settings, |_| tensors(&ELEMENTS));
        for step in 0..3 {
            world.submit_in_any_order(&NAMES);
            world.run_until_done((step + 1) * NAMES.len());
        }
        let sorted = |began: &[Began]| {
            let mut began = began.to_vec();
            began.sort();
            began
        };
        let first = sorted(&world.nodes[0].began);
        let mut names: Vec<_> = first.iter().map(|one| one.name).collect();
        names.dedup();
        assert_eq!(names.len(), first.len(), "a name is given once, {what}");
        for node in &world.nodes {
            assert_eq!(sorted(&node.began), first, "{what}");
            for generation in 0..3 {
                assert_covered(&node.began, generation, &what);
                for name in NAMES {
                    let done = node.done.iter().filter(|one| **one == (Key::of(name), generation));
                    assert_eq!(done.count(), 1, "{name}, {what}");
                }
            }
        }
    }
}

#[test]
fn a_tagged_transport_refuses_what_needs_one_order() {
    let refused: Vec<&str> = policies()
        .filter(|one| engine(0, &[2], &tagged(one.clone())).is_err())
        .map(|one| tensor::named(&one.policy).expect("listed").tag())
        .collect();
    assert_eq!(refused, ["fusion", "priority"]);
    let credit = TensorParameters { credit: Some(Bytes::new(1 << 20)), ..policy("bytescheduler") };
    let limited = Settings { active_chunks: Some(1), ..tagged(policy("fifo")) };
    let wrong = [
        (tagged(policy("fusion")), "tensor.policy", "common"),
        (tagged(policy("priority")), "tensor.credit", "send_ahead"),
        (tagged(credit), "tensor.credit", "send_ahead"),
        (limited, "active_chunks", "common"),
    ];
    for (settings, field, hint) in wrong {
        let error = engine(0, &[2], &settings).map(|_| ()).expect_err("no common order");
        assert!(error.to_string().contains(field), "{error}");
        assert!(error.hint().is_some_and(|text| text.contains(hint)), "{error:?}");
    }
}

#[test]
fn a_common_order_needs_someone_who_agrees_and_queues_that_keep_it() {
    let by = coordinate::ALL[0];
    let whole = common(policy("fifo"), by);
    for order in allrail_schedule::Order::all() {
        let settings = Settings { order, ..whole.clone() };
        assert_eq!(engine(0, &[2], &settings).is_ok(), order.is_strict(), "{order:?}");
    }
    let error = engine(0, &[2], &Settings { coordination: None, ..whole }).map(|_| ());
    assert!(error.expect_err("nobody agrees").to_string().contains("coordination"));
}

#[test]
fn who_has_nothing_takes_part_with_zeros_and_counts_on() {
    for by in [None, Some(coordinate::ALL[2])] {
        let settings = by.map_or_else(|| tagged(policy("fifo")), |by| common(policy("fifo"), by));
        let mut world = World::new(3, &[2], &settings, |_| tensors(&[8]));
        let key = Key::of("t0");
        world.tell(0, Event::Unused { key }).expect("it is registered");
        world.tell(1, Event::Submit { key }).expect("it is registered");
        world.run_until_done(1);
        world.submit_in_any_order(&["t0"]);
        world.run_until_done(2);
        let seen = |rank: usize| {
            let began = world.nodes[rank].began.iter();
            began.map(|one| (one.name.generation, one.unused.clone())).collect::<Vec<_>>()
        };
        assert_eq!(seen(0), [(0, vec![true]), (1, vec![false])]);
        assert_eq!(seen(1), [(0, vec![false]), (1, vec![false])]);
        assert_eq!(settings.ordering == Ordering::Common, by.is_some());
    }
}
