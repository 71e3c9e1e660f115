//! From a step graph to the files of a trace, in the current schema.
//!
//! Each rank of each actor gets a file, or the first of those that are alike (`alike.rs`). Times are whole microseconds in the schema; ours are
//! picoseconds and stand beside them in an attribute of our own, as do purposes, passes, tensors'
//! places, delays, measured communication, urgency, and dependencies on the iteration before (`allrail_…`): other readers skip
//! them and get the nodes, times, bytes, dependencies and groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use allrail_collective::Operation;
use allrail_core::{Rank, Time};
use allrail_workload::graph::{Group, NodeId, Pass, Peer, StepGraph, Work};
use prost::Message;

use super::alike::{self, Ranks};
use super::error::TraceError;
use super::groups::Shape;
use super::proto::attribute_proto::Value;
use super::proto::{
    AttributeProto, BoolList, GlobalMetadata, Node as Written, NodeType, Uint64List,
};

/// The schema's version that is written.
pub const VERSION: &str = "0.0.4";

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files of ranks.
    pub files: u64,
    /// Nodes in all of them.
    pub nodes: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Process groups in `comm_group.json`.
    pub groups: u64,
}

/// Told how many nodes are written, and how many there are; it may end the writing.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Writes `graph` as `folder/name.<rank>.et` with `folder/comm_group.json`, for a fabric of these
/// sizes.
///
/// # Errors
/// The name is a path; a file cannot be written; a message to a rank that the fabric does not have.
pub fn write(
    graph: &StepGraph,
    sizes: &[u32],
    named: (&Path, &str),
    whose: Ranks,
) -> Result<Summary, TraceError> {
    write_watched(graph, sizes, named, whose, &mut |_, _| ControlFlow::Continue(()))
}

/// [`write()`], which tells how far it is.
///
/// # Errors
/// As [`write()`]; it was interrupted.
pub fn write_watched(
    graph: &StepGraph,
    sizes: &[u32],
    (folder, name): (&Path, &str),
    whose: Ranks,
    watch: Watch<'_>,
) -> Result<Summary, TraceError> {
    if Path::new(name).file_name() != Some(name.as_ref()) {
        let hint = "a name has no `/` and is not `..`";
        return Err(TraceError::new(
            folder,
            format!("`{name}`"),
            "it is a path, and no name",
            hint,
        ));
    }
    std::fs::create_dir_all(folder).map_err(|error| TraceError::unreadable(folder, &error))?;
    let mut groups = Instances { sizes, names: BTreeMap::new() };
    let mut summary = Summary::default();
    let mut nodes: Vec<Vec<NodeId>> = vec![Vec::new(); graph.actors().len()];
    for id in graph.ids() {
        nodes[graph.node(id).actor.index()].push(id);
    }
    let mut carried: BTreeMap<NodeId, Vec<u64>> = BTreeMap::new();
    for (node, before) in graph.carried() {
        carried.entry(*node).or_default().push(u64::from(before.0));
    }
    let mut alike: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let of_actors = graph.actors().iter().zip(&nodes);
    let all: u64 = of_actors.map(|(actor, own)| (actor.ranks.len() * own.len()) as u64).sum();
    let mut done = 0;
    for (actor, own) in graph.actors().iter().zip(&nodes) {
        let written = match whose {
            Ranks::All => actor.ranks.clone(),
            Ranks::Representative => {
                let classes = groups.alike(graph, own, &actor.ranks);
                let first = classes.iter().map(|ranks| Rank(ranks[0])).collect();
                alike.extend(classes.into_iter().map(|ranks| (ranks[0], ranks)));
                first
            }
        };
        let each = (actor.ranks.len() * own.len() / written.len().max(1)) as u64;
        for rank in &written {
            if watch(done, all).is_break() {
                let (what, hint) = (format!("`{name}`"), "run it again");
                return Err(TraceError::new(folder, what, "it was interrupted", hint));
            }
            let path = folder.join(format!("{name}.{}.et", rank.0));
            summary.bytes += write_rank(&path, own, |id| {
                let previous = carried.get(&id).map(Vec::as_slice).unwrap_or_default();
                groups.node(graph, id, *rank, previous)
            })?;
            summary.files += 1;
            summary.nodes += own.len() as u64;
            done += each;
        }
    }
    if whose == Ranks::Representative {
        let text = serde_json::to_string(&alike).expect("numbers");
        put(&alike::list(folder, name), text + "\n")?;
    }
    let listed: BTreeMap<&str, &Vec<u32>> =
        groups.names.iter().map(|(ranks, name)| (name.as_str(), ranks)).collect();
    summary.groups = listed.len() as u64;
    let text = serde_json::to_string_pretty(&listed).expect("names and numbers");
    put(&folder.join("comm_group.json"), text + "\n")?;
    Ok(summary)
}

