//! The engine on real processes: one [`Node`] a rank, over TCP, TLS or memory that ranks on one host
//! share. For Linux.
//!
//! A node drives [`allrail_engine`]'s `Engine` with the wall clock and adds no decision of its own. It has one
//! thread for every dimension of the fabric, which owns that dimension's connections, and one for control;
//! all wait in epoll. What they know is behind one lock, and bytes are touched outside of it. What a peer
//! sends is checked before memory is taken for it ([`frame`]), and what ends a job is a [`Fault`] that says the
//! same on every rank. What is protected against whom is in `SECURITY.md`.
//!
//! ```
//! use std::time::Duration;
//! use allrail_runtime::{Node, Registered, Settings};
//! # fn main() -> Result<(), allrail_runtime::RuntimeError> {
//! let node = |rank| {
//!     let dimension = r#"{"size": 2, "bandwidth": "10 Gb/s", "latency": "20 us"}"#;
//!     let text = format!(r#"{{"rank": {rank}, "ranks": 2, "dimensions": [{dimension}]}}"#);
//!     Node::bind(Settings::from_json(&text)?)
//! };
//! let nodes = [node(0)?, node(1)?];
//! let table: Vec<Vec<String>> = nodes.iter().map(|node| node.addresses().to_vec()).collect();
//! // Ranks are processes; here, threads.
//! std::thread::scope(|scope| {
//!     nodes.each_ref().map(|node| scope.spawn(|| node.connect(&table, &mut || true))).map(|one| one.join());
//! });
//! let mut weights = [[1.0f32; 100], [2.0; 100]];
//! let mut under_way = Vec::new();
//! for (node, weight) in nodes.iter().zip(&mut weights) {
//!     let (name, dtype, shape) = ("weight".to_owned(), "float32".to_owned(), vec![100]);
//!     let key = node.register(Registered { name, dtype, shape, ..Registered::default() })?;
//!     node.start()?;
//!     // SAFETY: nobody touches the weights until their exchange is over.
//!     under_way.push((node, key, unsafe { node.submit(key, weight.as_mut_ptr().cast(), 100)? }));
//! }
//! for (node, key, generation) in under_way {
//!     assert!(node.wait(key, generation, Duration::from_secs(10))?);
//! }
//! assert_eq!(weights, [[3.0; 100]; 2]);
//! # Ok(())
//! # }
//! ```

mod auth;
mod checks;
pub mod checksum;
mod clock;
mod control;
pub mod coordination;
mod elsewhere;
mod error;
mod files;
mod flight;
pub mod frame;
#[cfg(test)]
mod hostile;
mod interface;
pub mod job;
mod memory;
mod node;
mod partition;
mod plans;
mod port;
mod record;
mod rendezvous;
mod replay;
mod report;
mod settings;
mod shared;
mod state;
mod tensor;
mod timeline;
mod waiting;
mod warning;

pub use error::{Fault, FaultKind, RuntimeError};
pub use memory::is_dense;
pub use node::Node;
pub use record::{Record, What};
pub use replay::{Differs, engine as engine_of, replay};
pub use report::{PeerReport, PortReport, Report, TensorReport, WaitsFor};
pub use settings::{DimensionSettings, Settings, TensorKeys, Timeouts};
pub use tensor::{CallOf, Launch, Registered};
pub use timeline::{Exchange, Partition, StageSpan, Timeline, Wait};
pub use warning::Warning;
