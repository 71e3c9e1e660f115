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

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why a text is not a quantity, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {quantity}: {why}")]
pub struct UnitError {
    /// The text as given.
    pub text: String,
    /// `bandwidth`, `time` or `size`.
    pub quantity: &'static str,
    /// What is wrong with it.
    pub why: String,
    /// What to write instead.
    pub hint: String,
}

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

/// One unit: its spelling and how many base units it is, as a fraction.
type Unit = (&'static str, u128, u128);

const TIME_UNITS: &[Unit] = &[
    ("ps", 1, 1),
    ("ns", 1_000, 1),
    ("us", 1_000_000, 1),
    ("µs", 1_000_000, 1),
    ("μs", 1_000_000, 1),
    ("ms", 1_000_000_000, 1),
    ("s", PS_PER_S, 1),
];

const PREFIXES: &[(&str, u128)] = &[
    ("", 1),
    ("K", 1_000),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", PS_PER_S),
    ("P", 1_000_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
];

const MAX_TIME_PS: u128 = 86_400 * PS_PER_S; // a day
const MAX_SIZE: u128 = 1 << 50; // 1 PiB
const MIN_BANDWIDTH: u128 = 1_000; // 1 KB/s
const MAX_BANDWIDTH: u128 = 1_000_000_000_000_000; // 1 PB/s

struct Quantity {
    name: &'static str,
    example: &'static str,
}

const TIME: Quantity = Quantity { name: "time", example: "700 ns" };
const SIZE: Quantity = Quantity { name: "size", example: "25 MiB" };
const BANDWIDTH: Quantity = Quantity { name: "bandwidth", example: "400 Gb/s" };

impl Quantity {
    fn error(&self, text: &str, why: impl Into<String>, hint: impl Into<String>) -> UnitError {
        UnitError { text: text.to_owned(), quantity: self.name, why: why.into(), hint: hint.into() }
    }

    /// Splits `text` into a decimal (digits and how many of them follow the point) and a unit.
    fn split<'t>(&self, text: &'t str) -> Result<(u128, u32, &'t str), UnitError> {
        let trimmed = text.trim();
        let example = format!("write it as `{}`", self.example);
        if trimmed.starts_with('-') {
            return Err(self.error(text, "it is negative", example));
        }
        let end = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
            .unwrap_or(trimmed.len());
        // `1e9 B` : the exponent belongs to the number only if digits follow it.
        let (number, unit) = trimmed.split_at(end);
        let bytes = unit.as_bytes();
        if matches!(bytes.first(), Some(b'e' | b'E'))
            && bytes.get(1).is_some_and(|b| b.is_ascii_digit() || *b == b'+' || *b == b'-')
        {
            return Err(self.error(text, "exponents are not taken", example));
        }
        let lower = trimmed.to_ascii_lowercase();
        if lower.starts_with("nan") || lower.starts_with("inf") || lower.starts_with(".inf") {
            return Err(self.error(text, "it is not a finite number", example));
        }
        if number.is_empty() {
            return Err(self.error(text, "it does not start with a number", example));
        }
        let digits: String = number.chars().filter(|c| *c != '_').collect();
        let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(self.error(text, "the number is malformed", example));
        }
        if whole.len() + fraction.len() > 24 {
            return Err(self.error(text, "the number has more than 24 digits", example));
        }
        let value = format!("{whole}{fraction}")
            .parse::<u128>()
            .map_err(|_| self.error(text, "the number is malformed", example.clone()))?;
        Ok((value, u32::try_from(fraction.len()).unwrap_or(u32::MAX), unit.trim()))
    }

    /// `value / 10^decimals · numerator / denominator`, rounded to the nearest integer.
    fn scale(
        &self,
        text: &str,
        (value, decimals): (u128, u32),
        (numerator, denominator): (u128, u128),
    ) -> Result<u128, UnitError> {
        let divisor = 10u128.pow(decimals) * denominator;
        value
            .checked_mul(numerator)
            .and_then(|scaled| scaled.checked_add(divisor / 2))
            .map(|scaled| scaled / divisor)
            .ok_or_else(|| {
                self.error(text, "it overflows", format!("for example `{}`", self.example))
            })
    }

    fn no_unit(&self, text: &str) -> UnitError {
        let number = text.trim();
        let unit = self.example.split_once(' ').map_or("", |(_, unit)| unit);
        self.error(text, "it has no unit", format!("did you mean `{number} {unit}`?"))
    }

    fn unknown_unit(&self, text: &str, unit: &str, known: &str) -> UnitError {
        self.error(text, format!("`{unit}` is not a unit of {}", self.name), known.to_owned())
    }
}

