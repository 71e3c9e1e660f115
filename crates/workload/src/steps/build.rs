//! From steps that are written out to a step graph: actors of classes, groups, and their nodes.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, FieldError, Rank, Time};

use super::{Coordinates, PeerText, Size, Step, Steps, wrong};
use crate::graph::Purpose;
use crate::graph::{
    Actor, ActorId, Builder, Group, GroupId, Node, NodeId, Part, Pass, Peer, StepGraph, Work,
};

/// More repetitions than this are refused.
const MOST_REPEATS: u32 = 1 << 16;

impl Steps {
    /// The step graph.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn build(&self) -> Result<StepGraph, FieldError> {
        let axes = self.axes()?;
        let mut builder = Builder::default();
        let actors = self.actors(&axes, &mut builder)?;
        let groups = self.groups(&axes, &actors, &mut builder)?;
        for (class, steps) in &self.steps {
            let Some((actor, _)) = actors.get(class.as_str()) else {
                let known: Vec<&str> = actors.keys().copied().collect();
                let hint = format!("the classes are {}", known.join(", "));
                return Err(wrong("steps", class, "there is no such class", &hint));
            };
            let mut writer = Writer {
                steps: self,
                class,
                actor: *actor,
                groups: &groups,
                builder: &mut builder,
                named: BTreeMap::new(),
                last: Vec::new(),
            };
            for (i, step) in steps.iter().enumerate() {
                writer.write(i, step)?;
            }
        }
        builder.finish()
    }

    fn actors<'s>(
        &'s self,
        axes: &[(&str, u32)],
        builder: &mut Builder,
    ) -> Result<BTreeMap<&'s str, (ActorId, Vec<Rank>)>, FieldError> {
        let everyone = BTreeMap::new();
        let mut classes: Vec<(&str, &BTreeMap<String, Coordinates>)> =
            self.classes.iter().map(|(name, selected)| (name.as_str(), selected)).collect();
        if classes.is_empty() {
            let mut named = self.steps.keys();
            let (Some(name), None) = (named.next(), named.next()) else {
                let why = "several classes do steps, and it is not said which ranks each has";
                let hint = "write `classes: {even: {stage: even}, odd: {stage: odd}}`";
                return Err(wrong("classes", "{}", why, hint));
            };
            classes.push((name, &everyone));
        }
        let total: u32 = axes.iter().map(|(_, size)| size).product();
        let mut owner: Vec<Option<&str>> = vec![None; total as usize];
        let mut actors = BTreeMap::new();
        for (name, selected) in classes {
            for (axis, coordinates) in selected {
                let field = || format!("classes.{name}.{axis}");
                let Some((_, size)) = axes.iter().find(|(known, _)| known == axis) else {
                    let known: Vec<&str> = axes.iter().map(|(axis, _)| *axis).collect();
                    let hint = format!("the axes are {}", known.join(", "));
                    return Err(wrong(field(), axis, "there is no such axis", &hint));
                };
                if let Some(largest) = coordinates.largest().filter(|largest| largest >= size) {
                    let why = format!("its coordinates are 0 to {}", size - 1);
                    return Err(wrong(field(), largest, why, "take those that exist"));
                }
            }
            let mut ranks = Vec::new();
            for rank in 0..total {
                let mut left = rank;
                let taken = axes.iter().all(|(axis, size)| {
                    let coordinate = left % size;
                    left /= size;
                    selected.get(*axis).is_none_or(|wanted| wanted.has(coordinate))
                });
                if taken {
                    if let Some(other) = owner[rank as usize].replace(name) {
                        let why = format!("rank {rank} is also in class `{other}`");
                        let hint = "let classes share no rank";
                        return Err(wrong(format!("classes.{name}"), name, why, hint));
                    }
                    ranks.push(Rank(rank));
                }
            }
            if ranks.is_empty() {
                let hint = "leave the class out, or select other coordinates";
                return Err(wrong(format!("classes.{name}"), name, "it has no rank", hint));
            }
            let actor = builder.actor(Actor { name: name.to_owned(), ranks: ranks.clone() });
            actors.insert(name, (actor, ranks));
        }
        Ok(actors)
    }

    fn groups<'s>(
        &'s self,
        axes: &[(&str, u32)],
        actors: &BTreeMap<&'s str, (ActorId, Vec<Rank>)>,
        builder: &mut Builder,
    ) -> Result<BTreeMap<(&'s str, &'s str), GroupId>, FieldError> {
        let mut groups = BTreeMap::new();
        for (name, along) in &self.groups {
            let mut parts = Vec::new();
            for axis in along {
                let Some(place) = axes.iter().position(|(known, _)| known == axis) else {
                    let known: Vec<&str> = axes.iter().map(|(axis, _)| *axis).collect();
                    let hint = format!("the axes are {}", known.join(", "));
                    return Err(wrong(
                        format!("groups.{name}"),
                        axis,
                        "there is no such axis",
                        &hint,
                    ));
                };
                let dimension = DimensionId(u32::try_from(place).expect("few axes"));
                if parts.iter().any(|part: &Part| part.dimension == dimension) {
                    let hint = "name every axis once";
                    return Err(wrong(format!("groups.{name}"), axis, "it is named twice", hint));
                }
                parts.push(Part { dimension, size: axes[place].1, stride: 1 });
            }
            // Classes that do steps in it, put together where an instance has ranks of both.
            let joins = |class: &str| {
                let steps = self.steps.get(class).map_or(&[][..], Vec::as_slice);
                steps.iter().any(|step| step.over.as_ref() == Some(name))
            };
            let classes: Vec<(&str, &(ActorId, Vec<Rank>))> = actors
                .iter()
                .filter(|(class, _)| joins(class))
                .map(|(class, held)| (*class, held))
                .collect();
            let mut set: Vec<usize> = (0..classes.len()).collect();
            let mut first: BTreeMap<u32, usize> = BTreeMap::new();
            for (class, (_, (_, ranks))) in classes.iter().enumerate() {
                for rank in ranks {
                    let other = *first.entry(origin(axes, &parts, *rank)).or_insert(class);
                    let (mine, others) = (set[class], set[other]);
                    if mine != others {
                        set.iter_mut().filter(|one| **one == mine).for_each(|one| *one = others);
                    }
                }
            }
            for one in 0..classes.len() {
                let met = || classes.iter().zip(&set).filter(|(_, set)| **set == one);
                let mut members: Vec<ActorId> = met().map(|((_, held), _)| held.0).collect();
                members.sort_unstable();
                if members.is_empty() {
                    continue;
                }
                let (name_, parts) = (name.clone(), parts.clone());
                let group = Group { name: name_, parts, ranks: Vec::new(), actors: members };
                let id = builder.group(group);
                for ((class, _), _) in met() {
                    groups.insert((name.as_str(), *class), id);
                }
            }
        }
        Ok(groups)
    }
}

