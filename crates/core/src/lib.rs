//! What every other crate of allrail speaks: units, identifiers and the event queue.
//!
//! - [`units`]: [`Time`] in integer picoseconds, [`Bytes`], [`Bandwidth`]; the only parser of
//!   quantities such as `"400 Gb/s"` in the whole project.
//! - [`count`]: a number and its noun, as people read them.
//! - [`dtype`]: types of elements and their bytes.
//! - [`error`]: a mistake in one field, the form of every crate's errors in what a user wrote.
//! - [`ids`]: ranks and dimensions as types of their own.
//! - [`event_queue`]: the queue whose ties are broken by (time, class, sequence).

pub mod count;
pub mod dtype;
pub mod error;
pub mod event_queue;
pub mod ids;
pub mod units;

pub use count::{counted, either};
pub use error::FieldError;
pub use event_queue::EventQueue;
pub use ids::{DimensionId, Rank};
pub use units::{Bandwidth, Bytes, Time, UnitError};
