//! Training steps: what a job computes and what it communicates, before any network is known.
//!
//! - [`graph`]: the step graph, a DAG of compute and communication nodes over classes of ranks.
//! - [`spec`]: the `workload` of a scenario. [`steps`]: one whose steps are written out.
//! - [`models`]: layers with FLOPs, parameters and activations.
//! - [`compression`]: gradients made smaller.
//! - [`kernels`]: what they run on a device. [`device`]: how long it takes. [`memory`]: what an NPU keeps.
//! - [`parallelism`]: from a model and a layout to a step graph.
//! - [`perturbation`]: stragglers and jitter. [`slow_links`]: links that carry less.
//! - [`throughput`]: samples, tokens and FLOPs a second. [`time_to_train`]: all steps together.

mod check;
pub mod compression;
pub mod device;
mod error;
pub mod graph;
pub mod kernels;
pub mod memory;
pub mod models;
pub mod parallelism;
pub mod perturbation;
pub mod recompute;
pub mod slow_links;
pub mod spec;
mod splitmix;
pub mod steps;
pub mod throughput;
pub mod time_to_train;

pub use graph::{
    Actor, ActorId, Builder, Group, GroupId, Node, NodeId, Part, Pass, Peer, Purpose, StepGraph,
    Work,
};
pub use memory::Memory;
pub use parallelism::outline::{Outline, PassNodes, outline};
pub use parallelism::{Built, build, memory_of};
pub use perturbation::Perturbation;
pub use slow_links::SlowLinks;
pub use spec::Workload;
pub use throughput::{StepWork, Throughput};
pub use time_to_train::TimeToTrain;