impl FromStr for Time {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (value, decimals, unit) = TIME.split(text)?;
        if unit.is_empty() {
            return Err(TIME.no_unit(text));
        }
        let Some((_, numerator, denominator)) = TIME_UNITS.iter().find(|(name, ..)| *name == unit)
        else {
            return Err(TIME.unknown_unit(text, unit, "use one of `ps`, `ns`, `us`, `ms`, `s`"));
        };
        let ps = TIME.scale(text, (value, decimals), (*numerator, *denominator))?;
        if ps > MAX_TIME_PS {
            return Err(TIME.error(text, "it is longer than a day", "for example `700 ns`"));
        }
        Ok(Self(u64::try_from(ps).unwrap_or(u64::MAX)))
    }
}

/// Splits `GiB` into its prefix's factor and `B` or `b`.
fn bytes_unit(unit: &str) -> Option<(u128, char)> {
    let base = unit.chars().last().filter(|c| *c == 'B' || *c == 'b')?;
    let prefix = &unit[..unit.len() - 1];
    PREFIXES.iter().find(|(name, _)| *name == prefix).map(|(_, factor)| (*factor, base))
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (value, decimals, unit) = SIZE.split(text)?;
        if unit.is_empty() {
            return Err(SIZE.no_unit(text));
        }
        match bytes_unit(unit) {
            Some((factor, 'B')) => {
                let count = SIZE.scale(text, (value, decimals), (factor, 1))?;
                if count > MAX_SIZE {
                    return Err(SIZE.error(text, "it is larger than 1 PiB", "for example `1 GiB`"));
                }
                Ok(Self(u64::try_from(count).unwrap_or(u64::MAX)))
            }
            Some(_) => Err(SIZE.error(
                text,
                "sizes are in bytes, and `b` is a bit",
                format!("did you mean `{}B`?", text.trim().trim_end_matches('b')),
            )),
            None => Err(SIZE.unknown_unit(
                text,
                unit,
                "use `B`, `KB`, `MB`, `GB` (powers of 1000) or `KiB`, `MiB`, `GiB` (powers of 1024)",
            )),
        }
    }
}

impl FromStr for Bandwidth {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const KNOWN: &str = "use `Gb/s` (bits), `GB/s` (bytes) or `GiB/s`; also K, M, T";
        let (value, decimals, unit) = BANDWIDTH.split(text)?;
        if unit.is_empty() {
            return Err(BANDWIDTH.no_unit(text));
        }
        let Some((factor, base)) = unit.strip_suffix("/s").and_then(bytes_unit) else {
            let hint = match unit.strip_suffix("ps") {
                Some(short) if bytes_unit(short).is_some() => {
                    let number = text.trim().trim_end_matches(unit).trim_end();
                    format!("did you mean `{number} {short}/s`?")
                }
                _ => KNOWN.to_owned(),
            };
            return Err(BANDWIDTH.unknown_unit(text, unit, &hint));
        };
        let divisor = if base == 'b' { 8 } else { 1 };
        let rate = BANDWIDTH.scale(text, (value, decimals), (factor, divisor))?;
        if rate == 0 {
            return Err(BANDWIDTH.error(text, "it is zero", "a link needs a positive bandwidth"));
        }
        if rate < MIN_BANDWIDTH {
            return Err(BANDWIDTH.error(text, "it is below 1 KB/s", KNOWN));
        }
        if rate > MAX_BANDWIDTH {
            return Err(BANDWIDTH.error(text, "it is above 1 PB/s", KNOWN));
        }
        Ok(Self(u64::try_from(rate).unwrap_or(u64::MAX)))
    }
}

