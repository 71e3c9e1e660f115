//! Collective algorithms: what every rank sends and receives, proved right (for sizes of tests, and of plans up to 1,024 ranks), and how long it takes.
//!
//! - [`program`]: the common form of an algorithm, steps of sends and receives per rank.
//! - [`dataflow`]: which of a program's messages wait for which.
//! - [`steps`]: what network models need of it: who sends how much to whom in each step.
//! - [`algorithm`]: one file per algorithm, emitting a [`Program`] for any number of ranks.
//! - [`msccl`]: programs of MSCCL, read, proved, and laid out as algorithms of a user's own.
//! - [`grid`]: all-reduces over NPUs in a grid, as programs and as steps for thousands of ranks.
//! - [`hierarchical`]: algorithms composed over the dimensions of a fabric, in any order.
//! - [`in_network`]: the time of an all-reduce that switches do.
//! - [`verify`]: proves a program right by running it symbolically.
//! - [`model`]: bytes and time of one stage on one dimension.
//! - [`plan`]: a [`CollectivePlan`], what a chunk scheduler decides, as data.
//! - [`sizes`]: the sizes that a plan holds for.
//! - [`rank`]: what one rank does in a plan, as exact ranges of elements.

pub mod algorithm;
mod charge;
pub mod dataflow;
pub mod error;
pub mod grid;
pub mod hierarchical;
pub mod in_network;
pub mod kind;
pub mod model;
pub mod msccl;
pub mod plan;
pub mod program;
pub mod rank;
mod size_range;
pub mod sizes;
pub mod steps;
mod unaware;
pub mod verify;
mod waits;
pub mod window;
mod wired;

pub use algorithm::{Algorithm, Alike, Cost, LinkTime, OnLinks, Pattern};
pub use dataflow::Dataflow;
pub use error::CollectiveError;
pub use kind::Operation;
pub use model::{DimensionSet, StageModel, StageTime};
pub use plan::{ChunkPlan, CollectivePlan, Stage, StageRef};
pub use program::Program;
pub use size_range::SizeRange;
pub use steps::Steps;
pub use window::Pace;
