//! What one rank does in a plan: exact ranges of elements, made for that rank alone.

mod buffer;
mod cells;
mod line;
mod message;
mod order;
mod planner;
mod plans;
mod shape;

pub use crate::program::Combine;
pub(crate) use buffer::cut;
pub use buffer::{Buffer, GRANULE, shard};
pub use message::{Action, Chunk, Message, Stage, Step};
pub use planner::{RankPlan, RankPlanner};
pub use plans::Plans;
