//! From kernels on a timeline to nodes that wait for one another; see the module above.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allrail_collective::Operation;
use allrail_core::{Bytes, Rank, Time};

use super::Imported;
use super::events::{Collective, Events, Kernel, MOST_RANKS};
use crate::error::WorkloadError;
use crate::formats::chakra::product;
use crate::graph::{
    Actor, ActorId, Builder, Group, GroupId, Node, NodeId, Part, Pass, Peer, Purpose, Work,
};

/// Microseconds that a time may be off by.
const SLACK: f64 = 1e-3;
/// Microseconds below which a gap is nobody's.
const GAP: f64 = 1.0;

/// The last kernels of a stream: (when over, node).
#[derive(Clone, Copy, Default)]
struct Stream {
    last: Option<(f64, NodeId)>,
    before: Option<(f64, NodeId)>,
}

struct Importer {
    builder: Builder,
    world: u32,
    /// Whether one trace stands for all ranks.
    alike: bool,
    groups: BTreeMap<Vec<u32>, GroupId>,
    defined: Vec<Group>,
    kept: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<&'static str, u64>,
}

pub(super) fn build(traces: Vec<(PathBuf, Events)>) -> Result<Imported, WorkloadError> {
    let world = world(&traces)?;
    let alike = traces.len() == 1;
    let mut importer = Importer {
        builder: Builder::default(),
        world,
        alike,
        groups: BTreeMap::new(),
        defined: Vec::new(),
        kept: BTreeMap::new(),
        dropped: BTreeMap::new(),
    };
    let mut placed = BTreeMap::new();
    for (place, (path, events)) in (0u32..).zip(traces) {
        let rank = events.rank.unwrap_or(place);
        let wrong = |why: String| {
            WorkloadError::new("file", path.display(), why, "give one trace, or one of each rank")
        };
        if rank >= world {
            return Err(wrong(format!("it is of rank {rank}, and there are {world}")));
        }
        if let Some(other) = placed.insert(rank, path.display().to_string()) {
            return Err(wrong(format!("it is of rank {rank}, and so is {other}")));
        }
        importer.rank(&path, rank, events)?;
    }
    let notes = if alike && world > 1 {
        vec![format!("the trace of one rank stands for all {world}")]
    } else {
        Vec::new()
    };
    let now: Vec<GroupId> =
        (0..u32::try_from(importer.defined.len()).expect("few groups")).map(GroupId).collect();
    importer.builder.regroup(importer.defined, &now);
    Ok(Imported {
        graph: importer.builder.finish()?,
        world,
        kept: importer.kept,
        dropped: importer.dropped,
        notes,
    })
}

/// How many ranks there are: as the traces say, or as their groups show.
fn world(traces: &[(PathBuf, Events)]) -> Result<u32, WorkloadError> {
    let mut world = 1;
    for (_, events) in traces {
        let mut least = events.world.unwrap_or(1);
        let named = events.groups.values();
        let used =
            events.kernels.iter().filter_map(|kernel| Some(&kernel.collective.as_ref()?.ranks));
        for ranks in named.chain(used) {
            least = least.max(ranks.iter().max().map_or(0, |rank| rank.saturating_add(1)));
        }
        for kernel in &events.kernels {
            let size = kernel.collective.as_ref().and_then(|collective| collective.size);
            least = least.max(u32::try_from(size.unwrap_or(1)).unwrap_or(u32::MAX));
        }
        world = world.max(least);
    }
    let given = u32::try_from(traces.len()).unwrap_or(u32::MAX);
    let wrong =
        |why: String| WorkloadError::new("file", given, why, "give one trace, or one of each rank");
    if world > MOST_RANKS {
        return Err(wrong(format!("its groups name {world} ranks")));
    }
    if given > 1 && given != world {
        return Err(wrong(format!("{given} traces are given, and the job has {world} ranks")));
    }
    Ok(world)
}

impl Importer {
    fn rank(
        &mut self,
        path: &std::path::Path,
        rank: u32,
        events: Events,
    ) -> Result<(), WorkloadError> {
        let (name, ranks) = if self.alike && self.world > 1 {
            ("all ranks".to_owned(), (0..self.world).map(Rank).collect())
        } else {
            (format!("rank {rank}"), vec![Rank(rank)])
        };
        let actor = self.builder.actor(Actor { name, ranks });
        for (why, count) in &events.dropped {
            *self.dropped.entry(why).or_default() += count;
        }
        let mut kernels = events.kernels;
        kernels.sort_by(|a, b| a.start.total_cmp(&b.start));
        let mut streams: BTreeMap<i64, Stream> = BTreeMap::new();
        for kernel in &kernels {
            let work = match &kernel.collective {
                None => {
                    let length = (kernel.end - kernel.start).min(86_400e6);
                    Work::Compute { time: time(length) }
                }
                Some(collective) => {
                    match self.collective(path, rank, actor, kernel, collective, &events.groups)? {
                        Some(work) => work,
                        None => continue,
                    }
                }
            };
            let what = match work {
                Work::Compute { .. } if kernel.copies => "copies",
                Work::Compute { .. } => "kernels",
                Work::Collective { .. } => "collectives",
                Work::Send { .. } => "sends",
                Work::Receive { .. } => "receives",
            };
            *self.kept.entry(what).or_default() += 1;
            self.place(actor, kernel, work, &mut streams);
        }
        Ok(())
    }

