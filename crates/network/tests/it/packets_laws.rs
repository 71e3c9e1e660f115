//! What holds in `packets` whatever the network: closed forms, conservation, capacity, deadlock told.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use crate::packets_common::*;
use allrail_core::{Bandwidth, Bytes, Time};
use allrail_fabric::graph::NodeId;
use allrail_fabric::routing::{Adaptive, Hop, RouteState, Routing};
use allrail_network::packets::policy::Chosen;
use allrail_network::packets::{Settings, choice, transport};
use allrail_network::{NetworkModel, Packets};
use proptest::prelude::*;

/// One packet over `links` links, alone: see the formula in the module's doc.
fn closed_form(links: u64, latency: u64, bytes: u64, settings: &Settings, wire: Bandwidth) -> Time {
    let time = |bytes| wire.time_for(Bytes::new(bytes)).expect("short").as_ps();
    let through = 2 * settings.buffer_latency.as_ps() + time(bytes.min(settings.flit.count()));
    Time::from_ps(time(bytes) + links * latency + (links - 1) * through)
}

#[test]
fn one_packet_alone_takes_what_the_formula_says() {
    let settings = Settings::default();
    for switches in 0..4 {
        for bytes in [0, 1, 100, 256, 8191, 8192] {
            let graph = Arc::new(line(switches, 400, 20_000));
            let times = run(&graph, &settings, &[message(0, 0, 1, bytes)]);
            let wire = graph.cables()[0].wire.bandwidth;
            let expected = closed_form(switches + 1, 20_000, bytes, &settings, wire);
            assert_eq!(times[0].delivered, expected, "{switches} switches, {bytes} B");
        }
    }
    // Two cables of 20 ns, 163.84 ns for 8192 B, 5.12 ns for a flit, two buffers of 40 ns.
    let graph = Arc::new(line(1, 400, 20_000));
    let times = run(&graph, &settings, &[message(0, 0, 1, 8192)]);
    assert_eq!(times[0].delivered, Time::from_ps(40_000 + 163_840 + 5_120 + 80_000));
}

/// Packets follow each other without a gap, so a long message has its first packet's latency and one
/// serialisation for all of it: that of `links`, within one packet at each hop.
#[test]
fn a_long_message_alone_runs_at_the_speed_of_its_links() {
    let settings = Settings::default();
    let bytes = 1_000_000;
    for switches in 0..4 {
        let graph = Arc::new(line(switches, 400, 20_000));
        let wire = graph.cables()[0].wire.bandwidth;
        let times = run(&graph, &settings, &[message(0, 0, 1, bytes)]);
        let head = closed_form(switches + 1, 20_000, 8192, &settings, wire);
        let rest = wire.time_for(Bytes::new(bytes - 8192)).expect("short");
        assert_eq!(times[0].delivered, head + rest);
        assert_eq!(times[0].sent, wire.time_for(Bytes::new(bytes)).expect("short"));
    }
}

/// An empty message's packet takes no time to cross, so its input is free again at that very moment:
/// what stands behind it in the queue must go on.
#[test]
fn an_empty_message_holds_up_nothing_behind_it() {
    // A crossbar as fast as its links: the empty packet waits at the switch for the first one's last
    // byte to cross, and the third arrives behind it at that time.
    let settings = Settings { crossbar_speedup: 1.0, ..Settings::default() };
    let graph = Arc::new(line(1, 400, 20_000));
    let messages = [8192, 0, 8192].map(|bytes| message(0, 0, 1, bytes));
    let times = run(&graph, &settings, &messages);
    let wire = graph.cables()[0].wire.bandwidth;
    let first = closed_form(2, 20_000, 8192, &settings, wire);
    let delivered: Vec<Time> = times.iter().map(|times| times.delivered).collect();
    assert_eq!(delivered, [first, first, first + Time::from_ps(163_840)]);
}

/// A slow cable, then a fast one: the fast one waits for what the slow one brings, and no longer.
#[test]
fn a_fast_link_behind_a_slow_one_does_not_run_dry() {
    let settings = Settings { buffer_latency: Time::ZERO, ..Settings::default() };
    let graph = Arc::new(chain(&[(100, 0), (400, 0)]));
    let times = run(&graph, &settings, &[message(0, 0, 1, 8192)]);
    // 655.36 ns on the slow cable; its last flit needs 5.12 ns more on the fast one.
    assert_eq!(times[0].delivered, Time::from_ps(655_360 + 5_120));
    let graph = Arc::new(chain(&[(400, 0), (100, 0)]));
    let times = run(&graph, &settings, &[message(0, 0, 1, 8192)]);
    assert_eq!(times[0].delivered, Time::from_ps(5_120 + 655_360));
}

