//! Stragglers and jitter.

use crate::common::*;
use allrail_core::Rank;
use allrail_workload::spec::Jitter;
use allrail_workload::{ActorId, NodeId, Perturbation, Work};
use serde_json::json;

#[test]
fn jitter_has_its_mean_and_deviation_and_hangs_on_nothing_but_its_place() {
    let jitter = Jitter { deviation: 0.1 };
    let of = |seed: u64| Perturbation::new(seed, Some(jitter), Vec::new());
    let perturbation = of(7);
    let draw = |i: u32| perturbation.factor(ActorId(i % 7), NodeId(i / 7 % 100), i / 700);
    let count = 140_000u32;
    let forward: Vec<f64> = (0..count).map(draw).collect();
    let mut backward: Vec<f64> = (0..count).rev().map(draw).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    let mean = forward.iter().sum::<f64>() / f64::from(count);
    let variance = forward.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(count);
    // The mean of 140,000 draws of deviation 0.1 is 0.00027 off at one standard error.
    assert!((mean - 1.0).abs() < 0.002, "{mean}");
    assert!((variance.sqrt() - 0.1).abs() < 0.002, "{}", variance.sqrt());
    assert!(forward.iter().all(|x| (1.0 - 0.35..=1.0 + 0.35).contains(x)));
    let other = of(8);
    let same = (0..1000).filter(|i| {
        other.factor(ActorId(0), NodeId(*i), 0) == perturbation.factor(ActorId(0), NodeId(*i), 0)
    });
    assert_eq!(same.count(), 0, "seeds differ");
    assert!(Perturbation::new(1, None, vec![1.0]).is_none());
}

#[test]
fn a_slow_rank_gets_an_actor_and_its_peers_stay_apart_with_it() {
    let mut value = job(json!({"pp": 2, "tp": 2, "dp": 2}));
    let alike = built(value.clone(), &[8]);
    value["stragglers"] = json!([{"ranks": [5], "factor": 1.5}]);
    let built = built(value, &[8]);
    let shown: Vec<(String, Vec<Rank>, f64)> = built
        .graph
        .actors()
        .iter()
        .zip(&built.slow)
        .map(|(actor, slow)| (actor.name.clone(), actor.ranks.clone(), *slow))
        .collect();
    let ranks = |list: &[u32]| list.iter().map(|rank| Rank(*rank)).collect::<Vec<_>>();
    // Ranks are tp + 2·pp + 4·dp: rank 5 is at position 0, rank 7 is its partner in the pipeline.
    assert_eq!(
        shown,
        [
            ("stage 0".into(), ranks(&[0, 1, 4]), 1.0),
            ("stage 0 (rank 5)".into(), ranks(&[5]), 1.5),
            ("stage 1".into(), ranks(&[2, 3, 6]), 1.0),
            ("stage 1 (rank 7)".into(), ranks(&[7]), 1.0),
        ]
    );
    assert_eq!(built.graph.len(), 2 * alike.graph.len());
    assert_eq!(built.graph.carried().len(), 2 * alike.graph.carried().len());
    for (new, old) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        assert_eq!(compute(&built.graph, ActorId(new)), compute(&alike.graph, ActorId(old)));
        assert_eq!(
            collectives(&built.graph, ActorId(new)).len(),
            collectives(&alike.graph, ActorId(old)).len()
        );
    }
    for group in built.graph.groups() {
        let all = if group.name == "pp" { 4 } else { 2 };
        assert_eq!(group.actors.len(), all, "{}", group.name);
    }
    for id in built.graph.ids() {
        let actor = built.graph.node(id).actor;
        assert!(built.graph.after(id).iter().all(|b| built.graph.node(*b).actor == actor));
    }
}

#[test]
fn a_ring_tells_the_neighbours_of_a_slow_rank_apart_by_how_far_they_are() {
    let mut value = job(json!({"cp": 4, "pp": 2, "dp": 1}));
    value["stragglers"] = json!([{"ranks": [1], "factor": 1.5}]);
    let built = built(value, &[8]);
    // Ranks are cp + 4·pp: each is at another distance from rank 1, by ring and pipeline.
    let ranks: Vec<usize> = built.graph.actors().iter().map(|actor| actor.ranks.len()).collect();
    assert_eq!(ranks, [1; 8]);
    assert_eq!(built.slow.iter().filter(|slow| **slow > 1.0).count(), 1);
}

#[test]
fn without_messages_the_slow_ranks_of_a_class_are_one_actor() {
    let mut value = job(json!({}));
    value["stragglers"] = json!([{"ranks": [1, 6], "factor": 2.0}, {"ranks": [6], "factor": 1.5}]);
    let built = built(value, &[8]);
    let shown: Vec<(usize, f64)> =
        built.graph.actors().iter().zip(&built.slow).map(|(a, s)| (a.ranks.len(), *s)).collect();
    assert_eq!(shown, [(6, 1.0), (1, 2.0), (1, 3.0)]);
    let time = built.graph.ids().find_map(|id| match built.graph.node(id).work {
        Work::Compute { time } if time.as_ps() > 0 => Some(time),
        _ => None,
    });
    let time = time.expect("something computes");
    let perturbation = built.perturbation(&workload(job(json!({}))), 0);
    let slowed = perturbation.time(ActorId(1), NodeId(0), 0, time);
    assert_eq!(slowed.as_ps(), 2 * time.as_ps());
}