fn put(path: &Path, text: String) -> Result<(), TraceError> {
    std::fs::write(path, text).map_err(|error| TraceError::unreadable(path, &error))
}

/// Writes the file of one rank, and says how many bytes its messages have.
fn write_rank(
    path: &Path,
    own: &[NodeId],
    mut node: impl FnMut(NodeId) -> Written,
) -> Result<u64, TraceError> {
    let unwritten = |error: std::io::Error| TraceError::unreadable(path, &error);
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(unwritten)?);
    let (mut buffer, mut bytes) = (Vec::new(), 0);
    let mut put = |message: &dyn Fn(&mut Vec<u8>)| {
        buffer.clear();
        message(&mut buffer);
        bytes += buffer.len() as u64;
        file.write_all(&buffer).map_err(unwritten)
    };
    let head = GlobalMetadata { version: VERSION.to_owned(), attr: Vec::new() };
    put(&|buffer| head.encode_length_delimited(buffer).expect("a vector grows"))?;
    for id in own {
        let node = node(*id);
        put(&|buffer| node.encode_length_delimited(buffer).expect("a vector grows"))?;
    }
    file.flush().map_err(unwritten)?;
    Ok(bytes)
}

/// The instances of groups that were met, and their names: `0`, `1`, as PyTorch numbers them.
struct Instances<'a> {
    sizes: &'a [u32],
    names: BTreeMap<Vec<u32>, String>,
}

