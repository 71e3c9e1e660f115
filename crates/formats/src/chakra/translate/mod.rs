//! From a node of a trace to a node of the graph, one rank at a time.
//!
//! | node | becomes |
//! |---|---|
//! | `COMP_NODE` | compute, of its duration; without one, by the roofline: the longer of operations over speed and bytes over memory bandwidth |
//! | the same with `is_cpu_op` | a delay: processors work beside the accelerator |
//! | `MEM_LOAD_NODE`, `MEM_STORE_NODE` | a delay, of its duration or its bytes over memory bandwidth |
//! | `METADATA_NODE` | a join of no time |
//! | `COMM_COLL_NODE` with `is_cpu_op`, without type and size | a delay: the host's call, whose kernel is another node |
//! | `COMM_COLL_NODE` | a collective; `comm_size` is what a rank puts in, so an all-gather's result is as many times as large |
//! | `COMM_SEND_NODE`, `COMM_RECV_NODE` | a message; the k-th between two ranks meets the k-th, tags are not looked at |
//!
//! `REDUCE` costs what its mirror, a broadcast, does; `GATHER` and `SCATTER` are taken for an
//! all-gather and an all-to-all, which load the root's links as much; a `BARRIER` is an all-reduce of
//! nothing. Dependencies are control and data dependencies together.

mod communication;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allrail_core::Time;
use allrail_workload::device::{self, Cost, Device};
use allrail_workload::graph::{ActorId, Builder, GroupId, Node, NodeId, Pass, Work};

use super::assemble::Use;
use super::custom::Customs;
use super::error::TraceError;
use super::groups::ProcessGroups;
use super::record::{Kind, Record};
use super::scale::Scaling;
use super::streams::Streams;

const LONGEST_US: u64 = 86_400 * 1_000_000;

/// Where a node stands, by its id.
pub(super) enum Ids {
    /// One after the other.
    Consecutive,
    /// Looked up: (id, place), ascending.
    Sorted(Vec<(u64, u32)>),
}

/// Whom a communication spans, as it stands in the trace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Group(String),
    Involved(Vec<u8>),
    Everyone,
}

/// Translates the nodes of one rank after the other.
pub(super) struct Translator<'a> {
    sizes: &'a [u32],
    device: Option<Device>,
    scaling: &'a Scaling,
    groups: &'a ProcessGroups,
    notes: BTreeMap<String, u64>,
    /// Placeholders given so far; all classes together.
    placeholders: u32,
    shapes: BTreeMap<Named, (GroupId, Use)>,
    messages: Option<GroupId>,
    file: PathBuf,
    rank: u32,
    ids: Ids,
    first: u64,
    count: u32,
    base: usize,
    scattered: bool,
    /// The furthest dependency, if it is ahead: its place, and who waits for it.
    ahead: Option<(u64, String)>,
    hash: (u64, u64),
    known: Vec<NodeId>,
    /// Which collectives are traces of their own, and the nodes that are.
    pub(super) customs: Option<&'a Customs>,
    custom: Vec<(NodeId, PathBuf)>,
    /// What runs on which stream.
    pub(super) streams: Streams,
}

impl<'a> Translator<'a> {
    pub(super) fn new(
        sizes: &'a [u32],
        device: Option<Device>,
        scaling: &'a Scaling,
        groups: &'a ProcessGroups,
    ) -> Self {
        Self {
            sizes,
            device,
            scaling,
            groups,
            notes: BTreeMap::new(),
            placeholders: 0,
            shapes: BTreeMap::new(),
            messages: None,
            file: PathBuf::new(),
            rank: 0,
            ids: Ids::Consecutive,
            first: 0,
            count: 0,
            base: 0,
            scattered: false,
            ahead: None,
            hash: (0, 0),
            known: Vec::new(),
            customs: None,
            custom: Vec::new(),
            streams: Streams::default(),
        }
    }

    /// Begins a rank's file, whose first node is the graph's node `base`.
    pub(super) fn start(&mut self, file: &Path, rank: u32, ids: Ids, base: usize) {
        file.clone_into(&mut self.file);
        self.rank = rank;
        self.ids = ids;
        self.count = 0;
        self.base = base;
        self.scattered = false;
        self.ahead = None;
        self.hash = (0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F);
        self.shapes.clear();
        self.messages = None;
        self.custom.retain(|(node, _)| node.index() < base);
    }

    /// The nodes that are traces of their own, ascending, each with that trace.
    pub(super) fn take_customs(&mut self) -> Vec<(NodeId, PathBuf)> {
        std::mem::take(&mut self.custom)
    }

    /// Whether the ids turned out not to be consecutive.
    pub(super) fn scattered(&self) -> bool {
        self.scattered
    }

