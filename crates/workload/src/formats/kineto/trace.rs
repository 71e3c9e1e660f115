//! One rank's trace as what it did: kernels, copies, communications, each with its measured time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use allrail_collective::Operation;

use super::calls::Calls;
use super::events::{Events, Kernel};
use super::said::{Kind, Said, Whom, purpose};
use crate::error::WorkloadError;
use crate::graph::Purpose;

/// Something with a measured time on a stream.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) stream: i64,
    /// Microseconds.
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) does: Does,
}

/// What it does.
#[derive(Clone, Debug)]
pub(super) enum Does {
    /// Computes, on the accelerator or on a host that trains.
    Compute,
    /// Copies beside the accelerator.
    Copy,
    /// Communicates.
    Collective(Collective),
    /// Sends and receives, all at once.
    Messages(Vec<Message>),
    /// Communicates, and why only its time is known.
    Measured(&'static str, Purpose),
}

/// A collective.
#[derive(Clone, Debug)]
pub(super) struct Collective {
    pub(super) operation: Operation,
    pub(super) bytes: u64,
    /// Ascending, two at least.
    pub(super) ranks: Vec<u32>,
    pub(super) label: String,
    pub(super) purpose: Purpose,
}

/// A message.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) sends: bool,
    /// Rank of the job.
    pub(super) peer: u32,
    pub(super) bytes: u64,
    pub(super) purpose: Purpose,
}

/// One rank.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    pub(super) rank: u32,
    /// By their start.
    pub(super) items: Vec<Item>,
    /// Communications that do not say their group: taken over all ranks.
    pub(super) groupless: u64,
}

const NOT_KNOWN: &str = "communication whose collective is not known";
const NO_SIZE: &str = "communication whose size is not known";
const NO_GROUP: &str = "communication whose process group is not known";
const NO_PEER: &str = "messages whose peer is not known";
const MIXED: &str = "several collectives in one kernel";
const ALONE: &str = "communication of one rank with itself";

/// Reads what a rank did off the events of its file.
///
/// # Errors
/// A group that the rank is not in; communication whose kernels are not there.
pub(super) fn trace(
    path: &Path,
    rank: u32,
    world: u32,
    events: Events,
) -> Result<Trace, WorkloadError> {
    let mut reader = Reader { path, rank, world, groups: &events.groups, groupless: 0 };
    let mut items = if events.kernels.is_empty() {
        reader.host(&events)?
    } else {
        reader.accelerator(&events)?
    };
    items.sort_by(|a, b| a.start.total_cmp(&b.start));
    Ok(Trace { rank, items, groupless: reader.groupless })
}

struct Reader<'a> {
    path: &'a Path,
    rank: u32,
    world: u32,
    groups: &'a BTreeMap<String, Vec<u32>>,
    groupless: u64,
}