/// The rank of its instance whose coordinates on the parts are 0.
fn origin(axes: &[(&str, u32)], parts: &[Part], rank: Rank) -> u32 {
    let (mut origin, mut stride) = (rank.0, 1);
    for (d, (_, size)) in (0u32..).zip(axes) {
        if parts.iter().any(|part| part.dimension == DimensionId(d)) {
            origin -= rank.0 / stride % size * stride;
        }
        stride *= size;
    }
    origin
}

/// Writes a class's steps.
struct Writer<'a> {
    steps: &'a Steps,
    class: &'a str,
    actor: ActorId,
    /// By the group's name and the class's.
    groups: &'a BTreeMap<(&'a str, &'a str), GroupId>,
    builder: &'a mut Builder,
    named: BTreeMap<&'a str, NodeId>,
    /// What the next step waits for.
    last: Vec<NodeId>,
}

impl<'a> Writer<'a> {
    fn write(&mut self, place: usize, step: &'a Step) -> Result<(), FieldError> {
        let field = |key: &str| format!("steps.{}[{place}]{key}", self.class);
        let work = self.work(&field, step)?;
        let mut after = match &step.after {
            None => self.last.clone(),
            Some(names) => {
                let mut after = Vec::new();
                for name in names {
                    let Some(node) = self.named.get(name.as_str()) else {
                        let why = "no step before it in its class has that name";
                        let hint = "give the step that it waits for a `name`";
                        return Err(wrong(field(".after"), name, why, hint));
                    };
                    after.push(*node);
                }
                after
            }
        };
        let repeat = step.repeat.unwrap_or(1);
        if repeat == 0 || repeat > MOST_REPEATS {
            let why = format!("a step is repeated 1 to {MOST_REPEATS} times");
            return Err(wrong(field(".repeat"), repeat, why, "leave it out for once"));
        }
        let pass = step.pass.unwrap_or_default();
        let node = Node { actor: self.actor, work, tensor: step.tensor, pass };
        let name = step.name.as_deref().unwrap_or("");
        for _ in 0..repeat {
            let mut id = self.builder.node(name, node, &after);
            if step.tensor.is_some() {
                let work = Work::Compute { time: Time::ZERO };
                let update = Node { actor: self.actor, work, tensor: None, pass: Pass::Update };
                id = self.builder.node("", update, &[id]);
            }
            after = vec![id];
        }
        if let Some(name) = &step.name
            && self.named.insert(name, after[0]).is_some()
        {
            let hint = "give each step its own, or none";
            return Err(wrong(field(".name"), name, "a step before it has that name", hint));
        }
        if !step.background {
            self.last = after;
        }
        Ok(())
    }

