//! Real networks as graphs: one file a topology, one line in [`ALL`].
//!
//! A topology is the value of `fabric.topology` and a few keys beside it. Its counts, its diameter
//! and its half-plane cut have closed forms; the graph is what they are checked against, and what
//! network models of links and switches run on.
//!
//! ```
//! let fabric = serde_json::json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [16, 16],
//!                                  "planes": 4 });
//! let mesh = allrail_fabric::topologies::read(fabric).unwrap();
//! assert_eq!(mesh.counts().switches, 128);
//! ```

mod checks;
pub mod composed;
mod dimension;
pub mod dragonfly;
mod drawing;
mod entry;
mod failed;
pub mod fat_tree;
pub mod global;
pub mod graph;
pub mod hammingmesh;
pub mod hammingmesh_3d;
pub mod hyperx;
mod lines;
pub mod mesh;
pub mod product;
mod topology;
pub mod torus;
mod tree;

use allrail_core::FieldError;
pub use drawing::{Drawing, Picture};
pub use entry::Entry;
use entry::entry;
use serde_json::Value;
pub use topology::{Counts, GraphTopology, Summing};

use crate::Dimension;

/// Every topology.
pub const ALL: &[Entry] = &[
    entry::<fat_tree::FatTree>(fat_tree::TAG, fat_tree::ABOUT, fat_tree::EXAMPLES),
    entry::<dragonfly::Dragonfly>(dragonfly::TAG, dragonfly::ABOUT, dragonfly::EXAMPLES),
    entry::<torus::Torus>(torus::TAG, torus::ABOUT, torus::EXAMPLES),
    entry::<hyperx::HyperX>(hyperx::TAG, hyperx::ABOUT, hyperx::EXAMPLES),
    entry::<hammingmesh::HammingMesh>(hammingmesh::TAG, hammingmesh::ABOUT, hammingmesh::EXAMPLES),
    entry::<hammingmesh_3d::HammingMesh3d>(
        hammingmesh_3d::TAG,
        hammingmesh_3d::ABOUT,
        hammingmesh_3d::EXAMPLES,
    ),
    entry::<mesh::Mesh>(mesh::TAG, mesh::ABOUT, mesh::EXAMPLES),
    entry::<composed::Composed>(composed::TAG, composed::ABOUT, composed::EXAMPLES),
    graph::ENTRY,
];

/// Reads a mapping with `topology` and its keys, and checks it.
///
/// # Errors
/// There is no such topology, or a key is missing, unknown or out of range.
pub fn read(mut fabric: Value) -> Result<Box<dyn GraphTopology>, FieldError> {
    let tags = || ALL.iter().map(|entry| format!("`{}`", entry.tag)).collect::<Vec<_>>().join(", ");
    let tag = fabric.as_object_mut().and_then(|keys| keys.remove("topology")).unwrap_or_default();
    let name = tag.as_str().map_or_else(|| tag.to_string(), str::to_owned);
    let Some(entry) = ALL.iter().find(|entry| entry.tag == name) else {
        let hint = format!("the topologies are {}", tags());
        return Err(FieldError::new("fabric.topology", name, "there is no such topology", hint));
    };
    let read = (entry.read)(fabric).map_err(|error| {
        let hint = "`allrail schema scenario` lists what each topology takes";
        FieldError::new("fabric", name, error.to_string(), hint)
    })?;
    read.validate()?;
    Ok(read)
}

/// What planners see of a topology.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The innermost first.
    pub dimensions: Vec<Dimension>,
    /// Where it is no product of dimensions, and some count over its cables: why.
    pub counted: Option<String>,
}

impl Planned {
    /// Its dimensions; where it has none, those that count over its cables.
    ///
    /// # Errors
    /// As [`GraphTopology::simulated`].
    pub fn of(topology: &dyn GraphTopology) -> Result<Self, FieldError> {
        match topology.dimensions() {
            Ok(dimensions) => Ok(Self { dimensions, counted: None }),
            Err(why) => Ok(Self { dimensions: topology.wired()?, counted: Some(why) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_is_its_own() {
        for (i, one) in ALL.iter().enumerate() {
            assert!(ALL[..i].iter().all(|other| other.tag != one.tag));
            assert!(!one.about.is_empty());
        }
    }

    #[test]
    fn refuses_unknown_topologies_and_keys() {
        let refused = |value| read(value).err().expect("it is refused");
        assert_eq!(refused(serde_json::json!({ "topology": "tree" })).field, "fabric.topology");
        assert_eq!(refused(serde_json::json!([])).value, "null");
        let colour = serde_json::json!({ "topology": "torus", "shape": [4, 4], "colour": 1 });
        assert!(refused(colour).why.contains("colour"));
    }
}
