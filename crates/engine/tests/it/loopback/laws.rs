//! The laws, over pinned seeds: `LAW_SEEDS` says how many, `LAW_FIRST_SEED` where they begin.

use super::{Driver, Job, Loopback, Outcome, contents};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn seeds() -> std::ops::Range<u64> {
    let first = number("LAW_FIRST_SEED", 0);
    first..first.saturating_add(number("LAW_SEEDS", 200))
}

/// Few ranks mostly, and many sometimes.
fn most_ranks(seed: u64) -> u32 {
    if seed.is_multiple_of(20) { 256 } else { 36 }
}

fn again(law: &str, seed: u64) -> String {
    format!("seed {seed} (LAW_FIRST_SEED={seed} LAW_SEEDS=1 cargo test -p allrail-engine {law})")
}

fn check(job: &Job, outcome: &Outcome, what: &str) {
    for (rank, of_rank) in outcome.ranks.iter().enumerate() {
        assert_eq!(of_rank.errors, [""; 0], "{what}: rank {rank}");
        assert!(of_rank.done.iter().all(|done| *done), "{what}: rank {rank} has not done all");
    }
    assert_eq!(outcome.mismatches, [""; 0], "{what}");
    contents::check(job, &outcome.ranks, what);
}

#[test]
fn whatever_comes_when_the_sums_are_exact_and_the_same_to_the_bit() {
    for seed in seeds() {
        let what = again("whatever_comes_when", seed);
        let job = Job::tagged(seed, most_ranks(seed));
        let first = Loopback::new(seed, job.ranks()).run(&job);
        check(&job, &first, &what);
        let second = Loopback::new(seed ^ 1 << 40, job.ranks()).run(&job);
        check(&job, &second, &what);
        for (rank, (one, other)) in first.ranks.iter().zip(&second.ranks).enumerate() {
            assert!(one.memory == other.memory, "{what}: another order, another sum on {rank}");
        }
    }
}

#[test]
fn with_a_planned_order_every_launch_meets_its_own() {
    for seed in seeds() {
        let what = again("with_a_planned_order", seed);
        let job = Job::planned(seed, most_ranks(seed));
        let first = Loopback::new(seed, job.ranks()).run(&job);
        check(&job, &first, &what);
        let second = Loopback::new(seed ^ 1 << 40, job.ranks()).run(&job);
        check(&job, &second, &what);
        assert!(first.ranks == second.ranks, "{what}: another order, another run");
    }
}