impl Instances<'_> {
    fn ranks(&self, group: &Group, rank: Rank) -> Vec<u32> {
        if group.parts.is_empty() && !group.ranks.is_empty() {
            return group.ranks.iter().map(|rank| rank.0).collect();
        }
        Shape::Parts(group.parts.clone()).around(rank, self.sizes)
    }

    fn name(&mut self, group: &Group, rank: Rank) -> (String, u64) {
        let ranks = self.ranks(group, rank);
        let members = ranks.len() as u64;
        let next = self.names.len();
        (self.names.entry(ranks).or_insert_with(|| next.to_string()).clone(), members)
    }

    fn peer(&self, group: &Group, rank: Rank, peer: Peer) -> i32 {
        // Positions count coordinates with the first part fastest: ascending ranks, if parts are
        // in the order of their dimensions, as all builders add them.
        let ranks = self.ranks(group, rank);
        let many = i64::try_from(ranks.len()).unwrap_or(1);
        let own = ranks.iter().position(|other| *other == rank.0).unwrap_or(0);
        let at = match peer {
            Peer::At(position) => i64::from(position),
            Peer::Next(offset) => {
                (i64::try_from(own).unwrap_or(0) + i64::from(offset)).rem_euclid(many)
            }
        };
        let found = usize::try_from(at).ok().and_then(|at| ranks.get(at).copied());
        i32::try_from(found.unwrap_or(u32::MAX)).unwrap_or(i32::MAX)
    }

    /// Ranks of an actor by how far away those are that they exchange messages with.
    fn alike(&self, graph: &StepGraph, nodes: &[NodeId], ranks: &[Rank]) -> Vec<Vec<u32>> {
        let mut peers: BTreeSet<(u32, Peer)> = BTreeSet::new();
        for id in nodes {
            if let Work::Send { group, peer, .. } | Work::Receive { group, peer, .. } =
                graph.node(*id).work
            {
                peers.insert((group.0, peer));
            }
        }
        let npus: i64 = self.sizes.iter().map(|size| i64::from(*size)).product();
        let mut classes: BTreeMap<Vec<i64>, Vec<u32>> = BTreeMap::new();
        for rank in ranks {
            let away = |(group, peer): &(u32, Peer)| {
                let other = self.peer(&graph.groups()[*group as usize], *rank, *peer);
                (i64::from(other) - i64::from(rank.0)).rem_euclid(npus)
            };
            classes.entry(peers.iter().map(away).collect()).or_default().push(rank.0);
        }
        classes.into_values().collect()
    }

    fn node(&mut self, graph: &StepGraph, id: NodeId, rank: Rank, previous: &[u64]) -> Written {
        let node = graph.node(id);
        let mut written = Written {
            id: u64::from(id.0),
            name: graph.name(id).to_owned(),
            data_deps: graph.after(id).iter().map(|before| u64::from(before.0)).collect(),
            ..Written::default()
        };
        let mut attributes = Attributes(Vec::with_capacity(8));
        attributes.put("is_cpu_op", Value::BoolVal(false));
        let group_of = |group: allrail_workload::graph::GroupId| &graph.groups()[group.index()];
        let kind = match node.work {
            Work::Compute { time } => {
                written.duration_micros = time.as_ps() / 1_000_000;
                if Time::from_us(written.duration_micros) != time {
                    attributes.put("allrail_ps", Value::Uint64Val(time.as_ps()));
                }
                NodeType::CompNode
            }
            Work::Collective { operation, bytes, group, purpose } => {
                let (name, members) = self.name(group_of(group), rank);
                let gathers = operation == Operation::AllGather;
                let given = bytes.count() / if gathers { members } else { 1 };
                attributes.put("comm_type", Value::Int64Val(number(operation)));
                attributes.put("comm_size", Value::Int64Val(given.cast_signed()));
                attributes.put("pg_name", Value::StringVal(name));
                attributes.put("involved_dim", self.involved(group_of(group)));
                attributes.text("allrail_purpose", &purpose);
                NodeType::CommCollNode
            }
            Work::Send { bytes, group, peer, purpose }
            | Work::Receive { bytes, group, peer, purpose } => {
                let other = self.peer(group_of(group), rank, peer);
                let own = i32::try_from(rank.0).unwrap_or(i32::MAX);
                let sends = matches!(node.work, Work::Send { .. });
                let (source, destination) = if sends { (own, other) } else { (other, own) };
                attributes.put("comm_size", Value::Int64Val(bytes.count().cast_signed()));
                attributes.put("comm_src", Value::Int32Val(source));
                attributes.put("comm_dst", Value::Int32Val(destination));
                attributes.put("comm_tag", Value::Int32Val(0));
                attributes.text("allrail_purpose", &purpose);
                if sends { NodeType::CommSendNode } else { NodeType::CommRecvNode }
            }
        };
        written.r#type = kind.into();
        let pass = match node.pass {
            Pass::Forward => Some("forward"),
            Pass::Backward => Some("backward"),
            Pass::Update => Some("update"),
            Pass::Unknown => None,
        };
        if let Some(pass) = pass {
            attributes.put("allrail_pass", Value::StringVal(pass.to_owned()));
        }
        if let Some(place) = node.tensor {
            attributes.put("allrail_tensor", Value::Uint32Val(place));
        }
        if graph.priority(id) != 0 {
            attributes.put("comm_priority", Value::Int32Val(graph.priority(id)));
        }
        if graph.is_delay(id) {
            attributes.put("allrail_delay", Value::BoolVal(true));
            if let Some(purpose) = graph.communication(id) {
                attributes.put("allrail_measured", Value::BoolVal(true));
                attributes.text("allrail_purpose", &purpose);
            }
        }
        if graph.is_urgent(id) {
            attributes.put("allrail_urgent", Value::BoolVal(true));
        }
        if graph.is_second(id) {
            attributes.put("allrail_second", Value::BoolVal(true));
        }
        if !previous.is_empty() {
            let values = previous.to_vec();
            attributes.put("allrail_previous", Value::Uint64List(Uint64List { values }));
        }
        written.attr = attributes.0;
        written
    }

    /// One flag per dimension, for readers that go by these.
    fn involved(&self, group: &Group) -> Value {
        let used = |i: usize| group.parts.iter().any(|part| part.dimension.index() == i);
        Value::BoolList(BoolList { values: (0..self.sizes.len()).map(used).collect() })
    }
}

struct Attributes(Vec<AttributeProto>);

impl Attributes {
    fn put(&mut self, name: &str, value: Value) {
        let name = name.to_owned();
        self.0.push(AttributeProto { name, doc_string: String::new(), value: Some(value) });
    }

    fn text<T: serde::Serialize>(&mut self, name: &str, value: &T) {
        if let Ok(serde_json::Value::String(tag)) = serde_json::to_value(value) {
            self.put(name, Value::StringVal(tag));
        }
    }
}

fn number(operation: Operation) -> i64 {
    match operation {
        Operation::AllReduce => 0,
        Operation::AllGather => 2,
        Operation::Broadcast => 5,
        Operation::AllToAll => 6,
        Operation::ReduceScatter => 7,
    }
}
