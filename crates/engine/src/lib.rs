//! What stands between the deciders and whatever carries bytes: pure, and the same code under every
//! driver.
//!
//! - [`executor`]: the chunks of collectives on the ports (dimensions) of one rank, or of one class of
//!   ranks that are alike. It says which stage runs next.
//! - [`StageRun`]: the steps of a stage on one rank: which sends may leave, what is still awaited. [`DataflowRun`]:
//!   the same where a message waits for its own blocks only.
//! - [`operations`], [`chunk_run`], [`memory`] and [`reduce`]: the bytes of a rank's operations: which frame
//!   is whose, which may be combined now, and the elements that it carries; [`signature_hash`]: what an
//!   operation is, in 8 bytes of every frame, and [`asked`] for.
//! - [`engine`]: one rank's whole decision, from a tensor that is submitted to a stage that runs:
//!   coordinator, tensor scheduler and executor.
//!
//! The example `in_memory` is a driver as small as one can be: two ranks that sum a tensor in one process.
//!
//! Nothing here reads a clock, starts a thread or opens a file, and a mistake of a caller or of a peer
//! is an error ([`Broken`]), never a panic. Everything is `Send`.

pub mod asked;
pub mod chunk_run;
mod closed;
mod dataflow_run;
pub mod engine;
pub mod error;
pub mod executor;
pub mod memory;
pub mod operations;
mod progress;
pub mod reduce;
pub mod signature_hash;
mod stage_run;
pub mod stages;

pub use asked::Asked;
pub use chunk_run::{ChunkRun, FrameAt, Misfit, Work};
pub use dataflow_run::DataflowRun;
pub use engine::{Action, Call, Engine, Event, Home, Ordering, Registration, Settings, Slice};
pub use error::Broken;
pub use executor::Executor;
pub use operations::{FrameName, Operations, Refused};
pub use progress::{ALONE, CollectiveId, Progress, Run, UnderWay};
pub use reduce::Dtype;
pub use signature_hash::SignatureHash;
pub use stage_run::StageRun;
pub use stages::{StageTask, Stages};
