//! A fabric of dimensions as a graph: what its rings, switches and full meshes are in cables.
//!
//! NPU `r` stands at `(r / (P_0 ⋯ P_{d−1})) mod P_d` on dimension `d`, as everywhere. The NPUs that
//! differ in one coordinate only are a line, and each line has cables of its own:
//!
//! - `ring`: one from each NPU to the next; of two NPUs, one;
//! - `fully_connected`: one between any two;
//! - `switch`: a switch for the line, and one from each NPU to it.
//!
//! As in the network model `links`, parallel links between the same two ends are bonded into one of their
//! common bandwidth, and the latency of a step is shared among the links of its way: a cable to a
//! switch has half of the dimension's, rounded down to a picosecond. All cables count as copper: a
//! dimension does not say what it is made of.

use allrail_core::{FieldError, Time, counted, either};

use crate::graph::{Builder, CableKind, Graph, NodeId, Wire};
use crate::{Contention, Dimension, Fabric, Kind, kinds};

/// Networks of more cables than this are refused: the graph alone would take gigabytes.
pub(crate) const MAX_CABLES: u64 = 1 << 24;

impl Fabric {
    /// All dimensions as one graph.
    ///
    /// # Errors
    /// It is too large, a switch reduces, or the links of a dimension are not shared.
    pub fn graph(&self) -> Result<Graph, FieldError> {
        self.validate()?;
        let npus = self.check_graph()?;
        let mut builder = Builder::new(npus);
        let mut stride = 1;
        for dimension in &self.dimensions {
            let size = dimension.size;
            let starts = (0..npus).filter(|npu| npu / stride % size == 0);
            for first in starts.collect::<Vec<_>>() {
                let at = |place: u32| NodeId(first + place * stride);
                line(&mut builder, dimension, CableKind::Dac, 1, at)?;
            }
            stride *= size;
        }
        builder.build()
    }

    /// How many NPUs the graph has, if it can be one.
    fn check_graph(&self) -> Result<u32, FieldError> {
        let npus = self.npus();
        let mut cables = 0u64;
        for (i, dimension) in self.dimensions.iter().enumerate() {
            let field = |name: &str| format!("fabric.dimensions[{i}].{name}");
            if dimension.in_network_reduction {
                return Err(FieldError::new(
                    field("in_network_reduction"),
                    "true",
                    "a graph of cables does not say that a switch reduces",
                    "leave it out, or use `network_model: dims`",
                ));
            }
            if dimension.contention == Contention::None {
                return Err(FieldError::new(
                    field("contention"),
                    "none",
                    "messages on a graph share its cables",
                    "leave it out, or use `network_model: dims`",
                ));
            }
            let size = u64::from(dimension.size);
            cables += npus / size * line_parts(dimension).0;
            if cables > MAX_CABLES {
                return Err(FieldError::new(
                    field("size"),
                    size,
                    format!(
                        "with it the {npus} {have} {cables}, above {MAX_CABLES}",
                        npus = counted(npus, "NPU"),
                        have = either(&npus, "has", "have"),
                        cables = counted(cables, "cable")
                    ),
                    "make the fabric smaller, or use `network_model: dims`",
                ));
            }
        }
        Ok(u32::try_from(npus).expect("each NPU has a cable at least"))
    }
}

/// How many cables and switches a line along a dimension has.
pub(crate) fn line_parts(dimension: &Dimension) -> (u64, u64) {
    let size = u64::from(dimension.size);
    match dimension.kind {
        Kind::Ring if size == 2 => (1, 0),
        Kind::Ring => (size, 0),
        Kind::FullyConnected => (size * (size - 1) / 2, 0),
        Kind::Switch => (size, 1),
    }
}

