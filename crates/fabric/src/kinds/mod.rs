//! What each kind of dimension is made of: one file a kind, one line in [`of`].

mod fully_connected;
mod ring;
mod switch;

use allrail_core::Bandwidth;

use crate::dimension::{Dimension, Kind, SMALLEST};

/// A directed link inside one instance of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// Where the links of an NPU lead: what others need to know of a kind of dimension, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To its neighbours; a message to another NPU passes through those between.
    Neighbours,
    /// To every other NPU, one each.
    Peers,
    /// All to one switch, bonded: what leaves an NPU at once leaves by one link.
    Switch,
}

/// The links of one instance of a dimension: `size` NPUs, numbered by their coordinate.
///
/// The `links` network model asks it for paths; the time model asks it which links a step loads. Parallel
/// links between the same two ends are bonded into one of their common bandwidth.
pub trait Topology: Sync {
    /// Where the links of an NPU lead.
    fn reach(&self) -> Reach;

    /// How many directed links one instance has.
    fn link_count(&self, dimension: &Dimension) -> u32;

    /// The bandwidth of each of these links.
    fn link_bandwidth(&self, dimension: &Dimension) -> Bandwidth;

    /// The link that a message from `source` to `destination` crosses after `hop` others; `None`
    /// once it has arrived.
    fn link(
        &self,
        dimension: &Dimension,
        source: u32,
        destination: u32,
        hop: u32,
    ) -> Option<LinkId>;

    /// How many of these links leave an NPU: their bandwidths add up to the aggregate.
    fn links_per_npu(&self, dimension: &Dimension) -> u64;

    /// How many links a message to a neighbour crosses; the step latency is shared among them.
    fn hops_per_step(&self) -> u32;
}

/// Replaces `path` by the links from `source` to `destination`, in order.
pub fn path(dimension: &Dimension, source: u32, destination: u32, path: &mut Vec<LinkId>) {
    let topology = of(dimension.kind);
    path.clear();
    path.extend((0..).map_while(|hop| topology.link(dimension, source, destination, hop)));
}

/// The coordinates of the NPUs at the two ends of a link; `None` is a switch.
pub type Ends = [Option<u32>; 2];

/// The ends of every link of one instance; nothing where no message between neighbours takes it.
#[must_use]
pub fn ends(dimension: &Dimension) -> Vec<Option<Ends>> {
    let (topology, size) = (of(dimension.kind), dimension.size);
    let hops = topology.hops_per_step();
    let mut found = vec![None; topology.link_count(dimension) as usize];
    for offset in 1..=size / 2 {
        let mut new = false;
        for offset in [offset, size - offset] {
            for from in 0..size {
                let to = (from + offset) % size;
                if topology.link(dimension, from, to, hops).is_some() {
                    continue;
                }
                for hop in 0..hops {
                    let link = topology.link(dimension, from, to, hop);
                    let place = &mut found[link.expect("a hop of a step").0 as usize];
                    new |= place.is_none();
                    let between = [(hop == 0).then_some(from), (hop + 1 == hops).then_some(to)];
                    place.get_or_insert(between);
                }
            }
        }
        // Where these have no links of their own, nor have those further apart.
        if !new {
            break;
        }
    }
    found
}

/// The topology of a kind of dimension.
#[must_use]
pub fn of(kind: Kind) -> &'static dyn Topology {
    match kind {
        Kind::Ring => &ring::Ring,
        Kind::FullyConnected => &fully_connected::FullyConnected,
        Kind::Switch => &switch::Switch,
    }
}

impl Dimension {
    /// The first `size` places of it, as a dimension: behind a switch as they are, fully connected with
    /// the links among them alone. `None` of a ring, whose part is a line.
    ///
    /// ```
    /// use allrail_fabric::Dimension;
    /// let of = |kind| -> Dimension {
    ///     let keys = format!(r#"{{"kind": "{kind}", "size": 8, "bandwidth": "70 GB/s", "latency": "1 us"}}"#);
    ///     serde_json::from_str(&keys).unwrap()
    /// };
    /// assert_eq!(of("switch").cut(2).unwrap().bandwidth.to_string(), "560 Gb/s");
    /// assert_eq!(of("fully_connected").cut(2).unwrap().bandwidth.to_string(), "80 Gb/s");
    /// assert!(of("ring").cut(2).is_none());
    /// ```
    #[must_use]
    pub fn cut(&self, size: u32) -> Option<Self> {
        let share = match of(self.kind).reach() {
            _ if size == self.size || size < SMALLEST => self.bandwidth,
            Reach::Switch => self.bandwidth,
            Reach::Peers => self.bandwidth.fraction(u64::from(size - 1), u64::from(self.size - 1)),
            Reach::Neighbours => return None,
        };
        Some(Self { size, bandwidth: share, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_core::Time;
    use proptest::prelude::*;

    fn dimension(kind: Kind, size: u32) -> Dimension {
        Dimension::new(kind, size, 2, "50 GB/s".parse().expect("a bandwidth"), Time::from_ns(500))
    }

    #[test]
    fn a_link_lies_between_its_ends() {
        let (npu, switch) = (Some, None);
        for (kind, size, link, found) in [
            (Kind::Ring, 4, 3, Some([npu(3), npu(0)])),
            (Kind::Ring, 4, 4, Some([npu(0), npu(3)])),
            (Kind::Ring, 2, 2, None),
            (Kind::FullyConnected, 4, 6, Some([npu(1), npu(2)])),
            (Kind::FullyConnected, 4, 5, None),
            (Kind::Switch, 4, 1, Some([npu(1), switch])),
            (Kind::Switch, 4, 6, Some([switch, npu(2)])),
        ] {
            assert_eq!(ends(&dimension(kind, size))[link], found, "{kind:?} {link}");
        }
    }

    proptest! {
        /// No link is crossed twice, none is out of range, and no path is longer than half a ring.
        #[test]
        fn paths_are_short_and_simple(size in 2u32..40, a in 0u32..40, b in 0u32..40) {
            let (a, b) = (a % size, b % size);
            for kind in [Kind::Ring, Kind::FullyConnected, Kind::Switch] {
                let dimension = dimension(kind, size);
                let mut links = Vec::new();
                path(&dimension, a, b, &mut links);
                prop_assert_eq!(links.is_empty(), a == b);
                prop_assert!(links.len() <= (size as usize / 2).max(2));
                for link in &links {
                    prop_assert!(link.0 < of(kind).link_count(&dimension));
                }
                let mut distinct = links.clone();
                distinct.sort();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), links.len());
            }
        }
    }
}
