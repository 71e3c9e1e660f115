//! What a training step sees of coordination: every tensor that all players have submitted is ready
//! once, not before, and at once without any talk.

use std::collections::BTreeSet;

use allrail_collective::Operation;
use allrail_coordinate as coordinate;
use allrail_core::{Bytes, Time};
use allrail_simulate::coordination::Coordination;
use serde_json::json;

/// Every policy, and none.
fn policies() -> impl Iterator<Item = &'static str> {
    coordinate::ALL.iter().map(|policy| policy.tag()).chain([coordinate::NONE])
}

fn one_of(bytes: u64) -> (Operation, Bytes) {
    (Operation::AllReduce, Bytes::new(bytes))
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("t{number}")).collect()
}

/// Tensors that go together, one by one.
fn one_by_one(event: Option<(Time, Vec<u32>)>) -> Vec<(Time, u32)> {
    let all = |(time, group): (Time, Vec<u32>)| group.into_iter().map(move |one| (time, one));
    event.into_iter().flat_map(all).collect()
}

/// Two steps of players that are apart; when each tensor was ready, and when it was submitted last.
fn two_steps(policy: &str, players: &[u32]) -> Vec<Vec<(Time, Time)>> {
    let tensors = 6u32;
    let tree = json!({ "policy": policy });
    let coordination = Coordination::read(&tree, &names(tensors as usize)).expect("it is there");
    let bytes = vec![(Operation::AllReduce, Bytes::new(1_000)); tensors as usize];
    let mut agreement =
        coordination.agreement(players, &bytes, bytes.len(), 1).expect("it is there");
    assert_eq!(agreement.next_time(Time::ZERO), None, "{policy}: nothing was submitted");
    let mut from = Time::from_us(123);
    (0..2)
        .map(|_| {
            let mut submissions: Vec<(Time, u32, u32)> = (0..players.len() as u32)
                .flat_map(|player| (0..tensors).map(move |tensor| (player, tensor)))
                .map(|(player, tensor)| {
                    let late = u64::from(player * 700 + (tensor * 5 + player) % tensors * 333);
                    (from + Time::from_us(late), player, tensor)
                })
                .collect();
            submissions.sort_unstable();
            let mut ready = Vec::new();
            for (at, player, tensor) in &submissions {
                while agreement.next_time(*at).is_some() {
                    ready.extend(one_by_one(agreement.next_event(*at)));
                }
                agreement.submit(*at, *player, *tensor);
            }
            while let Some(next) = agreement.next_time(Time::MAX) {
                ready.extend(one_by_one(agreement.next_event(next)));
            }
            assert!(ready.is_sorted_by_key(|(time, _)| *time), "{policy}");
            let seen: BTreeSet<u32> = ready.iter().map(|(_, tensor)| *tensor).collect();
            assert_eq!(seen.len(), tensors as usize, "{policy}");
            assert_eq!(ready.len(), tensors as usize, "{policy}: a tensor was ready twice");
            from = ready.last().expect("it is there").0 + Time::from_us(10_500);
            let last = |tensor: u32| {
                submissions
                    .iter()
                    .filter(|one| one.2 == tensor)
                    .map(|one| one.0)
                    .max()
                    .expect("it is there")
            };
            ready.iter().map(|(time, tensor)| (*time, last(*tensor))).collect()
        })
        .collect()
}

#[test]
fn a_tensor_is_ready_when_all_have_it_and_have_heard_of_it() {
    for policy in policies() {
        for players in [&[1u32, 1, 1, 1][..], &[40], &[16, 16, 3]] {
            for step in two_steps(policy, players) {
                for (ready, last) in step {
                    let talk = ready - last;
                    if policy == coordinate::NONE {
                        assert_eq!(talk, Time::ZERO);
                        continue;
                    }
                    // A cycle, and what the first step's requests take.
                    assert!(
                        talk > Time::ZERO && talk < Time::from_us(1_500),
                        "{policy} {players:?}: {talk}"
                    );
                }
            }
        }
    }
}

#[test]
fn without_a_cycle_nobody_waits_for_its_end() {
    let talk = |policy| -> Time {
        let steps = two_steps(policy, &[16, 16, 16]);
        steps[1].iter().map(|(ready, last)| *ready - *last).sum()
    };
    assert!(talk("agreed").as_us() * 4.0 < talk("cached").as_us());
}

#[test]
fn a_mistake_in_the_settings_is_explained() {
    let rows = [
        (json!({"policy": "cache"}), "policy", "it is not a coordination"),
        (json!({"policy": 3}), "policy", "it is not a name"),
        (json!({"policy": "cached", "cycle": "-1 ms"}), "cycle", ""),
        (json!({"policy": "cached", "cycle": "0 s"}), "cycle", "without a pause"),
        (json!({"policy": "cached", "cycle": 5}), "cycle", ""),
        (json!({"policy": "cached", "cache": 0}), "cache", "a cache of nothing"),
        (json!({"policy": "central", "cache": 9}), "cache", "does not read it"),
        (json!({"policy": "none", "cycle": "1 ms"}), "cycle", "does not read it"),
        (json!({"policy": "tree", "fan_out": 0}), "fan_out", "branches"),
        (json!({"policy": "tree", "fanout": 4}), "fanout", "no such key"),
        (json!({"policy": "cached", "groups": [["t0", "t9"]]}), "groups[0]", "no such tensor"),
        (json!({"policy": "cached", "groups": [["t0"], ["t0"]]}), "groups[1]", "in a group"),
        (json!({"policy": "cached", "groups": [[]]}), "groups[0]", "a group of none"),
        (json!({"policy": "cached", "groups": 5}), "groups", "there are 4 tensors"),
        (json!({"policy": "cached", "stall": "0 s"}), "stall", "late"),
        (
            json!({"policy": "cached", "stall_shutdown": "1 s"}),
            "stall_shutdown",
            "before the warning",
        ),
        (json!({"policy": "cached", "latency": {"wire": 1}}), "latency", ""),
        (json!({"policy": "cached", "skew": "2 h"}), "skew", "up to an hour"),
        (json!({"policy": "none", "skew": "1 us"}), "skew", "does not read it"),
        (json!({"policy": "cached", "collectives": "some"}), "collectives", "no such choice"),
        (json!({"policy": "none", "collectives": "all"}), "collectives", "does not read it"),
    ];
    for (tree, key, why) in rows {
        let read = Coordination::read(&tree, &names(4));
        let outcome = read.and_then(|one| one.agreement(&[2], &[one_of(1); 4], 4, 1).map(|_| ()));
        let report = outcome.expect_err(&tree.to_string()).report();
        assert_eq!(report.field, format!("schedule.coordination.{key}"), "{report:?}");
        assert!(report.why.contains(why), "{report:?}");
        assert!(!report.hint.is_empty(), "{report:?}");
    }
    let report =
        Coordination::read(&json!("cached"), &[]).map(|_| ()).expect_err("a mistake").report();
    assert_eq!(report.field, "schedule.coordination");
}
