//! What a step graph says of the tensors of one scheduler ([`StepFacts`]): when each is made and needed where
//! nothing waits for the network, and which tensors what is computed next waits for.
//!
//! It follows one actor's nodes, the first one's of the group: through an iteration from its gradients to what
//! the next one waits for, and through that. Times are longest paths over what is computed; communication takes
//! none. What nothing precedes waits for all of the iteration before. Updates are no computing here: with
//! servers they are these', and elsewhere part of a tensor's exchange.

use std::collections::BTreeMap;

use allrail_core::{Bytes, Time};
use allrail_fabric::Fabric;
use allrail_schedule::tensor::{Computing, Exchange, Outlook, StepFacts, TensorFacts};
use allrail_workload::{Group, NodeId, Pass, StepGraph, Work};

/// Of these gradients, all of one actor and group.
pub(super) fn facts(
    graph: &StepGraph,
    fabric: &Fabric,
    exchange: Exchange,
    gradients: &[NodeId],
    outlook: Outlook,
) -> StepFacts {
    let Some(first) = gradients.first() else { return StepFacts::default() };
    let actor = graph.node(*first).actor;
    let own: Vec<NodeId> =
        graph.in_order().into_iter().filter(|id| graph.node(*id).actor == actor).collect();
    let number: BTreeMap<NodeId, u32> = (0u32..).zip(gradients).map(|(i, id)| (*id, i)).collect();
    let mut sets = Sets::default();
    let iteration = Iteration::new(graph, &own, &number, &mut sets);
    let tensors = gradients.iter().map(|id| {
        let node = graph.node(*id);
        let alone = match node.work {
            Work::Collective { bytes, group, .. } => {
                alone(&graph.groups()[group.index()], fabric, exchange, bytes)
            }
            _ => Time::ZERO,
        };
        TensorFacts {
            name: graph.name(*id).to_owned(),
            place: node.tensor.unwrap_or_default(),
            ready: iteration.begins[id.index()],
            needed: Time::MAX,
            alone,
        }
    });
    let mut facts = StepFacts { tensors: tensors.collect(), computing: Vec::new() };
    if outlook == Outlook::Nothing {
        return facts;
    }
    let direct = iteration.next_waits_for(graph, &own, gradients.len(), &mut sets);
    for (id, set) in own.iter().zip(&direct) {
        for tensor in sets.of(*set) {
            let needed = &mut facts.tensors[*tensor as usize].needed;
            *needed = iteration.begins[id.index()].min(*needed);
        }
    }
    for one in &mut facts.tensors {
        // Nothing of this actor's waits for it.
        if one.needed == Time::MAX {
            one.needed = Time::ZERO;
        }
    }
    if outlook == Outlook::Computing {
        let computes = own.iter().copied().zip(direct).filter(|(id, _)| !number.contains_key(id));
        facts.computing = computing(graph, computes, &mut sets);
    }
    facts
}

/// What a node computes.
fn computed(graph: &StepGraph, id: NodeId) -> Time {
    match graph.node(id).work {
        Work::Compute { time } => time,
        _ => Time::ZERO,
    }
}

/// The iteration that makes the gradients, by node.
struct Iteration {
    /// When it begins at the earliest.
    begins: Vec<Time>,
    /// Which of the tensors come before it, or are its own.
    before: Vec<u32>,
}

impl Iteration {
    fn new(
        graph: &StepGraph,
        own: &[NodeId],
        number: &BTreeMap<NodeId, u32>,
        sets: &mut Sets,
    ) -> Self {
        let mut begins = vec![Time::ZERO; graph.len()];
        let mut before = vec![Sets::NONE; graph.len()];
        for id in own {
            let (mut begin, mut set) = (Time::ZERO, Sets::NONE);
            for earlier in graph.after(*id) {
                begin = begin.max(plus(begins[earlier.index()], computed(graph, *earlier)));
                set = sets.union(set, before[earlier.index()]);
            }
            begins[id.index()] = begin;
            if let Some(tensor) = number.get(id) {
                let alone = sets.number(vec![*tensor]);
                set = sets.union(set, alone);
            }
            before[id.index()] = set;
        }
        Self { begins, before }
    }