    /// Adds a kernel after all that it waited for.
    fn place(
        &mut self,
        actor: ActorId,
        kernel: &Kernel,
        work: Work,
        streams: &mut BTreeMap<i64, Stream>,
    ) {
        let own = streams.get(&kernel.stream).copied().unwrap_or_default();
        let idle_since = own.last.map_or(f64::NEG_INFINITY, |(over, _)| over);
        let mut after: Vec<NodeId> = own.last.iter().map(|(_, node)| *node).collect();
        let mut released = own.last.map(|(over, _)| over);
        for (stream, other) in streams.iter() {
            if *stream == kernel.stream {
                continue;
            }
            let over = [other.last, other.before]
                .into_iter()
                .flatten()
                .find(|(over, _)| *over <= kernel.start + SLACK);
            if let Some((over, node)) = over
                && over > idle_since
            {
                after.push(node);
                released = Some(released.map_or(over, |before: f64| before.max(over)));
            }
        }
        let gap = released.map_or(0.0, |released| kernel.start - released);
        if gap >= GAP {
            let node = Node {
                actor,
                work: Work::Compute { time: time(gap.min(86_400e6)) },
                tensor: None,
                pass: Pass::Unknown,
            };
            let host = self.builder.node("host", node, &after);
            self.builder.delay(host);
            *self.kept.entry("gaps of the host").or_default() += 1;
            after = vec![host];
        }
        let node = Node { actor, work, tensor: None, pass: Pass::Unknown };
        let id = self.builder.node(&kernel.name, node, &after);
        if kernel.copies {
            self.builder.delay(id);
        }
        let stream = streams.entry(kernel.stream).or_default();
        stream.before = stream.last;
        stream.last = Some((kernel.end, id));
    }

    /// What a kernel of NCCL does; `None` where it does not say enough.
    fn collective(
        &mut self,
        path: &std::path::Path,
        rank: u32,
        actor: ActorId,
        kernel: &Kernel,
        said: &Collective,
        named: &BTreeMap<String, Vec<u32>>,
    ) -> Result<Option<Work>, WorkloadError> {
        let mut drop = |why| {
            *self.dropped.entry(why).or_default() += 1;
            Ok(None)
        };
        let Some(kind) = kind(&said.name, &kernel.name) else {
            return drop("kernels of NCCL whose collective is not known");
        };
        let Some(width) = width(&said.dtype, &kernel.name) else {
            return drop("kernels of NCCL whose type of element is not known");
        };
        if said.elements == (0, 0) && kind != Kind::Barrier {
            return drop("kernels of NCCL that do not say how many elements they have");
        }
        let listed = if said.ranks.is_empty() { named.get(&said.group) } else { Some(&said.ranks) };
        let mut ranks = match listed {
            Some(ranks) => ranks.clone(),
            None => match said.size {
                Some(size) if size != u64::from(self.world) => {
                    return drop("kernels of NCCL whose process group is not known");
                }
                _ => (0..self.world).collect(),
            },
        };
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.len() < 2 {
            return Ok(Some(Work::Compute { time: Time::ZERO }));
        }
        if ranks.binary_search(&rank).is_err() {
            return Err(WorkloadError::new(
                "file",
                path.display(),
                format!(
                    "kernel `{}` is of process group `{}`, which rank {rank} is not in",
                    kernel.name, said.group
                ),
                "is it the trace of this rank?",
            ));
        }
        let purpose = purpose(&said.about);
        let counted = |elements: u64| elements.checked_mul(width);
        let (Some(sent), Some(received)) = (counted(said.elements.0), counted(said.elements.1))
        else {
            return drop("kernels of NCCL of more bytes than can be counted");
        };
        let operation = match kind {
            Kind::Operation(operation) => operation,
            Kind::Barrier => Operation::AllReduce,
            Kind::Send | Kind::Receive => {
                let peer = if kind == Kind::Send { said.destination } else { said.source };
                // The peer is a rank of the job where that is in the group, else a place in it.
                let Some(peer) = peer.filter(|peer| ranks.contains(peer) && *peer != rank) else {
                    return drop("sends and receives whose peer is not known");
                };
                let here = i64::from(rank);
                let by = i32::try_from(i64::from(peer) - here).unwrap_or(0);
                let everyone: Vec<u32> = (0..self.world).collect();
                let group = self.group(&everyone, "messages", actor)?;
                let bytes = Bytes::new(sent.max(received));
                let peer = Peer::Next(by);
                return Ok(Some(if kind == Kind::Send {
                    Work::Send { bytes, group, peer, purpose }
                } else {
                    Work::Receive { bytes, group, peer, purpose }
                }));
            }
        };
        let bytes = match operation {
            Operation::AllGather => received.max(sent.saturating_mul(ranks.len() as u64)),
            _ => sent.max(if operation == Operation::ReduceScatter { 0 } else { received }),
        };
        let bytes = Bytes::new(if kind == Kind::Barrier { 0 } else { bytes });
        let label = if said.about.is_empty() { &said.group } else { &said.about };
        let group = self.group(&ranks, label, actor)?;
        Ok(Some(Work::Collective { operation, bytes, group, purpose }))
    }

