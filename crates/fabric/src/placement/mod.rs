//! Jobs on a fabric of boards: which boards each gets, and how much of the fabric they use.
//!
//! A job on a `HammingMesh` gets `u` rows crossed with `v` columns of boards, which need not be
//! neighbours: rows and columns end in trees, so the sub-grid is a `HammingMesh` of its own (SC'22,
//! "greedy allocation"). [`find`] is that search, [`place`] does a mix of jobs, [`Study`] many mixes.
//! Of a mesh of three dimensions a job takes planes, too. Contiguous boxes on a torus and any NPUs of a
//! fat tree are there for comparison ([`Floor`]).
//!
//! ```
//! use allrail_fabric::placement::{Options, place, read_floor};
//! let fabric = serde_json::json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [4, 4] });
//! let floor = read_floor(&fabric).unwrap();
//! let placement = place(&floor, &mut floor.empty(), &[6u32, 9], Options::default());
//! assert_eq!(placement.jobs[0].rows, [0, 1, 2]);
//! assert_eq!(placement.left_out, [1], "3 x 3 do not fit beside 3 x 2");
//! ```

mod boards;
mod boxes;
mod defragment;
mod floor;
mod fold;
mod greedy;
mod locality;
mod mix;
mod npus;
mod place;
mod queue;
mod read;
mod report;
mod request;
mod shape;
mod study;
mod torus;
mod upper;

pub use boards::{Block, Boards};
pub use defragment::{Defragmentation, Move, Mover, defragment};
pub use floor::Floor;
pub(crate) use floor::{Rule, at_edges, times};
pub use fold::Fold;
pub use greedy::find;
pub use locality::{Leaves, find_near};
pub use mix::{Histogram, Mixes, Sizes};
pub use npus::{Numbering, VirtualGrid};
pub use place::{Options, Placed, Placement, place};
pub use queue::{Arrival, Queue, Ran, Run, arrivals};
pub use read::read_floor;
pub use report::{place_mixes, run_queue};
pub use request::{Request, Size, Unit};
pub use shape::{Choice, Shape, shapes};
pub use study::{Found, Map, Moved, PlacedMix, Study};
pub use upper::{Upper, upper};
