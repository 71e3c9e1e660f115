//! Collectives that MSCCL runs: an XML file for all ranks, `NAME.xml`.
//!
//! Each GPU has blocks of threads. A block runs its steps one after the other; it may send to one GPU and
//! receive from one, on a channel. A step moves `cnt` chunks between the buffers `i` (input), `o` (output) and
//! `s` (scratch), and may wait for a step of another block of its GPU. Messages between two GPUs on a channel
//! keep their order. In place, input and output share memory: an all-gather's input is the part of the output
//! that its rank brings, a reduce-scatter's output the part of the input that it keeps.
//!
//! - [`read()`]: the file. [`prove`]: that it does what it should, chunk by chunk.
//! - [`Algorithm::ranks`]: the same as the nodes of a trace.
//!
//! A chunk is the buffer over `nchunksperloop`. Copies and sums on the GPU take no time here, and a channel has
//! room for every message that is on its way; MSCCL's loops over large buffers are one pass.

mod prove;
mod read;
mod value;

use std::path::{Path, PathBuf};

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};

use super::super::error::TraceError;
use super::{Does, Message, Node, Rank};

/// Whether a file's name says that it is one.
pub(super) fn is_one(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("xml"))
}

/// Reads a file and proves it, for a group of `members` ranks.
///
/// # Errors
/// It is no such file, is for other ranks or another operation, or does not do it: which step is wrong.
pub(super) fn load(
    path: &Path,
    members: usize,
    operation: Operation,
    bytes: Bytes,
) -> Result<Vec<Rank>, TraceError> {
    let algorithm = read::read(path)?;
    let wrong = |why: String, hint: String| TraceError::new(path, "`algo`", why, hint);
    if algorithm.operation != operation {
        let why = format!("it does `{}`, and the collective is `{operation}`", algorithm.operation);
        return Err(wrong(why, "name it under its own kind".to_owned()));
    }
    if algorithm.gpus.len() != members {
        let why = format!("it is for {} ranks, and {members} run it", algorithm.gpus.len());
        let hint = "MSCCL's programs are for one number of ranks; take one for yours".to_owned();
        return Err(wrong(why, hint));
    }
    let (least, most) = algorithm.sizes;
    if bytes < least || most.is_some_and(|most| bytes > most) {
        let most = most.map_or_else(|| "any size".to_owned(), |most| most.to_string());
        let why = format!("it is for {least} to {most}, and the collective has {bytes}");
        return Err(wrong(
            why,
            "run a collective of such a size, or leave `minBytes` and `maxBytes` out".to_owned(),
        ));
    }
    prove::prove(&algorithm)?;
    Ok(algorithm.ranks(bytes))
}

/// A whole file.
struct Algorithm {
    file: PathBuf,
    operation: Operation,
    in_place: bool,
    /// Of a whole buffer.
    chunks: u32,
    /// The sizes for which it is meant.
    sizes: (Bytes, Option<Bytes>),
    gpus: Vec<Gpu>,
}

struct Gpu {
    blocks: Vec<Block>,
}

/// A block of threads.
struct Block {
    id: u32,
    send: Option<u32>,
    receive: Option<u32>,
    channel: u32,
    steps: Vec<Step>,
}

struct Step {
    /// Of the file.
    line: u32,
    kind: &'static Kind,
    source: (Buffer, u32),
    destination: (Buffer, u32),
    count: u32,
    /// The place of a block of the GPU, and that of a step there.
    after: Option<(usize, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Buffer {
    Input,
    Output,
    Scratch,
}

/// What a step does, in this order.
struct Kind {
    tag: &'static str,
    receives: bool,
    /// Takes the chunks of its source: to send or copy them, or to add what it has received.
    reads: bool,
    /// Of two values, adds them.
    adds: bool,
    stores: bool,
    sends: bool,
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

impl Algorithm {
    /// As nodes: a step receives, and then sends.
    fn ranks(&self, bytes: Bytes) -> Vec<Rank> {
        self.gpus.iter().map(|gpu| self.rank(gpu, bytes)).collect()
    }

    fn rank(&self, gpu: &Gpu, bytes: Bytes) -> Rank {
        let mut first = Vec::new();
        let mut next = 0;
        for block in &gpu.blocks {
            let mut places = Vec::with_capacity(block.steps.len());
            for step in &block.steps {
                places.push(next);
                next += nodes_of(step.kind);
            }
            first.push(places);
        }
        let mut nodes = Vec::with_capacity(next);
        for (block, places) in gpu.blocks.iter().zip(&first) {
            for (k, (step, place)) in block.steps.iter().zip(places).enumerate() {
                let chunk = bytes.count().saturating_mul(u64::from(step.count));
                let bytes = Bytes::new(chunk.div_ceil(u64::from(self.chunks)).max(1));
                let tag = u64::from(block.channel);
                let message = |peer| Message { peer, tag, bytes };
                let receive = block.receive.filter(|_| step.kind.receives);
                let send = block.send.filter(|_| step.kind.sends);
                let mut does: Vec<Does> =
                    receive.map(|peer| Does::Receive(message(peer))).into_iter().collect();
                does.extend(send.map(|peer| Does::Send(message(peer))));
                if does.is_empty() {
                    does.push(Does::Compute(Time::ZERO));
                }
                let mut after: Vec<usize> =
                    k.checked_sub(1).map(|_| place - 1).into_iter().collect();
                after.extend(step.after.map(|(of, at)| {
                    let waited = &gpu.blocks[of].steps[at];
                    first[of][at] + nodes_of(waited.kind) - 1
                }));
                after.sort_unstable();
                after.dedup();
                for does in does {
                    let name = format!("{} of block {}, step {k}", step.kind.tag, block.id);
                    let id = nodes.len() as u64;
                    let after = std::mem::replace(&mut after, vec![nodes.len()]);
                    nodes.push(Node { id, name, does, after });
                }
            }
        }
        Rank { file: self.file.clone(), nodes }
    }
}

const fn nodes_of(kind: &Kind) -> usize {
    if kind.receives && kind.sends { 2 } else { 1 }
}
