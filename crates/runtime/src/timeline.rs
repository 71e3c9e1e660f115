//! What a node has recorded, as spans: exchanges, operations, stages on dimensions, waits of the caller.
//!
//! Times are nanoseconds of the machine's monotonic clock, which all processes of one machine share;
//! [`PeerReport::offset`](crate::PeerReport) says how far the clocks of others are off. A span that has not ended
//! has no end. What began before the oldest record is left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_collective::rank::{Action as Does, RankPlan};
use allrail_engine::CollectiveId;
use allrail_engine::engine::{Action, Event};
use allrail_schedule::Key;
use serde::Serialize;

use crate::record::{Record, What};

/// A tensor's exchange, or a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// Which: a place in [`Timeline::names`].
    pub name: usize,
    /// Which exchange of it, from 0.
    pub generation: u64,
    /// When this rank had it ready.
    pub submitted: u64,
    /// When it was over.
    pub done: Option<u64>,
}

/// A partition of a tensor under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partition {
    /// Of which tensor: a place in [`Timeline::names`].
    pub name: usize,
    /// Of which exchange of it.
    pub generation: u64,
    /// Which part.
    pub part: u32,
    /// What is done with it.
    pub operation: String,
    /// Of its buffer.
    pub bytes: u64,
    /// When it began.
    pub start: u64,
    /// When it was over.
    pub end: Option<u64>,
}

/// A stage of a chunk on a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageSpan {
    /// Of which partition: a place in [`Timeline::partitions`].
    pub partition: usize,
    /// Which chunk.
    pub chunk: u32,
    /// Which stage of it.
    pub stage: u32,
    /// What it does.
    pub operation: String,
    /// On which dimension.
    pub dimension: u32,
    /// What this rank sends in it.
    pub bytes: u64,
    /// When it was launched.
    pub start: u64,
    /// When its last message was sent and combined.
    pub end: Option<u64>,
}

/// The caller waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// For which: a place in [`Timeline::names`].
    pub name: usize,
    /// Which exchange of it.
    pub generation: u64,
    /// From when.
    pub start: u64,
    /// Until when.
    pub end: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Of tensors; of calls `call 7`.
    pub names: Vec<String>,
    /// In the order in which they were submitted.
    pub exchanges: Vec<Exchange>,
    /// In the order in which they began.
    pub partitions: Vec<Partition>,
    /// In the order in which they were launched.
    pub stages: Vec<StageSpan>,
    /// In the order in which they ended.
    pub waits: Vec<Wait>,
    /// Records that were overwritten, as the ring is bounded.
    pub lost: u64,
}

/// What is open while records are read.
#[derive(Default)]
struct Reader {
    timeline: Timeline,
    places: BTreeMap<Key, usize>,
    submitted: BTreeMap<Key, u64>,
    exchanges: BTreeMap<(Key, u64), usize>,
    partitions: BTreeMap<CollectiveId, (usize, Arc<RankPlan>)>,
    stages: BTreeMap<(CollectiveId, u32, u32), usize>,
    waits: BTreeMap<(Key, u64), u64>,
}

impl Timeline {
    /// From records; `origin` is what the machine's clock said when theirs began, `name_of` how a tensor is
    /// called.
    pub(crate) fn new<'a>(
        records: impl Iterator<Item = &'a Record>,
        lost: u64,
        origin: u64,
        name_of: impl Fn(Key) -> Option<String>,
    ) -> Self {
        let mut reader = Reader::default();
        reader.timeline.lost = lost;
        for Record { at, what } in records {
            reader.read(origin + at.as_ps() / 1000, what, &name_of);
        }
        reader.timeline
    }
}

impl Reader {
    fn name(&mut self, key: Key, name_of: &impl Fn(Key) -> Option<String>) -> usize {
        *self.places.entry(key).or_insert_with(|| {
            let call = || key.number_of_call().map(|number| format!("call {number}"));
            self.timeline.names.push(name_of(key).or_else(call).unwrap_or_default());
            self.timeline.names.len() - 1
        })
    }

    fn exchange(&mut self, at: u64, key: Key, generation: u64, name: usize) {
        let exchange = Exchange { name, generation, submitted: at, done: None };
        self.exchanges.insert((key, generation), self.timeline.exchanges.len());
        self.timeline.exchanges.push(exchange);
    }

    fn read(&mut self, at: u64, what: &What, name_of: &impl Fn(Key) -> Option<String>) {
        match what {
            What::Told(Event::Submit { key } | Event::Unused { key }) => {
                // A generation that is not known is that of the operation or the end that follows.
                self.submitted.insert(*key, at);
            }
            What::Told(Event::StageOver { id, at: stage }) => {
                if let Some(place) = self.stages.remove(&(*id, stage.chunk, stage.stage)) {
                    self.timeline.stages[place].end = Some(at);
                }
            }
            What::Wants(action) => self.wants(at, action, name_of),
            What::Waits { key, generation } => {
                self.waits.insert((*key, *generation), at);
            }
            What::Waited { key, generation } => {
                if let Some(start) = self.waits.remove(&(*key, *generation)) {
                    let (name, generation) = (self.name(*key, name_of), *generation);
                    self.timeline.waits.push(Wait { name, generation, start, end: at });
                }
            }
            What::Told(_) | What::Called { .. } | What::Settled => {}
        }
    }

    fn wants(&mut self, at: u64, action: &Action, name_of: &impl Fn(Key) -> Option<String>) {
        match action {
            Action::Begin { id, operation, part, .. } => {
                let (key, generation) = (operation.key, operation.generation);
                let name = self.name(key, name_of);
                if !self.exchanges.contains_key(&(key, generation)) {
                    let submitted = self.submitted.get(&key).copied();
                    self.exchange(submitted.unwrap_or(at), key, generation, name);
                }
                let partition = Partition {
                    name,
                    generation,
                    part: operation.part,
                    operation: part.operation.to_string(),
                    bytes: part.buffer.size().count(),
                    start: at,
                    end: None,
                };
                self.partitions.insert(*id, (self.timeline.partitions.len(), Arc::clone(part)));
                self.timeline.partitions.push(partition);
            }
            Action::Run(run) => {
                let Some((partition, part)) = self.partitions.get(&run.collective) else { return };
                let (chunk, stage) = (run.at.chunk, run.at.stage);
                let Some(found) = part.chunks.get(chunk as usize) else { return };
                let messages = found.stage_messages(stage as usize).iter();
                let sent: u64 = messages
                    .filter(|one| matches!(one.action, Does::Send))
                    .map(|one| one.elements)
                    .sum();
                self.stages.insert((run.collective, chunk, stage), self.timeline.stages.len());
                self.timeline.stages.push(StageSpan {
                    partition: *partition,
                    chunk,
                    stage,
                    operation: found.stages()[stage as usize].operation.to_string(),
                    dimension: run.port,
                    bytes: sent * u64::from(part.buffer.width()),
                    start: at,
                    end: None,
                });
            }
            Action::Over { id, .. } => {
                if let Some((place, _)) = self.partitions.remove(id) {
                    self.timeline.partitions[place].end = Some(at);
                }
            }
            Action::Done { key, generation } => {
                if let Some(place) = self.exchanges.remove(&(*key, *generation)) {
                    self.timeline.exchanges[place].done = Some(at);
                }
            }
            Action::Send { .. } | Action::Idle { .. } | Action::Warn { .. } | Action::Stop(_) => {}
        }
    }
}
