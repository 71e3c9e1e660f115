//! The network as the planners and network models see it.
//!
//! A [`Fabric`] is a list of [`Dimension`]s: every NPU sits on one network per dimension, each with
//! its own kind, size, bandwidth and latency. What a kind of dimension means in links is one file
//! each in [`kinds`].
//!
//! A network of switches and cables is a [`graph::Graph`], made by one of the [`topologies`]; [`show`]
//! says what can be known about it without simulating, [`cost`] what it costs.

pub mod advise;
pub mod cost;
pub mod dimension;
pub mod fabric;
pub mod graph;
pub mod kinds;
pub mod packet;
pub mod placement;
pub mod routing;
pub mod show;
pub mod topologies;
pub mod wiring;

pub use dimension::{Contention, Dimension, Fastest, Kind};
pub use fabric::Fabric;
pub use packet::Packet;
pub use wiring::Wiring;