/// Clockwise on a ring, on one channel or, past a dateline, on two.
struct Clockwise {
    npus: u32,
    channels: u8,
}

impl Routing for Clockwise {
    fn about(&self) -> String {
        "clockwise".into()
    }
    fn channels(&self) -> u8 {
        self.channels
    }
    fn hops(&self, node: NodeId, state: RouteState, to: NodeId, _: u32, out: &mut Vec<Hop>) {
        // Cable i joins NPU i to i + 1, forwards.
        let crossed = u32::from(state.0 == 1 || node.0 + 1 == self.npus);
        let channel = (state.0 as u8).min(self.channels - 1);
        let weight = ((to.0 + self.npus - node.0) % self.npus) as u8;
        out.push(Hop { link: 2 * node.0, channel, weight, state: RouteState(crossed) });
    }
}

fn half_way_round(channels: u8) -> Packets {
    let packets_a_channel = 1;
    let settings = Settings {
        buffer: Bytes::new(8192 * packets_a_channel * u64::from(channels)),
        ..Settings::default()
    };
    let routing = Clockwise { npus: 4, channels };
    let mut network_model =
        Packets::new(Arc::new(ring(4)), Box::new(routing), &settings, 0).expect("a network model");
    for npu in 0..4 {
        submit(&mut network_model, npu, &message(0, npu as u32, (npu as u32 + 2) % 4, 80_000));
    }
    while network_model.next_event(Time::MAX).is_some() {}
    network_model
}

#[test]
fn a_deadlock_is_told_as_the_cycle_of_waiting_ports() {
    let network_model = half_way_round(1);
    let told = network_model.stalled().expect("a ring of full buffers");
    let ports: Vec<&str> = told.rsplit(": ").next().expect("a list").split(" -> ").collect();
    assert_eq!(ports.len(), 5, "{told}");
    assert_eq!(ports[0], ports[4], "{told}");
    for npu in 0..4 {
        let port = format!("(link NPU {npu} to NPU {}, channel 0)", (npu + 1) % 4);
        assert!(ports.contains(&port.as_str()), "{told}");
    }
    assert!(
        std::panic::catch_unwind(AssertUnwindSafe(|| network_model.check_empty())).is_err(),
        "packets are inside"
    );
    // With a second channel past a dateline there is no cycle.
    let network_model = half_way_round(2);
    assert_eq!(network_model.stalled(), None);
    network_model.check_empty();
}

#[test]
fn refuses_packets_that_do_not_fit_a_buffer_and_other_mistakes() {
    let refused = |settings: Settings, channels| {
        let routing = Box::new(Clockwise { npus: 4, channels });
        Packets::new(Arc::new(ring(4)), routing, &settings, 0).err().expect("it is refused")
    };
    let table = Settings::default();
    let small = Settings { buffer: Bytes::new(20_000), ..table.clone() };
    let error = refused(small.clone(), 3);
    assert_eq!((error.field.as_str(), error.value.as_str()), ("network_model.buffer", "20000 B"));
    assert!(error.hint.contains("24576 B"), "{}", error.hint);
    let fits = Box::new(Clockwise { npus: 4, channels: 2 });
    assert!(Packets::new(Arc::new(ring(4)), fits, &small, 0).is_ok());
    let field = |settings| refused(settings, 1).field;
    assert_eq!(
        field(Settings { packet: Some(Bytes::new(0)), ..table.clone() }),
        "network_model.packet"
    );
    assert_eq!(
        field(Settings { packet: Some(Bytes::new(1 << 25)), ..table.clone() }),
        "network_model.packet"
    );
    assert_eq!(field(Settings { flit: Bytes::new(8193), ..table.clone() }), "network_model.flit");
    assert_eq!(
        field(Settings { crossbar_speedup: f64::NAN, ..table.clone() }),
        "network_model.crossbar_speedup"
    );
    let unread = Settings { cut_above: Some(Bytes::new(9000)), ..table.clone() };
    assert_eq!(field(unread), "network_model.cut_above");
    let transport = Chosen(transport::ALL[2]);
    let small = Settings { first_window: Some(Bytes::new(8191)), transport, ..table.clone() };
    assert_eq!(field(small), "network_model.first_window");
    let late = Settings { buffer_latency: Time::MAX, ..table };
    assert_eq!(field(late), "network_model.buffer_latency");
}