    fn bytes(&self, size: Size) -> Option<Bytes> {
        match size {
            Size::Bytes(bytes) => Some(bytes),
            Size::Elements(count) => count.checked_mul(self.steps.element.count()).map(Bytes::new),
        }
    }

    fn work(&self, field: &dyn Fn(&str) -> String, step: &Step) -> Result<Work, FieldError> {
        let collectives = [
            (step.all_reduce, Operation::AllReduce),
            (step.reduce_scatter, Operation::ReduceScatter),
            (step.all_gather, Operation::AllGather),
            (step.all_to_all, Operation::AllToAll),
            (step.broadcast, Operation::Broadcast),
        ];
        let collective = collectives.iter().find_map(|(size, what)| size.map(|size| (size, *what)));
        let said = collectives.iter().filter(|(size, _)| size.is_some()).count()
            + usize::from(step.compute.is_some())
            + usize::from(step.send.is_some())
            + usize::from(step.receive.is_some());
        if said != 1 {
            let why = format!("it says {said} things to do");
            let hint = "write one of compute, all_reduce, reduce_scatter, all_gather, all_to_all, \
                        broadcast, send, receive";
            return Err(wrong(field(""), step.name.as_deref().unwrap_or(""), why, hint));
        }
        let peer = step.to.as_ref().or(step.from.as_ref());
        let refuse = |key: &str, why: &str| Err(wrong(field(key), "", why, "leave it out"));
        if step.tensor.is_some() && collective.is_none() {
            return refuse(".tensor", "it belongs to a collective");
        }
        if let Some(time) = step.compute {
            if step.over.is_some() || peer.is_some() || step.purpose.is_some() {
                return refuse(".over", "`over`, `for`, `to` and `from` belong to communication");
            }
            return Ok(Work::Compute { time });
        }
        let Some(over) = &step.over else {
            let hint = "name one of `groups`";
            return Err(wrong(field(".over"), "", "it is missing: among whom", hint));
        };
        let Some(group) = self.groups.get(&(over.as_str(), self.class)).copied() else {
            let known: Vec<&str> = self.steps.groups.keys().map(String::as_str).collect();
            let hint = format!("the groups are {}", known.join(", "));
            return Err(wrong(field(".over"), over, "there is no such group", &hint));
        };
        let size = collective.map(|(size, _)| size).or(step.send).or(step.receive);
        let Some(bytes) = size.and_then(|size| self.bytes(size)) else {
            let why = "its elements are more bytes than can be counted";
            return Err(wrong(field(""), over, why, "make it smaller"));
        };
        let default = if step.tensor.is_some() { Purpose::Data } else { Purpose::Other };
        let purpose = step.purpose.unwrap_or(default);
        if let Some((_, operation)) = collective {
            if peer.is_some() {
                return refuse(".to", "`to` and `from` belong to messages");
            }
            return Ok(Work::Collective { operation, bytes, group, purpose });
        }
        let (own, other, key) = if step.send.is_some() {
            (&step.to, &step.from, ".to")
        } else {
            (&step.from, &step.to, ".from")
        };
        if other.is_some() {
            return refuse(key, "a send has `to`, a receive `from`");
        }
        let Some(peer) = own else {
            let hint = "write `next`, `previous`, or a position in the group";
            return Err(wrong(field(key), "", "it is missing", hint));
        };
        let peer = peer_of(peer).ok_or_else(|| {
            let hint = "write `next`, `previous`, a position, or a distance such as `\"+4\"`";
            wrong(field(key), format!("{peer:?}"), "it is no peer", hint)
        })?;
        Ok(if step.send.is_some() {
            Work::Send { bytes, group, peer, purpose }
        } else {
            Work::Receive { bytes, group, peer, purpose }
        })
    }
}

fn peer_of(text: &PeerText) -> Option<Peer> {
    match text {
        PeerText::At(position) => Some(Peer::At(*position)),
        PeerText::Text(text) => match text.as_str() {
            "next" => Some(Peer::Next(1)),
            "previous" => Some(Peer::Next(-1)),
            distance => distance
                .strip_prefix('+')
                .map_or_else(|| distance.parse().ok(), |distance| distance.parse().ok())
                .filter(|distance| *distance != 0)
                .map(Peer::Next),
        },
    }
}
