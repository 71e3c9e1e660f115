//! Parameter servers against a plain simulation of the same rules, laws of both, and cases by hand.
//!
//! The plain one writes down beforehand all that every transfer will ask of any line, and what each of these has to
//! wait for; then at every time it looks through all of them: no queues, no numbers of lines, no event queue.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use allrail_core::{Bandwidth, Bytes, Time};
use allrail_schedule::tensor::{Leg, PartitionPlacement};
use allrail_simulate::training::communicator::servers::lines::{Happened, Servers};
use allrail_simulate::training::communicator::servers::machines::{Local, Machines, Transfer};
use proptest::prelude::*;

/// A line, in the order in which they choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Line {
    Up(Machine),
    Down(Machine),
    Within(u32, u32),
    Thread(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Machine {
    Worker(u32),
    Server(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// Since when.
    Waiting(u64),
    /// From when until when.
    Served(u64, u64),
    Over,
}

/// What a transfer asks of a line; of none, what it waits for together.
#[derive(Clone, Debug)]
struct Row {
    transfer: usize,
    line: Option<Line>,
    /// Among equals, how far its worker is from its server.
    turn: u32,
    /// Which of those that share the line it is of; they take turns.
    sharer: (u32, bool),
    time: u64,
    /// These are over before it.
    after: Vec<usize>,
    /// This one has been served for so long before it.
    behind: Option<(usize, u64)>,
    state: State,
}

/// Picoseconds for a part of some bytes at a bandwidth, rounded up.
fn time(bytes: u64, (part, whole): (u64, u64), bandwidth: Bandwidth) -> u64 {
    let bits = u128::from(bytes) * u128::from(part) * 1_000_000_000_000;
    let rate = u128::from(whole) * u128::from(bandwidth.bytes_per_second());
    u64::try_from(bits.div_ceil(rate)).expect("short")
}

/// The servers of a partition, with their parts of it, in the order in which worker `w` takes them.
fn parts(machines: &Machines, transfer: &Transfer) -> Vec<(u32, (u64, u64))> {
    let servers = machines.servers;
    let split = machines.big_array.is_some_and(|bound| transfer.bytes >= bound) && servers > 1;
    if !split {
        let key = u64::from(transfer.partition);
        let factor = if machines.placement == PartitionPlacement::Hash { 9973 } else { 1 };
        let server = key * factor % u64::from(servers);
        return vec![(u32::try_from(server).expect("few"), (1, 1))];
    }
    let begin = transfer.worker % servers;
    (0..servers).map(|k| ((begin + k) % servers, (1, u64::from(servers)))).collect()
}

struct Plain<'a> {
    machines: &'a Machines,
    rows: Vec<Row>,
    /// Of the rows that are written next.
    turn: u32,
    /// By partition, round and server: rows after which all workers have pushed.
    pushed: BTreeMap<(u32, u32, u32), Vec<usize>>,
    /// Of each transfer, the rows after which it has arrived, and is over.
    arrives: Vec<Vec<usize>>,
    ends: Vec<Vec<usize>>,
}

impl Plain<'_> {
    fn machine(&self, server: u32) -> Machine {
        if server < self.machines.hosted {
            Machine::Worker(server)
        } else {
            Machine::Server(server)
        }
    }

    fn row(&mut self, transfer: usize, line: Option<Line>, time: u64, after: Vec<usize>) -> usize {
        let turn = self.turn;
        let (behind, state, sharer) = (None, State::Held, (0, false));
        self.rows.push(Row { transfer, line, turn, sharer, time, after, behind, state });
        self.rows.len() - 1
    }

    /// The links from one machine to another; after which the bytes have arrived.
    fn carry(
        &mut self,
        index: usize,
        (from, to): (Machine, Machine),
        (connection, pull): (u32, bool),
        bytes: (u64, (u64, u64)),
        overhead: [u64; 2],
        after: Vec<usize>,
    ) -> Vec<usize> {
        let machines = self.machines;
        let bandwidth = |machine| match machine {
            Machine::Worker(_) => machines.bandwidth,
            Machine::Server(_) => machines.own,
        };
        let sending = overhead[0] + time(bytes.0, bytes.1, bandwidth(from));
        let receiving = overhead[1] + time(bytes.0, bytes.1, bandwidth(to));
        let sends = self.row(index, Some(Line::Up(from)), sending, after);
        let receives = self.row(index, Some(Line::Down(to)), receiving, Vec::new());
        self.rows[receives].behind = Some((sends, overhead[0]));
        if !machines.in_order {
            self.rows[sends].sharer = (0, pull);
            self.rows[receives].sharer = (connection, pull);
        }
        vec![sends, receives]
    }

    fn push(&mut self, index: usize, transfer: &Transfer, round: u32) {
        let machines = self.machines;
        let bytes = transfer.bytes.count();
        let worker = Machine::Worker(transfer.worker);
        let (mut after, mut overhead) = (Vec::new(), transfer.overhead.as_ps());
        self.turn = 0;
        for local in &machines.before {
            let Local::Bytes { line, times, bandwidth } = *local else { panic!("no stages here") };
            let time = time(bytes, (u64::from(times), 1), bandwidth) + overhead;
            overhead = 0;
            after = vec![self.row(index, Some(Line::Within(transfer.worker, line)), time, after)];
        }
        let (mut arrives, mut ends) = (Vec::new(), Vec::new());
        for (server, part) in parts(machines, transfer) {
            let host = self.machine(server);
            self.turn =
                (transfer.worker + machines.workers - server % machines.workers) % machines.workers;
            let mut there = after.clone();
            if host != worker {
                let ways = (worker, host);
                let pusher = (transfer.worker, false);
                there = self.carry(index, ways, pusher, (bytes, part), [overhead, 0], there);
                overhead = 0;
            }
            arrives.extend(there.iter().copied());
            if let Some(sum) = machines.sum {
                let time = time(bytes, part, sum);
                there = vec![self.row(index, Some(Line::Thread(server)), time, there)];
            }
            // A row of no line stands for what has been taken in, so that others can wait for it.
            let taken = self.row(index, None, 0, there);
            let key = (transfer.partition, round, server);
            let all = self.pushed.entry(key).or_default();
            all.push(taken);
            let word = match machines.in_order && host != worker {
                true => Some(Line::Up(host)),
                false => None,
            };
            ends.push(self.row(index, word, 0, vec![taken]));
        }
        self.arrives[index] = arrives;
        self.ends[index] = ends;
    }

    fn pull(&mut self, index: usize, transfer: &Transfer) {
        let machines = self.machines;
        let bytes = transfer.bytes.count();
        let worker = Machine::Worker(transfer.worker);
        let (mut arrived, mut overhead) = (Vec::new(), transfer.overhead.as_ps());
        for (server, part) in parts(machines, transfer) {
            let host = self.machine(server);
            self.turn =
                (transfer.worker + machines.workers - server % machines.workers) % machines.workers;
            let mut there = Vec::new();
            if machines.in_order && host != worker {
                there = vec![self.row(index, Some(Line::Up(worker)), 0, there)];
            }
            if let Some(copy) = machines.copy {
                let time = time(bytes, part, copy);
                there = vec![self.row(index, Some(Line::Thread(server)), time, there)];
            }
            if host != worker {
                let ways = (host, worker);
                let puller = (server, true);
                there = self.carry(index, ways, puller, (bytes, part), [0, overhead], there);
                overhead = 0;
            }
            arrived.extend(there);
        }
        self.turn = 0;
        for local in &machines.after {
            let Local::Bytes { line, times, bandwidth } = *local else { panic!("no stages here") };
            let time = time(bytes, (u64::from(times), 1), bandwidth);
            arrived =
                vec![self.row(index, Some(Line::Within(transfer.worker, line)), time, arrived)];
        }
        self.ends[index] = arrived;
    }
}

