//! A fabric of dimensions as a topology: its rings, switches and full meshes in cables, for network models of cables.
//!
//! Nobody names it in a file: a fabric with `dimensions` is one. See [`Fabric::graph`] for how it is wired. Cables count as
//! copper, and it has no price: a dimension does not say what it is made of.

use allrail_core::FieldError;

use super::topology::{Counts, GraphTopology};
use crate::graph::{Graph, line_parts};
use crate::{Dimension, Fabric, kinds};

/// See the module.
#[derive(Clone, Debug)]
pub struct Product(pub Fabric);

impl GraphTopology for Product {
    fn tag(&self) -> &'static str {
        "dimensions"
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.0.validate()
    }

    fn counts(&self) -> Counts {
        let npus = self.0.npus();
        let parts = self.0.dimensions.iter().map(|one| {
            let (cables, switches) = line_parts(one);
            let lines = npus / u64::from(one.size);
            let ports = kinds::of(one.kind).links_per_npu(one);
            (lines * cables, lines * switches, ports)
        });
        let (dac, switches, ports) =
            parts.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        Counts { npus, switches, aoc: 0, dac, pcb: 0, planes: 1, ports }
    }

    fn diameter_formula(&self) -> Option<u32> {
        None
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        None
    }

    fn build(&self) -> Result<Graph, FieldError> {
        self.0.graph()
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        Ok(self.0.dimensions.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::fabric::tests::switch;

    #[test]
    fn counts_are_those_of_the_graph() {
        let mut dimensions =
            vec![switch(4, 2, "50 GB/s"), switch(3, 2, "50 GB/s"), switch(2, 1, "50 GB/s")];
        (dimensions[0].kind, dimensions[1].kind) = (Kind::Ring, Kind::FullyConnected);
        let name = String::new();
        let fabric = Fabric { memory_bandwidth: None, window: None, name, dimensions };
        let product = Product(fabric);
        let (counts, graph) = (product.counts(), product.build().expect("a graph"));
        assert_eq!(counts.dac, graph.cables().len() as u64);
        assert_eq!(counts.switches, graph.switches() as u64);
        assert_eq!(counts.ports, graph.neighbours(crate::graph::NodeId(0)).len() as u64);
    }
}
