//! From what ranks did on a timeline to nodes that wait for one another; see the module above.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use allrail_core::{Bytes, FieldError, Rank, Time, counted, either};
use allrail_workload::graph::{
    Actor, ActorId, Builder, Group, GroupId, Node, NodeId, Part, Pass, Peer, Work,
};

use super::account::Account;
use super::events::Events;
use super::execution::NO_TIMES;
use super::timed::timed;
use super::trace::{Collective, Does, Item, Message, One, Trace, trace};
use super::{Imported, meet, words, world_size, wrong};
use crate::chakra::product;

/// Microseconds that a time may be off by.
const SLACK: f64 = 1e-3;
/// Microseconds below which a gap is nobody's.
const GAP: f64 = 1.0;
/// Microseconds that an event takes at most: a day.
const LONGEST: f64 = 86_400e6;
const UNEVEN: &str = "process groups whose ranks are not evenly spaced, in one rank's trace";

/// The last events of a stream: (when over, node).
#[derive(Clone, Copy, Default)]
struct Stream {
    last: Option<(f64, NodeId)>,
    before: Option<(f64, NodeId)>,
}

struct Importer {
    builder: Builder,
    world_size: u32,
    /// Whether one trace stands for all ranks.
    alike: bool,
    groups: BTreeMap<Vec<u32>, GroupId>,
    defined: Vec<Group>,
    account: Account,
}

/// Makes a graph of files, one for all ranks or one of each; `npus` is how many ranks they are said to
/// be of.
pub(super) fn build(
    files: Vec<(PathBuf, Events)>,
    npus: Option<u32>,
) -> Result<Imported, FieldError> {
    let world_size = world_size::world_size(&files, npus)?;
    let execution = files.iter().any(|(_, events)| events.execution);
    let alike = files.len() == 1;
    let mut dropped: BTreeMap<&'static str, u64> = BTreeMap::new();
    let steps = steps(&files);
    let mut traces = traces(files, world_size, &mut dropped)?;
    let mut importer = Importer {
        builder: Builder::default(),
        world_size,
        alike,
        groups: BTreeMap::new(),
        defined: Vec::new(),
        account: Account::default(),
    };
    if alike {
        traces.iter_mut().for_each(|trace| importer.even(trace));
    }
    let met = meet::meet(&mut traces, world_size, alike);
    let timed = (!execution).then(|| timed(&traces, alike, steps));
    let mut notes = assumed(&traces, world_size);
    notes.extend(unevenness(&met, alike));
    for (why, count) in &met.left {
        *dropped.entry(why).or_default() += count;
    }
    for trace in &traces {
        importer.rank(trace);
    }
    let now: Vec<GroupId> =
        (0..u32::try_from(importer.defined.len()).expect("few groups")).map(GroupId).collect();
    importer.builder.regroup(importer.defined, &now);
    let mut warnings = warnings(&importer.account, world_size);
    if execution {
        let left = dropped.get(NO_TIMES).copied().unwrap_or_default();
        warnings.push(format!(
            "an execution trace holds no times: its {} {} none here, only its communication is \
             simulated; the profiler's trace of the same run has both",
            counted(left, "operator"),
            either(&left, "takes", "take"),
        ));
    }
    Ok(Imported {
        graph: importer.builder.finish()?,
        world_size,
        warnings,
        account: importer.account,
        timed,
        dropped,
        notes,
    })
}

/// The trace of each file, which is one of `world_size` ranks; what is left out of them is counted in `dropped`.
fn traces(
    files: Vec<(PathBuf, Events)>,
    world_size: u32,
    dropped: &mut BTreeMap<&'static str, u64>,
) -> Result<Vec<Trace>, FieldError> {
    let alike = files.len() == 1;
    let ranks = ranks(&files);
    let mut placed: BTreeMap<u32, String> = BTreeMap::new();
    let mut traces = Vec::new();
    for ((path, mut events), rank) in files.into_iter().zip(ranks) {
        let hint = "give one trace, or one of each rank";
        // Where nothing is said of other ranks, its own number says nothing, either.
        let lone = alike && world_size == 1 && events.world_size.is_none();
        let rank = if lone { 0 } else { rank };
        if rank >= world_size {
            let why = format!("it is of rank {rank}, and there are {world_size}");
            return Err(wrong(&path, why, hint));
        }
        if let Some(other) = placed.insert(rank, path.display().to_string()) {
            return Err(wrong(&path, format!("it is of rank {rank}, and so is {other}"), hint));
        }
        for (why, count) in std::mem::take(&mut events.dropped) {
            *dropped.entry(why).or_default() += count;
        }
        if !events.kernels.is_empty() {
            let mut leave = |why, count: usize| {
                if count > 0 {
                    *dropped.entry(why).or_default() += count as u64;
                }
            };
            leave(words::OPERATORS, events.work.len());
            leave("communication of the host's own backends", events.own.len());
        }
        traces.push(trace(&path, rank, world_size, &events)?);
    }
    Ok(traces)
}

