//! The laws, over pinned seeds: `LAW_SEEDS` says how many, `LAW_FIRST_SEED` where they begin.

use super::{Driver, Job, Loopback, Outcome, Transport, contents};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Says of every law how fast engines went, where more than the pinned seeds are run.
struct Seeds {
    range: std::ops::Range<u64>,
    law: &'static str,
    events: u64,
    begun: std::time::Instant,
}

impl Seeds {
    fn of(law: &'static str) -> Self {
        let first = number("LAW_FIRST_SEED", 0);
        let range = first..first.saturating_add(number("LAW_SEEDS", 200));
        Self { range, law, events: 0, begun: std::time::Instant::now() }
    }

    fn what(&self, seed: u64) -> String {
        let law = self.law;
        format!(
            "seed {seed} (LAW_FIRST_SEED={seed} LAW_SEEDS=1 cargo test -p allrail-engine {law})"
        )
    }

    /// Few ranks mostly, and many sometimes.
    fn most_ranks(seed: u64) -> u32 {
        if seed.is_multiple_of(20) { 256 } else { 36 }
    }

    fn run(&mut self, seed: u64, job: &Job) -> Outcome {
        let outcome = Loopback::new(seed, job.ranks()).run(job);
        self.events += outcome.events;
        outcome
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        let (law, events, seconds) = (self.law, self.events, self.begun.elapsed().as_secs_f64());
        let a_second = events as f64 / seconds;
        eprintln!(
            "{law}: {events} events in {seconds:.1} s, {a_second:.0} a second, bytes and all"
        );
    }
}

fn check(job: &Job, outcome: &Outcome, what: &str) {
    for (rank, of_rank) in outcome.ranks.iter().enumerate() {
        if std::env::var("DBG").is_ok() && !of_rank.errors.is_empty() {
            eprintln!(
                "{:?} {:?} {:?} {:?} {:?}",
                job.order,
                job.sizes,
                job.tensors
                    .iter()
                    .map(|t| (
                        t.operation,
                        t.elements,
                        t.dimensions.clone(),
                        t.plan.policy.clone(),
                        t.plan.algorithms.clone(),
                        t.priority
                    ))
                    .collect::<Vec<_>>(),
                job.submissions,
                of_rank.launched
            );
        }
        assert_eq!(of_rank.errors, [""; 0], "{what}: rank {rank}");
        assert_eq!(of_rank.stopped, None, "{what}: rank {rank}");
    }
    assert_eq!(outcome.mismatches, [""; 0], "{what}");
    contents::check(job, &outcome.ranks, what);
}

/// Runs a job twice, with other deliveries; results must not differ by a bit.
fn check_twice(seeds: &mut Seeds, seed: u64, job: &Job) -> [Outcome; 2] {
    let what = seeds.what(seed);
    let both = [seed, seed ^ 1 << 40].map(|delivery| {
        let outcome = seeds.run(delivery, job);
        check(job, &outcome, &what);
        outcome
    });
    for (rank, (one, other)) in both[0].ranks.iter().zip(&both[1].ranks).enumerate() {
        let same = one.results == other.results;
        // What is packed together, and so summed in which order, may depend on when ranks talk.
        let packs = job.engine.as_ref().is_some_and(|setup| setup.coordination.is_some())
            && job.transport == Transport::InOrder;
        assert!(same || packs, "{what}: another order, another sum on rank {rank}");
    }
    both
}

#[test]
fn whatever_comes_when_sums_are_exact_and_the_same_to_the_bit() {
    let mut seeds = Seeds::of("whatever_comes_when");
    for seed in seeds.range.clone() {
        let job = Job::tagged(seed, Seeds::most_ranks(seed));
        check_twice(&mut seeds, seed, &job);
    }
}

#[test]
fn with_a_planned_order_every_launch_meets_its_own() {
    let mut seeds = Seeds::of("with_a_planned_order");
    for seed in seeds.range.clone() {
        let job = Job::planned(seed, Seeds::most_ranks(seed));
        let [first, second] = check_twice(&mut seeds, seed, &job);
        assert!(first.ranks == second.ranks, "{}: another run", seeds.what(seed));
    }
}

#[test]
fn engines_of_a_tagged_transport_exchange_whatever_ranks_submit_in_any_order() {
    let mut seeds = Seeds::of("engines_of_a_tagged");
    for seed in seeds.range.clone() {
        let job = Job::engines(seed, Seeds::most_ranks(seed), Transport::Tagged);
        check_twice(&mut seeds, seed, &job);
    }
}

#[test]
fn engines_of_a_transport_in_order_launch_alike_on_all_ranks() {
    let mut seeds = Seeds::of("engines_of_a_transport_in_order");
    for seed in seeds.range.clone() {
        let job = Job::engines(seed, Seeds::most_ranks(seed), Transport::InOrder);
        for outcome in check_twice(&mut seeds, seed, &job) {
            for (rank, of_rank) in (0u32..).zip(&outcome.ranks) {
                let first = job.group(&job.tensors[0].dimensions, rank)[0] as usize;
                let same = of_rank.launched == outcome.ranks[first].launched;
                assert!(same, "{}: ranks {first} and {rank} differ", seeds.what(seed));
            }
        }
    }
}
