//! Gradients made smaller before they travel: what that does to bytes, and what it costs to compute.
//! One file a compression, one line in [`ALL`].
//!
//! A gradient is given by its shape and the bytes of a number. A compression answers with the
//! collectives that it takes, one after the other, what is computed before each of them, and what
//! after the last. The step graph is made from that (`parallelism/compressed.rs`), and so are the
//! tensors that `allrail.torch.compression` registers: both ask [`Compression::travel`].
//!
//! ```
//! use allrail_workload::compression::{CompressionSpec, Gradient};
//!
//! let spec = CompressionSpec { kind: "power_sgd".into(), rank: Some(2), ..Default::default() };
//! let compression = spec.compression().unwrap();
//! let travel = compression.travel(&Gradient { shape: &[512, 256], width: 4, ranks: 8 }).unwrap();
//! let bytes: Vec<u64> = travel.exchanges.iter().map(|exchange| exchange.bytes).collect();
//! assert_eq!(bytes, [512 * 2 * 4, 256 * 2 * 4]);
//! ```

mod half;
mod power_sgd;
mod top_k;

use allrail_collective::Operation;
use allrail_core::FieldError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::Cost;

/// One gradient.
#[derive(Clone, Copy, Debug)]
pub struct Gradient<'a> {
    /// Its shape.
    pub shape: &'a [u64],
    /// Bytes of a number.
    pub width: u64,
    /// How many ranks exchange it.
    pub ranks: u64,
}

impl Gradient<'_> {
    /// How many numbers it has.
    #[must_use]
    pub fn numbers(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Its bytes as it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.numbers() * self.width
    }
}

/// One collective of a gradient's way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// Which.
    pub operation: Operation,
    /// Its buffer on every rank, as in a scenario's `collective.size`.
    pub bytes: u64,
    /// What is computed before it.
    pub before: Cost,
}

/// A gradient's way.
#[derive(Clone, Debug, PartialEq)]
pub struct Travel {
    /// Each begins when the one before is over.
    pub exchanges: Vec<Exchange>,
    /// What is computed after the last.
    pub after: Cost,
}

/// How gradients are made smaller; the step graph and the runtime ask it once for each.
pub trait Compression: std::fmt::Debug {
    /// How a gradient travels; `None` if it travels as it is.
    fn travel(&self, gradient: &Gradient<'_>) -> Option<Travel>;
}

/// A line of the list.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The tag in files.
    pub tag: &'static str,
    /// For the docs.
    pub about: &'static str,
    /// The parameters that it reads.
    parameters: &'static [&'static str],
    make: fn(&CompressionSpec) -> Result<Box<dyn Compression>, FieldError>,
}

/// Every compression.
pub static ALL: &[Known] = &[half::FP16, half::BF16, top_k::KNOWN, power_sgd::KNOWN];

/// How gradients are made smaller on their way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompressionSpec {
    /// Which: `fp16`, `bf16`, `top_k`, `power_sgd`.
    #[schemars(extend("x-table" = "compressions"))]
    pub kind: String,
    /// `top_k`: the part of each gradient's numbers that travels, above 0, at most 1; 0.01 if left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 0.01)]
    pub share: Option<f64>,
    /// `power_sgd`: the rank of the matrices that travel; 4 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub rank: Option<u32>,
}

impl CompressionSpec {
    /// The compression of that kind.
    ///
    /// # Errors
    /// There is no such kind, it does not read a parameter that is given, or one is out of range.
    pub fn compression(&self) -> Result<Box<dyn Compression>, FieldError> {
        let Some(known) = ALL.iter().find(|known| known.tag == self.kind) else {
            let tags: Vec<&str> = ALL.iter().map(|known| known.tag).collect();
            let hint = format!("one of {}", tags.join(", "));
            return Err(wrong("kind", &self.kind, "there is no such compression", &hint));
        };
        let given = [("share", self.share.is_some()), ("rank", self.rank.is_some())];
        for (name, is_given) in given {
            if is_given && !known.parameters.contains(&name) {
                let why = format!("`{}` has no such parameter", known.tag);
                return Err(wrong(name, "given", &why, "leave it out"));
            }
        }
        (known.make)(self)
    }
}

fn wrong(field: &str, value: impl std::fmt::Display, why: &str, hint: &str) -> FieldError {
    FieldError::new(format!("workload.compression.{field}"), value, why, hint)
}

/// A cost of bytes alone.
fn memory(bytes: u64) -> Cost {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let bytes = bytes as f64;
    Cost { flops: 0.0, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> impl Iterator<Item = (&'static str, Box<dyn Compression>)> {
        ALL.iter().map(|known| {
            let spec = CompressionSpec { kind: known.tag.to_owned(), ..Default::default() };
            (known.tag, spec.compression().expect("defaults are right"))
        })
    }

    #[test]
    fn nothing_grows() {
        for (tag, compression) in every() {
            for shape in [&[1][..], &[7], &[4096], &[3, 3], &[64, 48], &[1000, 1000], &[8, 4, 3, 3]]
            {
                for width in [1, 2, 4, 8] {
                    for ranks in [2, 3, 8, 1000] {
                        let gradient = Gradient { shape, width, ranks };
                        let Some(travel) = compression.travel(&gradient) else { continue };
                        let bytes: u64 = travel.exchanges.iter().map(|one| one.bytes).sum();
                        assert!(bytes < gradient.bytes(), "{tag} {gradient:?}");
                        assert!(bytes > 0, "{tag} {gradient:?}");
                        assert!(travel.after.bytes > 0.0, "{tag} {gradient:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn large_gradients_shrink_and_empty_ones_travel_as_they_are() {
        for (tag, compression) in every() {
            let of = |shape: &[u64]| compression.travel(&Gradient { shape, width: 4, ranks: 4 });
            assert!(of(&[1000, 1000]).is_some(), "{tag}");
            assert!(of(&[0]).is_none(), "{tag}");
            assert!(of(&[0, 5]).is_none(), "{tag}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let spec = |kind: &str, share, rank| CompressionSpec { kind: kind.into(), share, rank };
        for (spec, field) in [
            (spec("bf61", None, None), "kind"),
            (spec("bf16", Some(0.1), None), "share"),
            (spec("top_k", Some(0.0), None), "share"),
            (spec("top_k", Some(1.5), None), "share"),
            (spec("top_k", Some(f64::NAN), None), "share"),
            (spec("top_k", None, Some(1)), "rank"),
            (spec("power_sgd", None, Some(0)), "rank"),
        ] {
            let error = spec.compression().expect_err("a mistake");
            assert_eq!(error.field, format!("workload.compression.{field}"), "{spec:?}");
        }
    }
}
