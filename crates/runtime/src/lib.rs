//! The engine on real processes: one node a rank, over TCP.
//!
//! - [`frame`]: what goes before the elements of a message.

mod auth;
mod clock;
mod error;
pub mod frame;
mod interface;
mod rendezvous;
mod settings;

pub use error::{Fault, FaultKind, RuntimeError};
pub use settings::{DimensionSettings, Settings, Timeouts};
