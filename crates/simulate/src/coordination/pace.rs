//! How fast a rank computes while buffers are exchanged.
//!
//! Reducing takes something from computing: NCCL's blocks occupy multiprocessors of the GPU, and its copies
//! its memory's bandwidth. While an exchange is under way, what takes `t` takes `t · (1 + slowdown)`; no
//! exchange takes longer for it. Work is what is done of the computing: a second of it a second without
//! exchanges.
//!
//! A submission that has been announced keeps its time: an exchange that begins before it delays the next
//! one. Ignored: that kernels differ (those bound by memory suffer more), and what exchanging takes from
//! memory copies and the host.

use allrail_core::Time;

const MILLION: u64 = 1_000_000;

/// The exchanges so far, in order, none within another.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// What a second of work takes during an exchange, in millionths of a second.
    stretched: u64,
    exchanges: Vec<Exchanged>,
}

#[derive(Clone, Copy, Debug)]
struct Exchanged {
    start: Time,
    end: Time,
    /// Work that could have been done before it, since time zero, and before its end.
    before: Time,
    after: Time,
}

impl Pace {
    /// Of a slowdown, from 0.
    pub(super) fn new(slowdown: f64) -> Self {
        let extra = (slowdown * MILLION as f64).round() as u64;
        Self { stretched: MILLION + extra, exchanges: Vec::new() }
    }

    /// An exchange is under way from `start` to `end`, after all others.
    pub(super) fn exchange(&mut self, start: Time, end: Time) {
        if self.stretched > MILLION && end > start {
            let before = self.work(start);
            let after = before + scaled(end - start, MILLION, self.stretched);
            self.exchanges.push(Exchanged { start, end, before, after });
        }
    }

    /// Work that could have been done by then, since time zero.
    pub(super) fn work(&self, time: Time) -> Time {
        let place = self.exchanges.partition_point(|one| one.start < time);
        match place.checked_sub(1).map(|last| self.exchanges[last]) {
            None => time,
            Some(one) if time < one.end => {
                (one.before + scaled(time - one.start, MILLION, self.stretched)).min(one.after)
            }
            Some(one) => one.after + (time - one.end),
        }
    }

    /// When so much work is done, if it begins at `start`.
    #[inline]
    pub(super) fn done(&self, start: Time, work: Time) -> Time {
        if self.exchanges.is_empty() {
            start + work
        } else {
            self.done_between_exchanges(start, work)
        }
    }

    fn done_between_exchanges(&self, start: Time, work: Time) -> Time {
        let target = self.work(start) + work;
        let place = self.exchanges.partition_point(|one| one.before < target);
        let done = match place.checked_sub(1).map(|last| self.exchanges[last]) {
            None => target,
            Some(one) if target <= one.after => {
                (one.start + scaled(target - one.before, self.stretched, MILLION)).min(one.end)
            }
            Some(one) => one.end + (target - one.after),
        };
        // Both ways are rounded down.
        done.max(start)
    }
}

fn scaled(time: Time, numerator: u64, denominator: u64) -> Time {
    let scaled = u128::from(time.as_ps()) * u128::from(numerator) / u128::from(denominator);
    Time::from_ps(u64::try_from(scaled).expect("less than twice the clock"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn paced(slowdown: f64, exchanges: &[(u64, u64)]) -> Pace {
        let mut pace = Pace::new(slowdown);
        let mut now = 0;
        for (gap, length) in exchanges {
            pace.exchange(Time::from_ns(now + gap), Time::from_ns(now + gap + length));
            now += gap + length;
        }
        pace
    }

    /// Step by step, a nanosecond at a time.
    fn plainly(slowdown: f64, exchanges: &[(u64, u64)], start: u64, work: u64) -> f64 {
        let mut under_way = Vec::new();
        for (gap, length) in exchanges {
            under_way.extend(std::iter::repeat_n(false, *gap as usize));
            under_way.extend(std::iter::repeat_n(true, *length as usize));
        }
        let (mut left, mut at) = (work as f64, start);
        while left > 0.0 {
            let slow = under_way.get(at as usize).copied().unwrap_or(false);
            let rate = if slow { 1.0 / (1.0 + slowdown) } else { 1.0 };
            if left <= rate {
                return at as f64 + left / rate;
            }
            left -= rate;
            at += 1;
        }
        at as f64
    }

    proptest! {
        /// To the rounding of an exchange to a picosecond. The sum of computing is kept: what is done between start and end is the work asked for.
        #[test]
        fn as_long_as_step_by_step(
            exchanges in prop::collection::vec((0u64..40, 1u64..40), 0..6),
            start in 0u64..120,
            work in 0u64..200,
            slowdown in 0.0f64..2.0,
        ) {
            let pace = paced(slowdown, &exchanges);
            let done = pace.done(Time::from_ns(start), Time::from_ns(work));
            let plain = plainly(slowdown, &exchanges, start, work);
            prop_assert!((done.as_ps() as f64 - plain * 1e3).abs() < 20.0, "{done} {plain}");
            let kept = pace.work(done).as_ps() - pace.work(Time::from_ns(start)).as_ps();
            prop_assert!(kept.abs_diff(work * 1_000) <= 20, "{kept} of {work} ns");
        }

        #[test]
        fn more_slowdown_is_never_faster_and_none_changes_nothing(
            exchanges in prop::collection::vec((0u64..40, 1u64..40), 0..6),
            start in 0u64..120,
            work in 0u64..200,
            slowdown in 0.0f64..2.0,
            more in 0.0f64..1.0,
        ) {
            let (start, work) = (Time::from_ns(start), Time::from_ns(work));
            let done = |slowdown| paced(slowdown, &exchanges).done(start, work);
            prop_assert_eq!(done(0.0), start + work);
            prop_assert!(done(slowdown) + Time::from_ps(20) >= start + work);
            prop_assert!(done(slowdown + more) + Time::from_ps(20) >= done(slowdown));
        }
    }
}
