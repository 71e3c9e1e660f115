//! Real networks as graphs: one file a topology, one line in [`ALL`].
//!
//! A topology is the value of `fabric.topology` and a few keys beside it. Its counts, its diameter
//! and its half-plane cut have closed forms; the graph is what they are checked against, and what
//! worlds of links and switches run on.
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
pub mod torus;
mod tree;

pub use drawing::{Drawing, Picture};
use hammingmesh::HammingMesh;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::graph::Graph;
use crate::placement::Floor;
use crate::routing::{Adaptive, Routing};
use crate::{Dimension, FabricError, Wiring};

/// What a network is made of, over all planes, counted as `HammingMesh` (SC'22, Appendix) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// NPUs that were bought; failed ones are among them.
    pub npus: u64,
    /// Switches.
    pub switches: u64,
    /// Active optical cables.
    pub aoc: u64,
    /// Direct attach copper cables.
    pub dac: u64,
    /// Traces on boards.
    pub pcb: u64,
    /// Planes, all alike.
    pub planes: u64,
    /// Ports of one NPU in one plane, those to its board included.
    pub ports: u64,
}

impl Counts {
    /// These counts of one plane, taken for `planes` planes on the same NPUs.
    fn of_planes(mut self, planes: u32) -> Self {
        self.planes = u64::from(planes);
        for count in [&mut self.switches, &mut self.aoc, &mut self.dac, &mut self.pcb] {
            *count *= self.planes;
        }
        self
    }
}

/// Rows and columns of NPUs that are numbered along dimensions: the first counts rows.
fn grid_of(shape: &[u32]) -> Option<[u32; 2]> {
    let (rows, columns) = shape.split_first()?;
    Some([*rows, columns.iter().product()])
}

/// The rule of a topology, or the one for any graph where the graph is not whole.
fn or_adaptive(
    rule: Option<impl Routing + 'static>,
    graph: &Graph,
) -> Result<Box<dyn Routing>, FabricError> {
    match rule {
        Some(rule) => Ok(Box::new(rule)),
        None => Ok(Box::new(Adaptive::new(graph)?)),
    }
}

/// Who sums what passes through a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summing {
    /// Switches; NPUs hang below them.
    Switches,
    /// Switches, and the routers of NPUs, through which others' data goes on boards and tori.
    Routers,
}

/// A network whose parameters are known. Callers validate it before they ask anything else;
/// [`read`] has done so.
pub trait GraphTopology: Send + Sync {
    /// The tag in fabric files.
    fn tag(&self) -> &'static str;

    /// Checks every parameter.
    ///
    /// # Errors
    /// Names the first parameter that is out of range or does not fit the others, with a hint.
    fn validate(&self) -> Result<(), FabricError>;

    /// What it is made of.
    fn counts(&self) -> Counts;

    /// The largest distance between two NPUs in cables by the topology's formula; `None` where there
    /// is none. `show` prints it beside what breadth-first search finds.
    fn diameter_formula(&self) -> Option<u32>;

    /// The largest flow between the two halves of one plane, in cables; `None` where it cannot be
    /// halved or has no closed form. It is not the bisection: other halves may have less between
    /// them.
    fn half_plane_cut_links(&self) -> Option<u64>;

    /// One plane as a graph.
    ///
    /// # Errors
    /// What was left out has cut it in parts.
    fn build(&self) -> Result<Graph, FabricError>;

    /// One plane as worlds simulate it: [`GraphTopology::build`]'s graph, unless what is simulated is
    /// not what is costed ([`GraphTopology::simulated_as`] says so then).
    ///
    /// # Errors
    /// As [`GraphTopology::build`].
    fn simulated(&self) -> Result<Graph, FabricError> {
        self.build()
    }

