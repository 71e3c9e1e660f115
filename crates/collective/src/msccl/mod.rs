//! Programs of MSCCL: an XML file for all ranks.
//!
//! Each GPU has blocks of threads. A block runs its steps one after the other; it may send to one GPU and
//! receive from one, on a channel. A step moves `cnt` chunks between the buffers `i` (input), `o` (output) and
//! `s` (scratch), and may wait for a step of another block of its GPU. Messages between two GPUs on a channel
//! keep their order. In place, input and output share memory: an all-gather's input is the part of the output
//! that its rank brings, a reduce-scatter's output the part of the input that it keeps. A broadcast is from
//! rank 0.
//!
//! - [`read()`]: the file. [`prove()`]: that it does what it should, chunk by chunk, and what it moves and adds.
//! - [`algorithm()`]: the same as an [algorithm](crate::algorithm::Own) of a dimension.
//!
//! A chunk is the buffer over `nchunksperloop`. Copies and sums on the GPU take no time here, and a channel has
//! room for every message that is on its way; MSCCL's loops over large buffers are one pass.
//!
//! ```
//! use allrail_collective::{Algorithm, Operation, msccl};
//! let gpu = |own: u32, other: u32| format!(r#"
//!   <gpu id="{own}"><tb id="0" send="{other}" recv="{other}" chan="0">
//!     <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1"/>
//!     <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"/>
//!   </tb></gpu>"#);
//! let text = format!(
//!     r#"<algo ngpus="2" nchunksperloop="1" coll="allreduce" inplace="1">{}{}</algo>"#,
//!     gpu(0, 1), gpu(1, 0),
//! );
//! let swap = msccl::algorithm("swap.xml", &text)?;
//! assert_eq!(swap.cost(Operation::AllReduce, 2).steps, 1);
//! let wrong = msccl::algorithm("swap.xml", &text.replace("rrc", "r")).expect_err("it adds nothing");
//! assert!(wrong.place.starts_with("line 4: step 1 (`r`) of block 0 of GPU 0"), "{wrong}");
//! # Ok::<(), msccl::Wrong>(())
//! ```

mod chains;
mod clock;
mod convert;
mod flow;
mod prove;
mod read;
mod schedule;
mod value;

use std::path::Path;

use crate::algorithm::Own;
use crate::{Operation, SizeRange};

pub use flow::Flow;
pub use prove::prove;
pub use read::{open, read};

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct Wrong {
    /// The line, and what stands there.
    pub place: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: String,
}

impl Wrong {
    fn new(place: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { place: place.into(), why: why.into(), hint: hint.into() }
    }
}

/// Whether a file's name says that it is one.
#[must_use]
pub fn is_one(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("xml"))
}

/// The content of a file, named `name`, as an algorithm.
///
/// # Errors
/// It is no such file, does not do its operation, or moves its chunks in a way that an algorithm of ours
/// cannot: which step.
pub fn algorithm(name: &str, text: &str) -> Result<Own, Wrong> {
    let file = read(text)?;
    let flow = prove(&file)?;
    let program = convert::convert(&file, &flow)?;
    Own::new(name, file.operation, file.sizes, program)
        .map_err(|error| Wrong::new("`algo`", error.to_string(), "mend the program"))
}

/// What a whole file says.
pub struct File {
    /// What it does.
    pub operation: Operation,
    /// Whether input and output share memory.
    pub in_place: bool,
    /// Of a whole buffer.
    pub chunks: u32,
    /// The sizes of a collective that it is meant for, if not any.
    pub sizes: Option<SizeRange>,
    /// By rank.
    pub gpus: Vec<Gpu>,
}

/// What one rank does.
pub struct Gpu {
    /// At once.
    pub blocks: Vec<Block>,
}

/// A block of threads.
pub struct Block {
    /// Its number on its GPU.
    pub id: u32,
    /// To whom it sends.
    pub send: Option<u32>,
    /// From whom it receives.
    pub receive: Option<u32>,
    /// On which channel.
    pub channel: u32,
    /// One after the other.
    pub steps: Vec<Step>,
}

/// A step of a block.
pub struct Step {
    /// Of the file.
    pub line: u32,
    /// What it does.
    pub kind: &'static Kind,
    /// From where, and from which chunk on.
    pub source: (Buffer, u32),
    /// To where.
    pub destination: (Buffer, u32),
    /// Chunks.
    pub count: u32,
    /// The place of a block of the GPU, and that of a step there, which it waits for.
    pub after: Option<(usize, usize)>,
}

/// Memory of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Buffer {
    /// What it brings.
    Input,
    /// What it ends with.
    Output,
    /// Neither.
    Scratch,
}

/// What a step does, in this order.
pub struct Kind {
    /// Its `type`.
    pub tag: &'static str,
    /// Whether it receives first.
    pub receives: bool,
    /// Takes the chunks of its source: to send or copy them, or to add what it has received.
    pub reads: bool,
    /// Of two values, adds them.
    pub adds: bool,
    /// Whether it keeps the result at its destination.
    pub stores: bool,
    /// Whether it sends the result.
    pub sends: bool,
}

/// `re` adds to what its destination holds; the others that add add what came to what the source holds.
const KINDS: [Kind; 9] = [
    kind("s", [false, true, false, false, true]),
    kind("r", [true, false, false, true, false]),
    kind("rcs", [true, false, false, true, true]),
    kind("rrs", [true, true, true, false, true]),
    kind("rrc", [true, true, true, true, false]),
    kind("rrcs", [true, true, true, true, true]),
    kind("cpy", [false, true, false, true, false]),
    kind("re", [false, true, true, true, false]),
    kind("nop", [false, false, false, false, false]),
];

const fn kind(tag: &'static str, does: [bool; 5]) -> Kind {
    let [receives, reads, adds, stores, sends] = does;
    Kind { tag, receives, reads, adds, stores, sends }
}

/// Names a step in messages.
fn title(rank: usize, block: &Block, step: usize) -> String {
    let found = &block.steps[step];
    format!(
        "line {}: step {step} (`{}`) of block {} of GPU {rank}",
        found.line, found.kind.tag, block.id
    )
}
