//! What a network costs: switches and cables, each at its price.
//!
//! ```text
//! cost = switches · switch + AoC · aoc + DAC · dac + PCB · pcb
//! ```
//!
//! The default prices are those of `HammingMesh` (SC'22, Appendix): 14,280 $ for a switch of 64 ports,
//! 603 $ for an optical and 272 $ for a copper cable. Traces come with the board, for nothing. NPUs,
//! power and labour are not in it.

use allrail_core::FieldError;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::topologies::Counts;

/// US dollars, in whole cents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(u128);

impl Usd {
    /// From whole dollars.
    #[must_use]
    pub(crate) const fn from_dollars(dollars: u64) -> Self {
        Self(dollars as u128 * 100)
    }

    /// From dollars and a fraction; `None` if negative, not finite or above 10^12.
    #[must_use]
    pub(crate) fn from_amount(dollars: f64) -> Option<Self> {
        (0.0..=1e12).contains(&dollars).then(|| Self((dollars * 100.0).round() as u128))
    }

    /// In dollars, for people and files.
    #[must_use]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 100.0
    }

    fn times(self, count: u64) -> Self {
        Self(self.0 * u128::from(count))
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

/// Prices of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Prices {
    /// A switch.
    pub switch: Usd,
    /// An active optical cable.
    pub aoc: Usd,
    /// A direct attach copper cable.
    pub dac: Usd,
    /// A trace of a board.
    pub pcb: Usd,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            switch: Usd::from_dollars(14_280),
            aoc: Usd::from_dollars(603),
            dac: Usd::from_dollars(272),
            pcb: Usd::default(),
        }
    }
}

impl Prices {
    /// Reads a mapping of `switch`, `aoc`, `dac`, `pcb` to dollars; the defaults where one is left
    /// out.
    ///
    /// # Errors
    /// A key is unknown, or a price is no amount of dollars.
    pub fn read(tree: &Value) -> Result<Self, FieldError> {
        let mut prices = Self::default();
        let Some(keys) = tree.as_object() else {
            return Err(FieldError::new(
                "prices",
                tree,
                "it is not a mapping of parts to dollars",
                "for example `switch: 14280`",
            ));
        };
        for (key, value) in keys {
            let price = match key.as_str() {
                "switch" => &mut prices.switch,
                "aoc" => &mut prices.aoc,
                "dac" => &mut prices.dac,
                "pcb" => &mut prices.pcb,
                _ => {
                    return Err(FieldError::new(
                        format!("prices.{key}"),
                        value,
                        "there is no such part",
                        "the parts are `switch`, `aoc`, `dac`, `pcb`",
                    ));
                }
            };
            *price = value.as_f64().and_then(Usd::from_amount).ok_or_else(|| {
                let why = match value.as_f64() {
                    Some(amount) if amount < 0.0 => "a price is not negative",
                    Some(_) => "it is above 10^12 dollars",
                    None => "a price is a number of dollars",
                };
                FieldError::new(format!("prices.{key}"), value, why, format!("`{key}: 603`"))
            })?;
        }
        Ok(prices)
    }

    /// What `counts` cost.
    #[must_use]
    pub fn cost(&self, counts: &Counts) -> Usd {
        let parts = [
            self.switch.times(counts.switches),
            self.aoc.times(counts.aoc),
            self.dac.times(counts.dac),
            self.pcb.times(counts.pcb),
        ];
        Usd(parts.iter().map(|part| part.0).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_prices_and_refuses_what_is_none() {
        let prices = Prices::read(&json!({ "aoc": 100.5 })).expect("prices");
        assert_eq!((prices.aoc.dollars(), prices.dac.dollars()), (100.5, 272.0));
        for (tree, field) in [
            (json!({ "dac": -1 }), "prices.dac"),
            (json!({ "dac": "cheap" }), "prices.dac"),
            (json!({ "pcb": 1e13 }), "prices.pcb"),
            (json!({ "fibre": 1 }), "prices.fibre"),
            (json!([]), "prices"),
        ] {
            assert_eq!(Prices::read(&tree).expect_err("refused").field, field);
        }
    }
}