/// When each transfer has arrived (of a push) and is over; `at` says when each is submitted, ascending.
fn plain(machines: &Machines, transfers: &[(u64, Transfer)]) -> Vec<(Option<u64>, Option<u64>)> {
    let count = transfers.len();
    let mut plain = Plain {
        machines,
        rows: Vec::new(),
        turn: 0,
        pushed: BTreeMap::new(),
        arrives: vec![Vec::new(); count],
        ends: vec![Vec::new(); count],
    };
    // Of each transfer, how many its worker submitted before.
    let before = |index: usize| {
        let worker = transfers[index].1.worker;
        transfers[..index].iter().filter(|(_, other)| other.worker == worker).count()
    };
    let own: Vec<usize> = (0..count).map(before).collect();
    let mut rounds: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for (index, (_, transfer)) in transfers.iter().enumerate() {
        if transfer.leg == Leg::Push {
            let round = rounds.entry((transfer.partition, transfer.worker)).or_default();
            plain.push(index, transfer, *round);
            *round += 1;
        } else {
            plain.pull(index, transfer);
        }
    }
    if machines.synchronous {
        // Every answer waits for all workers; where some never push, for ever.
        for taken in plain.pushed.values() {
            let complete = taken.len() == machines.workers as usize;
            for row in taken {
                let answer = row + 1;
                plain.rows[answer].after = taken.clone();
                if !complete {
                    plain.rows[answer].after.push(answer);
                }
            }
        }
    }
    let Plain { mut rows, arrives, ends, .. } = plain;
    let mut times = vec![(None, None); count];
    let latency = machines.latency.as_ps();
    let mut now = 0;
    // Of each line, who was served last; who comes behind goes first, and a link down begins with its own number.
    let mut last: BTreeMap<Line, (u32, bool)> = BTreeMap::new();
    let first = |line: Line| match line {
        Line::Down(Machine::Worker(own)) => own,
        Line::Down(Machine::Server(server)) => server % machines.workers,
        _ => 0,
    };
    loop {
        // What waits for something of this very time, in turn.
        loop {
            let mut again = false;
            for index in 0..rows.len() {
                let row = &rows[index];
                let next = match row.state {
                    State::Served(_, end) if end <= now => State::Over,
                    State::Held if transfers[row.transfer].0 <= now => {
                        let over = row.after.iter().all(|other| rows[*other].state == State::Over);
                        let behind = row.behind.is_none_or(|(other, by)| match rows[other].state {
                            State::Served(start, _) => start + by <= now,
                            State::Over => true,
                            _ => false,
                        });
                        match (over && behind, row.line) {
                            (false, _) => State::Held,
                            (true, None) => State::Over,
                            (true, Some(_)) => State::Waiting(now),
                        }
                    }
                    state => state,
                };
                again |= next != row.state;
                rows[index].state = next;
            }
            if again {
                continue;
            }
            // One line after the other: those further up may give work to those further down.
            let busy = |rows: &[Row], line: Line| {
                rows.iter().any(|row| {
                    row.line == Some(line)
                        && matches!(row.state, State::Served(_, end) if end > now)
                })
            };
            let mut lines: Vec<Line> = rows.iter().filter_map(|row| row.line).collect();
            lines.sort_unstable();
            lines.dedup();
            let mut began = false;
            for line in lines {
                if busy(&rows, line) {
                    continue;
                }
                for index in 0..rows.len() {
                    let (Some((other, by)), State::Held) = (rows[index].behind, rows[index].state)
                    else {
                        continue;
                    };
                    if matches!(rows[other].state, State::Served(start, _) if start + by <= now) {
                        rows[index].state = State::Waiting(now);
                    }
                }
                let best = (0..rows.len())
                    .filter_map(|index| match (rows[index].line == Some(line), rows[index].state) {
                        (true, State::Waiting(since)) => Some((index, since)),
                        _ => None,
                    })
                    .min_by_key(|(index, since)| {
                        let transfer = rows[*index].transfer;
                        let (priority, since) = match machines.in_order {
                            true => (0, *since),
                            false => (transfers[transfer].1.priority, 0),
                        };
                        let sharer = rows[*index].sharer;
                        let passed = match last.get(&line).copied() {
                            Some(last) => sharer <= last,
                            None => sharer.0 < first(line),
                        };
                        let (place, turn) = ((passed, sharer), rows[*index].turn);
                        (place, Reverse(priority), since, own[transfer], turn, *index)
                    });
                if let Some((index, _)) = best {
                    last.insert(line, rows[index].sharer);
                    rows[index].state = State::Served(now, now + rows[index].time);
                    began = true;
                }
            }
            let zero = |row: &Row| matches!(row.state, State::Served(_, end) if end <= now);
            if !(began && rows.iter().any(zero)) {
                break;
            }
        }
        let over = |list: &[usize]| list.iter().all(|row| rows[*row].state == State::Over);
        for (index, (arrived, end)) in times.iter_mut().enumerate() {
            let (at, transfer) = &transfers[index];
            if *at <= now && transfer.leg == Leg::Push && over(&arrives[index]) {
                // Where nothing travels, once what is within the machine is over.
                let within = rows.iter().filter(|row| row.transfer == index);
                let mut within = within.filter(|row| matches!(row.line, Some(Line::Within(..))));
                if within.all(|row| row.state == State::Over) {
                    arrived.get_or_insert(now + latency);
                }
            }
            if *at <= now && over(&ends[index]) {
                end.get_or_insert(now + latency);
            }
        }
        let next = rows
            .iter()
            .flat_map(|row| match (row.state, row.behind) {
                (State::Served(_, end), _) => Some(end),
                (State::Held, Some((other, by))) => match rows[other].state {
                    State::Served(start, _) => Some(start + by),
                    _ => None,
                },
                _ => None,
            })
            .chain(transfers.iter().map(|(at, _)| *at))
            .filter(|time| *time > now)
            .min();
        match next {
            Some(next) => now = next,
            None => return times,
        }
    }
}

