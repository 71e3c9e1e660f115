//! A fabric: a list of dimensions, innermost first.

use allrail_core::{Bandwidth, Bytes, DimensionId, FieldError, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Dimension;
use crate::dimension::{MOST_LINKS, SMALLEST};
use crate::kinds::{self, Reach};

/// The network of a training cluster as a product of dimensions (Themis, ISCA'22, §2).
///
/// NPU `r` has the coordinate `(r / (P_0 ⋯ P_{d-1})) mod P_d` on dimension `d`: neighbours in
/// dimension 0 have neighbouring ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// What people call it.
    #[serde(default = "inline")]
    pub name: String,
    /// Innermost (package, node) first.
    #[schemars(length(min = 1, max = MAX_DIMENSIONS))]
    pub dimensions: Vec<Dimension>,
    /// Of an NPU's memory. A step that reduces waits for what it has received to be read, with what
    /// it is added to, and for the sum to be written: three times its bytes; messages of one step side
    /// by side. If left out, reducing takes no time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bandwidth: Option<Bandwidth>,
    /// Of an NPU's messages in a `direct` algorithm, how many are under way: each that has come and is
    /// reduced lets it send one more, of an all-reduce's second half once the first has come. If left out,
    /// all of a step leave at once, when all of the step before are reduced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub window: Option<u32>,
}

fn inline() -> String {
    "inline".to_owned()
}

/// No packet has more bytes than this.
const MOST_IN_PACKET: u64 = 1 << 30;
/// More dimensions than this are refused: planners enumerate orders over them.
pub(crate) const MAX_DIMENSIONS: usize = 6;
/// More NPUs than this are refused.
pub(crate) const MAX_NPUS: u64 = 1 << 30;

impl Fabric {
    /// The number of NPUs: the product of the sizes.
    #[must_use]
    pub fn npus(&self) -> u64 {
        self.dimensions.iter().map(|dimension| u64::from(dimension.size)).product()
    }

    /// The bandwidth of one NPU over all dimensions.
    #[must_use]
    pub fn total_bandwidth(&self) -> Bandwidth {
        let total = self.dimensions.iter().map(|d| d.aggregate().bytes_per_second()).sum();
        Bandwidth::from_bytes_per_second(total).expect("a validated fabric has bandwidth")
    }

    /// The dimension `id`.
    #[must_use]
    pub fn dimension(&self, id: DimensionId) -> &Dimension {
        &self.dimensions[id.index()]
    }

    /// The ids of the dimensions, innermost first.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = DimensionId> + use<> {
        (0..u32::try_from(self.dimensions.len()).expect("few dimensions")).map(DimensionId)
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Names the first field that is out of range, with a hint.
    pub fn validate(&self) -> Result<(), FieldError> {
        let count = self.dimensions.len();
        if count == 0 {
            return Err(FieldError::new(
                "fabric.dimensions",
                "[]",
                "a fabric has one dimension at least",
                "add `{kind: switch, size: 8, links: 1, bandwidth: 50 GiB/s, latency: 1 us}`",
            ));
        }
        if count > MAX_DIMENSIONS {
            return Err(FieldError::new(
                "fabric.dimensions",
                counted(count, "dimension"),
                format!("at most {MAX_DIMENSIONS} are taken"),
                "merge dimensions that share their links",
            ));
        }
        if self.window == Some(0) {
            return Err(FieldError::new(
                "fabric.window",
                0,
                "without a message under way nothing is sent",
                "1 is one after the other; leave it out for all at once",
            ));
        }
        let mut npus = 1u64;
        for (i, dimension) in self.dimensions.iter().enumerate() {
            let field = &|name: &str| format!("fabric.dimensions[{i}].{name}");
            if dimension.size < SMALLEST {
                return Err(FieldError::new(
                    field("size"),
                    dimension.size,
                    format!("a dimension joins {SMALLEST} NPUs at least"),
                    "leave the dimension out, or give it a size of 2 or more",
                ));
            }
            npus *= u64::from(dimension.size);
            if npus > MAX_NPUS {
                return Err(FieldError::new(
                    field("size"),
                    dimension.size,
                    format!("the fabric has more than {MAX_NPUS} NPUs"),
                    "make a dimension smaller",
                ));
            }
            check_links(dimension, field)?;
            check_packets(dimension, field)?;
            check_reduction(dimension, field)?;
            check_fastest(dimension, field)?;
            check_switch(dimension, field)?;
        }
        Ok(())
    }
}

