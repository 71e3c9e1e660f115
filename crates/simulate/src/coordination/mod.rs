//! Coordination in virtual time: which tensors are ready on all ranks, as the coordinators of
//! [`allrail_schedule::coordinate`] find out.
//!
//! - [`control_plane`]: all coordinators of a job, with the costs of messages and with faults.
//! - [`reports`]: what a run tells.
//! - [`latency`], [`faults`]: those costs, and what goes wrong.
//! - [`agreement`]: what a training step sees of it; `crowd`: when each of alike ranks submits.
//! - [`settings`]: the key `schedule.coordination`.

pub mod agreement;
mod calendar;
pub mod control_plane;
mod crowd;
pub mod faults;
pub mod latency;
pub mod reports;
mod rhythm;
pub mod settings;
mod wave;

pub use agreement::Agreement;
pub use control_plane::{ControlPlane, Feed};
pub use faults::Faults;
pub use latency::Latency;
pub use reports::{Counts, Everywhere, Notice};
pub use settings::{Collectives, Coordination};
