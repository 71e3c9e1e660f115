//! Jobs that run at the same time on the boards of a `HammingMesh`: what each keeps of its bandwidth.
//!
//! A placed job is a `HammingMesh` of its own ([`placement`](crate::placement)). Every job runs all-reduces
//! (rings along its virtual grid of NPUs) or all-to-alls. Its share is
//!
//! ```text
//! share = bandwidth with all jobs running / bandwidth alone, on a contiguous block of an empty mesh
//! ```
//!
//! Messages take all shortest paths, evenly (`ecmp`): these depend on the ends alone, so the others
//! change no job's paths. A path that leaves the job's boards is an error, not a slower job.
//!
//! - [`loads`]: what messages put on links.
//! - `work`: what a job runs, as messages.
//! - `steady`: what each job gets in the long run, by max-min fair sharing between jobs.
//! - [`events`]: the same, message by message in any network model.
//! - `report`: what `allrail place --run` asks and is told.
//!
//! ```
//! use allrail_jobs::placement::Placed;
//! use allrail_jobs::running::{Work, shares};
//! let mesh = serde_json::json!({ "board": [2, 2], "grid": [4, 4], "failed_boards": [[1, 1]] });
//! let mesh = serde_json::from_value(mesh).unwrap();
//! let job = Placed { job: 0, rows: vec![0, 2], columns: vec![0, 3] };
//! let found = shares(&mesh, &[job], Work::AllReduce).unwrap();
//! assert_eq!((found.jobs[0].algorithm, found.jobs[0].share), ("rings", 1.0));
//! ```

pub mod events;
pub mod loads;
mod report;
mod steady;
mod work;

pub use report::place;
pub use steady::{JobShare, Shares, shares};
pub use work::Work;
