//! Coordination in virtual time: which tensors are ready on all ranks, as the coordinators of
//! [`allrail_schedule::coordinate`] find out.
//!
//! - [`network`]: all coordinators of a job, with the costs of messages and with faults.
//! - [`reports`]: what a run tells.
//! - [`latency`], [`faults`]: those costs, and what goes wrong.
//! - [`agreement`]: what a training step sees of it.
//! - [`steps`]: training steps on it, and what the talk costs them.
//! - [`settings`]: the key `schedule.coordination`.
//! - [`request`]: steps as JSON, for the bindings.

pub mod agreement;
mod calendar;
pub mod faults;
pub mod latency;
pub mod network;
mod pace;
pub mod reports;
pub mod request;
mod rhythm;
pub mod settings;
pub mod steps;
mod wave;

pub use agreement::Agreement;
pub use faults::Faults;
pub use latency::Latency;
pub use network::{Feed, Network};
pub use reports::{Counts, Everywhere, Notice};
pub use settings::Coordination;
