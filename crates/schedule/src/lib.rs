//! The deciders of one rank: pure, deterministic state machines. Events in, actions out; no clock, no thread,
//! no file, no socket, no unseeded randomness (a test reads the sources for them).
//!
//! - [`chunk`]: which dimension a chunk visits next: `baseline`, `round_robin`, `themis`, `search`.
//! - [`queue`]: which waiting stage a dimension serves next: FIFO, LIFO, smallest first, planned.
//! - [`tensor`]: which part of which gradient travels next: FIFO, buckets, fusion, by priority,
//!   ByteScheduler.
//! - [`operation`], [`signature`], [`registry`]: what operations and tensors are called, alike on all
//!   ranks.
//! - [`evaluate`]: how long a plan takes, the inner loop of the planners; the `dims` network model is its
//!   oracle.
//! - [`room`]: how many stages a dimension runs at once.
//! - [`algorithms`]: which algorithm each dimension runs. [`choose`](mod@choose): by size.
//! - [`made`]: those that are made for a network.
//! - [`Request`]: what is to be planned. [`scheduled`]: its stages and their times. [`planner`]: from one to a
//!   [`allrail_collective::CollectivePlan`].
//! - [`bound`]: what no schedule can beat. [`cuts`]: the same on any graph. [`trees`]: what
//!   reaches it there.

pub mod algorithms;
pub mod bound;
pub mod choose;
pub mod chunk;
pub mod cuts;
pub mod error;
pub mod evaluate;
pub mod key;
pub mod made;
pub mod operation;
pub mod planner;
pub mod queue;
pub mod registry;
mod request;
pub mod room;
pub mod scheduled;
pub mod signature;
pub mod tensor;
pub mod trees;

pub use algorithms::{Algorithms, Choice};
pub use chunk::ChunkScheduler;
pub use error::ScheduleError;
pub use operation::{Key, OperationName};
pub use planner::plan;
pub use queue::{DimensionQueue, Order, Waiting};
pub use request::Request;
pub use room::ActiveChunks;