/// What is said of ranks without a trace, and of communication without a group.
fn assumed(traces: &[Trace], world_size: u32) -> Vec<String> {
    let alike = traces.len() == 1;
    let mut notes = Vec::new();
    if alike && world_size > 1 {
        notes.push(format!("the trace of one rank stands for all {world_size}"));
    }
    let groupless: u64 = traces.iter().map(|trace| trace.groupless).sum();
    if groupless > 0 && world_size > 1 {
        notes.push(format!(
            "{} {} process group: taken over all {world_size}",
            counted(groupless, "communication"),
            either(&groupless, "does not say its", "do not say their"),
            world_size = counted(world_size, "rank")
        ));
    }
    notes
}

/// What is said of collectives whose ranks put in different amounts.
fn unevenness(met: &meet::Met, alike: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if met.uneven > 0 {
        let known = if alike {
            "of one rank's split lists, other ranks may have more"
        } else {
            "an upper bound for one switch"
        };
        notes.push(format!(
            "{} {} uneven: each counts as the even one that loads every port as its busiest is \
             ({known})",
            counted(met.uneven, "all-to-all"),
            either(&met.uneven, "is", "are"),
        ));
    }
    if met.differ > 0 {
        let many = counted(met.differ, "collective");
        notes.push(format!("ranks put different amounts into {many}: the largest counts"));
    }
    notes
}

/// The steps of the profiler that all files have.
fn steps(files: &[(PathBuf, Events)]) -> Vec<u32> {
    let of = |events: &Events| events.steps.iter().map(|(number, ..)| *number).collect();
    let mut each = files.iter().map(|(_, events)| -> BTreeSet<u32> { of(events) });
    let first = each.next().unwrap_or_default();
    each.fold(first, |all, one| &all & &one).into_iter().collect()
}

/// Says aloud how much of the communication a simulation will not touch.
fn warnings(account: &Account, world_size: u32) -> Vec<String> {
    let (understood, measured) = account.communication();
    let mut warnings = Vec::new();
    if measured.count > 0 {
        let all = understood.us + measured.us;
        let part = if all > 0.0 { 100.0 * measured.us / all } else { 100.0 };
        warnings.push(format!(
            "{} of {}, {part:.0} % of their time, {} the {:.1} us that the trace measured: a simulation \
             moves none of their bytes, and another network does not change them",
            measured.count,
            counted(measured.count + understood.count, "communication"),
            either(&measured.count, "keeps", "keep"),
            measured.us,
        ));
    }
    if world_size > 1 && understood.count + measured.count == 0 {
        warnings.push(format!(
            "there is no communication in it, though the job has {world_size}",
            world_size = counted(world_size, "rank")
        ));
    }
    warnings
}

/// Of which rank each file is: as it says, by the number after `rank` or `worker` in its name if all
/// have another one there, or in the order in which they are given.
fn ranks(files: &[(PathBuf, Events)]) -> Vec<u32> {
    let named: Vec<Option<u32>> = files.iter().map(|(path, _)| rank_in_name(path)).collect();
    let mut distinct: Vec<u32> = named.iter().flatten().copied().collect();
    distinct.sort_unstable();
    distinct.dedup();
    let by_name = files.len() > 1 && distinct.len() == files.len();
    (0u32..)
        .zip(files.iter().zip(named))
        .map(|(place, ((_, events), named))| {
            events.rank.or(named.filter(|_| by_name)).unwrap_or(place)
        })
        .collect()
}

