//! The network as the planners and worlds see it.
//!
//! A [`Fabric`] is a list of [`Dimension`]s: every NPU sits on one network per dimension, each with
//! its own kind, size, bandwidth and latency. What a kind of dimension means in links is one file
//! each in [`topology`].

pub mod advise;
pub mod dimension;
pub mod error;
pub mod fabric;
pub mod topology;

pub use dimension::{Contention, Dimension, Kind};
pub use error::FabricError;
pub use fabric::Fabric;
