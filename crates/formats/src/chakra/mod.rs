//! Chakra execution traces (MLCommons): one protobuf file a rank, `NAME.<rank>.et`.
//!
//! [`read()`] streams them into a step graph, [`write()`] makes them of one. `comm_group.json` beside
//! them says which ranks a process group has, as ASTRA-sim has it.
//!
//! - [`wire`]: length-delimited messages out of a file; fields out of a message.
//! - [`mod@proto`]: prost's generated code, which [`write()`] uses; `et_def.proto` is its source.
//! - `record`: a node in one form, whichever of three versions of the schema wrote it; `decode` and
//!   `attribute` read it.
//! - `translate`: a node of a trace as a node of the graph.
//! - `custom`: collectives that are traces of their own.
//! - `groups`, `assemble`: who meets whom. [`scale`]: a trace of a few ranks as one of many.
//! - `streams`: what runs on one stream of an accelerator does so in order.
//! - [`alike`]: one file for ranks that are alike.
//! - [`mod@read`], [`mod@write`]: the files; [`files()`] finds them.
//!
//! prost was chosen because it is maintained, makes code that needs no compiler of protobuf to build,
//! and shows the low-level decoding that reading millions of nodes a second takes.

pub mod alike;
mod assemble;
mod attribute;
mod custom;
mod decode;
pub mod error;
mod files;
pub(crate) mod format;
mod groups;
pub mod proto;
pub mod read;
mod record;
pub mod scale;
mod streams;
mod translate;
pub mod wire;
pub mod write;

pub use alike::Ranks;
pub use custom::Customs;
pub use error::TraceError;
pub use files::files;
pub(crate) use groups::product;
pub use read::{Options, Trace, read};
pub use scale::Scale;
pub use write::write;