fn rank_in_name(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.to_lowercase();
    let after = ["rank", "worker"].iter().find_map(|word| name.split_once(word))?.1;
    let digits = after.trim_start_matches(['-', '_', '.']);
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

impl Importer {
    /// In a trace that stands for all ranks, a group whose ranks are not evenly spaced does not say
    /// who else has such a group: what is done in it keeps its time.
    fn even(&self, trace: &mut Trace) {
        let world_size = self.world_size;
        for item in &mut trace.items {
            let Does::Communicates(list) = &item.does else { continue };
            let uneven = list.iter().find(|one| match one {
                One::Collective(one) => {
                    one.ranks.len() < world_size as usize
                        && product(&one.ranks, &[world_size]).is_none()
                }
                One::Message(_) => false,
            });
            if let Some(one) = uneven {
                item.does = Does::Measured(UNEVEN, one.purpose());
            }
        }
    }

    fn rank(&mut self, trace: &Trace) {
        let rank = trace.rank;
        let (name, ranks) = if self.alike && self.world_size > 1 {
            ("all ranks".to_owned(), (0..self.world_size).map(Rank).collect())
        } else {
            (format!("rank {rank}"), vec![Rank(rank)])
        };
        let actor = self.builder.actor(Actor { name, ranks });
        let mut streams: BTreeMap<i64, Stream> = BTreeMap::new();
        for item in &trace.items {
            self.place(actor, rank, item, &mut streams);
        }
    }

    /// Adds an item after all that it waited for.
    fn place(
        &mut self,
        actor: ActorId,
        rank: u32,
        item: &Item,
        streams: &mut BTreeMap<i64, Stream>,
    ) {
        let after = self.after(actor, item, streams);
        let length = item.end - item.start;
        let lasts = Work::Compute { time: time(length) };
        let plain = |work| Node { actor, work, tensor: None, pass: Pass::Unknown };
        let kept = match &item.does {
            Does::Compute => "kernels",
            Does::Copy => "copies",
            Does::Communicates(list) => {
                let collects = list.iter().any(|one| matches!(one, One::Collective(_)));
                if collects { "collectives" } else { "messages" }
            }
            Does::Measured(..) => "",
        };
        if !kept.is_empty() {
            self.account.kept.entry(kept).or_default().add(length);
        }
        let id = match &item.does {
            Does::Compute => self.builder.node(&item.name, plain(lasts), &after),
            Does::Copy => {
                let id = self.builder.node(&item.name, plain(lasts), &after);
                self.builder.delay(id);
                id
            }
            Does::Measured(why, purpose) => {
                self.account.measured.entry(why).or_default().add(length);
                let id = self.builder.node(&item.name, plain(lasts), &after);
                self.builder.measured(id, *purpose);
                id
            }
            Does::Communicates(list) => {
                let ends: Vec<NodeId> = list
                    .iter()
                    .map(|one| {
                        let work = match one {
                            One::Collective(one) => self.collective(actor, one),
                            One::Message(one) => self.message(actor, rank, one),
                        };
                        self.builder.node(&item.name, plain(work), &after)
                    })
                    .collect();
                match ends[..] {
                    [one] => one,
                    _ => {
                        let join = plain(Work::Compute { time: Time::ZERO });
                        self.builder.node(&item.name, join, &ends)
                    }
                }
            }
        };
        let stream = streams.entry(item.stream).or_default();
        stream.before = stream.last;
        stream.last = Some((item.end, id));
    }

    /// What an item waited for, with a delay where that was the host.
    fn after(
        &mut self,
        actor: ActorId,
        item: &Item,
        streams: &BTreeMap<i64, Stream>,
    ) -> Vec<NodeId> {
        let own = streams.get(&item.stream).copied().unwrap_or_default();
        let idle_since = own.last.map_or(f64::NEG_INFINITY, |(over, _)| over);
        let mut after: Vec<NodeId> = own.last.iter().map(|(_, node)| *node).collect();
        let mut released = own.last.map(|(over, _)| over);
        for (stream, other) in streams {
            if *stream == item.stream {
                continue;
            }
            let over = [other.last, other.before]
                .into_iter()
                .flatten()
                .find(|(over, _)| *over <= item.start + SLACK);
            if let Some((over, node)) = over
                && over > idle_since
            {
                after.push(node);
                released = Some(released.map_or(over, |before: f64| before.max(over)));
            }
        }
        let gap = released.map_or(0.0, |released| item.start - released);
        if gap < GAP {
            return after;
        }
        let work = Work::Compute { time: time(gap) };
        let node = Node { actor, work, tensor: None, pass: Pass::Unknown };
        let host = self.builder.node("host", node, &after);
        self.builder.delay(host);
        self.account.gaps.add(gap);
        vec![host]
    }

    fn collective(&mut self, actor: ActorId, one: &Collective) -> Work {
        let group = self.group(&one.ranks, &one.label, actor);
        let (operation, purpose) = (one.operation, one.purpose);
        Work::Collective { operation, bytes: Bytes::new(one.bytes), group, purpose }
    }

    fn message(&mut self, actor: ActorId, rank: u32, one: &Message) -> Work {
        let by = i32::try_from(i64::from(one.peer) - i64::from(rank)).unwrap_or(0);
        let everyone: Vec<u32> = (0..self.world_size).collect();
        let group = self.group(&everyone, "messages", actor);
        let (bytes, peer) = (Bytes::new(one.bytes), Peer::Next(by));
        let purpose = one.purpose;
        if one.sends {
            Work::Send { bytes, group, peer, purpose }
        } else {
            Work::Receive { bytes, group, peer, purpose }
        }
    }

    fn group(&mut self, ranks: &[u32], label: &str, actor: ActorId) -> GroupId {
        if let Some(id) = self.groups.get(ranks) {
            let actors = &mut self.defined[id.index()].actors;
            if !actors.contains(&actor) {
                actors.push(actor);
            }
            return *id;
        }
        let shape = product(ranks, &[self.world_size]);
        let parts: Vec<Part> = shape.clone().unwrap_or_default();
        let kept =
            if shape.is_none() { ranks.iter().copied().map(Rank).collect() } else { Vec::new() };
        let name = match label {
            "" => counted(ranks.len(), "rank"),
            label => format!("`{label}`, {}", counted(ranks.len(), "rank")),
        };
        let group = Group { name, parts, ranks: kept, actors: vec![actor] };
        self.defined.push(group.clone());
        let id = self.builder.group(group);
        self.groups.insert(ranks.to_vec(), id);
        id
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a day at most")]
fn time(micros: f64) -> Time {
    Time::from_ps((micros.clamp(0.0, LONGEST) * 1e6).round() as u64)
}
