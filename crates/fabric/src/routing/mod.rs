//! How messages find their way through a [`Graph`](crate::graph::Graph): which links a packet may take next.
//!
//! A [`Routing`] is a pure function. It names every hop that is allowed; the network model `packets` takes
//! the one that is least loaded. Links are directed and numbered as [`Graph::link`](crate::graph::Graph::link) does.
//!
//! - [`adaptive`]: any graph: shortest paths, up and down; the other rules fall back on it where a
//!   network is not whole.
//! - [`dragonfly`], [`hammingmesh`], [`hyperx`], [`torus`]: rules of one topology each.
//! - [`dependencies`]: which link a packet may wait for while it holds another: the proof that a rule
//!   cannot deadlock.

pub mod adaptive;
pub mod dependencies;
pub mod dragonfly;
pub mod hammingmesh;
pub mod hyperx;
mod layered;
pub mod torus;

pub use adaptive::Adaptive;
pub use dependencies::Dependencies;
pub use dragonfly::DragonflyRouting;
pub use hammingmesh::HammingMeshRouting;
pub use hyperx::HyperXRouting;
pub use torus::TorusRouting;

use crate::graph::NodeId;

/// Two NPUs are no more links apart than this: tables keep distances in a byte.
pub const FARTHEST: u32 = 254;

/// What a packet carries of its way so far. What the bits mean is each routing's own; 0 at the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteState(pub u32);

/// One way on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The directed link.
    pub link: u32,
    /// The virtual channel of that link, from 0.
    pub channel: u8,
    /// Links to go from here, this one among them: loads are compared times this (UGAL). A dragonfly
    /// counts links between switches, and on a detour as many as it can take.
    pub weight: u8,
    /// What the packet carries from then on.
    pub state: RouteState,
}

/// Which hops a packet may take. The network model `packets` asks at every node but the destination, the
/// channel dependency graph asks for everything that it could be answered.
pub trait Routing: Send + Sync {
    /// One line for results, such as `minimal, adaptive, north last`.
    fn about(&self) -> String;

    /// How many virtual channels each link has.
    fn channels(&self) -> u8;

    /// How many values `draw` has in [`Routing::hops`].
    fn draws(&self) -> u32 {
        1
    }

    /// Appends every hop that a packet at `node` for `destination` may take, the preferred one first:
    /// it is taken where loads are equal. At least one if `node` is not the destination and `state`
    /// is one that a packet can arrive with. `draw`, below [`Routing::draws`], is drawn anew for every
    /// packet and node; a routing that picks detours at random goes by it.
    fn hops(
        &self,
        node: NodeId,
        state: RouteState,
        destination: NodeId,
        draw: u32,
        out: &mut Vec<Hop>,
    );
}
