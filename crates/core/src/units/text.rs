//! Quantities as text: the only parser of units in the project, and its inverse.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Bandwidth, Bytes, PS_PER_S, Time};

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
        // A large number without one counts bytes.
        let unit = if self.name == "size" && number.len() > 5 { "B" } else { unit };
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
            Some((1, 'B')) if !value.is_multiple_of(10u128.pow(decimals)) => {
                Err(SIZE.error(text, "it is not a whole number of bytes", "for example `25 MiB`"))
            }
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
        for text in
            ["1.5 B", "1 Gb", "5 ns", "1", "99999999999999999999999 GiB", "2 PiB", "1.2.3 B"]
        {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
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
