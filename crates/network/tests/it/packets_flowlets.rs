//! `choice: flowlet`: what a gap changes, and what it does not.

use std::sync::Arc;

use crate::packets_common::*;
use allrail_core::Time;
use allrail_network::packets::policy::Chosen;
use allrail_network::packets::{Settings, choice, transport};
use proptest::prelude::*;

fn named(tag: &str) -> Chosen<dyn choice::PathChoice> {
    Chosen(choice::ALL.iter().copied().find(|choice| choice.tag() == tag).expect("listed"))
}

/// Every NPU of a tree sends one message to another, and 200 µs later once more: the two are flowlets.
#[test]
fn flowlets_take_other_paths_and_keep_their_order() {
    let graph = Arc::new(tree(8, 8, 8, &[wire(400, 20_000)]));
    let of = |at: u64| {
        (0..64).map(move |npu| Message {
            at: Time::from_us(at),
            ..message(0, npu, (npu * 37 + 31) % 64, 1 << 20)
        })
    };
    let messages: Vec<Message> = of(0).chain(of(400)).collect();
    let run = |choice: &str, gap: Option<Time>| {
        let settings = Settings { choice: named(choice), flowlet_gap: gap, ..Settings::default() };
        let (times, network_model) = run_network_model(&graph, &settings, &messages);
        assert!(times.iter().all(|times| times.delivered < Time::from_us(800)));
        network_model.statistics()
    };
    let (static_, gaps) = (run("ecmp", None), run("flowlet", Some(Time::from_us(100))));
    assert_eq!((static_.flowlets, static_.out_of_order), (0, 0));
    // Of 64 flows those that cross a spine have drawn again, once, and none in between.
    assert!((40..=64).contains(&gaps.flowlets), "{}", gaps.flowlets);
    assert_eq!((gaps.out_of_order, gaps.reordered_messages), (0, 0));
    assert_ne!(gaps.link_bytes, static_.link_bytes, "some have drawn another spine");
    // With no gap at all every packet draws, overtakes, and is still counted once.
    let none = run("flowlet", Some(Time::ZERO));
    assert!(none.out_of_order > 0 && none.flowlets > 1000, "{none:?}");
    assert_eq!((none.packets, none.delivered), (static_.packets, static_.delivered));
}

#[test]
fn a_gap_is_for_flowlets_only() {
    let with = |choice: &str| {
        let gap = Some(Time::from_us(1));
        Settings { choice: named(choice), flowlet_gap: gap, ..Settings::default() }.validate(1)
    };
    assert_eq!(with("flowlet"), Ok(()));
    for choice in choice::ALL.iter().filter(|choice| !choice.by_flowlets()) {
        let error = with(choice.tag()).expect_err("it is not read");
        assert_eq!(error.field, "network_model.flowlet_gap");
        assert!(error.hint.contains("choice: flowlet"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// With a gap that is longer than the run no flow draws again: that is `ecmp`, to the picosecond.
    #[test]
    fn flowlets_without_gaps_are_ecmp(case in any_case(0u64..9_000), transport in 0..transport::ALL.len()) {
        let (graph, settings, messages) = case;
        let graph = Arc::new(graph);
        let settings = Settings { transport: Chosen(transport::ALL[transport]), ..settings };
        let ecmp = Settings { choice: named("ecmp"), ..settings.clone() };
        let gap = Some(Time::from_ps(u64::MAX));
        let flowlet = Settings { choice: named("flowlet"), flowlet_gap: gap, ..settings };
        let (one, first) = run_network_model(&graph, &ecmp, &messages);
        let (two, second) = run_network_model(&graph, &flowlet, &messages);
        prop_assert_eq!(one, two);
        prop_assert_eq!(first.statistics(), second.statistics());
    }
}