fn real(machines: &Machines, transfers: &[(u64, Transfer)]) -> Vec<(Option<u64>, Option<u64>)> {
    let mut servers = Servers::new(machines.clone());
    let mut times = vec![(None, None); transfers.len()];
    let mut next = 0;
    loop {
        let submits = transfers.get(next).map(|(at, _)| Time::from_ps(*at));
        let Some(now) = [submits, servers.next_time()].into_iter().flatten().min() else { break };
        let index = |tag: u64| usize::try_from(tag).expect("an index");
        while let Some(happened) = servers.next_event(now) {
            match happened {
                Happened::Arrived { tag } => times[index(tag)].0 = Some(now.as_ps()),
                Happened::Over { tag } => times[index(tag)].1 = Some(now.as_ps()),
            }
        }
        while let Some((at, transfer)) = transfers.get(next).filter(|(at, _)| *at == now.as_ps()) {
            assert_eq!(*at, now.as_ps());
            servers.submit(now, *transfer);
            next += 1;
        }
        servers.choose(now);
    }
    times
}

fn ends(machines: &Machines, transfers: &[(u64, Transfer)]) -> Vec<u64> {
    let ends = real(machines, transfers).into_iter().map(|(_, end)| end.expect("it ends") / 1000);
    ends.collect()
}