    /// One sentence for results where the simulated graph is not the costed one.
    fn simulated_as(&self) -> Option<&'static str> {
        None
    }

    /// Of one plane's nodes that are no NPUs, those that come with the NPUs' boards and are not priced:
    /// [`Counts::switches`] does not have them.
    fn on_board(&self) -> u64 {
        0
    }

    /// Who sums what passes through, if anybody does.
    fn reduces(&self) -> Option<Summing> {
        None
    }

    /// How packets find their way through [`GraphTopology::simulated`]'s graph.
    ///
    /// # Errors
    /// No rule fits the graph: its paths are too long, or need too many virtual channels.
    fn routing(&self, graph: &Graph) -> Result<Box<dyn Routing>, FabricError> {
        Ok(Box::new(Adaptive::new(graph)?))
    }

    /// The dimensions that planners see, the innermost first, with NPUs numbered as in the graph.
    ///
    /// The bandwidth of a dimension is what an NPU has on it, over all planes, while the others are
    /// idle. Where dimensions share an NPU's ports (`fat_tree`, `hyperx`) a plan that uses several
    /// at once is promised too much; the world `flows` on the graph tells.
    ///
    /// # Errors
    /// The topology has none: why, in one sentence.
    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        Err(format!("a `{}` is not a product of dimensions", self.tag()))
    }

    /// What planners see where it is no product of dimensions: some that count over cables
    /// ([`crate::wiring`]), with NPUs numbered as in the graph.
    ///
    /// # Errors
    /// As [`GraphTopology::simulated`].
    fn wired(&self) -> Result<Vec<Dimension>, FabricError> {
        Ok(vec![Wiring::of_npus(self.simulated()?, self.counts().planes)])
    }

    /// Whether all of [`GraphTopology::dimensions`] leave an NPU by the same cables, so that together they
    /// have no more than one of them.
    fn shares_ports(&self) -> bool {
        false
    }

    /// Whether the best splitting of traffic over paths takes ways round: where minimal paths alone leave
    /// most links unused.
    fn takes_detours(&self) -> bool {
        false
    }

    /// Rows and columns of its NPUs, if they are numbered as a grid, row by row.
    fn grid(&self) -> Option<[u32; 2]> {
        None
    }

    /// The boards that jobs are placed on; `None` where it has none.
    fn floor(&self) -> Option<Floor> {
        None
    }

    /// Itself, if it is a mesh of boards: what jobs can be run side by side on.
    fn as_mesh(&self) -> Option<&HammingMesh> {
        None
    }

    /// How it is drawn.
    fn drawing(&self) -> Drawing {
        Drawing::default()
    }
}

/// A topology's line in the list. Every topology but `graph`, which has names, takes `failed_nodes`
/// and `failed_links` beside its own keys.
pub struct Entry {
    /// The tag in fabric files.
    pub tag: &'static str,
    /// One line for help pages.
    pub about: &'static str,
    read: fn(Value) -> Result<Box<dyn GraphTopology>, serde_json::Error>,
    /// The JSON schema of its keys, `topology` not among them.
    pub schema: fn() -> schemars::Schema,
    /// Keys of small instances, as JSON: every law of topologies is tried on them.
    pub examples: &'static [&'static str],
    /// Whether its nodes and links may stand in a file of their own, which `file` names.
    pub in_a_file: bool,
}

const fn entry<T>(
    tag: &'static str,
    about: &'static str,
    examples: &'static [&'static str],
) -> Entry
where
    T: GraphTopology + DeserializeOwned + JsonSchema + 'static,
{
    Entry {
        tag,
        about,
        read: failed::read::<T>,
        schema: failed::schema::<T>,
        examples,
        in_a_file: false,
    }
}

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
pub fn read(mut fabric: Value) -> Result<Box<dyn GraphTopology>, FabricError> {
    let tags = || ALL.iter().map(|entry| format!("`{}`", entry.tag)).collect::<Vec<_>>().join(", ");
    let tag = fabric.as_object_mut().and_then(|keys| keys.remove("topology")).unwrap_or_default();
    let name = tag.as_str().map_or_else(|| tag.to_string(), str::to_owned);
    let Some(entry) = ALL.iter().find(|entry| entry.tag == name) else {
        let hint = format!("the topologies are {}", tags());
        return Err(FabricError::new("fabric.topology", name, "there is no such topology", hint));
    };
    let read = (entry.read)(fabric).map_err(|error| {
        let hint = "`allrail schema scenario` lists what each topology takes";
        FabricError::new("fabric", name, error.to_string(), hint)
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
    pub fn of(topology: &dyn GraphTopology) -> Result<Self, FabricError> {
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
