//! Into pieces of which size tensors are cut, where nobody says: `schedule.tensor.partition: auto`.
//!
//! Small pieces cost time each: what a rank does for one, however small. Large ones delay what is urgent,
//! which cannot begin before the piece that is under way has left. With `N` bytes a step, pieces of `p`, a cost
//! `c` of each and the rate `B` of an all-reduce on this fabric, a step loses about
//!
//! ```text
//! N/p · c  +  U · p/B        which is the least at        p = √(N · c · B / U)
//! ```
//!
//! `U` is how often a step waits for a piece that is in its way: about once for each of the first layers. The
//! result is the nearest power of two from 64 KiB to 4 MiB, for `bytescheduler` and whoever else cuts tensors.
//!
//! `c` = 100 µs is the CPU time of a piece on 2 shared cores with 4 ranks over TCP (VGG-16 at a sixteenth,
//! 1 Gb/s: 256 KiB took 472 ms a step, 4 MiB 489 ms). `U` = 4 was chosen with that result in view; `tests/golden`
//! compares with the best of all powers of two in the simulator, from 0.2 to 100 Gb/s. Left out: latency, since
//! pieces under way share it.

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};

use crate::{RuntimeError, Settings, plans};

/// What a rank spends on a piece, however small.
const COST: Time = Time::from_us(100);
/// How often a step waits for a piece.
const WAITS: u128 = 4;
const SMALLEST: u32 = 16;
const LARGEST: u32 = 22;
/// What a step exchanges, where it is not known.
const USUAL: Bytes = Bytes::new(64 << 20);

/// For so many bytes a step.
pub(crate) fn best(settings: &Settings, total: Option<Bytes>) -> Result<Bytes, RuntimeError> {
    // Long enough that latency does not count.
    let long = Bytes::new(256 << 20);
    let time = plans::time(settings, Operation::AllReduce, long)?;
    let total = u128::from(total.unwrap_or(USUAL).count());
    let (cost, time) = (u128::from(COST.as_ps()), u128::from(time.as_ps().max(1)));
    let square = total * cost / WAITS * u128::from(long.count()) / time;
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
        assert_eq!(of("1 Gb/s", 35), 256);
        assert_eq!(of("200 Mb/s", 9), 64);
        assert_eq!([of("10 Gb/s", 35), of("10 Gb/s", 553)], [1024, 4096]);
        assert_eq!([of("1 Mb/s", 35), of("400 Gb/s", 553)], [64, 4096]);
    }
}
