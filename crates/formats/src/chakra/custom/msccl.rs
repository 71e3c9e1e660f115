//! Collectives that MSCCL runs: an XML file for all ranks, `NAME.xml`, as nodes of a trace.
//!
//! `allrail_collective::msccl` reads and proves it. Its chunks move as they stand there: nodes send, receive
//! and wait as steps do.

use std::path::Path;

use allrail_collective::Operation;
use allrail_collective::msccl::{self, File, Gpu, Kind, Wrong};
use allrail_core::{Bytes, Time, counted};

use super::super::error::TraceError;
use super::program::{Does, Message, Node, Rank};

pub(super) use msccl::is_one;

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
    let of_file = |Wrong { place, why, hint }| TraceError::new(path, place, why, hint);
    let text = msccl::open(path).map_err(of_file)?;
    let program = msccl::read(&text).map_err(of_file)?;
    let wrong = |why: String, hint: String| TraceError::new(path, "`algo`", why, hint);
    if program.operation != operation {
        let why = format!("it does `{}`, and the collective is `{operation}`", program.operation);
        return Err(wrong(why, "name it under its own kind".to_owned()));
    }
    if program.gpus.len() != members {
        let why =
            format!("it is for {}, and {members} run it", counted(program.gpus.len(), "rank"));
        let hint = "MSCCL's programs are for one number of ranks; take one for yours".to_owned();
        return Err(wrong(why, hint));
    }
    if let Some(sizes) = program.sizes.filter(|sizes| !sizes.contains(bytes)) {
        let why = format!("it is for {sizes}, and the collective has {bytes}");
        return Err(wrong(
            why,
            "run a collective of such a size, or leave `minBytes` and `maxBytes` out".to_owned(),
        ));
    }
    msccl::prove(&program).map_err(of_file)?;
    Ok(program.gpus.iter().map(|gpu| rank(path, &program, gpu, bytes)).collect())
}

/// As nodes: a step receives, and then sends.
fn rank(path: &Path, program: &File, gpu: &Gpu, bytes: Bytes) -> Rank {
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
            let bytes = Bytes::new(chunk.div_ceil(u64::from(program.chunks)).max(1));
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
            let mut after: Vec<usize> = k.checked_sub(1).map(|_| place - 1).into_iter().collect();
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
    Rank { file: path.to_path_buf(), nodes }
}

const fn nodes_of(kind: &Kind) -> usize {
    if kind.receives && kind.sends { 2 } else { 1 }
}