fn bandwidth(gigabytes: u64) -> Bandwidth {
    Bandwidth::from_bytes_per_second(gigabytes * 1_000_000_000).expect("positive")
}

/// Machines that a failing case can print.
#[derive(Clone)]
struct Shown(Machines);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machines { workers, servers, hosted, placement, big_array, synchronous, .. } = self.0;
        let Machines { bandwidth, own, latency, sum, copy, in_order, .. } = self.0;
        write!(f, "{:?} ", (workers, servers, hosted, placement, big_array, synchronous))?;
        write!(f, "{:?} ", (bandwidth, own, latency, sum, copy, in_order))?;
        write!(f, "{:?} {:?}", self.0.before, self.0.after)
    }
}

fn machines() -> impl Strategy<Value = Shown> {
    let rate = || (1u64..5).prop_map(bandwidth);
    let maybe = || prop::option::of((1u64..5).prop_map(bandwidth));
    (
        (1u32..6, 1u32..6, 0u32..6),
        (rate(), rate()),
        (maybe(), maybe(), maybe(), 1u32..3),
        any::<[bool; 3]>(),
        0u64..30,
        prop::option::of(1u64..60),
    )
        .prop_map(|(counts, links, more, [synchronous, in_order, hash], latency, big)| {
            let (workers, servers, hosted) = counts;
            let (host, sum, copy, times) = more;
            let bus = |line| host.map(|bandwidth| Local::Bytes { line, times, bandwidth });
            Shown(Machines {
                workers,
                servers,
                hosted: hosted.min(workers).min(servers),
                placement: if hash { PartitionPlacement::Hash } else { PartitionPlacement::InTurn },
                big_array: big.map(Bytes::new),
                synchronous,
                backup: 0,
                bandwidth: links.0,
                own: links.1,
                latency: Time::from_ns(latency),
                before: bus(0).into_iter().collect(),
                after: bus(1).into_iter().collect(),
                model: None,
                sum,
                copy,
                in_order,
            })
        })
}

