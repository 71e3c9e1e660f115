//! Laws of coordination, for every policy, under other orders on every rank, late messages, small
//! caches, tensors that change, ranks without data, and dead ranks: never a deadlock, never a rank that
//! launches something else than the others.

use std::collections::{BTreeMap, BTreeSet};

use allrail_collective::Operation;
use allrail_coordinate::{self as coordinate, CoordinationSpec, Event, Reason, Request, Settings};
use allrail_core::{Bytes, Time};
use allrail_simulate::coordination::{ControlPlane, Everywhere, Faults, Feed, Latency, Notice};
use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A job and what happens in it.
#[derive(Clone, Debug)]
struct Case {
    policy: usize,
    ranks: u32,
    tensors: u32,
    steps: u32,
    seed: u64,
    fan_out: u32,
    cache: u32,
    cycle_us: u64,
    delay_us: u64,
    /// Of a submission, over all ranks.
    spread_us: u64,
    groups: u32,
    /// One in so many tensors changes between steps; 0 for none.
    changes: u32,
}

fn cases() -> impl Strategy<Value = Case> {
    let numbers = (0..coordinate::ALL.len(), 1u32..40, 1u32..30, 1u32..4, any::<u64>());
    let settings = (1u32..9, 1u32..40, 50u64..1_500, 0u64..400, 0u64..3_000);
    (numbers, settings, 0u32..5, 0u32..4).prop_map(|(numbers, settings, groups, changes)| {
        let (policy, ranks, tensors, steps, seed) = numbers;
        let (fan_out, cache, cycle_us, delay_us, spread_us) = settings;
        Case {
            policy,
            ranks,
            tensors,
            steps,
            seed,
            fan_out,
            cache,
            cycle_us,
            delay_us,
            spread_us,
            groups: groups.min(tensors),
            changes,
        }
    })
}

impl Case {
    fn settings(&self) -> Settings {
        Settings {
            cycle: Time::from_us(self.cycle_us),
            cache: self.cache,
            fan_out: self.fan_out,
            stall: Time::from_us(100_000),
            patience: Time::from_us(200_000),
            ..Settings::default()
        }
    }

    fn grouped(&self) -> Vec<Vec<u32>> {
        let of = |group: u32| (0..self.tensors).filter(move |t| t % (self.groups + 1) == group + 1);
        let groups = (0..self.groups).map(|group| of(group).collect::<Vec<u32>>());
        groups.filter(|group| !group.is_empty()).collect()
    }

    fn network(&self, faults: Faults, skips: bool) -> ControlPlane {
        let policy = coordinate::ALL[self.policy];
        let job = CoordinationSpec::new(policy, &self.settings(), self.ranks, &self.grouped())
            .expect("it is there");
        let faults = Faults { delay: Time::from_us(self.delay_us), seed: self.seed, ..faults };
        let tensors = self.tensors as usize;
        let mut network =
            ControlPlane::new(policy, &job, tensors, Latency::default(), faults, skips);
        let mut draw = Pcg64Mcg::seed_from_u64(self.seed);
        let starts: Vec<Time> =
            (0..self.ranks).map(|_| Time::from_us(draw.random_range(0..500))).collect();
        network.start(|rank| starts[rank as usize]);
        network
    }

    /// A tensor's request by a rank, in a step.
    fn request(&self, rank: u32, tensor: u32, step: u32) -> Request {
        let operation = match tensor % 7 {
            5 => Operation::AllGather,
            6 => Operation::Broadcast,
            _ => Operation::AllReduce,
        };
        let changed = self.changes > 0 && (tensor + step).is_multiple_of(self.changes + 1);
        let mut bytes = 1_000 * u64::from(tensor + 1) + 8 * u64::from(changed) * u64::from(step);
        if operation == Operation::AllGather {
            bytes += u64::from(rank);
        }
        let root = if operation == Operation::Broadcast { tensor % self.ranks } else { 0 };
        Request { operation, root, ..Request::all_reduce(tensor, Bytes::new(bytes)) }
    }

