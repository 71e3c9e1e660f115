//! Quantities with units: [`Time`], [`Bytes`], [`Bandwidth`].
//!
//! All three are integers (picoseconds, bytes, bytes per second), so that a result is the same on
//! every machine. Text takes `b` for bit, `B` for byte, `K M G T P` for powers of 1000 and
//! `Ki Mi Gi Ti Pi` for powers of 1024: `"400 Gb/s"`, `"50 GiB/s"`, `"700 ns"`, `"25 MiB"`.
//! A number without a unit is refused with a hint.
//!
//! ```
//! use allrail_core::{Bandwidth, Bytes, Time};
//! let link: Bandwidth = "400 Gb/s".parse().unwrap();
//! let size: Bytes = "1 GB".parse().unwrap();
//! assert_eq!(link.time_for(size), Some(Time::from_us(20_000)));
//! ```

mod text;

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

pub use text::UnitError;

/// A duration or a point in virtual time, in integer picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

/// Bytes per second in one direction; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(u64);

const PS_PER_S: u128 = 1_000_000_000_000;

impl Time {
    /// The start of every simulation.
    pub const ZERO: Self = Self(0);
    /// Longer than any simulation.
    pub const MAX: Self = Self(u64::MAX);

    /// From picoseconds.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }
    /// From nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns * 1_000)
    }
    /// From microseconds.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self(us * 1_000_000)
    }
    /// In picoseconds.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }
    /// In microseconds, for people.
    #[must_use]
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e6
    }
    /// In seconds, for people.
    #[must_use]
    pub fn as_s(self) -> f64 {
        self.0 as f64 / 1e12
    }
    /// `self` taken `count` times, or `None` beyond 2^64 ps (213 days).
    #[must_use]
    pub fn checked_mul(self, count: u64) -> Option<Self> {
        self.0.checked_mul(count).map(Self)
    }
    /// The sum, or `None` beyond 2^64 ps.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
    /// The difference, zero at least.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// `self / other`, 0 for 0 / 0.
    #[must_use]
    pub fn ratio(self, other: Self) -> f64 {
        if other.0 == 0 { 0.0 } else { self.0 as f64 / other.0 as f64 }
    }
}

impl Add for Time {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for Time {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
impl Sum for Time {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl Bytes {
    /// From a count.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        Self(count)
    }
    /// The count.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0
    }
}

impl Bandwidth {
    /// From bytes per second; `None` for zero.
    #[must_use]
    pub const fn from_bytes_per_second(bytes: u64) -> Option<Self> {
        if bytes == 0 { None } else { Some(Self(bytes)) }
    }
    /// In bytes per second.
    #[must_use]
    pub const fn bytes_per_second(self) -> u64 {
        self.0
    }
    /// In Gb/s, for people.
    #[must_use]
    pub fn gbps(self) -> f64 {
        self.0 as f64 * 8e-9
    }
    /// `count` such links together, or `None` beyond 2^64 B/s.
    #[must_use]
    pub fn checked_mul(self, count: u64) -> Option<Self> {
        self.0.checked_mul(count).and_then(Self::from_bytes_per_second)
    }
    /// `numerator / denominator` of it, rounded down, at least 1 B/s.
    ///
    /// # Panics
    /// If `denominator` is zero.
    #[must_use]
    pub fn fraction(self, numerator: u64, denominator: u64) -> Self {
        let share = u128::from(self.0) * u128::from(numerator) / u128::from(denominator);
        Self(u64::try_from(share).unwrap_or(u64::MAX).max(1))
    }
    /// How long `size` takes, rounded up to a picosecond; `None` beyond 2^64 ps.
    #[must_use]
    pub fn time_for(self, size: Bytes) -> Option<Time> {
        self.time_for_fraction(u128::from(size.0), 1)
    }
    /// How long `numerator / denominator` bytes take, rounded up once to a picosecond, so
    /// that nothing is faster than its bandwidth;
    /// `None` where it exceeds 2^64 ps.
    #[must_use]
    pub fn time_for_fraction(self, numerator: u128, denominator: u128) -> Option<Time> {
        let divisor = denominator.checked_mul(u128::from(self.0))?;
        let scaled = numerator.checked_mul(PS_PER_S)?;
        u64::try_from(scaled.div_ceil(divisor)).ok().map(Time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_rounded_up_once() {
        let third = Bandwidth::from_bytes_per_second(3).expect("positive");
        assert_eq!(third.time_for(Bytes::new(1)), Some(Time::from_ps(333_333_333_334)));
        assert_eq!(third.time_for(Bytes::new(2)), Some(Time::from_ps(666_666_666_667)));
        assert_eq!(third.time_for(Bytes::new(u64::MAX)), None);
    }
}
