//! What `algorithms: auto` promises: in `dims`, a collective alone is never later than with any one algorithm
//! on all of its dimensions, whatever the fabric and the size; and what was measured goes first.

use crate::common::*;
use crate::never_below_the_baseline::any_request;
use allrail_collective::{Operation, algorithm};
use allrail_core::Bytes;
use allrail_fabric::{Fabric, Fastest, Kind};
use allrail_schedule::planner::finish;
use allrail_schedule::{Algorithms, Choice, Order, Request};

fn auto(request: &Request) -> Request {
    Request { algorithms: Some(Algorithms::Auto), ..request.clone() }
}

#[test]
fn auto_is_never_later_than_one_algorithm_everywhere() {
    let mut better = 0;
    for seed in 0..150 {
        let (policy, order) = [
            ("baseline", Order::FIFO),
            ("themis", Order::SMALLEST_FIRST),
            ("round_robin", Order::LIFO),
        ][seed as usize % 3];
        let request = Request { policy: policy.to_owned(), order, ..any_request(seed) };
        let time = finish(&auto(&request)).unwrap_or_else(|error| panic!("{error}\n{request:?}"));
        for one in algorithm::ALL {
            let names = vec![one.tag(); request.fabric.dimensions.len()];
            let named = Request { algorithms: Some(names.into()), ..request.clone() };
            let Ok(other) = finish(&named) else { continue };
            assert!(time <= other, "`{}` ends at {other}, not {time}: {request:?}", one.tag());
        }
        better += u32::from(finish(&request).is_ok_and(|usual| time < usual));
    }
    assert!(better > 20, "it differs from the usual ones in {better} of 150");
}

#[test]
fn a_plan_holds_what_was_chosen() {
    for seed in 0..30 {
        let request = Request { policy: "baseline".to_owned(), ..any_request(seed) };
        let chosen = planned(&auto(&request));
        assert!(chosen.algorithms.iter().all(|name| algorithm::named(name).is_ok()));
        let names = Some(chosen.algorithms.clone().into());
        assert_eq!(planned(&Request { algorithms: names, ..request.clone() }), chosen);
        assert_eq!(auto(&request).key().expect("a key"), chosen.key);
    }
}

#[test]
fn what_is_named_stays() {
    for seed in 0..30 {
        let request = Request { policy: "baseline".to_owned(), ..any_request(seed) };
        let mut each = vec![Choice::Auto; request.fabric.dimensions.len()];
        each[0] = Choice::Named("ring".to_owned());
        let plan = planned(&Request { algorithms: Some(Algorithms::Each(each)), ..request });
        assert_eq!(plan.algorithms[0], "ring");
    }
}

fn measured(points: &[(&str, &str)]) -> Vec<Fastest> {
    let point = |(from, name): &(&str, &str)| Fastest {
        from: from.parse().expect("a size"),
        algorithm: (*name).to_owned(),
    };
    points.iter().map(point).collect()
}

fn two() -> Fabric {
    let mut fabric = switches(&[(4, "10 GB/s"), (8, "5 GB/s")]);
    let points = measured(&[("1 KB", "halving_doubling"), ("1 MB", "ring")]);
    fabric.dimensions[1].fastest.insert("all_reduce".to_owned(), points);
    fabric
}

#[test]
fn what_was_measured_goes_first_by_the_bytes_that_reach_the_dimension() {
    let on = |size: &str, operation| {
        planned(&auto(&request(two(), operation, size, "baseline"))).algorithms
    };
    // Of 4 MB a quarter reaches the second dimension.
    for (size, name) in [
        ("1 KB", "halving_doubling"),
        ("3999 KB", "halving_doubling"),
        ("4 MB", "ring"),
        ("1 GB", "ring"),
    ] {
        let names = on(size, Operation::AllReduce);
        assert_eq!(names[1], name, "{size}");
        assert_ne!(names[0], "ring", "nothing was measured there");
    }
    assert_eq!(on("1 GB", Operation::AllGather)[1], "halving_doubling", "nor of all-gathers");
    let mut alone = auto(&request(two(), Operation::AllReduce, "1 MB", "baseline"));
    alone.dimensions = vec![allrail_core::DimensionId(1)];
    assert_eq!(planned(&alone).algorithms[1], "ring", "nothing has divided it");
}

#[test]
fn a_tree_that_was_measured_is_taken_where_its_dimension_is_the_only_one() {
    let mut fabric = two();
    let tree = measured(&[("1 B", "double_binary_tree")]);
    fabric.dimensions[1].fastest.insert("all_reduce".to_owned(), tree);
    let mut asked = auto(&request(fabric, Operation::AllReduce, "1 MB", "baseline"));
    assert_ne!(planned(&asked).algorithms[1], "double_binary_tree", "it cannot scatter");
    asked.dimensions = vec![allrail_core::DimensionId(1)];
    assert_eq!(planned(&asked).algorithms[1], "double_binary_tree");
}

#[test]
fn what_fits_nothing_says_why() {
    let refused =
        |request: Request| allrail_schedule::plan(&request).expect_err("it is wrong").to_string();
    let base = || request(two(), Operation::AllReduce, "1 MB", "baseline");
    let named = |names: &[&str]| {
        refused(Request { algorithms: Some(names.iter().copied().collect()), ..base() })
    };
    assert!(named(&["auto"]).contains("the fabric has 2 dimensions"));
    assert!(named(&["auto", "rings"]).contains("`rings` is not an algorithm"));
    // A tree leaves no stage that another dimension could go on from.
    assert!(named(&["binary_tree", "auto"]).contains("`binary_tree` does not do"));
    for (operation, name, why) in [
        ("all_reduces", "ring", "not a collective"),
        ("all_reduce", "rings", "not an algorithm"),
        ("all_to_all", "binary_tree", "does not do"),
    ] {
        let mut fabric = two();
        fabric.dimensions[0].fastest.insert(operation.to_owned(), measured(&[("1 B", name)]));
        let error = refused(Request { fabric, ..base() });
        assert!(error.contains(why) && error.contains("dimensions[0].fastest"), "{error}");
    }
}

#[test]
fn rings_have_a_size_from_which_on_another_is_faster() {
    let ring = || {
        let dimensions = vec![dimension(Kind::Ring, 16, "10 GB/s", "10 us")];
        Fabric { memory_bandwidth: None, window: None, name: String::new(), dimensions }
    };
    let of = |size: u64| {
        let bytes = Bytes::new(size);
        let asked = request(ring(), Operation::AllReduce, "1 B", "baseline");
        planned(&auto(&Request { size: bytes, chunks: 1, ..asked })).algorithms[0].clone()
    };
    assert_ne!(of(1_000), "ring", "it takes 30 steps");
    assert_eq!(of(1 << 30), "ring", "its bytes are the fewest");
}