    /// When every rank submits what in a step: another order on each.
    fn submissions(&self, from: Time, step: u32, draw: &mut Pcg64Mcg) -> Vec<(Time, u32, Request)> {
        let mut all = Vec::new();
        for rank in 0..self.ranks {
            let mut order: Vec<u32> = (0..self.tensors).collect();
            order.shuffle(draw);
            let mut at = from;
            for tensor in order {
                at +=
                    Time::from_us(draw.random_range(0..=self.spread_us / u64::from(self.tensors)));
                all.push((at, rank, self.request(rank, tensor, step)));
            }
        }
        all.sort_by_key(|(at, ..)| *at);
        all
    }
}

fn run_until(network: &mut ControlPlane, until: Time, launched: &mut Vec<Everywhere>) {
    while let Some(one) = network.advance(until, None) {
        launched.push(one);
    }
}

/// Runs a step and says what was launched.
fn step(
    network: &mut ControlPlane,
    submissions: &[(Time, u32, Request)],
    tensors: usize,
) -> Vec<Everywhere> {
    let mut launched = Vec::new();
    for (at, rank, request) in submissions {
        run_until(network, *at, &mut launched);
        network.tell(*at, *rank, Event::Submit(*request), None);
    }
    let count = |launched: &[Everywhere]| -> usize {
        let responses = launched.iter().flat_map(|one| &one.launch.responses);
        responses.map(|response| response.tensors.len()).sum()
    };
    let end = submissions.last().map_or(Time::ZERO, |last| last.0) + Time::from_us(2_000_000);
    while count(&launched) < tensors {
        let Some(one) = network.advance(end, None) else { break };
        launched.push(one);
    }
    launched
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// All that is submitted everywhere is launched everywhere, once, in one order, with its sizes, and
    /// a group at once.
    #[test]
    fn what_all_submit_all_launch(case in cases()) {
        let mut network = case.network(Faults::default(), true);
        let mut draw = Pcg64Mcg::seed_from_u64(case.seed ^ 1);
        let mut from = Time::from_us(100);
        for number in 0..case.steps {
            let submissions = case.submissions(from, number, &mut draw);
            let launched = step(&mut network, &submissions, case.tensors as usize);
            prop_assert_eq!(network.notices(), &[]);
            let mut seen = BTreeSet::new();
            for one in &launched {
                let responses = &one.launch.responses;
                let tensors: BTreeSet<u32> =
                    responses.iter().flat_map(|response| response.tensors.clone()).collect();
                for group in case.grouped() {
                    let here = group.iter().filter(|tensor| tensors.contains(tensor)).count();
                    prop_assert!(here == 0 || here == group.len(), "{here} of {group:?}");
                }
                for tensor in &tensors {
                    prop_assert!(seen.insert(*tensor), "tensor {tensor} twice");
                    let last = submissions.iter().filter(|(_, _, r)| r.tensor == *tensor).map(|s| s.0);
                    prop_assert!(Some(one.first) >= last.max(), "before the last submission");
                }
                for response in responses {
                    prop_assert_eq!(&response.trouble, &None);
                    let asked = |tensor: &u32| case.request(0, *tensor, number);
                    let bytes: u64 = response.tensors.iter().map(|t| asked(t).bytes.count()).sum();
                    prop_assert_eq!(response.bytes.count(), bytes);
                    prop_assert!(response.tensors.iter().all(|t| asked(t).operation == response.operation));
                    if response.operation == Operation::AllGather {
                        let sizes: Vec<Bytes> = (0..case.ranks)
                            .map(|rank| case.request(rank, response.tensors[0], number).bytes)
                            .collect();
                        prop_assert_eq!(&response.sizes, &sizes);
                    }
                }
                from = from.max(one.last);
            }
            prop_assert_eq!(seen.len(), case.tensors as usize, "in step {}", number);
        }
    }

    /// A rank that dies stops the job and is named; what ranks have launched by then is the same list, as
    /// far as they got.
    #[test]
    fn a_death_is_named_and_ends_the_job(case in cases(), dead: prop::sample::Index, at_us in 0u64..20_000) {
        prop_assume!(case.ranks > 1);
        let dead = dead.index(case.ranks as usize) as u32;
        let deaths = BTreeMap::from([(dead, Time::from_us(at_us))]);
        let mut network = case.network(Faults { deaths, ..Faults::default() }, true);
        let mut draw = Pcg64Mcg::seed_from_u64(case.seed ^ 2);
        let mut from = Time::from_us(100);
        // Longer than the rank lives: somebody always submits what it does not.
        for number in 0..40 {
            let submissions = case.submissions(from, number, &mut draw);
            let launched = step(&mut network, &submissions, case.tensors as usize);
            from = submissions.last().map_or(from, |last| last.0) + Time::from_us(2_000);
            if launched.is_empty() {
                from += Time::from_us(2_000_000);
            }
            if network.stopped() > 0 {
                break;
            }
        }
        let mut rest = Vec::new();
        run_until(&mut network, from + Time::from_us(4_000_000), &mut rest);
        prop_assert_eq!(network.stopped() as u32, case.ranks - 1, "{:?}", network.notices());
        let mut named = false;
        for (_, rank, notice) in network.notices() {
            match notice {
                Notice::Stop(reason) => match &**reason {
                    Reason::Silent { ranks, by } => {
                        prop_assert_eq!(ranks, &[dead], "by {} at rank {}", by, rank);
                        named = true;
                    }
                    other => prop_assert!(false, "{other:?}"),
                },
                Notice::Stall { missing, .. } => prop_assert_eq!(missing, &[dead]),
                // A rank that the dead one kept from launching.
                Notice::Refused { .. } => {}
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert!(named);
    }

    /// A tensor that some have not submitted is reported with exactly those ranks, and launched when
    /// they have.
    #[test]
    fn a_stall_names_the_tensor_and_the_ranks(case in cases(), lazy in any::<u64>(), which: prop::sample::Index) {
        let case = Case { groups: 0, ..case };
        let tensor = which.index(case.tensors as usize) as u32;
        let lazy: Vec<u32> = (0..case.ranks).filter(|rank| lazy >> (rank % 64) & 1 == 1).collect();
        prop_assume!(!lazy.is_empty() && lazy.len() < case.ranks as usize);
        let mut network = case.network(Faults::default(), true);
        let mut draw = Pcg64Mcg::seed_from_u64(case.seed ^ 3);
        let mut from = Time::from_us(100);
        for number in 0..case.steps {
            let mut submissions = case.submissions(from, number, &mut draw);
            let late: Vec<_> = submissions
                .extract_if(.., |(_, rank, r)| number + 1 == case.steps && r.tensor == tensor && lazy.contains(rank))
                .collect();
            let expected = case.tensors as usize - usize::from(!late.is_empty());
            let mut launched = step(&mut network, &submissions, expected);
            from = launched.iter().map(|one| one.last).chain([from]).max().expect("it is there");
            if late.is_empty() {
                continue;
            }
            let end = from + Time::from_us(600_000);
            run_until(&mut network, end, &mut launched);
            let named: BTreeSet<u32> = network.notices().iter().flat_map(|(_, _, notice)| match notice {
                Notice::Stall { tensor: named, missing } if *named == tensor => missing.clone(),
                other => panic!("{other:?}"),
            }).collect();
            prop_assert_eq!(named.into_iter().collect::<Vec<_>>(), lazy.clone());
            for (_, rank, request) in late {
                network.tell(end, rank, Event::Submit(request), None);
            }
            let mut rest = Vec::new();
            run_until(&mut network, end + Time::from_us(1_000_000), &mut rest);
            prop_assert_eq!(rest.len(), 1, "{:?}", network.notices());
            prop_assert_eq!(&rest[0].launch.responses[0].tensors, &[tensor]);
        }
    }

    /// Ranks that have joined hold nobody up; when all have, all are back and go on.
    #[test]
    fn ranks_without_data_hold_nobody_up(case in cases(), early in any::<u64>()) {
        let mut network = case.network(Faults::default(), true);
        let mut draw = Pcg64Mcg::seed_from_u64(case.seed ^ 4);
        let mut from = Time::from_us(100);
        for round in 0..2 {
            let submissions = case.submissions(from, 0, &mut draw);
            let launched = step(&mut network, &submissions, case.tensors as usize);
            prop_assert_eq!(network.notices(), &[], "{}", round);
            from = launched.iter().map(|one| one.last).max().expect("it is there");
            let joined: Vec<u32> = (0..case.ranks).filter(|rank| early >> (rank % 64) & 1 == 1).collect();
            for rank in &joined {
                network.tell(from, *rank, Event::Join, None);
            }
            if joined.len() < case.ranks as usize {
                // A broadcast whose root has joined is reported instead of launched.
                let mut submissions = case.submissions(from, 0, &mut draw);
                submissions.retain(|(_, rank, _)| !joined.contains(rank));
                let launched = step(&mut network, &submissions, case.tensors as usize);
                let count: usize = launched.iter().flat_map(|one| &one.launch.responses).map(|r| r.tensors.len()).sum();
                prop_assert_eq!(count, case.tensors as usize, "round {} {:?}", round, network.notices());
                from = launched.iter().map(|one| one.last).max().expect("it is there");
            }
            for rank in (0..case.ranks).filter(|rank| !joined.contains(rank)) {
                network.tell(from, rank, Event::Join, None);
            }
            let last = network.advance(from + Time::from_us(2_000_000), None);
            prop_assert!(last.as_ref().is_some_and(|one| one.launch.all_joined), "{last:?}");
            from = last.expect("it is there").last;
        }
        prop_assert_eq!(network.notices(), &[]);
    }

    /// Who wants to stop stops all, at one place of the list.
    #[test]
    fn one_rank_can_stop_all(case in cases(), who: prop::sample::Index) {
        let mut network = case.network(Faults::default(), true);
        let mut draw = Pcg64Mcg::seed_from_u64(case.seed ^ 5);
        let submissions = case.submissions(Time::from_us(100), 0, &mut draw);
        let half = &submissions[..submissions.len() / 2];
        let mut launched = Vec::new();
        for (at, rank, request) in half {
            run_until(&mut network, *at, &mut launched);
            network.tell(*at, *rank, Event::Submit(*request), None);
        }
        let now = half.last().map_or(Time::from_us(1_000), |last| last.0);
        network.tell(now, who.index(case.ranks as usize) as u32, Event::Shutdown, None);
        run_until(&mut network, now + Time::from_us(100_000), &mut launched);
        prop_assert_eq!(network.stopped() as u32, case.ranks);
        let places: BTreeSet<u64> = (0..case.ranks).map(|rank| network.launched_by(rank)).collect();
        prop_assert_eq!(places.len(), 1, "{:?}", places);
    }

    /// Two ranks that ask for different things are both told, and the job goes on.
    #[test]
    fn a_mismatch_is_told_to_all(case in cases()) {
        let case = Case { groups: 0, ..case };
        prop_assume!(case.ranks > 1);
        let mut network = case.network(Faults::default(), true);
        let mut draw = Pcg64Mcg::seed_from_u64(case.seed ^ 6);
        let mut submissions = case.submissions(Time::from_us(100), 0, &mut draw);
        for (_, rank, request) in &mut submissions {
            if *rank == case.ranks / 2 && request.tensor == 0 {
                request.bytes = Bytes::new(1);
            }
        }
        let launched = step(&mut network, &submissions, case.tensors as usize);
        let responses: Vec<_> = launched.iter().flat_map(|one| &one.launch.responses).collect();
        let troubled: Vec<_> = responses.iter().filter(|r| r.trouble.is_some()).collect();
        prop_assert_eq!(troubled.len(), 1);
        prop_assert_eq!(&troubled[0].tensors, &[0]);
        prop_assert!(troubled[0].trouble.as_ref().expect("it is there").to_string().contains("asks for all_reduce of 1 B"));
        let again = case.submissions(launched.last().expect("it is there").last, 0, &mut draw);
        let launched = step(&mut network, &again, case.tensors as usize);
        let healed = launched.iter().flat_map(|one| &one.launch.responses).all(|r| r.trouble.is_none());
        prop_assert!(healed && !launched.is_empty());
    }
}

/// The same launches at the same times, whether cycles that change nothing are left out or not.
#[test]
fn skipped_cycles_change_nothing() {
    for policy in 0..coordinate::ALL.len() {
        for seed in 0..4 {
            let case = Case {
                policy,
                ranks: 64,
                tensors: 30,
                steps: 3,
                seed,
                fan_out: 2 + 3 * seed as u32,
                cache: if seed == 3 { 20 } else { 100 },
                cycle_us: 1_000,
                delay_us: 0,
                spread_us: 20_000,
                groups: 3,
                changes: u32::from(seed == 2),
            };
            let both = [false, true].map(|skips| {
                let mut network = case.network(Faults::default(), skips);
                let mut draw = Pcg64Mcg::seed_from_u64(seed);
                let mut launched = Vec::new();
                let mut from = Time::from_us(100);
                for number in 0..case.steps {
                    let mut submissions = case.submissions(from, number, &mut draw);
                    // A straggler, so that most cycles wait; in the last step for so long that it is named.
                    let late = if number == 2 { 300_000 } else { 60_000 };
                    let last = submissions.last_mut().expect("it is there");
                    last.0 += Time::from_us(late);
                    launched.extend(step(&mut network, &submissions, case.tensors as usize));
                    from = launched.last().expect("it is there").last + Time::from_us(50_000);
                }
                (launched, network.notices().to_vec(), network.counts().skipped)
            });
            let [plain, skipped] = both;
            assert_eq!(plain.0, skipped.0, "{policy} {seed}");
            assert_eq!(plain.1, skipped.1, "{policy} {seed}");
            assert!(!plain.1.is_empty(), "the straggler is named");
            assert_eq!(plain.2, 0);
            let cycles = coordinate::ALL[policy].defaults().cycle > Time::ZERO;
            assert_eq!(skipped.2 > 100 * 64, cycles, "{policy}: {} were left out", skipped.2);
        }
    }
}

/// Submissions by the clock: another order on every rank, every 700 us.
struct Clock {
    made: Vec<u64>,
    tensors: u64,
}

impl Clock {
    fn due(&self, rank: u32) -> Option<Time> {
        let made = self.made[rank as usize];
        let late = u64::from(rank) * 7_919 % 900;
        (made < 5 * self.tensors).then(|| Time::from_us(1_500 + 700 * made + late))
    }
}

impl Feed for Clock {
    fn take(&mut self, rank: u32, now: Time, requests: &mut Vec<Request>) -> Option<Time> {
        while self.due(rank).is_some_and(|due| due <= now) {
            let made = self.made[rank as usize];
            self.made[rank as usize] += 1;
            let (step, place) = (made / self.tensors, made % self.tensors);
            let tensor = (place ^ (u64::from(rank) & 1)).min(self.tensors - 1);
            // One tensor changes in the fourth step.
            let changed = u64::from(step == 3 && tensor == 4);
            requests.push(Request::all_reduce(tensor as u32, Bytes::new(1_000 + changed * 8)));
        }
        self.due(rank)
    }
}

/// The same launches at the same times, and the same messages, whether cycles are run as waves or by
/// the calendar, and however often one looks in between.
#[test]
fn waves_change_nothing() {
    for (fan_out, pause) in [(1, 60_000), (2, 17), (8, 60_000), (8, 3), (8, 619), (63, 41)] {
        let policy = coordinate::named("cached").expect("it is there");
        let settings = Settings { fan_out, ..Settings::default() };
        let (ranks, tensors) = (64, 12);
        let job =
            CoordinationSpec::new(policy, &settings, ranks, &[vec![0, 1, 2]]).expect("it is there");
        let both = [false, true].map(|skips| {
            let mut clock = Clock { made: vec![0; ranks as usize], tensors };
            let latency = Latency::default();
            let faults = Faults::default();
            let mut network =
                ControlPlane::new(policy, &job, tensors as usize, latency, faults, skips);
            network.start(|rank| Time::from_ns(u64::from(rank) * 911 % 4_000));
            for rank in 0..ranks {
                network.feed(rank, clock.due(rank).expect("it has not begun"));
            }
            let (mut launched, mut until) = (Vec::new(), Time::ZERO);
            while until < Time::from_us(60_000) {
                until = (until + Time::from_us(pause)).min(Time::from_us(60_000));
                while let Some(one) = network.advance(until, Some(&mut clock)) {
                    launched.push(one);
                }
            }
            (launched, network.notices().to_vec(), network.counts())
        });
        let [plain, waves] = both;
        assert_eq!(plain.0, waves.0, "fan-out {fan_out}, {pause}");
        let count = |one: &Everywhere| one.launch.tensors.len();
        assert_eq!(plain.0.iter().map(count).sum::<usize>(), 5 * tensors as usize);
        assert_eq!(plain.1, waves.1);
        assert_eq!(plain.2.waves, 0);
        assert!(waves.2.waves > 30, "{} waves", waves.2.waves);
        // A cycle that is left out has a vote and a verdict for every rank but the first.
        let left_out = waves.2.skipped / u64::from(ranks) * 2 * u64::from(ranks - 1);
        assert_eq!(plain.2.messages, waves.2.messages + left_out, "fan-out {fan_out}, {pause}");
    }
}