    /// What each of these nodes waits for of this iteration, in the next one, by itself.
    fn next_waits_for(
        &self,
        graph: &StepGraph,
        own: &[NodeId],
        tensors: usize,
        sets: &mut Sets,
    ) -> Vec<u32> {
        let mut carried = vec![Sets::NONE; graph.len()];
        let mut waits = vec![false; graph.len()];
        for (node, earlier) in graph.carried() {
            carried[node.index()] = sets.union(carried[node.index()], self.before[earlier.index()]);
            waits[node.index()] = true;
        }
        let all = sets.number((0u32..).take(tensors).collect());
        let direct = |id: &NodeId| {
            let gated = graph.after(*id).is_empty() && !waits[id.index()];
            if gated { all } else { carried[id.index()] }
        };
        own.iter().map(direct).collect()
    }
}

/// What is computed in the next iteration, by the tensors that it waits for: of each node those that it waits for by
/// itself, and all that nodes before it do.
fn computing(
    graph: &StepGraph,
    nodes: impl Iterator<Item = (NodeId, u32)>,
    sets: &mut Sets,
) -> Vec<Computing> {
    let mut by_set: BTreeMap<u32, Time> = BTreeMap::new();
    let mut next = vec![Sets::NONE; graph.len()];
    for (id, direct) in nodes {
        let mut set = direct;
        for earlier in graph.after(id) {
            set = sets.union(set, next[earlier.index()]);
        }
        next[id.index()] = set;
        let time = computed(graph, id);
        let counts = graph.node(id).pass != Pass::Update && time > Time::ZERO;
        if counts && set != Sets::NONE {
            let sum = by_set.entry(set).or_default();
            *sum = plus(*sum, time);
        }
    }
    let computing = |(set, time)| Computing { time, waits_for: sets.of(set).to_vec() };
    by_set.into_iter().map(computing).collect()
}

/// The bytes of the busiest dimension over its bandwidth, and a latency of each.
fn alone(group: &Group, fabric: &Fabric, exchange: Exchange, bytes: Bytes) -> Time {
    let mut longest = Time::ZERO;
    let mut latency = Time::ZERO;
    let mut left = bytes.count();
    let whole: Vec<(usize, u64)> = match group.parts.is_empty() {
        true => (0..fabric.dimensions.len()).map(|d| (d, group.ranks.len() as u64)).collect(),
        false => group.parts.iter().map(|p| (p.dimension.index(), u64::from(p.size))).collect(),
    };
    for (dimension, size) in whole {
        let of = &fabric.dimensions[dimension];
        let sent = match exchange {
            Exchange::AllReduce => 2 * (left - left.div_ceil(size.max(1))),
            // Each way has its own direction of the link.
            Exchange::ParameterServer => left,
        };
        longest = longest.max(of.aggregate().time_for(Bytes::new(sent)).unwrap_or(Time::MAX));
        latency = plus(latency, of.latency);
        left = left.div_ceil(size.max(1));
    }
    plus(longest, latency)
}

fn plus(one: Time, other: Time) -> Time {
    one.checked_add(other).unwrap_or(Time::MAX)
}

/// Sets of tensors, each kept once.
#[derive(Default)]
struct Sets {
    all: Vec<Vec<u32>>,
    numbers: BTreeMap<Vec<u32>, u32>,
    unions: BTreeMap<(u32, u32), u32>,
}

impl Sets {
    /// The empty one.
    const NONE: u32 = u32::MAX;

    fn number(&mut self, set: Vec<u32>) -> u32 {
        let next = u32::try_from(self.all.len()).expect("few sets");
        *self.numbers.entry(set).or_insert_with_key(|set| {
            self.all.push(set.clone());
            next
        })
    }

    fn of(&self, number: u32) -> &[u32] {
        self.all.get(number as usize).map_or(&[], Vec::as_slice)
    }