#[test]
fn settings_have_the_published_defaults_and_refuse_unknown_keys() {
    let read = |text: &str| serde_json::from_str::<Settings>(text);
    assert_eq!(read("{}").expect("all defaults"), Settings::default());
    let one = read(r#"{ "packet": "4 KiB" }"#).expect("one key");
    assert_eq!((one.packet(), one.flit), (Bytes::new(4096), Bytes::new(256)));
    assert!(read(r#"{ "colour": 1 }"#).is_err());
    assert!(
        read(r#"{ "choice": "spry" }"#).is_err_and(|error| error.to_string().contains("`spray`"))
    );
    for choice in choice::ALL {
        let one = read(&format!(r#"{{ "choice": "{}" }}"#, choice.tag())).expect("it is listed");
        let text = serde_json::to_string(&one).expect("settings");
        assert_eq!(read(&text).expect("what was written"), one);
    }
}

#[test]
fn a_withdrawn_message_leaves_nothing_behind() {
    let graph = Arc::new(line(1, 400, 20_000));
    let settings = Settings::default();
    let mut network_model = Packets::new(
        Arc::clone(&graph),
        Box::new(Adaptive::new(&graph).expect("a tree")),
        &settings,
        0,
    )
    .expect("a network model");
    let first = submit(&mut network_model, 0, &message(0, 0, 1, 1_000_000));
    submit(&mut network_model, 1, &message(0, 0, 1, 8192));
    let early = Time::from_ns(200);
    assert_eq!(network_model.next_event(early), None);
    assert!(network_model.cancel(early, first) && !network_model.cancel(early, first));
    let events: Vec<_> = std::iter::from_fn(|| network_model.next_event(Time::MAX)).collect();
    // Two packets of the first had been made; the second message follows them.
    let time = |packets: u64| Time::from_ps(163_840 * packets);
    assert_eq!(events[0], (time(3), allrail_network::Event::Sent { tag: 1 }));
    assert_eq!(events.len(), 2);
    assert_eq!(network_model.statistics().packets, 3);
    network_model.check_empty();
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() }
}

/// One message in eight is empty: its packets take no time.
fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 7 => 1u64..9_000]
}

/// Every NPU of a nonblocking tree of 64 sends 2 MiB to one other: the end, and the packets cut.
fn permutation(settings: &Settings) -> (Time, u64) {
    let graph = Arc::new(tree(8, 8, 8, &[wire(400, 20_000)]));
    let to = |npu: u32| (npu * 37 + 31) % 64;
    let messages: Vec<Message> = (0..64).map(|npu| message(0, npu, to(npu), 2 << 20)).collect();
    let (times, network_model) = run_network_model(&graph, settings, &messages);
    (
        times.iter().map(|times| times.delivered).max().expect("messages"),
        network_model.statistics().cut,
    )
}

/// 41.94 µs are what an NPU's cable takes. A leaf's NPUs are in step: were equal uplinks not drawn, each
/// would keep to one, and the more so the faster the crossbar.
#[test]
fn a_permutation_is_spread_and_a_faster_crossbar_does_not_slow_it() {
    let bound = Time::from_ps(41_943_040);
    for choice in choice::ALL.iter().filter(|choice| choice.spreads()) {
        for transport in transport::ALL {
            let mut ends = Vec::new();
            for crossbar_speedup in [2.0, 4.0, 8.0] {
                let (choice, transport) = (Chosen(*choice), Chosen(*transport));
                let settings =
                    Settings { choice, transport, crossbar_speedup, ..Settings::default() };
                let (end, cut) = permutation(&settings);
                assert!(cut == 0 || transport.rules().cuts);
                ends.push(end.as_ps() as f64 / bound.as_ps() as f64);
            }
            let told = format!("{}, {}: {ends:?}", choice.tag(), transport.tag());
            assert!(ends.iter().all(|&end| (1.0..1.12).contains(&end)), "{told}");
            assert!(ends.iter().all(|&end| end < ends[0] * 1.02), "{told}");
        }
    }
}

/// 15 send to one: the receiver's cable is the bound, whatever is cut, and queues stay small.
#[test]
fn an_incast_with_cuts_fills_the_cable_of_the_receiver() {
    let graph = Arc::new(tree(4, 4, 4, &[wire(400, 20_000)]));
    let messages: Vec<Message> = (1..16).map(|npu| message(0, npu, 0, 1 << 20)).collect();
    let settings = Settings { transport: Chosen(transport::ALL[2]), ..Settings::default() };
    let (times, network_model) = run_network_model(&graph, &settings, &messages);
    let end = times.iter().map(|times| times.delivered).max().expect("messages");
    let bound = 15.0 * f64::from(1 << 20) / 50e9;
    assert!((1.0..1.02).contains(&(end.as_s() / bound)), "{end:?}");
    let sums = network_model.statistics();
    assert!(sums.cut > 0 && sums.deepest_queue < Bytes::new(300_000), "{sums:?}");
    // Without cuts all first windows wait in the network.
    let (_, pulled) = run_network_model(
        &graph,
        &Settings { transport: Chosen(transport::ALL[1]), ..settings },
        &messages,
    );
    assert!(pulled.statistics().deepest_queue > sums.deepest_queue);
}

#[test]
fn a_withdrawn_message_is_pulled_no_more() {
    for transport in transport::ALL {
        let graph = Arc::new(tree(1, 9, 1, &[wire(400, 20_000)]));
        let settings = Settings { transport: Chosen(*transport), ..Settings::default() };
        let routing = Box::new(Adaptive::new(&graph).expect("a tree"));
        let mut network_model =
            Packets::new(graph, routing, &settings, 0).expect("a network model");
        let messages = (1..9u32).map(|npu| message(0, npu, 0, 1_000_000));
        let sent: Vec<_> =
            messages.map(|m| submit(&mut network_model, u64::from(m.source), &m)).collect();
        let early = Time::from_us(6);
        while network_model.next_event(early).is_some() {}
        for &transfer in &sent[..4] {
            assert!(network_model.cancel(early, transfer));
        }
        for npu in 1..5u32 {
            submit(
                &mut network_model,
                u64::from(npu),
                &Message { at: early, ..message(0, npu, 0, 9_000) },
            );
        }
        let mut delivered: Vec<u64> = std::iter::from_fn(|| network_model.next_event(Time::MAX))
            .filter_map(|(_, event)| match event {
                allrail_network::Event::Delivered { tag } => Some(tag),
                allrail_network::Event::Sent { .. } => None,
            })
            .collect();
        delivered.sort_unstable();
        assert_eq!(delivered, (1..9).collect::<Vec<_>>(), "{}", transport.tag());
        network_model.check_empty();
    }
}

fn any_policies() -> impl Strategy<Value = (usize, usize)> {
    (0..choice::ALL.len(), 0..transport::ALL.len())
}

proptest! {
    #![proptest_config(config())]

    /// Nothing is lost, told twice or out of order; every link stays within its capacity.
    #[test]
    fn packets_are_conserved(case in any_case(any_size()), policies in any_policies()) {
        let (graph, settings, messages) = case;
        let graph = Arc::new(graph);
        let (choice, transport) = (Chosen(choice::ALL[policies.0]), Chosen(transport::ALL[policies.1]));
        let settings = Settings { choice, transport, ..settings };
        let (times, network_model) = run_network_model(&graph, &settings, &messages);
        let sums = network_model.statistics();
        let packet = settings.packet().count();
        let packets: u64 =
            messages.iter().map(|m| m.bytes.div_ceil(packet).max(1)).sum();
        prop_assert_eq!((sums.packets - sums.cut, sums.delivered), (packets, packets));
        prop_assert!(sums.cut == 0 || transport.rules().cuts);
        prop_assert_eq!(sums.messages, messages.len() as u64);
        let end = times.iter().map(|t| t.delivered).max().unwrap_or_default();
        for (link, bytes) in (0..).zip(&sums.link_bytes) {
            let least = graph.link(link).wire.bandwidth.time_for(*bytes).expect("short");
            prop_assert!(least <= end, "link {} is above its capacity", link);
        }
        let out: u64 = sums.link_bytes.iter().map(|bytes| bytes.count()).sum();
        prop_assert!(out >= messages.iter().map(|m| m.bytes).sum());
        prop_assert!(sums.deepest_queue.count() <= settings.buffer.count());
        for (message, times) in messages.iter().zip(&times) {
            prop_assert!(message.at <= times.sent && times.sent <= times.delivered);
            prop_assert!(times.delivered < Time::MAX);
        }
        prop_assert!(sums.latency_p50 <= sums.latency_p99 && sums.latency_p99 <= sums.latency_max);
    }

    /// Again, and it is the same.
    #[test]
    fn a_run_repeats(case in any_case(any_size())) {
        let (graph, settings, messages) = case;
        let graph = Arc::new(graph);
        let (one, first) = run_network_model(&graph, &settings, &messages);
        let (two, second) = run_network_model(&graph, &settings, &messages);
        prop_assert_eq!(one, two);
        prop_assert_eq!(first.statistics(), second.statistics());
    }

    /// More bandwidth never delays a message that is alone.
    #[test]
    fn twice_the_bandwidth_is_never_slower_for_one_message(
        rates in prop::collection::vec((1u64..50, 0u64..30_000), 1..5),
        bytes in 0u64..100_000,
    ) {
        let settings = Settings::default();
        let double: Vec<(u64, u64)> = rates.iter().map(|&(rate, l)| (2 * rate, l)).collect();
        let alone = [message(0, 0, 1, bytes)];
        let slow = run(&Arc::new(chain(&rates)), &settings, &alone);
        let fast = run(&Arc::new(chain(&double)), &settings, &alone);
        prop_assert!(fast[0].delivered <= slow[0].delivered);
        prop_assert!(fast[0].sent <= slow[0].sent);
    }
}