/// Pushes of all workers, of one or of two rounds, and pulls of any.
fn transfers() -> impl Strategy<Value = (Shown, Vec<(u64, Transfer)>)> {
    let one = (0u64..60, any::<bool>(), 0u32..8, 1u64..90, -3i64..4, 0u64..20, 0u32..6);
    (machines(), prop::collection::vec(one, 1..10)).prop_map(|(machines, list)| {
        let (mut now, mut transfers) = (0, Vec::new());
        let mut rounds: BTreeMap<u32, u32> = BTreeMap::new();
        let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
        for (later, push, partition, bytes, priority, overhead, whose) in list {
            let bytes = *sizes.entry(partition).or_insert(bytes);
            let workers = if push { 0..machines.0.workers } else { 0..1 };
            let round = rounds.entry(partition).or_default();
            for worker in workers {
                now += later * 1000;
                let transfer = Transfer {
                    leg: if push { Leg::Push } else { Leg::Pull },
                    worker: (worker + whose) % machines.0.workers,
                    partition,
                    round: *round,
                    bytes: Bytes::new(bytes),
                    priority,
                    overhead: Time::from_ns(overhead),
                    tag: transfers.len() as u64,
                };
                transfers.push((now, transfer));
            }
            *round += u32::from(push);
        }
        (machines, transfers)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_plain_simulation_gives_the_same_times((machines, transfers) in transfers()) {
        prop_assert_eq!(real(&machines.0, &transfers), plain(&machines.0, &transfers));
    }

    #[test]
    fn nothing_is_faster_than_its_lines((Shown(machines), transfers) in transfers()) {
        for ((at, transfer), times) in transfers.iter().zip(real(&machines, &transfers)) {
            let end = times.1.expect("all push, so all is answered");
            let bytes = transfer.bytes.count();
            let push = transfer.leg == Leg::Push;
            let locals = if push { &machines.before } else { &machines.after };
            let mut least = machines.latency.as_ps();
            for local in locals {
                let Local::Bytes { times, bandwidth, .. } = *local else { unreachable!() };
                least += time(bytes, (u64::from(times), 1), bandwidth);
            }
            let parts = parts(&machines, transfer);
            let away = parts.iter().filter(|(server, _)| *server >= machines.hosted);
            let away: u64 = away.map(|(_, part)| time(bytes, *part, machines.bandwidth)).sum();
            // What is rounded up for each part.
            least += away.saturating_sub(parts.len() as u64);
            prop_assert!(end >= at + least, "{} < {} + {}", end, at, least);
            if push {
                prop_assert!(times.0.is_some_and(|arrived| arrived <= end));
            }
        }
    }
}

fn transfer(tag: u64, leg: Leg, worker: u32, partition: u32, bytes: u64) -> (u64, Transfer) {
    let bytes = Bytes::new(bytes);
    let (round, priority, overhead) = (0, 0, Time::ZERO);
    (0, Transfer { leg, worker, partition, round, bytes, priority, overhead, tag })
}

/// The pushes of all workers, worker by worker: of each, these partitions in order.
fn pushes(workers: u32, partitions: &[(u32, u64)]) -> Vec<(u64, Transfer)> {
    let all = (0..workers).flat_map(|worker| partitions.iter().map(move |one| (worker, *one)));
    (0u64..)
        .zip(all)
        .map(|(tag, (worker, (partition, bytes)))| {
            transfer(tag, Leg::Push, worker, partition, bytes)
        })
        .collect()
}

/// Workers and servers of their own, 1 GB/s each way: a byte is a nanosecond.
fn separate(workers: u32, servers: u32) -> Machines {
    Machines {
        workers,
        servers,
        hosted: 0,
        placement: PartitionPlacement::InTurn,
        big_array: None,
        synchronous: true,
        backup: 0,
        bandwidth: bandwidth(1),
        own: bandwidth(1),
        latency: Time::ZERO,
        before: Vec::new(),
        after: Vec::new(),
        model: None,
        sum: None,
        copy: None,
        in_order: false,
    }
}

fn colocated(workers: u32) -> Machines {
    Machines { hosted: workers, ..separate(workers, workers) }
}

#[test]
fn two_workers_push_two_partitions_to_two_servers() {
    // Both send partition 0 to server 0, which has worker 0's from 0 to 100 and worker 1's to 200; and partition 1
    // from 100 on to server 1, which begins with worker 1: its own to 200, worker 0's to 300.
    let list = pushes(2, &[(0, 100), (1, 100)]);
    let times = real(&separate(2, 2), &list);
    let arrived: Vec<u64> = times.iter().map(|(arrived, _)| arrived.unwrap_or(0) / 1000).collect();
    assert_eq!(arrived, [100, 300, 200, 200]);
    // Each is over once the other's is there.
    assert_eq!(ends(&separate(2, 2), &list), [200, 300, 200, 300]);
    // Without waiting for others: as they arrive.
    let asynchronous = Machines { synchronous: false, ..separate(2, 2) };
    assert_eq!(ends(&asynchronous, &list), [100, 300, 200, 200]);
}

#[test]
fn two_workers_split_what_is_big_over_two_servers() {
    // Worker 0 begins with server 0, worker 1 with server 1, then they change: nobody waits.
    let machines = Machines { big_array: Some(Bytes::new(100)), ..separate(2, 2) };
    assert_eq!(ends(&machines, &pushes(2, &[(0, 100)])), [100, 100]);
    // A smaller one lies on one server, which has the one and then the other.
    assert_eq!(ends(&machines, &pushes(2, &[(0, 98)])), [196, 196]);
}

#[test]
fn two_machines_that_are_workers_and_servers() {
    // Partition 0 is worker 0's own; worker 1 sends it to 100. Partition 1 the other way round.
    assert_eq!(ends(&colocated(2), &pushes(2, &[(0, 100), (1, 100)])), [100, 100, 100, 100]);
    // A pull of worker 0 from server 1 shares machine 1's link up with a push of worker 1 there.
    let list = [transfer(0, Leg::Push, 1, 0, 100), transfer(1, Leg::Pull, 0, 1, 50)];
    let asynchronous = Machines { synchronous: false, ..colocated(2) };
    assert_eq!(ends(&asynchronous, &list), [100, 150]);
}

#[test]
fn two_workers_pull_from_two_servers() {
    // Server 0 sends partition 0 to worker 0 until 100, to worker 1 until 200; server 1 partition 1 the other way
    // round.
    let list = [
        transfer(0, Leg::Pull, 0, 0, 100),
        transfer(1, Leg::Pull, 0, 1, 100),
        transfer(2, Leg::Pull, 1, 0, 100),
        transfer(3, Leg::Pull, 1, 1, 100),
    ];
    assert_eq!(ends(&separate(2, 2), &list), [100, 200, 200, 100]);
}

#[test]
fn a_server_sums_each_message_as_it_arrives() {
    // Half as long as a message takes: worker 0's is summed from 100 to 150, worker 1's from 200 to 250.
    let machines = Machines { sum: Some(bandwidth(2)), ..separate(2, 2) };
    assert_eq!(ends(&machines, &pushes(2, &[(0, 100)])), [250, 250]);
    // Twice as long: from 100 to 300, and to 500.
    let slow = Bandwidth::from_bytes_per_second(500_000_000);
    let machines = Machines { sum: slow, ..separate(2, 2) };
    assert_eq!(ends(&machines, &pushes(2, &[(0, 100)])), [500, 500]);
    // The copy for a pull waits for the thread, behind what was submitted before: from 500 to 600.
    let machines = Machines { copy: Some(bandwidth(1)), ..machines };
    let mut list = pushes(2, &[(0, 100)]);
    list.push((150_000, transfer(2, Leg::Pull, 0, 2, 100).1));
    assert_eq!(ends(&machines, &list), [500, 500, 700]);
}

#[test]
fn a_more_urgent_message_goes_first_on_every_line() {
    // Of worker 0's partitions 2 is the most urgent: it follows 0, which was begun, on both lines.
    let mut list = pushes(1, &[(0, 100), (2, 100)]);
    list.push((10_000, transfer(2, Leg::Push, 0, 4, 100).1));
    list[2].1.priority = 1;
    let alone = separate(1, 2);
    assert_eq!(ends(&alone, &list), [100, 300, 200]);
    assert_eq!(ends(&Machines { in_order: true, ..alone }, &list), [100, 200, 300]);
}

#[test]
fn a_server_takes_its_workers_in_turn_however_urgent_the_next_message_of_one_is() {
    // Worker 0's first is there at 100, when its second, the most urgent, begins. Worker 1's has waited since 0.
    let mut list = pushes(2, &[(0, 100)]);
    list.push((50_000, transfer(2, Leg::Push, 0, 1, 100).1));
    list[2].1.priority = 1;
    let one = Machines { synchronous: false, ..separate(2, 1) };
    assert_eq!(ends(&one, &list), [100, 200, 300]);
    // What waits of one worker is ranked: partition 2, which is urgent, goes before 1, which came first.
    let mut list = pushes(2, &[(0, 100), (1, 100)]);
    list.push((150_000, transfer(4, Leg::Push, 0, 2, 100).1));
    list[4].1.priority = 1;
    assert_eq!(ends(&one, &list), [100, 500, 200, 400, 300]);
}

#[test]
fn a_worker_takes_servers_in_turn_and_ranks_what_one_sends() {
    // Servers 0 and 1 keep 0 and 2, and 1. All are sent from 0 on; those of server 0 are the most urgent.
    let mut list: Vec<(u64, Transfer)> =
        (0..3).map(|number| transfer(u64::from(number), Leg::Pull, 0, number, 100)).collect();
    (list[0].1.priority, list[2].1.priority) = (1, 2);
    assert_eq!(ends(&separate(1, 2), &list), [300, 200, 100]);
}

#[test]
fn a_worker_and_a_server_on_one_machine_send_in_turn() {
    // Worker 0 pushes 1 and 3 to machine 1, while server 0 sends 0 and 2 there, which are more urgent.
    let list: Vec<(u64, Transfer)> =
        [(Leg::Push, 0, 1), (Leg::Push, 0, 3), (Leg::Pull, 1, 0), (Leg::Pull, 1, 2)]
            .into_iter()
            .zip(0u64..)
            .map(|((leg, worker, partition), tag)| {
                let (at, mut one) = transfer(tag, leg, worker, partition, 100);
                one.priority = i64::from(leg == Leg::Pull);
                (at, one)
            })
            .collect();
    let two = Machines { synchronous: false, ..colocated(2) };
    assert_eq!(ends(&two, &list), [100, 300, 200, 400]);
}

#[test]
fn in_order_a_request_waits_behind_pushes_and_a_word_behind_pulls() {
    let list = [transfer(0, Leg::Push, 0, 0, 80), transfer(1, Leg::Pull, 0, 1, 40)];
    let machines = separate(1, 2);
    assert_eq!(ends(&machines, &list), [80, 40]);
    let in_order = Machines { in_order: true, ..machines };
    assert_eq!(ends(&in_order, &list), [80, 120]);
    // A pull on the server's link up until 200 holds back the word of a push that is there at 80.
    let list = [transfer(0, Leg::Pull, 0, 0, 200), transfer(1, Leg::Push, 0, 2, 80)];
    assert_eq!(ends(&in_order, &list), [200, 200]);
}

#[test]
fn with_one_partition_under_way_each_workers_rotate_over_servers() {
    // Four workers, four servers: each pushes its next partition when the one before has arrived. The last worker
    // waits for three others at the first server, and for nobody from then on.
    let mut servers = Servers::new(separate(4, 4));
    let (mut next, mut last) = ([1u32; 4], 0);
    let mut now = Time::ZERO;
    let submit = |servers: &mut Servers, now, worker: u32, partition| {
        let tag = u64::from(worker);
        servers.submit(now, transfer(tag, Leg::Push, worker, partition, 100).1);
    };
    (0..4).for_each(|worker| submit(&mut servers, now, worker, 0));
    loop {
        servers.choose(now);
        let Some(time) = servers.next_time() else { break };
        now = time;
        while let Some(happened) = servers.next_event(now) {
            let Happened::Arrived { tag } = happened else { continue };
            last = now.as_ps() / 1000;
            let worker = usize::try_from(tag).expect("an index");
            if next[worker] < 20 {
                let number = u32::try_from(worker).expect("few workers");
                submit(&mut servers, now, number, next[worker]);
                next[worker] += 1;
            }
        }
    }
    // Twenty partitions of 100, and three of others.
    assert_eq!(last, 2_300);
}

#[test]
fn a_host_is_passed_before_a_push_and_after_a_pull() {
    let bus = |line| Local::Bytes { line, times: 2, bandwidth: bandwidth(1) };
    let machines = Machines { before: vec![bus(0)], after: vec![bus(1)], ..separate(1, 1) };
    let list = [transfer(0, Leg::Push, 0, 0, 80), transfer(1, Leg::Pull, 0, 1, 80)];
    assert_eq!(ends(&machines, &list), [240, 240]);
    // What is cut in halves overlaps them.
    let halves = pushes(1, &[(0, 40), (1, 40)]);
    assert_eq!(ends(&machines, &halves), [120, 200]);
}