    fn union(&mut self, one: u32, other: u32) -> u32 {
        if one == other || other == Self::NONE {
            return one;
        }
        if one == Self::NONE {
            return other;
        }
        let key = (one.min(other), one.max(other));
        if let Some(known) = self.unions.get(&key) {
            return *known;
        }
        let mut both = [self.of(one), self.of(other)].concat();
        both.sort_unstable();
        both.dedup();
        let number = self.number(both);
        self.unions.insert(key, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use allrail_collective::Operation;
    use allrail_core::{DimensionId, Rank};
    use allrail_workload::{Actor, Builder, Node, Part, Purpose};

    use super::*;

    fn us(time: u64) -> Time {
        Time::from_us(time)
    }

    /// Layers `a` and `b` that nothing joins, `c` behind both; each has a gradient, and its next forward pass
    /// waits for that.
    fn branches() -> (StepGraph, Fabric, Vec<NodeId>) {
        let fabric: Fabric = serde_json::from_str(
            r#"{"name": "f", "dimensions":
                [{"kind": "switch", "size": 2, "bandwidth": "1 GB/s", "latency": "1 us"}]}"#,
        )
        .expect("a fabric");
        let mut builder = Builder::default();
        let ranks = vec![Rank(0), Rank(1)];
        let actor = builder.actor(Actor { name: "ranks".to_owned(), ranks });
        let parts = vec![Part { dimension: DimensionId(0), size: 2, stride: 1 }];
        let (name, actors) = ("dp".to_owned(), vec![actor]);
        let group = builder.group(Group { name, parts, ranks: Vec::new(), actors });
        let mut add = |name: &str, work, place, pass, after: &[NodeId]| {
            builder.node(name, Node { actor, work, tensor: place, pass }, after)
        };
        let compute = |time| Work::Compute { time: us(time) };
        let exchange = |bytes| Work::Collective {
            operation: Operation::AllReduce,
            bytes: Bytes::new(bytes),
            group,
            purpose: Purpose::Data,
        };
        let a = add("a", compute(3), None, Pass::Forward, &[]);
        let b = add("b", compute(5), None, Pass::Forward, &[]);
        let c = add("c", compute(7), None, Pass::Forward, &[a, b]);
        let back = add("c back", compute(14), None, Pass::Backward, &[c]);
        let mut gradients = Vec::new();
        for (place, bytes) in [(2, 1000), (1, 2000), (0, 4000)] {
            gradients.push(add("g", exchange(bytes), Some(place), Pass::Backward, &[back]));
        }
        for (layer, gradient) in [c, b, a].into_iter().zip(&gradients) {
            let update = builder.node(
                "update",
                Node { actor, work: compute(100), tensor: None, pass: Pass::Update },
                &[*gradient],
            );
            builder.carry(layer, update);
        }
        (builder.finish().expect("a graph"), fabric, gradients)
    }

    #[test]
    fn by_hand() {
        let (graph, fabric, gradients) = branches();
        let found = facts(&graph, &fabric, Exchange::AllReduce, &gradients, Outlook::Computing);
        // c begins behind b, the longer of its two; its backward pass ends at 5 + 7 + 14.
        let times: Vec<(u64, u64, u64)> = found
            .tensors
            .iter()
            .map(|one| (one.ready.as_ps(), one.needed.as_ps(), one.alone.as_ps()))
            .collect();
        let of = |ready, needed, alone| (us(ready).as_ps(), us(needed).as_ps(), us(alone).as_ps());
        // 2 × half of the bytes at 1 GB/s, and 1 µs.
        assert_eq!(times, [of(26, 5, 2), of(26, 0, 3), of(26, 0, 5)]);
        let mut computing = found.computing;
        computing.sort_by_key(|one| one.waits_for.len());
        let of = |time, waits: &[u32]| Computing { time: us(time), waits_for: waits.to_vec() };
        // Forward c and all of the backward pass wait for the three.
        assert_eq!(computing[2], of(21, &[0, 1, 2]));
        computing.truncate(2);
        computing.sort_by_key(|one| one.time);
        assert_eq!(computing, [of(3, &[2]), of(5, &[1])]);
    }

    #[test]
    fn only_what_is_asked_for() {
        let (graph, fabric, gradients) = branches();
        let found = |outlook| facts(&graph, &fabric, Exchange::AllReduce, &gradients, outlook);
        assert!(found(Outlook::Tensors).computing.is_empty());
        assert_eq!(found(Outlook::Tensors).tensors, found(Outlook::Computing).tensors);
        let servers =
            facts(&graph, &fabric, Exchange::ParameterServer, &gradients, Outlook::Tensors);
        // All of the bytes, each way at once.
        let alone: Vec<Time> = servers.tensors.iter().map(|one| one.alone).collect();
        assert_eq!(alone, [us(2), us(3), us(5)]);
    }
}