impl Reader<'_> {
    fn accelerator(&mut self, events: &Events) -> Result<Vec<Item>, WorkloadError> {
        let mut calls = Calls::new(events.host.clone());
        let launch = |kernel: &Kernel| events.launches.get(&kernel.correlation?);
        let communicates = |kernel: &&Kernel| kernel.said.is_some();
        // Launches of NCCL by thread, in order: a group's calls lie between two of them.
        let mut launches: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for kernel in events.kernels.iter().filter(communicates) {
            let Some((thread, at)) = launch(kernel) else { continue };
            launches.entry(thread).or_default().push(*at);
            if let Some(place) = calls.around(thread, *at) {
                calls.launches(thread, place);
            }
        }
        launches.values_mut().for_each(|list| list.sort_by(f64::total_cmp));
        let mut items = Vec::new();
        for kernel in &events.kernels {
            let does = match &kernel.said {
                None if kernel.copies => Does::Copy,
                None => Does::Compute,
                Some(said) => {
                    let mut said = vec![said.clone()];
                    if let Some((thread, at)) = launch(kernel) {
                        if let Some(place) = calls.around(thread, *at) {
                            said[0] = said[0].clone().or(calls.get(thread, place).said.clone());
                        } else if said[0].kind().is_none() {
                            let before =
                                launches.get(thread.as_str()).map_or(&[][..], Vec::as_slice);
                            let since = before[..before.partition_point(|one| one < at)].last();
                            let since = since.copied().unwrap_or(f64::NEG_INFINITY);
                            let grouped = calls.grouped(thread, since, *at);
                            if !grouped.is_empty() {
                                said = grouped.into_iter().cloned().collect();
                            }
                        }
                    }
                    self.communication(&kernel.name, &said)?
                }
            };
            let (name, stream) = (kernel.name.clone(), kernel.stream);
            items.push(Item { name, stream, start: kernel.start, end: kernel.end, does });
        }
        Ok(items)
    }

    /// A trace of a host that trains: operators compute, events of its backend communicate.
    fn host(&mut self, events: &Events) -> Result<Vec<Item>, WorkloadError> {
        let mut streams: BTreeMap<String, i64> = BTreeMap::new();
        let mut items = Vec::new();
        let calls = Calls::new(events.host.clone());
        for (own, said) in &events.own {
            let mut said = said.clone();
            // Where its call lies on the same thread, that knows more: the peer of a message.
            if let Some(place) = calls.around(&own.thread, own.start) {
                said = said.or(calls.get(&own.thread, place).said.clone());
            }
            let next = i64::try_from(streams.len()).unwrap_or(i64::MAX);
            let stream = *streams.entry(format!("{} communicates", own.thread)).or_insert(next);
            let does = self.communication(&own.name, &[said])?;
            let name = own.name.clone();
            items.push(Item { name, stream, start: own.start, end: own.end, does });
        }
        for span in super::host::spans(&events.work) {
            let next = i64::try_from(streams.len()).unwrap_or(i64::MAX);
            let stream = *streams.entry(span.thread).or_insert(next);
            let (start, end) = (span.start, span.end);
            items.push(Item { name: span.name, stream, start, end, does: Does::Compute });
        }
        Ok(items)
    }

    /// What a kernel does whose calls on the host are `said`.
    fn communication(&mut self, kernel: &str, said: &[Said]) -> Result<Does, WorkloadError> {
        let mut messages = Vec::new();
        let mut collectives: Vec<Collective> = Vec::new();
        let all = said.first().map_or(Purpose::Other, |said| purpose(&said.about));
        for said in said {
            let Some(kind) = said.kind() else { return Ok(Does::Measured(NOT_KNOWN, all)) };
            let bytes = match kind {
                Kind::Barrier => Some((0, 0)),
                _ => said.bytes(kernel),
            };
            let Some((sent, received)) = bytes else { return Ok(Does::Measured(NO_SIZE, all)) };
            let Some(ranks) = self.ranks(kernel, said)? else {
                return Ok(Does::Measured(NO_GROUP, all));
            };
            if ranks.len() < 2 {
                return Ok(Does::Measured(ALONE, all));
            }
            let purpose = purpose(&said.about);
            let operation = match kind {
                Kind::Operation(operation) => operation,
                Kind::Barrier => Operation::AllReduce,
                Kind::Send | Kind::Receive => {
                    let peer = match said.peer {
                        Some(Whom::Rank(peer)) => Some(peer),
                        Some(Whom::Place(place)) => ranks.get(place as usize).copied(),
                        None => None,
                    };
                    // Of two ranks, the other one.
                    let other = || match ranks[..] {
                        [a, b] => Some(if a == self.rank { b } else { a }),
                        _ => None,
                    };
                    let Some(peer) =
                        peer.or_else(other).filter(|peer| *peer != self.rank && *peer < self.world)
                    else {
                        return Ok(Does::Measured(NO_PEER, all));
                    };
                    let sends = kind == Kind::Send;
                    messages.push(Message { sends, peer, bytes: sent.max(received), purpose });
                    continue;
                }
            };
            let bytes = match operation {
                Operation::AllGather => received.max(sent.saturating_mul(ranks.len() as u64)),
                Operation::ReduceScatter => sent,
                _ => sent.max(received),
            };
            let label = if said.about.is_empty() { &said.group } else { &said.about };
            let label = label.clone();
            match collectives.last_mut() {
                // What is coalesced is one collective of all its bytes.
                Some(last) if last.operation == operation && last.ranks == ranks => {
                    last.bytes = last.bytes.saturating_add(bytes);
                }
                _ => collectives.push(Collective { operation, bytes, ranks, label, purpose }),
            }
        }
        Ok(match (collectives.pop(), messages.is_empty()) {
            (Some(one), true) if collectives.is_empty() => Does::Collective(one),
            (None, false) => Does::Messages(messages),
            _ => Does::Measured(MIXED, all),
        })
    }

    /// Whom a communication is among, ascending; `None` if that is not known.
    fn ranks(&mut self, kernel: &str, said: &Said) -> Result<Option<Vec<u32>>, WorkloadError> {
        let listed =
            if said.ranks.is_empty() { self.groups.get(&said.group) } else { Some(&said.ranks) };
        let mut ranks = match listed {
            Some(ranks) => ranks.clone(),
            None if said.size.is_some_and(|size| size != u64::from(self.world)) => return Ok(None),
            None => {
                let distinct: BTreeSet<&Vec<u32>> = self.groups.values().collect();
                match distinct.first() {
                    Some(only) if distinct.len() == 1 && said.size.is_none() => (*only).clone(),
                    _ => {
                        self.groupless += u64::from(said.size.is_none());
                        (0..self.world).collect()
                    }
                }
            }
        };
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.len() >= 2 && ranks.binary_search(&self.rank).is_err() {
            if said.cut {
                return Ok(None);
            }
            return Err(WorkloadError::new(
                "file",
                self.path.display(),
                format!(
                    "kernel `{kernel}` is of process group `{}`, which rank {} is not in",
                    said.group, self.rank
                ),
                "is it the trace of this rank?",
            ));
        }
        Ok(Some(ranks))
    }
}
