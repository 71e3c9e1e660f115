//! Training steps in virtual time. The folders are the way of a step:
//!
//! 1. `scenario`: what of it is checked first; `part`: the NPUs of the fabric that it takes; `job`: its step graph;
//!    [`run()`] leads from it to a result. `step_run`: what a run is made of; `network`: one file for each kind of network;
//!    `drive`: runs the graph on a communicator.
//! 2. [`players`]: who runs the nodes of the step graph, and who meets in each process group.
//! 3. `driver`: the loop: compute engines, gathering, messages, iterations.
//! 4. `gradients`: what of them is exchanged when, by coordinators and tensor schedulers; `agreements`: what
//!    ranks agree on first, other collectives too; `apart`: gradients of workers that exchange with parameter servers;
//!    `facts`: what the graph says of gradients; `sparse`: tables whose gradients travel as rows or dense.
//! 5. [`communicator`]: what carries collectives and messages, in every network model.
//! 6. `outcome`: what came out: figures, critical path, links, what-ifs.
//!
//! `bound`: what no simulation can beat, without one.

mod agreements;
mod apart;
mod bound;
pub mod communicator;
mod drive;
mod driver;
mod facts;
mod gradients;
mod job;
mod lists;
mod network;
mod outcome;
pub(crate) mod part;
pub mod players;
mod ranking;
mod run;
mod scenario;
mod sparse;
mod step_run;

pub use bound::{Bound, BoundResult, bound};
pub use job::{BuiltJob, graph_of};
pub use outcome::export::export;
pub use outcome::result::{SpanResult, TrainingResult};
pub use ranking::{RankedTask, Ranking, ranking};
pub use run::run;
pub use sparse::simulate;
