//! The engine on real processes: one node a rank, over TCP.
//!
//! - [`frame`]: what goes before the elements of a message.

mod auth;
mod clock;
mod control;
mod error;
pub mod frame;
mod interface;
mod memory;
mod node;
mod plans;
mod port;
mod rendezvous;
mod report;
mod settings;
mod shared;
mod state;

pub use error::{Fault, FaultKind, RuntimeError};
pub use node::{CallOf, Node, Registered};
pub use report::{PortReport, Report, TensorReport};
pub use settings::{DimensionSettings, Settings, Timeouts};
