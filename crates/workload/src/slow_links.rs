//! Slow links: which links of a network carry less than they should, drawn from a seed.
//!
//! Whether a link is slow hangs on its number and the seed alone, not on who asks first: both are
//! hashed to a uniform draw, and the link is slow if that is below the share. A slow link has `factor`
//! of its bandwidth, to a millionth; its latency stays. A link of a dimension is one direction, as
//! the network model `links` counts them (`allrail_fabric::kinds`); of a topology it is a cable, both ways.

use allrail_core::{Bandwidth, DimensionId, FieldError, Time};

use crate::spec::{self, Workload};
use crate::splitmix::mix;

const MILLION: u64 = 1_000_000;
/// Smaller parts of a bandwidth are refused.
const LEAST: f64 = 0.001;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowLinks {
    seed: u64,
    share: f64,
    millionths: u64,
    dimensions: Option<Vec<DimensionId>>,
}

impl SlowLinks {
    /// As the workload says; `None` where no link is slower than another.
    #[must_use]
    pub fn new(seed: u64, said: &spec::SlowLinks) -> Option<Self> {
        let millionths = (said.factor * MILLION as f64).round() as u64;
        let dimensions = said.dimensions.clone();
        let slow = Self { seed, share: said.share, millionths, dimensions };
        (millionths != MILLION && said.share > 0.0).then_some(slow)
    }

    /// Whether a link of a dimension is slow.
    #[must_use]
    pub fn link(&self, dimension: DimensionId, link: u64) -> bool {
        self.dimensions.as_ref().is_none_or(|named| named.contains(&dimension))
            && self.draw(u64::from(dimension.0), link)
    }

    /// Whether a cable of a topology is slow.
    #[must_use]
    pub fn cable(&self, cable: u64) -> bool {
        self.draw(u64::MAX, cable)
    }

    fn draw(&self, of: u64, link: u64) -> bool {
        let bits = mix(self.seed ^ mix(of ^ mix(link))) >> 11;
        // 53 bits: from 0 to almost 1.
        (bits as f64) / ((1u64 << 53) as f64) < self.share
    }

    /// What is left of a bandwidth.
    #[must_use]
    pub fn bandwidth(&self, whole: Bandwidth) -> Bandwidth {
        whole.fraction(self.millionths, MILLION)
    }

    /// What becomes of a time that bytes take; `None` beyond the clock.
    #[must_use]
    pub fn time(&self, whole: Time) -> Option<Time> {
        let longer =
            (u128::from(whole.as_ps()) * u128::from(MILLION)).div_ceil(u128::from(self.millionths));
        u64::try_from(longer).ok().map(Time::from_ps)
    }

    /// The part of its bandwidth that a slow link has.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.millionths as f64 / MILLION as f64
    }

    /// Whether dimensions were named.
    #[must_use]
    pub const fn names_dimensions(&self) -> bool {
        self.dimensions.is_some()
    }
}

/// Whether they are what they should be.
pub fn check(workload: &Workload, sizes: &[u32]) -> Result<(), FieldError> {
    let Some(slow) = &workload.slow_links else { return Ok(()) };
    let wrong = |field: &str, value: f64, why: &str, hint: &str| {
        Err(FieldError::new(format!("workload.slow_links.{field}"), value, why, hint))
    };
    if !(0.0..=1.0).contains(&slow.share) {
        return wrong("share", slow.share, "it is a part of all links", "0.01 is one in a hundred");
    }
    if !(LEAST..=1.0).contains(&slow.factor) {
        let why = "a slow link's bandwidth is multiplied by it";
        return wrong("factor", slow.factor, why, "0.001 to 1; 0.5 is half of it");
    }
    let named = slow.dimensions.iter().flatten();
    if let Some(none) = named.clone().find(|dimension| dimension.index() >= sizes.len()) {
        return Err(FieldError::new(
            "workload.slow_links.dimensions",
            none.0,
            "the fabric has no such dimension",
            format!("dimensions are 0 to {}, innermost first", sizes.len().saturating_sub(1)),
        ));
    }
    Ok(())
}
