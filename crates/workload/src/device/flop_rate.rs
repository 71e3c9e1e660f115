//! FLOP/s as text: `312 TFLOP/s`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const PREFIXES: &[(&str, f64)] = &[("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15), ("E", 1e18)];

/// How many FLOPs an NPU computes in a second; `312 TFLOP/s` in files, where `TFLOPS` is taken too.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct FlopRate(f64);

impl FlopRate {
    /// FLOP/s.
    #[must_use]
    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// Reads it.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let number: f64 = number.parse().map_err(|_| "it does not start with a number")?;
        let unit = unit.trim();
        let base = unit.strip_suffix("FLOP/s").or_else(|| unit.strip_suffix("FLOPS"));
        let base = base.or_else(|| unit.strip_suffix("FLOPs/s"));
        let prefix = base.ok_or("its unit is none of compute")?;
        let factor = PREFIXES.iter().find(|(name, _)| *name == prefix).map(|(_, factor)| factor);
        let rate = number * factor.ok_or("its unit has no known prefix")?;
        if !(1e6..=1e20).contains(&rate) {
            return Err("it is no speed of an NPU");
        }
        Ok(Self(rate))
    }
}

impl fmt::Display for FlopRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} TFLOP/s", self.0 / 1e12)
    }
}

impl Serialize for FlopRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FlopRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text)
            .map_err(|why| D::Error::custom(format!("`{text}`: {why}; write it as `312 TFLOP/s`")))
    }
}

impl JsonSchema for FlopRate {
    fn schema_name() -> Cow<'static, str> {
        "FlopRate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "FLOPs a second, such as `312 TFLOP/s`." })
    }
}