/// Writes `value` in the largest unit that leaves it an integer, so that text round-trips.
fn fmt_exact(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, factor) = units
        .iter()
        .rev()
        .find(|(_, factor)| value != 0 && value.is_multiple_of(*factor))
        .unwrap_or(&units[0]);
    write!(f, "{} {name}", value / factor)
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: &[(&str, u64)] = &[
            ("ps", 1),
            ("ns", 1_000),
            ("us", 1_000_000),
            ("ms", 1_000_000_000),
            ("s", 1_000_000_000_000),
        ];
        fmt_exact(f, self.0, UNITS)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: &[(&str, u64)] = &[
            ("B", 1),
            ("KB", 1_000),
            ("KiB", 1 << 10),
            ("MB", 1_000_000),
            ("MiB", 1 << 20),
            ("GB", 1_000_000_000),
            ("GiB", 1 << 30),
        ];
        fmt_exact(f, self.0, UNITS)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GIB: u64 = 1 << 30;
        if self.0.is_multiple_of(GIB) {
            return write!(f, "{} GiB/s", self.0 / GIB);
        }
        const UNITS: &[(&str, u64)] =
            &[("B/s", 1), ("Kb/s", 125), ("Mb/s", 125_000), ("Gb/s", 125_000_000)];
        fmt_exact(f, self.0, UNITS)
    }
}

macro_rules! as_text {
    ($name:ident, $description:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(|error: UnitError| {
                    de::Error::custom(format!("{error}; {}", error.hint))
                })
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $description })
            }
        }
    };
}

as_text!(Time, "A duration with its unit, such as `700 ns`.");
as_text!(Bytes, "A size with its unit, such as `25 MiB`.");
as_text!(Bandwidth, "A bandwidth per direction with its unit, such as `400 Gb/s`.");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_units_of_the_field() {
        let bandwidth = |text: &str| text.parse::<Bandwidth>().map(Bandwidth::bytes_per_second);
        assert_eq!(bandwidth("400 Gb/s"), Ok(50_000_000_000));
        assert_eq!(bandwidth("50GB/s"), Ok(50_000_000_000));
        assert_eq!(bandwidth("50 GiB/s"), Ok(50 << 30));
        assert_eq!(bandwidth("187.5 GiB/s"), Ok(201_326_592_000));
        assert_eq!("700 ns".parse(), Ok(Time::from_ns(700)));
        assert_eq!("1.7 us".parse(), Ok(Time::from_ns(1_700)));
        assert_eq!("25 MiB".parse(), Ok(Bytes::new(25 << 20)));
        assert_eq!("1 GB".parse(), Ok(Bytes::new(1_000_000_000)));
    }

    #[test]
    fn refuses_with_a_hint() {
        let hint = |text: &str| text.parse::<Bandwidth>().map_err(|error| error.hint);
        assert_eq!(hint("400"), Err("did you mean `400 Gb/s`?".into()));
        assert_eq!(hint("400 Gbps"), Err("did you mean `400 Gb/s`?".into()));
        for text in
            ["0 Gb/s", "-1 Gb/s", "NaN", "inf Gb/s", "1e99 Gb/s", "9999999 PB/s", "", "Gb/s"]
        {
            assert!(text.parse::<Bandwidth>().is_err(), "{text}");
        }
        for text in ["1 Gb", "5 ns", "1", "99999999999999999999999 GiB", "2 PiB", "1.2.3 B"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn time_is_rounded_up_once() {
        let third = Bandwidth::from_bytes_per_second(3).expect("positive");
        assert_eq!(third.time_for(Bytes::new(1)), Some(Time::from_ps(333_333_333_334)));
        assert_eq!(third.time_for(Bytes::new(2)), Some(Time::from_ps(666_666_666_667)));
        assert_eq!(third.time_for(Bytes::new(u64::MAX)), None);
    }

    proptest! {
        #[test]
        fn text_round_trips(value in 1_000u64..1_000_000_000_000_000) {
            prop_assert_eq!(Bytes::new(value).to_string().parse(), Ok(Bytes::new(value)));
            prop_assert_eq!(Time::from_ps(value).to_string().parse(), Ok(Time::from_ps(value)));
            let bandwidth = Bandwidth::from_bytes_per_second(value).expect("positive");
            prop_assert_eq!(bandwidth.to_string().parse(), Ok(bandwidth));
        }

        #[test]
        fn no_text_panics(text in ".{0,30}") {
            let _ = text.parse::<Bandwidth>();
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Time>();
        }
    }
}