/// Refuses a dimension without links, or with too many.
fn check_links(dimension: &Dimension, field: &dyn Fn(&str) -> String) -> Result<(), FieldError> {
    if dimension.links == 0 {
        return Err(FieldError::new(
            field("links"),
            0,
            "an NPU has 1 link at least",
            "`links` counts the links of one NPU on this dimension",
        ));
    }
    if dimension.links > MOST_LINKS {
        return Err(FieldError::new(
            field("links"),
            dimension.links,
            format!("more than {MOST_LINKS} links per NPU"),
            "`links` counts the links of one NPU on this dimension",
        ));
    }
    Ok(())
}

/// Refuses headers of packets of which nothing else is known, and packets that are too large.
fn check_packets(dimension: &Dimension, field: &dyn Fn(&str) -> String) -> Result<(), FieldError> {
    if dimension.header > Bytes::default()
        && dimension.payload == Bytes::default()
        && dimension.packet.is_none()
    {
        return Err(FieldError::new(
            field("header"),
            dimension.header,
            "it is not said how many bytes a packet carries beside its header",
            "give `payload`, for example `payload: 4 KiB`, or `packet: infiniband`",
        ));
    }
    if dimension.payload.count() > MOST_IN_PACKET || dimension.header.count() > MOST_IN_PACKET {
        return Err(FieldError::new(
            field("payload"),
            format!("{}, and a header of {}", dimension.payload, dimension.header),
            "a packet has 1 GiB at most of either",
            "for example `payload: 4 KiB` and `header: 64 B`",
        ));
    }
    Ok(())
}

/// Refuses sums that pass faster than data.
fn check_reduction(
    dimension: &Dimension,
    field: &dyn Fn(&str) -> String,
) -> Result<(), FieldError> {
    if let Some(reduced) = dimension.reduction_bandwidth
        && !(dimension.in_network_reduction && reduced <= dimension.aggregate())
    {
        let why = if dimension.in_network_reduction {
            format!("an NPU sends {} at most", dimension.aggregate())
        } else {
            "the switch does not reduce".to_owned()
        };
        return Err(FieldError::new(
            field("reduction_bandwidth"),
            reduced,
            why,
            "it is what data reaches through sums, with `in_network_reduction: true`",
        ));
    }
    Ok(())
}

/// Refuses measured algorithms whose sizes do not rise.
fn check_fastest(dimension: &Dimension, field: &dyn Fn(&str) -> String) -> Result<(), FieldError> {
    for (operation, points) in &dimension.fastest {
        let rises = points.windows(2).all(|pair| pair[0].from < pair[1].from);
        if points.is_empty() || !rises {
            return Err(FieldError::new(
                field(&format!("fastest.{operation}")),
                counted(points.len(), "size"),
                "each begins above the one before, and there is one at least",
                "for example `[{from: 1 B, algorithm: direct}, {from: 4 MiB, algorithm: ring}]`",
            ));
        }
    }
    Ok(())
}

/// Refuses sums in a network that has no switch.
fn check_switch(dimension: &Dimension, field: &dyn Fn(&str) -> String) -> Result<(), FieldError> {
    if dimension.in_network_reduction && kinds::of(dimension.kind).reach() != Reach::Switch {
        return Err(FieldError::new(
            field("in_network_reduction"),
            "true",
            "only a switch can reduce",
            "set `kind: switch` or leave `in_network_reduction` out",
        ));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Kind;
    use allrail_core::Time;

    pub(crate) fn switch(size: u32, links: u32, bandwidth: &str) -> Dimension {
        Dimension::new(
            Kind::Switch,
            size,
            links,
            bandwidth.parse().expect("a bandwidth"),
            Time::from_ns(700),
        )
    }

    #[test]
    fn aggregates_links_and_dimensions() {
        let fabric = Fabric {
            memory_bandwidth: None,
            window: None,
            name: "2D-SW_SW".into(),
            dimensions: vec![switch(16, 6, "200 Gb/s"), switch(64, 1, "800 Gb/s")],
        };
        assert_eq!(fabric.npus(), 1024);
        assert_eq!(fabric.dimensions[0].aggregate(), "1200 Gb/s".parse().expect("a bandwidth"));
        assert_eq!(fabric.total_bandwidth(), "2000 Gb/s".parse().expect("a bandwidth"));
        assert_eq!(fabric.validate(), Ok(()));
    }

    #[test]
    fn names_the_field_that_is_wrong() {
        let mut fabric = Fabric {
            memory_bandwidth: None,
            window: None,
            name: String::new(),
            dimensions: vec![switch(8, 1, "1 GB/s"); 2],
        };
        fabric.dimensions[1].size = 1;
        let error = fabric.validate().expect_err("size 1 is refused");
        assert_eq!(error.field, "fabric.dimensions[1].size");
    }
}
