//! Jobs on a fabric of boards: which boards one job may get.
//!
//! A job on a `HammingMesh` gets `u` rows crossed with `v` columns of boards, which need not be
//! neighbours: rows and columns end in trees, so the sub-grid is a `HammingMesh` of its own (SC'22,
//! "greedy allocation"). [`find`] is that search. Of a mesh of three dimensions a job takes planes, too.
//! Contiguous boxes on a torus and any NPUs of a fat tree are there for comparison ([`Floor`]). Many jobs
//! are the crate `allrail-jobs`.

mod boards;
mod boxes;
mod floor;
mod greedy;
mod locality;
mod request;
mod shape;
mod torus;

pub use boards::{Block, Boards};
pub use floor::Floor;
pub(crate) use floor::{Rule, at_edges, times};
pub use greedy::find;
pub use locality::{Leaves, find_near, pairs_across};
pub use request::{Request, Size, Unit};
pub use shape::{Choice, Shape, shapes};