    /// Whom the nodes of this rank communicate with, by placeholder.
    pub(super) fn take_shapes(&mut self) -> Vec<(GroupId, Use)> {
        let messages = self.messages.take().map(|id| (id, Use::Messages));
        std::mem::take(&mut self.shapes).into_values().chain(messages).collect()
    }

    pub(super) fn take_notes(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.notes)
    }

    /// The hash of the rank's nodes, and how many there were.
    pub(super) fn finish(&mut self) -> Result<((u64, u64), u64), TraceError> {
        if let Some((place, who)) = &self.ahead
            && *place >= u64::from(self.count)
        {
            let id = self.first.wrapping_add(*place);
            return Err(self.missing(who.clone(), id));
        }
        Ok((self.hash, u64::from(self.count)))
    }

    fn missing(&self, who: String, id: u64) -> TraceError {
        TraceError::new(
            &self.file,
            who,
            format!("it waits for node {id}, which does not exist"),
            "a dependency is the id of a node of the same file",
        )
    }

    fn wrong(&self, node: &Record<'_>, why: impl Into<String>, hint: &str) -> TraceError {
        TraceError::new(&self.file, title(node), why, hint)
    }

    fn note(&mut self, what: &str) {
        if let Some(count) = self.notes.get_mut(what) {
            *count += 1;
        } else {
            self.notes.insert(what.to_owned(), 1);
        }
    }

    fn mix(&mut self, value: u64) {
        self.hash.0 = (self.hash.0.rotate_left(5) ^ value).wrapping_mul(0x517C_C1B7_2722_0A95);
        self.hash.1 = (self.hash.1.rotate_left(23) ^ value).wrapping_mul(0x2545_F491_4F6C_DD1D);
    }

    /// Where a node with this id stands; `None` where it cannot be if ids are consecutive.
    fn place(&self, id: u64) -> Option<u64> {
        match &self.ids {
            Ids::Consecutive => id.checked_sub(self.first),
            Ids::Sorted(ids) => {
                let at = ids.binary_search_by_key(&id, |(id, _)| *id).ok()?;
                Some(u64::from(ids[at].1))
            }
        }
    }

    /// Takes in a node; whether the file should be read on.
    pub(super) fn add(
        &mut self,
        node: &Record<'_>,
        after: &mut Vec<u64>,
        into: Option<(&mut Builder, ActorId)>,
    ) -> Result<bool, TraceError> {
        let id = node.id.unwrap_or_default();
        if self.count == 0 {
            self.first = id;
        }
        if matches!(self.ids, Ids::Consecutive)
            && id != self.first.wrapping_add(u64::from(self.count))
        {
            self.scattered = true;
            return Ok(false);
        }
        if after.len() > 1 {
            after.sort_unstable();
            after.dedup();
        }
        let here = u64::from(self.count);
        self.known.clear();
        for before in after.iter() {
            let Some(place) = self.place(*before) else {
                if matches!(self.ids, Ids::Consecutive) {
                    self.scattered = true;
                    return Ok(false);
                }
                return Err(self.missing(title(node), *before));
            };
            if place > here && self.ahead.as_ref().is_none_or(|(most, _)| place > *most) {
                self.ahead = Some((place, title(node)));
            }
            self.mix(here.wrapping_sub(place));
            let index = u32::try_from(self.base as u64 + place).unwrap_or(u32::MAX);
            self.known.push(NodeId(index));
        }
        self.count += 1;
        let collects = into.is_some();
        let (work, delay) = self.work(node, collects)?;
        let fields = self.ours(node);
        let second = u64::from(node.ours.second) << 2;
        let measured = u64::from(node.ours.measured) << 3;
        let priority = u64::from(node.priority.cast_unsigned()) << 4;
        let marks = u64::from(delay) | u64::from(node.ours.urgent) << 1 | second | measured;
        self.mix(marks | priority);
        let stream = node.stream.filter(|_| !node.on_cpu);
        self.mix(stream.map_or(0, |stream| stream.wrapping_add(1)));
        if let Some((builder, actor)) = into {
            let (tensor, pass) = fields;
            let id = builder.node(node.name, Node { actor, work, tensor, pass }, &self.known);
            if let (Work::Collective { operation, .. }, Some(customs)) = (work, self.customs) {
                let path = customs.of(operation, node.id.unwrap_or_default());
                self.custom.extend(path.map(|path| (id, path.to_owned())));
            }
            if let Some(stream) = stream {
                self.streams.put(id, stream);
            }
            self.streams.hosts |= node.on_cpu;
            if delay {
                builder.delay(id);
                if node.ours.measured {
                    builder.measured(id, communication::purpose(node));
                }
            }
            if node.ours.urgent {
                builder.urgent(id);
            }
            if node.priority != 0 {
                builder.prioritise(id, node.priority);
            }
            if node.ours.second {
                builder.second(id);
            }
            self.carry(node, builder, id)?;
        }
        Ok(true)
    }

    fn ours(&mut self, node: &Record<'_>) -> (Option<u32>, Pass) {
        let pass = match node.ours.pass {
            Some("forward") => Pass::Forward,
            Some("backward") => Pass::Backward,
            Some("update") => Pass::Update,
            _ => Pass::Unknown,
        };
        let tensor = node.ours.tensor.and_then(|place| u32::try_from(place).ok());
        if let Some(place) = tensor {
            self.mix(u64::from(place));
        }
        (tensor, pass)
    }

    fn carry(
        &mut self,
        node: &Record<'_>,
        builder: &mut Builder,
        id: NodeId,
    ) -> Result<(), TraceError> {
        let Some(mut packed) = node.ours.previous else { return Ok(()) };
        while !packed.is_empty() {
            let before = prost::encoding::decode_varint(&mut packed)
                .map_err(|error| self.wrong(node, error.to_string(), "write the trace again"))?;
            let place = self.place(before).ok_or_else(|| self.missing(title(node), before))?;
            let index = u32::try_from(self.base as u64 + place).unwrap_or(u32::MAX);
            builder.carry(id, NodeId(index));
        }
        Ok(())
    }

    /// What a node does, and whether it leaves the engine free.
    fn work(&mut self, node: &Record<'_>, keeps: bool) -> Result<(Work, bool), TraceError> {
        match node.kind {
            Kind::Metadata => {
                self.mix(0);
                Ok((Work::Compute { time: Time::ZERO }, false))
            }
            Kind::Compute => {
                let time = self.time(node, keeps)?;
                self.mix(time.as_ps());
                if node.on_cpu && !node.ours.delay && keeps {
                    self.note("CPU operators run beside the accelerator");
                }
                Ok((Work::Compute { time }, node.on_cpu || node.ours.delay))
            }
            Kind::Load | Kind::Store => {
                let time = self.time(node, keeps)?;
                self.mix(time.as_ps());
                if keeps {
                    self.note("memory nodes run beside the accelerator");
                }
                Ok((Work::Compute { time }, true))
            }
            // PyTorch's call on the host: the kernel that it launches is a node of its own.
            Kind::Collective
                if node.on_cpu && node.collective.is_none() && node.bytes.is_none() =>
            {
                let time = self.time(node, keeps)?;
                self.mix(time.as_ps());
                if keeps {
                    self.note("calls of collectives on the host run beside the accelerator");
                }
                Ok((Work::Compute { time }, true))
            }
            Kind::Collective => Ok((self.collective(node, keeps)?, false)),
            Kind::Send | Kind::Receive => Ok((self.message(node)?, false)),
            Kind::Other(number) => {
                let time = self.time(node, keeps)?;
                self.mix(time.as_ps());
                if keeps {
                    self.note(&format!("nodes of type {number} (storage, batches) only take time"));
                }
                Ok((Work::Compute { time }, true))
            }
            Kind::Invalid => Err(self.wrong(
                node,
                "its type is INVALID_NODE",
                "give it a type, such as COMP_NODE or COMM_COLL_NODE",
            )),
        }
    }

    fn time(&mut self, node: &Record<'_>, keeps: bool) -> Result<Time, TraceError> {
        if let Some(picoseconds) = node.picoseconds {
            return Ok(Time::from_ps(picoseconds));
        }
        if node.duration > LONGEST_US {
            return Err(self.wrong(
                node,
                "its duration is negative or more than a day",
                "`duration_micros` is in microseconds",
            ));
        }
        if node.duration > 0 {
            let measured = Time::from_us(node.duration);
            return Ok(self
                .device
                .as_ref()
                .map_or(measured, |device| device::time(device.measured(measured, 1.0))));
        }
        let operations = node.operations.unwrap_or_default();
        let bytes = node.tensor_bytes.unwrap_or_default();
        if operations == 0 && bytes == 0 {
            return Ok(Time::ZERO);
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let cost = Cost { flops: operations as f64, bytes: bytes as f64 };
        let picoseconds = self.device.as_ref().map_or(0.0, |device| device.picoseconds(cost));
        if picoseconds == 0.0 && keeps {
            self.note("nodes without a duration take no time: give `workload.compute`");
        }
        if picoseconds > 86_400e12 {
            let why = "by the roofline it takes more than a day";
            return Err(self.wrong(node, why, "check num_ops and tensor_size"));
        }
        Ok(device::time(picoseconds))
    }
}

fn title(node: &Record<'_>) -> String {
    format!("node {} (`{}`)", node.id.unwrap_or_default(), node.name)
}