/// Lays one line along a dimension, in one of `planes` planes that share its bandwidth. `at` says where
/// its NPUs are.
pub(crate) fn line(
    builder: &mut Builder,
    dimension: &Dimension,
    cable: CableKind,
    planes: u64,
    at: impl Fn(u32) -> NodeId,
) -> Result<(), FieldError> {
    let (size, kind) = (dimension.size, kinds::of(dimension.kind));
    let latency = Time::from_ps(dimension.latency.as_ps() / u64::from(kind.hops_per_step()));
    let bandwidth = kind.link_bandwidth(dimension).fraction(1, planes);
    let wire = Wire { bandwidth, latency };
    let mut lay = |one: NodeId, other: NodeId| builder.cable(one, other, cable, wire);
    match dimension.kind {
        Kind::Ring if size == 2 => lay(at(0), at(1))?,
        Kind::Ring => {
            for place in 0..size {
                lay(at(place), at((place + 1) % size))?;
            }
        }
        Kind::FullyConnected => {
            for place in 0..size {
                for other in place + 1..size {
                    lay(at(place), at(other))?;
                }
            }
        }
        Kind::Switch => {
            let hub = builder.switch();
            for place in 0..size {
                builder.cable(at(place), hub, cable, wire)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::switch;
    use crate::graph::measure;

    fn fabric(kinds: &[(Kind, u32)]) -> Fabric {
        let dimensions = kinds.iter().map(|&(kind, size)| {
            let mut dimension = switch(size, 2, "50 GB/s");
            dimension.kind = kind;
            dimension
        });
        Fabric {
            memory_bandwidth: None,
            window: None,
            name: String::new(),
            dimensions: dimensions.collect(),
        }
    }

    /// The cables of NPU 0, as (other end, Gb/s, ns).
    fn cables(graph: &Graph) -> Vec<(u32, u64, u64)> {
        let of = |&(next, link): &(NodeId, u32)| {
            let wire = graph.link(link).wire;
            let gbps = wire.bandwidth.bytes_per_second() * 8 / 1_000_000_000;
            (next.0, gbps, wire.latency.as_ps() / 1000)
        };
        graph.neighbours(NodeId(0)).iter().map(of).collect()
    }

    #[test]
    fn every_kind_has_its_cables_and_its_bandwidth() {
        let graph = fabric(&[(Kind::Ring, 4), (Kind::FullyConnected, 3), (Kind::Switch, 2)])
            .graph()
            .expect("a graph");
        assert_eq!((graph.npus(), graph.switches()), (24, 12));
        assert_eq!(graph.cables().len(), 24 + 24 + 24);
        // Two links of 400 Gb/s: one each way round, half of it to each of two others, both bonded.
        assert_eq!(
            cables(&graph),
            [(1, 400, 700), (3, 400, 700), (4, 400, 700), (8, 400, 700), (24, 800, 350)]
        );
        assert_eq!(measure::diameter(&graph), 2 + 1 + 2);
    }

    #[test]
    fn of_two_npus_both_neighbours_are_one() {
        let graph = fabric(&[(Kind::Ring, 2), (Kind::Ring, 2)]).graph().expect("a graph");
        assert_eq!(cables(&graph), [(1, 800, 700), (2, 800, 700)]);
        assert_eq!(graph.cables().len(), 4);
    }

    /// What an NPU injects on each dimension is the dimension's aggregate.
    #[test]
    fn injects_the_sum_of_its_dimensions() {
        for kinds in [
            &[(Kind::Ring, 5), (Kind::Switch, 3)][..],
            &[(Kind::FullyConnected, 6)],
            &[(Kind::Switch, 4), (Kind::FullyConnected, 3), (Kind::Ring, 2)],
        ] {
            let fabric = fabric(kinds);
            let graph = fabric.graph().expect("a graph");
            for npu in (0..graph.npus()).map(NodeId) {
                assert_eq!(graph.injection(npu), fabric.total_bandwidth());
            }
        }
    }

    #[test]
    fn refuses_what_no_graph_can_be() {
        let refused = |fabric: Fabric| fabric.graph().expect_err("it is refused").field;
        let large = fabric(&[(Kind::Switch, 4), (Kind::FullyConnected, 1 << 14)]);
        assert_eq!(refused(large), "fabric.dimensions[1].size");
        assert_eq!(refused(fabric(&[(Kind::Ring, 1 << 25)])), "fabric.dimensions[0].size");
        let mut reducing = fabric(&[(Kind::Switch, 4)]);
        reducing.dimensions[0].in_network_reduction = true;
        assert_eq!(refused(reducing), "fabric.dimensions[0].in_network_reduction");
        let mut unshared = fabric(&[(Kind::Switch, 4)]);
        unshared.dimensions[0].contention = Contention::None;
        assert_eq!(refused(unshared), "fabric.dimensions[0].contention");
        assert_eq!(refused(fabric(&[])), "fabric.dimensions");
    }
}
