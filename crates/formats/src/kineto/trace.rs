//! One rank's trace as what it did: kernels, copies, communications, each with its measured time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use allrail_collective::Operation;
use allrail_core::FieldError;
use allrail_workload::graph::Purpose;

use super::calls::{Calls, Origin, Origins};
use super::events::Events;
use super::exchange::{self, Split};
use super::said::{Kind, Said, Whom, purpose};

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
    /// Communicates: all of it at once, one thing at least.
    Communicates(Vec<One>),
    /// Communicates, and why only its time is known.
    Measured(&'static str, Purpose),
}

/// One of the things that a kernel communicates.
#[derive(Clone, Debug)]
pub(super) enum One {
    /// A collective.
    Collective(Collective),
    /// A message.
    Message(Message),
}

impl One {
    pub(super) fn purpose(&self) -> Purpose {
        match self {
            Self::Collective(one) => one.purpose,
            Self::Message(one) => one.purpose,
        }
    }
}

/// A collective.
#[derive(Clone, Debug)]
pub(super) struct Collective {
    pub(super) operation: Operation,
    pub(super) bytes: u64,
    /// Of an all-to-all, how its bytes were found.
    pub(super) split: Split,
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
const ALONE: &str = "communication of one rank with itself";

/// Reads what a rank did off the events of its file.
///
/// # Errors
/// A group that the rank is not in; communication whose kernels are not there.
pub(super) fn trace(
    path: &Path,
    rank: u32,
    world_size: u32,
    events: &Events,
) -> Result<Trace, FieldError> {
    let sizes = sizes(events);
    let mut reader = Reader { path, rank, world_size, groups: &events.groups, sizes, groupless: 0 };
    let mut items = if events.kernels.is_empty() {
        reader.host(events)?
    } else {
        reader.accelerator(events)?
    };
    items.sort_by(|a, b| a.start.total_cmp(&b.start));
    Ok(Trace { rank, items, groupless: reader.groupless })
}

/// How many ranks each named group has, by any of its communications.
pub(super) fn sizes(events: &Events) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for said in events.said() {
        if let Some(members) = said.members().filter(|_| !said.group.is_empty()) {
            sizes.insert(said.group.clone(), members);
        }
    }
    sizes
}

struct Reader<'a> {
    path: &'a Path,
    rank: u32,
    world_size: u32,
    groups: &'a BTreeMap<String, Vec<u32>>,
    /// How many ranks groups have of which a trace names no ranks.
    sizes: BTreeMap<String, u64>,
    groupless: u64,
}

impl Reader<'_> {
    fn accelerator(&mut self, events: &Events) -> Result<Vec<Item>, FieldError> {
        let origins = Origins::new(events);
        let mut items: Vec<Item> = Vec::new();
        for (kernel, origin) in events.kernels.iter().zip(&origins.of) {
            let does = match (&kernel.said, origin) {
                (None, _) if kernel.copies => Does::Copy,
                (None, _) => Does::Compute,
                (Some(said), Origin::Unknown | Origin::GoesOn(_)) => {
                    self.communication(&kernel.name, std::slice::from_ref(said))?
                }
                (Some(said), Origin::Call(call)) => {
                    self.communication(&kernel.name, &[said.clone().or(call.as_ref().clone())])?
                }
                (Some(_), Origin::Group(calls)) => self.communication(&kernel.name, calls)?,
            };
            let (name, stream) = (kernel.name.clone(), kernel.stream);
            items.push(Item { name, stream, start: kernel.start, end: kernel.end, does });
        }
        // A group's later kernels carry what does not fit into the first: together they are one.
        let mut goes_on = vec![false; items.len()];
        for (place, origin) in origins.of.iter().enumerate() {
            let Origin::GoesOn(first) = origin else { continue };
            let (stream, end) = (items[place].stream, items[place].end);
            let first = &mut items[*first];
            if first.stream == stream && matches!(first.does, Does::Communicates(_)) {
                first.end = first.end.max(end);
                goes_on[place] = true;
            }
        }
        let mut goes_on = goes_on.into_iter();
        items.retain(|_| !goes_on.next().unwrap_or_default());
        Ok(items)
    }

    /// A trace of a host that trains: operators compute, events of its backend communicate.
    fn host(&mut self, events: &Events) -> Result<Vec<Item>, FieldError> {
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
    fn communication(&mut self, kernel: &str, said: &[Said]) -> Result<Does, FieldError> {
        let mut found: Vec<One> = Vec::new();
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
                    let Some(peer) = self.peer(said, &ranks) else {
                        return Ok(Does::Measured(NO_PEER, all));
                    };
                    let sends = kind == Kind::Send;
                    let bytes = sent.max(received);
                    found.push(One::Message(Message { sends, peer, bytes, purpose }));
                    continue;
                }
            };
            let (bytes, split) = match operation {
                Operation::AllGather => {
                    (received.max(sent.saturating_mul(ranks.len() as u64)), Split::Even)
                }
                Operation::ReduceScatter => (sent, Split::Even),
                Operation::AllToAll => {
                    let own = ranks.binary_search(&self.rank).ok();
                    exchange::bytes(said, (sent, received), ranks.len(), own)
                }
                _ => (sent.max(received), Split::Even),
            };
            let label = if said.about.is_empty() { &said.group } else { &said.about };
            let one = Collective { operation, bytes, split, ranks, label: label.clone(), purpose };
            let alike = found.iter_mut().find_map(|other| match other {
                One::Collective(other)
                    if other.operation == operation && other.ranks == one.ranks =>
                {
                    Some(other)
                }
                _ => None,
            });
            match alike {
                // What is coalesced is one collective of all its bytes.
                Some(other) => {
                    other.bytes = other.bytes.saturating_add(one.bytes);
                    other.split = other.split.max(one.split);
                }
                None => found.push(One::Collective(one)),
            }
        }
        Ok(Does::Communicates(found))
    }

    /// The other end of a message.
    fn peer(&self, said: &Said, ranks: &[u32]) -> Option<u32> {
        let named = match said.peer {
            Some(Whom::Rank(peer)) => Some(peer),
            Some(Whom::Place(place)) => ranks.get(place as usize).copied(),
            None => None,
        };
        // Of two ranks, the other one.
        let other = || match ranks[..] {
            [a, b] => Some(if a == self.rank { b } else { a }),
            _ => None,
        };
        named.or_else(other).filter(|peer| *peer != self.rank && *peer < self.world_size)
    }

    /// Whom a communication is among, ascending; `None` if that is not known.
    fn ranks(&mut self, kernel: &str, said: &Said) -> Result<Option<Vec<u32>>, FieldError> {
        let listed =
            if said.ranks.is_empty() { self.groups.get(&said.group) } else { Some(&said.ranks) };
        let mut ranks = match listed {
            Some(ranks) => ranks.clone(),
            None => {
                let size = said.members().or_else(|| self.sizes.get(&said.group).copied());
                if size.is_some_and(|size| size != u64::from(self.world_size)) {
                    return Ok(None);
                }
                let distinct: BTreeSet<&Vec<u32>> = self.groups.values().collect();
                match distinct.first() {
                    Some(only) if distinct.len() == 1 && size.is_none() => (*only).clone(),
                    _ => {
                        self.groupless += u64::from(size.is_none());
                        (0..self.world_size).collect()
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
            return Err(FieldError::new(
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
