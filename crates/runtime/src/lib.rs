//! The engine on real processes: one node a rank, over TCP.
//!
//! - [`frame`]: what goes before the elements of a message.

pub mod frame;
