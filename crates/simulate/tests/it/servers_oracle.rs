//! Parameter servers against a plain simulation of the same rules, and laws of both.
//!
//! The plain one keeps every link that an operation needs as a row of a list, and at every time looks
//! through all of them: no queues, no shared numbering of links, no event queue.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use allrail_core::{Bandwidth, Bytes, Time};
use allrail_schedule::tensor::{Leg, Piece};
use allrail_simulate::training::communicator::servers::machines::{Machines, Servers, Transfer};
use proptest::prelude::*;

/// One end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    Up(Machine),
    Down(Machine),
    HostOut,
    HostIn,
    Sum(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Machine {
    Worker(u32),
    Server(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its operation has not come to this stage, or no sender has begun.
    Held,
    Waiting,
    Until(u64),
    Over,
}

/// What an operation needs of a link.
#[derive(Clone, Debug)]
struct Row {
    operation: usize,
    stage: u32,
    sends: bool,
    link: Link,
    time: u64,
    /// When its operation came to this stage.
    entered: u64,
    state: State,
}

/// Picoseconds for a share of a piece at a bandwidth, rounded up.
fn time(bytes: u64, numerator: u64, denominator: u64, bandwidth: Bandwidth) -> u64 {
    let bits = u128::from(bytes) * u128::from(numerator) * 1_000_000_000_000;
    let rate = u128::from(denominator) * u128::from(bandwidth.bytes_per_second());
    u64::try_from(bits.div_ceil(rate)).expect("short")
}

fn rows(machines: &Machines, operation: usize, transfer: &Transfer, servers: &[u32]) -> Vec<Row> {
    let (push, count) = (transfer.leg == Leg::Push, servers.len() as u64);
    let bytes = transfer.piece.bytes.count();
    let host_of = |machine: u32| match machines.colocated {
        true => Machine::Worker(machine),
        false => Machine::Server(machine),
    };
    // Bytes between each worker and each server, in parts of `count`.
    let mut flows: BTreeMap<(Machine, Machine), u64> = BTreeMap::new();
    for worker in 0..machines.workers {
        for server in servers {
            let (a, b) = (Machine::Worker(worker), host_of(*server));
            if a != b {
                flows.insert(if push { (a, b) } else { (b, a) }, 1);
            }
        }
    }
    let mut sums: BTreeMap<(bool, Link), u64> = BTreeMap::new();
    for ((from, to), parts) in flows {
        *sums.entry((true, Link::Up(from))).or_default() += parts;
        *sums.entry((false, Link::Down(to))).or_default() += parts;
    }
    if sums.is_empty() {
        // A lone machine: no byte moves, and the operation is still begun there.
        sums.insert((true, Link::Up(Machine::Worker(0))), 0);
    }
    let row = |stage, sends, link, time| Row {
        operation,
        stage,
        sends,
        link,
        time,
        entered: 0,
        state: State::Held,
    };
    // A push: host, network, sum, word that it is over. A pull: request, network, host.
    let net = 1;
    let mut rows: Vec<Row> = sums
        .into_iter()
        .map(|((sends, link), parts)| {
            row(net, sends, link, time(bytes, parts, count, machines.bandwidth))
        })
        .collect();
    if let Some(host) = machines.host {
        let (stage, link) = if push { (0, Link::HostOut) } else { (2, Link::HostIn) };
        rows.push(row(stage, true, link, time(bytes, 1, 1, host)));
    }
    let first = rows.iter().map(|row| row.stage).min();
    for row in &mut rows {
        if Some(row.stage) == first {
            row.time += transfer.overhead.as_ps();
        }
    }
    if let (true, Some(sum)) = (push, machines.sum) {
        let time = time(bytes, u64::from(machines.workers), count, sum);
        rows.extend(servers.iter().map(|server| row(2, true, Link::Sum(*server), time)));
    }
    match (machines.in_order, push, machines.colocated) {
        (false, ..) => {}
        (_, true, _) => {
            rows.extend(servers.iter().map(|server| row(3, true, Link::Up(host_of(*server)), 0)));
        }
        (_, _, true) => rows.extend(
            (0..machines.workers).map(|worker| row(0, true, Link::Up(Machine::Worker(worker)), 0)),
        ),
        // Workers are alike: one of them stands for all.
        (_, _, false) => rows.push(row(0, true, Link::Up(Machine::Worker(0)), 0)),
    }
    rows
}

/// When each transfer is over; `at` says when each is submitted, ascending.
fn plain(machines: &Machines, transfers: &[(u64, Transfer)]) -> Vec<u64> {
    let mut shares: Vec<(Piece, Vec<u32>)> = Vec::new();
    let mut next = 0;
    let mut rows: Vec<Row> = Vec::new();
    for (operation, (_, transfer)) in transfers.iter().enumerate() {
        if !shares.iter().any(|(piece, _)| *piece == transfer.piece) {
            let split = machines.big_array.is_some_and(|bound| transfer.piece.bytes >= bound);
            let servers =
                if split { (0..machines.servers).collect() } else { vec![next % machines.servers] };
            next += u32::from(!split);
            shares.push((transfer.piece, servers));
        }
        let (_, servers) = shares.iter().find(|(piece, _)| *piece == transfer.piece).expect("set");
        rows.extend(self::rows(machines, operation, transfer, servers));
    }
    let mut ends: Vec<Option<u64>> = vec![None; transfers.len()];
    let mut now = 0;
    loop {
        for row in &mut rows {
            if row.state == State::Until(now) {
                row.state = State::Over;
            }
        }
        for (operation, (at, _)) in transfers.iter().enumerate() {
            if *at > now || ends[operation].is_some() {
                continue;
            }
            let own = || rows.iter().filter(|row| row.operation == operation);
            let stage = own().filter(|row| row.state != State::Over).map(|row| row.stage).min();
            match stage {
                None => ends[operation] = Some(now + machines.latency.as_ps()),
                Some(stage) => {
                    for row in rows.iter_mut().filter(|row| row.operation == operation) {
                        if row.stage == stage && row.sends && row.state == State::Held {
                            row.state = State::Waiting;
                            row.entered = now;
                        }
                    }
                }
            }
        }
        // Senders first; then receivers of what a sender has begun.
        for senders in [true, false] {
            if !senders {
                let begun: BTreeMap<(usize, u32), u64> = rows
                    .iter()
                    .filter(|row| row.sends && matches!(row.state, State::Until(_) | State::Over))
                    .map(|row| ((row.operation, row.stage), row.entered))
                    .collect();
                for row in rows.iter_mut().filter(|row| !row.sends && row.state == State::Held) {
                    if let Some(entered) = begun.get(&(row.operation, row.stage)) {
                        row.state = State::Waiting;
                        row.entered = *entered;
                    }
                }
            }
            loop {
                let busy: Vec<Link> = rows
                    .iter()
                    .filter(|row| matches!(row.state, State::Until(_)))
                    .map(|row| row.link)
                    .collect();
                let best = rows
                    .iter()
                    .enumerate()
                    .filter(|(_, row)| row.sends == senders && row.state == State::Waiting)
                    .filter(|(_, row)| !busy.contains(&row.link))
                    .max_by_key(|(_, row)| {
                        let (priority, entered) = match machines.in_order {
                            true => (0, row.entered),
                            false => (transfers[row.operation].1.priority, 0),
                        };
                        (priority, Reverse(entered), Reverse(row.operation))
                    });
                let Some((index, _)) = best else { break };
                rows[index].state = State::Until(now + rows[index].time);
            }
        }
        let running = rows.iter().filter_map(|row| match row.state {
            State::Until(end) => Some(end),
            _ => None,
        });
        let coming = transfers.iter().map(|(at, _)| *at).filter(|at| *at > now);
        match running.chain(coming).min() {
            Some(next) => now = next,
            None => break,
        }
    }
    ends.into_iter().map(|end| end.expect("every transfer ends")).collect()
}

fn real(machines: &Machines, transfers: &[(u64, Transfer)]) -> (Vec<u64>, [Time; 4]) {
    let mut servers = Servers::new(*machines);
    let mut ends = vec![0; transfers.len()];
    let mut next = 0;
    loop {
        let submits = transfers.get(next).map(|(at, _)| Time::from_ps(*at));
        let Some(now) = [submits, servers.next_time()].into_iter().flatten().min() else { break };
        while let Some(tag) = servers.next_event(now) {
            ends[usize::try_from(tag).expect("an index")] = now.as_ps();
        }
        while let Some((at, transfer)) = transfers.get(next).filter(|(at, _)| *at == now.as_ps()) {
            assert_eq!(*at, now.as_ps());
            servers.submit(now, transfer);
            next += 1;
        }
        servers.choose(now);
    }
    (ends, servers.busy())
}

fn machines() -> impl Strategy<Value = Machines> {
    let bandwidth = || (1u64..5).prop_map(|g| Bandwidth::from_bytes_per_second(g * 1_000_000_000));
    (
        (1u32..6, 1u32..6, any::<bool>()),
        bandwidth(),
        (prop::option::of(bandwidth()), prop::option::of(bandwidth()), any::<bool>()),
        0u64..30,
        prop::option::of(1u64..60),
    )
        .prop_map(|((workers, servers, colocated), bandwidth, more, latency, big)| Machines {
            workers,
            servers: if colocated { servers.min(workers) } else { servers },
            colocated,
            bandwidth: bandwidth.expect("positive"),
            host: more.0.flatten(),
            sum: more.1.flatten(),
            in_order: more.2,
            latency: Time::from_ns(latency),
            big_array: big.map(Bytes::new),
        })
}

fn transfers() -> impl Strategy<Value = Vec<(u64, Transfer)>> {
    let one = (0u64..60, any::<bool>(), 0u32..8, 1u64..90, -3i64..4, 0u64..20);
    prop::collection::vec(one, 1..20).prop_map(|list| {
        let mut now = 0;
        (0u64..)
            .zip(list)
            .map(|(tag, (later, push, tensor, bytes, priority, overhead))| {
                now += later * 1000;
                let piece = Piece { tensor, offset: Bytes::new(0), bytes: Bytes::new(bytes) };
                let leg = if push { Leg::Push } else { Leg::Pull };
                let overhead = Time::from_ns(overhead);
                (now, Transfer { leg, piece, priority, overhead, tag })
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_plain_simulation_gives_the_same_times(machines in machines(), transfers in transfers()) {
        let (ends, _) = real(&machines, &transfers);
        prop_assert_eq!(ends, plain(&machines, &transfers));
    }

    #[test]
    fn nothing_is_faster_than_its_links(machines in machines(), transfers in transfers()) {
        let (ends, _) = real(&machines, &transfers);
        for ((at, transfer), end) in transfers.iter().zip(ends) {
            let bytes = transfer.piece.bytes.count();
            // Separate: all of it over a worker's link, and through its host.
            let mut least = machines.latency.as_ps() + transfer.overhead.as_ps();
            if !machines.colocated {
                least += time(bytes, 1, 1, machines.bandwidth);
            }
            least += machines.host.map_or(0, |host| time(bytes, 1, 1, host));
            if let (Leg::Push, Some(sum)) = (transfer.leg, machines.sum) {
                let workers = u64::from(machines.workers);
                least += time(bytes, workers, u64::from(machines.servers), sum);
            }
            // A lone co-located worker without a host exchanges with itself for nothing.
            let alone = machines.colocated && machines.workers == 1;
            prop_assert!(alone || end >= at + least, "{} < {} + {}", end, at, least);
        }
    }
}

proptest! {
    #[test]
    fn slower_sums_never_end_a_push_earlier(
        machines in machines(),
        transfers in transfers(),
        slower in 1u64..2_000_000_000,
    ) {
        // Pushes alone of one priority: each link and sum first come, first served.
        let mut transfers = transfers;
        for (_, transfer) in &mut transfers {
            (transfer.leg, transfer.priority) = (Leg::Push, 0);
        }
        let machines = Machines { servers: 1, ..machines };
        let rate = machines.sum.map_or(u64::MAX, Bandwidth::bytes_per_second);
        let sum = Bandwidth::from_bytes_per_second(slower.min(rate));
        let (faster, _) = real(&machines, &transfers);
        let (slower, _) = real(&Machines { sum, ..machines }, &transfers);
        for (faster, slower) in faster.iter().zip(&slower) {
            prop_assert!(slower >= faster, "{} < {}", slower, faster);
        }
    }
}

fn piece(tensor: u32, bytes: u64) -> Piece {
    Piece { tensor, offset: Bytes::new(0), bytes: Bytes::new(bytes) }
}

/// Eight workers, eight separate servers, 1 GB/s each way: a byte is a nanosecond.
fn eight(big_array: Option<u64>) -> Machines {
    Machines {
        workers: 8,
        servers: 8,
        colocated: false,
        bandwidth: Bandwidth::from_bytes_per_second(1_000_000_000).expect("positive"),
        host: None,
        sum: None,
        in_order: false,
        latency: Time::from_ns(7),
        big_array: big_array.map(Bytes::new),
    }
}

fn push(tag: u64, piece: Piece) -> (u64, Transfer) {
    (0, Transfer { leg: Leg::Push, piece, priority: 0, overhead: Time::ZERO, tag })
}

#[test]
fn one_server_takes_in_what_eight_workers_send() {
    let (ends, busy) = real(&eight(None), &[push(0, piece(0, 80))]);
    assert_eq!(ends, [647_000]);
    assert_eq!(busy, [Time::from_ns(80), Time::ZERO, Time::ZERO, Time::from_ns(640)]);
}

#[test]
fn a_big_array_is_spread_over_all_servers() {
    let (ends, _) = real(&eight(Some(80)), &[push(0, piece(0, 80))]);
    assert_eq!(ends, [87_000]);
}

#[test]
fn eight_partitions_keep_eight_servers_busy_and_the_ninth_waits_for_the_first() {
    let pushes: Vec<(u64, Transfer)> =
        (0..9).map(|tag| push(u64::from(tag), piece(tag, 80))).collect();
    let (ends, _) = real(&eight(None), &pushes);
    // The first eight begin 80 ns after one another and take 640 ns each at their servers.
    let expected: Vec<u64> = (0..8).map(|k| (80 * k + 640 + 7) * 1000).chain([1_287_000]).collect();
    assert_eq!(ends, expected);
}

#[test]
fn a_host_is_passed_before_a_push_and_after_a_pull() {
    let host = Bandwidth::from_bytes_per_second(500_000_000);
    let machines = Machines { host, ..eight(Some(1)) };
    let pull = Transfer { leg: Leg::Pull, tag: 1, ..push(1, piece(1, 80)).1 };
    let (ends, _) = real(&machines, &[push(0, piece(0, 80)), (0, pull)]);
    assert_eq!(ends, [247_000, 247_000]);
    // What is cut in halves overlaps them.
    let halves = [push(0, piece(0, 40)), push(1, piece(1, 40))];
    assert_eq!(real(&machines, &halves).0, [127_000, 207_000]);
}

fn pull(tag: u64, piece: Piece) -> (u64, Transfer) {
    (0, Transfer { leg: Leg::Pull, ..push(tag, piece).1 })
}

#[test]
fn a_server_sums_what_has_arrived_while_more_arrives() {
    let sum = Bandwidth::from_bytes_per_second(2_000_000_000);
    let machines = Machines { sum, ..eight(Some(1)) };
    // 80 ns to arrive, and all workers' 80 bytes on each server in 40.
    assert_eq!(real(&machines, &[push(0, piece(0, 80))]).0, [127_000]);
    // Halves: the first is summed while the second arrives.
    let halves = [push(0, piece(0, 40)), push(1, piece(1, 40))];
    assert_eq!(real(&machines, &halves).0, [67_000, 107_000]);
}

#[test]
fn in_order_a_pull_waits_behind_pushes_and_the_word_of_a_push_behind_pulls() {
    let machines = Machines { in_order: true, ..eight(Some(1)) };
    let early = real(&eight(Some(1)), &[push(0, piece(0, 80)), pull(1, piece(1, 40))]).0;
    assert_eq!(early, [87_000, 47_000]);
    // The request goes out at 80; the push is over at 80 too, and its word before the pull.
    let late = real(&machines, &[push(0, piece(0, 80)), pull(1, piece(1, 40))]).0;
    assert_eq!(late, [87_000, 127_000]);
    // A pull on the servers' links up until 200 holds back the word of a push that is over at 80.
    let held = real(&machines, &[pull(0, piece(0, 200)), push(1, piece(1, 80))]).0;
    assert_eq!(held, [207_000, 207_000]);
}

#[test]
fn in_order_priorities_do_not_count() {
    let mut pushes = [push(0, piece(0, 80)), push(1, piece(1, 80)), push(2, piece(2, 80))];
    pushes[2].1.priority = 9;
    assert_eq!(real(&eight(Some(1)), &pushes).0, [167_000, 247_000, 87_000]);
    let machines = Machines { in_order: true, ..eight(Some(1)) };
    assert_eq!(real(&machines, &pushes).0, [87_000, 167_000, 247_000]);
}
