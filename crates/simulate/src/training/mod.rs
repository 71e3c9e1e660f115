//! Training steps in virtual time: a step graph, run by players over a network.
//!
//! - [`players`]: who runs nodes, and which of them meet in each instance of a group.
//! - [`driver`]: the loop: compute engines, gathering, messages, iterations.
//! - [`carrier`]: what carries the communication; [`dims`] for the world of that name, [`messages`]
//!   for the others. [`network`]: the graph fabrics, and where a job's ranks are on them.
//! - [`links`]: how busy each link was.
//! - [`exchange`]: a carrier with parameter servers beside it, and their links, [`servers`].
//! - [`tensors`]: gradients, through the tensor schedulers.
//! - [`assumption`]: what-ifs, and which world can assume what.
//! - [`slow`]: slow links, and which groups feel them.
//! - [`record`]: what happened to each node, and what compute engines waited for.
//! - [`scenario`]: the resolved scenario. [`run`]: from it to a [`result`].
//! - [`path`]: the critical path of a step, in words.

mod assumption;
pub mod carrier;
pub mod dims;
pub mod driver;
pub mod exchange;
pub mod export;
mod links;
mod lowered;
pub mod messages;
pub mod network;
pub mod path;
pub mod players;
pub mod record;
pub mod result;
pub mod run;
pub mod scenario;
pub mod servers;
pub mod slow;
mod steady;
mod summary;
pub mod tensors;

pub use lowered::{Algorithms, AllToAll};
pub use result::TrainingResult;
pub use run::{Job, run, simulate};
pub use scenario::{TrainingScenario, WhatIf};
