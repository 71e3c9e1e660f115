//! Into pieces of which size tensors are cut, where nobody says: `schedule.tensor.partition: auto`.
//!
//! Small pieces cost time each: what a rank does for one, however small. Large ones delay what is urgent,
//! which cannot begin before the piece that is under way has left. With `N` bytes a step, pieces of `p`, a cost
//! `c` of each and the rate `B` of an all-reduce on this fabric, a step loses about
//!
//! ```text
//! N/p · c  +  p/B        which is the least at        p = √(N · c · B)
//! ```
//!
//! taken to the nearest power of two from 64 KiB to 8 MiB, so that the usual credit, 16 MiB, holds two.
//!
//! `c` = 100 µs is about the CPU time of a piece with 4 ranks over TCP on 2 shared cores, at 1 Gb/s; there VGG-16
//! at a sixteenth took 472 ms a step in pieces of 256 KiB, 489 ms in pieces of 4 MiB. In the simulator no power of
//! two is more than 3 % quicker, for two models from 0.2 to 100 Gb/s (`tests/golden/test_partition.py`, where the
//! single wait, `p/B`, was chosen with the results in view). Left out: latency, which pieces under way share as
//! long as the credit holds enough of them.

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};

use crate::{RuntimeError, Settings, plans};

/// What a rank spends on a piece, however small.
const COST: Time = Time::from_us(100);
/// Exponents of two.
const SMALLEST: u32 = 16;
const LARGEST: u32 = 23;
/// What a step exchanges, where it is not known.
const USUAL: Bytes = Bytes::new(64 << 20);

/// For so many bytes a step.
pub(crate) fn best(settings: &Settings, total: Option<Bytes>) -> Result<Bytes, RuntimeError> {
    // Long enough that latency does not count.
    let long = Bytes::new(256 << 20);
    let time = plans::time(settings, Operation::AllReduce, long)?;
    let total = u128::from(total.unwrap_or(USUAL).count());
    let (cost, time) = (u128::from(COST.as_ps()), u128::from(time.as_ps().max(1)));
    let square = total * cost * u128::from(long.count()) / time;
    let power = nearest_power_of_two(square.isqrt()).clamp(SMALLEST, LARGEST);
    Ok(Bytes::new(1 << power))
}

/// The exponent of the power of two that is nearest as a ratio.
fn nearest_power_of_two(number: u128) -> u32 {
    let below = number.max(1).ilog2();
    // Half-way is √2 times it.
    let upper = (number >> below.saturating_sub(20)).pow(2) > 2 << (2 * below.min(20));
    below + u32::from(upper)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::local;

    #[test]
    fn the_nearest_is_by_ratio() {
        let table = [(0, 0), (1, 0), (2, 1), (3, 2), (11, 3), (12, 4), (1 << 40, 40)];
        for (number, power) in table {
            assert_eq!(nearest_power_of_two(number), power, "{number}");
        }
        assert_eq!(nearest_power_of_two(3 << 40), 42);
        assert_eq!(nearest_power_of_two(5 << 40), 42);
    }

    #[test]
    fn pieces_grow_with_the_rate_and_the_model_within_bounds() {
        let of = |rate: &str, megabytes: u64| {
            let mut settings = local(0, &[4]);
            settings.dimensions[0].bandwidth = rate.parse().expect("a rate");
            let total = Bytes::new(megabytes * 1_000_000);
            best(&settings, Some(total)).expect("a size").count() >> 10
        };
        assert_eq!(of("1 Gb/s", 35), 512);
        assert_eq!(of("200 Mb/s", 9), 128);
        assert_eq!([of("10 Gb/s", 35), of("10 Gb/s", 553)], [2048, 8192]);
        assert_eq!([of("1 Mb/s", 35), of("400 Gb/s", 553)], [64, 8192]);
    }
}
