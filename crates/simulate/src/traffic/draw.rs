//! What traffic draws at random, from the scenario's seed.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A generator of its own for each use, so that one does not disturb the other.
fn generator(seed: u64, use_: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed ^ use_.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// `count` of the numbers `0 .. total`, sorted.
pub(super) fn sample(seed: u64, total: u32, count: u32) -> Vec<u32> {
    let mut rng = generator(seed, 1);
    let mut numbers: Vec<u32> = (0..total).collect();
    for i in 0..count.min(total) {
        let other = rng.random_range(i..total);
        numbers.swap(i as usize, other as usize);
    }
    numbers.truncate(count as usize);
    numbers.sort_unstable();
    numbers
}

/// A permutation of `0 .. count`, two or more, that leaves none in its place; each is equally likely.
pub(super) fn permutation(seed: u64, count: u32) -> Vec<u32> {
    let mut rng = generator(seed, 2);
    loop {
        let mut numbers: Vec<u32> = (0..count).collect();
        for i in (1..count).rev() {
            let other = rng.random_range(0..=i);
            numbers.swap(i as usize, other as usize);
        }
        // One in e has no fixed point.
        if (0..).zip(&numbers).all(|(place, number)| place != *number) {
            return numbers;
        }
    }
}

/// For each of `count` NPUs, `each` others.
pub(super) fn others(seed: u64, count: u32, each: u32) -> Vec<Vec<u32>> {
    let mut rng = generator(seed, 3);
    let mut other = |npu: u32| {
        let drawn = rng.random_range(0..count - 1);
        drawn + u32::from(drawn >= npu)
    };
    (0..count).map(|npu| (0..each).map(|_| other(npu)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_sorted_without_repeats_and_its_own_for_each_seed() {
        let drawn = sample(1, 100, 20);
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]) && drawn.len() == 20);
        assert_ne!(drawn, sample(2, 100, 20));
        assert_eq!(sample(1, 5, 5), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn no_one_sends_to_itself() {
        for count in [2, 3, 50] {
            let drawn = permutation(7, count);
            assert!((0..).zip(&drawn).all(|(from, to)| from != *to));
            let mut sorted = drawn;
            sorted.sort_unstable();
            assert!((0..count).eq(sorted));
            for (npu, to) in (0..).zip(others(7, count, 9)) {
                assert!(to.iter().all(|to| *to != npu && *to < count));
            }
        }
    }
}
