//! Jobs placed on boards: [`place`] does a mix of them, [`Study`] many mixes, [`Queue`] those that come and go.
//!
//! ```
//! use allrail_jobs::placement::{Options, place, read_floor};
//! let fabric = serde_json::json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [4, 4] });
//! let floor = read_floor(&fabric).unwrap();
//! let placement = place(&floor, &mut floor.empty(), &[6u32, 9], Options::default());
//! assert_eq!(placement.jobs[0].rows, [0, 1, 2]);
//! assert_eq!(placement.left_out, [1], "3 x 3 do not fit beside 3 x 2");
//! ```

mod defragment;
mod fold;
mod mix;
mod npus;
mod place;
mod queue;
mod read;
mod report;
mod study;
mod upper;

pub use defragment::{Defragmentation, Move, Mover, defragment};
pub use fold::Fold;
pub use mix::{Histogram, Mixes, Sizes};
pub use npus::{Numbering, VirtualGrid};
pub use place::{Options, Placed, Placement, place};
pub use queue::{Arrival, Queue, Ran, Run, arrivals};
pub use read::read_floor;
pub use report::{place_mixes, run_queue};
pub use study::{Found, Map, Moved, PlacedMix, Study};
pub use upper::{Upper, upper};