    fn group(
        &mut self,
        ranks: &[u32],
        label: &str,
        actor: ActorId,
    ) -> Result<GroupId, WorkloadError> {
        let shape = product(ranks, &[self.world]);
        if self.alike && shape.is_none() && ranks.len() < self.world as usize {
            return Err(WorkloadError::new(
                "file",
                label,
                "its ranks are not evenly spaced, so that one rank's trace does not say who else \
                 has such a group",
                "give the traces of all ranks",
            ));
        }
        if let Some(id) = self.groups.get(ranks) {
            let actors = &mut self.defined[id.index()].actors;
            if !actors.contains(&actor) {
                actors.push(actor);
            }
            return Ok(*id);
        }
        let parts: Vec<Part> = shape.clone().unwrap_or_default();
        let kept =
            if shape.is_none() { ranks.iter().copied().map(Rank).collect() } else { Vec::new() };
        let name = match label {
            "" => format!("{} ranks", ranks.len()),
            label => format!("`{label}`, {} ranks", ranks.len()),
        };
        let group = Group { name, parts, ranks: kept, actors: vec![actor] };
        self.defined.push(group.clone());
        let id = self.builder.group(group);
        self.groups.insert(ranks.to_vec(), id);
        Ok(id)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Operation(Operation),
    Barrier,
    Send,
    Receive,
}

/// By what PyTorch calls it, or by NCCL's name of the kernel.
fn kind(said: &str, kernel: &str) -> Option<Kind> {
    let said = said.trim_start_matches('_').to_lowercase().replace('_', "");
    let kernel = kernel.to_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| said.starts_with(word));
    let runs = |word: &str| said.is_empty() && kernel.contains(word);
    Some(if is(&["allreduce"]) || runs("allreduce") {
        Kind::Operation(Operation::AllReduce)
    } else if is(&["allgather"]) || runs("allgather") {
        Kind::Operation(Operation::AllGather)
    } else if is(&["reducescatter"]) || runs("reducescatter") {
        Kind::Operation(Operation::ReduceScatter)
    } else if is(&["alltoall"]) {
        Kind::Operation(Operation::AllToAll)
    } else if is(&["broadcast", "reduce"]) || runs("broadcast") || runs("reduce") {
        Kind::Operation(Operation::Broadcast)
    } else if is(&["barrier"]) {
        Kind::Barrier
    } else if is(&["send"]) {
        Kind::Send
    } else if is(&["recv", "receive"]) {
        Kind::Receive
    } else {
        return None;
    })
}

/// Bytes of an element, by PyTorch's name of the type or the end of NCCL's name of the kernel.
fn width(dtype: &str, kernel: &str) -> Option<u64> {
    let dtype = dtype.to_lowercase();
    Some(match dtype.as_str() {
        "double" | "float64" | "long" | "int64" | "complexfloat" => 8,
        "float" | "float32" | "int" | "int32" => 4,
        "half" | "float16" | "bfloat16" | "short" | "int16" => 2,
        "byte" | "char" | "bool" | "int8" | "uint8" => 1,
        other if other.starts_with("float8") => 1,
        "" if kernel.contains("_f32") => 4,
        "" if kernel.contains("_f16") || kernel.contains("bf16") => 2,
        "" if kernel.contains("_f64") => 8,
        _ => return None,
    })
}

/// By what a process group is called: Megatron's names, and those of device meshes.
fn purpose(about: &str) -> Purpose {
    let about = about.to_lowercase();
    let is = |long: &str, short: &str| {
        about.contains(long)
            || about.split(|c: char| !c.is_alphanumeric()).any(|word| word == short)
    };
    if is("expert", "ep") {
        Purpose::Expert
    } else if is("tensor", "tp") {
        Purpose::Tensor
    } else if is("pipeline", "pp") {
        Purpose::Pipeline
    } else if is("data", "dp") || is("fsdp", "fsdp") {
        Purpose::Data
    } else {
        Purpose::Other
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a day at most")]
fn time(micros: f64) -> Time {
    Time::from_ps((micros.max(0.0) * 1e6).round() as u64)
}
