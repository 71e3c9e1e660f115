//! Training steps: what a job computes and what it communicates, before any network is known.
//!
//! - [`graph`]: the step graph, a DAG of compute and communication nodes over classes of ranks.
//! - [`formats`]: workloads in other tools' words.
//! - [`error`]: what can be wrong with a workload.

mod check;
pub mod error;
pub mod formats;
pub mod graph;

pub use error::WorkloadError;
pub use graph::{
    Actor, ActorId, Builder, Group, GroupId, Node, NodeId, Part, Pass, Peer, Purpose, StepGraph,
    Work,
};
