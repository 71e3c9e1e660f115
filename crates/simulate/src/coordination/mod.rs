//! Coordination in virtual time: which tensors are ready on all ranks, as the coordinators of
//! [`allrail_coordinate`] find out.
//!
//! - `control_plane`: all coordinators of a job, with the costs of messages and with faults. `advance`: time goes
//!   on; `between`: cycles that change nothing; `run_wave`: cycles without a calendar.
//! - `reports`: what a run tells.
//! - `latency`, `faults`: those costs, and what goes wrong.
//! - `agreement`: what a training step sees of it; `crowd`: when each of alike ranks submits.
//! - `settings`: the key `schedule.coordination`.

mod advance;
mod agreement;
mod between;
mod calendar;
mod control_plane;
mod crowd;
mod entry;
mod faults;
mod latency;
mod reports;
mod rhythm;
mod run_wave;
mod settings;
mod wave;

pub use agreement::Agreement;
pub use control_plane::ControlPlane;
pub use entry::Feed;
pub use faults::Faults;
pub use latency::Latency;
pub use reports::{Counts, Everywhere, Notice};
pub use settings::{Collectives, Coordination};
