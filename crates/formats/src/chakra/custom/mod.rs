//! Collectives that are traces of their own: per rank of a group, the sends, receives and reductions
//! that it makes, `NAME.<position>.et`.
//!
//! ASTRA-sim (2.x) runs such a trace in the place of an algorithm; MSCCL's algorithms are converted to
//! them. The files say who sends how many bytes to whom and what waits for what, and do not say which
//! blocks of the buffer a message carries.
//!
//! `NAME.xml` is a program of MSCCL itself, which says them, and is proved chunk by chunk.
//!
//! - [`program`]: what the ranks do. [`read()`]: the files. [`msccl`]: MSCCL's.
//! - [`verify`]: what can be proved of them, and what cannot.
//! - [`expand`]: a step graph with them in the place of its collectives.

mod expand;
mod msccl;
mod program;
mod verify;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allrail_collective::Operation;
use allrail_core::{Bytes, Time, counted};
use serde::Deserialize;

use super::error::TraceError;
use super::files::{files, records};
use super::record::Kind;
use program::{Does, Message, Node, Rank};

pub(super) use expand::expand;

/// Which collectives of a trace are traces of their own: `DIR/NAME` each, for `DIR/NAME.<position>.et`, or
/// `DIR/NAME.xml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Customs {
    /// Every collective of a kind.
    pub all_reduce: Option<PathBuf>,
    /// The same.
    pub reduce_scatter: Option<PathBuf>,
    /// The same.
    pub all_gather: Option<PathBuf>,
    /// The same.
    pub all_to_all: Option<PathBuf>,
    /// Single nodes by their ids, before the kind is asked.
    pub nodes: BTreeMap<u64, PathBuf>,
}

impl Customs {
    /// The trace that a node runs, if any.
    pub(super) fn of(&self, operation: Operation, node: u64) -> Option<&Path> {
        let kind = match operation {
            Operation::AllReduce => &self.all_reduce,
            Operation::ReduceScatter => &self.reduce_scatter,
            Operation::AllGather => &self.all_gather,
            Operation::AllToAll => &self.all_to_all,
            Operation::Broadcast => &None,
        };
        self.nodes.get(&node).or(kind.as_ref()).map(PathBuf::as_path)
    }
}

/// Reads what the ranks of a collective do, and proves it.
fn load(
    path: &Path,
    members: usize,
    operation: Operation,
    bytes: Bytes,
) -> Result<Vec<Rank>, TraceError> {
    if msccl::is_one(path) {
        return msccl::load(path, members, operation, bytes);
    }
    let ranks = read(path, members)?;
    verify::verify(&ranks, operation, bytes)?;
    Ok(ranks)
}

/// Reads the files of `prefix` for a group of `members` ranks.
fn read(prefix: &Path, members: usize) -> Result<Vec<Rank>, TraceError> {
    let named = files(prefix)?;
    if named.len() < members {
        return Err(TraceError::new(
            prefix,
            "the collective",
            format!("it has the files of {}, and {members} run it", counted(named.len(), "rank")),
            "write one file for every rank of the group, counted from 0",
        ));
    }
    let read_one = |(position, file): (u32, PathBuf)| rank(file, position, members);
    (0u32..).zip(named).take(members).map(read_one).collect()
}

fn rank(file: PathBuf, position: u32, members: usize) -> Result<Rank, TraceError> {
    let mut nodes: Vec<(Node, Vec<u64>)> = Vec::new();
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    records(&file, |record, after| {
        let id = record.id.unwrap_or_default();
        let title = format!("node {id} (`{}`)", record.name);
        let wrong = |why: String, hint: &str| TraceError::new(&file, title.clone(), why, hint);
        if places.insert(id, nodes.len()).is_some() {
            return Err(wrong("two nodes have this id".to_owned(), "give every node its own"));
        }
        let message = |peer: Option<u64>, what: &str| {
            let bytes = record.bytes.filter(|bytes| (1..=1 << 50).contains(bytes));
            let bytes = bytes.ok_or_else(|| {
                wrong("it has no comm_size from 1 B to 1 PiB".to_owned(), "write it in bytes")
            })?;
            let other = peer.and_then(|peer| u32::try_from(peer).ok());
            let other = other.filter(|peer| (*peer as usize) < members && *peer != position);
            let other = other.ok_or_else(|| {
                let said = peer.map_or("missing".to_owned(), |peer| peer.to_string());
                let why =
                    format!("its {what} is {said}: rank {position} of {members} has no such peer");
                wrong(why, "it is the position of another rank of the group, counted from 0")
            })?;
            let tag = record.tag.unwrap_or_default();
            Ok(Message { peer: other, tag, bytes: Bytes::new(bytes) })
        };
        let does = match record.kind {
            Kind::Send => Does::Send(message(record.destination, "comm_dst")?),
            Kind::Receive => Does::Receive(message(record.source, "comm_src")?),
            // ASTRA-sim's shortest: a nanosecond.
            Kind::Compute if record.duration == 0 => Does::Compute(Time::from_ns(1)),
            Kind::Compute if record.duration <= 86_400_000_000 => {
                Does::Compute(Time::from_us(record.duration))
            }
            _ => {
                return Err(wrong(
                    "a collective is made of sends, receives and computation of a day at most"
                        .to_owned(),
                    "write COMM_SEND_NODE, COMM_RECV_NODE or COMP_NODE",
                ));
            }
        };
        let node = Node { id, name: record.name.to_owned(), does, after: Vec::new() };
        nodes.push((node, after.to_vec()));
        Ok(())
    })?;
    let mut found = Vec::with_capacity(nodes.len());
    for (mut node, after) in nodes {
        for before in after {
            let Some(place) = places.get(&before) else {
                return Err(TraceError::new(
                    &file,
                    node.title(),
                    format!("it waits for node {before}, which does not exist"),
                    "a dependency is the id of a node of the same file",
                ));
            };
            node.after.push(*place);
        }
        node.after.sort_unstable();
        node.after.dedup();
        found.push(node);
    }
    Ok(Rank { file, nodes: found })
}
