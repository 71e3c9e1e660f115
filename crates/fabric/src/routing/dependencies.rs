//! The channel dependency graph: the proof that a routing cannot deadlock.
//!
//! Its nodes are the channels of links. An edge leads from `a` to `b` if some packet, on some of the
//! ways that the routing allows, may hold `a` and ask for `b` next. If there is no circle, some packet
//! can always go on, whatever the loads and whichever way each packet chooses (Dally and Seitz, 1987).
//!
//! Every state that a packet can be in is explored, from every source to every destination, for every
//! draw, so this is for small instances: seconds for a few hundred NPUs. It also tells which pairs
//! the routing cannot join, and in which states packets are stuck.

use std::collections::HashMap;

use super::{Hop, RouteState, Routing};
use crate::graph::{Graph, NodeId};

/// A virtual channel of a directed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// The link.
    pub link: u32,
    /// The channel.
    pub channel: u8,
}

/// A packet that cannot arrive any more: no hop is left for it, or only hops to such states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stuck {
    /// Where it is.
    pub node: NodeId,
    /// Where it should go.
    pub destination: NodeId,
    /// What it carries.
    pub state: RouteState,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Dependencies {
    /// How many edges the graph has.
    pub edges: usize,
    /// Channels that wait for each other: each for the next, the last for the first.
    pub cycle: Option<Vec<Channel>>,
    /// Pairs, source first, that no way joins.
    pub unreachable: Vec<[NodeId; 2]>,
    /// States that packets can come into and not arrive from. Whoever avoids them needs look-ahead.
    pub stuck: Vec<Stuck>,
    /// How many states of a packet were explored, over all destinations.
    pub states: usize,
}

impl Dependencies {
    /// Explores `routing` on `graph`.
    ///
    /// # Panics
    /// If a hop does not start at its packet's node or names a channel that there is not.
    #[must_use]
    pub fn explore(graph: &Graph, routing: &dyn Routing) -> Self {
        let channels = usize::from(routing.channels());
        let mut found =
            Self { edges: 0, cycle: None, unreachable: Vec::new(), stuck: Vec::new(), states: 0 };
        let mut next_of: Vec<Vec<u32>> = vec![Vec::new(); graph.links() as usize * channels];
        for destination in (0..graph.npus()).map(NodeId) {
            Walks::new(graph, routing, destination).explore(&mut next_of, &mut found);
        }
        found.edges = next_of.iter().map(Vec::len).sum();
        found.cycle = cycle(&next_of).map(|nodes| {
            let channel = |node: u32| Channel {
                link: node / channels as u32,
                channel: (node % channels as u32) as u8,
            };
            nodes.into_iter().map(channel).collect()
        });
        found.stuck.sort_unstable();
        found
    }

    /// No circle, every pair joined, nobody stuck.
    #[must_use]
    pub fn sound(&self) -> bool {
        self.cycle.is_none() && self.unreachable.is_empty() && self.stuck.is_empty()
    }

    /// What is wrong, one sentence a line; empty if nothing is.
    #[must_use]
    pub fn in_words(&self, graph: &Graph) -> Vec<String> {
        let mut lines: Vec<String> = (self.unreachable.iter())
            .map(|[from, to]| format!("no way leads from NPU {} to NPU {}", from.0, to.0))
            .collect();
        lines.extend(self.stuck.iter().map(|stuck| {
            let (at, to) = (name(graph, stuck.node), stuck.destination.0);
            format!("a packet for NPU {to} may come to {at} and get stuck")
        }));
        let circle = self.cycle.iter().flatten();
        lines.extend(circle.clone().zip(circle.cycle().skip(1)).map(|(held, wanted)| {
            format!(
                "{} waits for {}",
                channel_in_words(graph, *held),
                channel_in_words(graph, *wanted)
            )
        }));
        lines
    }
}

fn name(graph: &Graph, node: NodeId) -> String {
    match node.0.checked_sub(graph.npus()) {
        None => format!("NPU {}", node.0),
        Some(switch) => format!("switch {switch}"),
    }
}

/// A channel as people name it, such as `NPU 3 to switch 0, channel 1`. Switches count from 0.
#[must_use]
pub(crate) fn channel_in_words(graph: &Graph, at: Channel) -> String {
    let link = graph.link(at.link);
    format!("{} to {}, channel {}", name(graph, link.from), name(graph, link.to), at.channel)
}

/// All walks to one destination. A state is what a packet holds (no channel at its source) and
/// carries.
struct Walks<'a> {
    graph: &'a Graph,
    routing: &'a dyn Routing,
    destination: NodeId,
    numbers: HashMap<(NodeId, Option<u32>, RouteState), usize>,
    states: Vec<(NodeId, Option<u32>, RouteState)>,
    /// For each state, those from which it is one hop.
    before: Vec<Vec<usize>>,
}

impl<'a> Walks<'a> {
    fn new(graph: &'a Graph, routing: &'a dyn Routing, destination: NodeId) -> Self {
        let (numbers, states, before) = (HashMap::new(), Vec::new(), Vec::new());
        Self { graph, routing, destination, numbers, states, before }
    }

    fn number(&mut self, state: (NodeId, Option<u32>, RouteState)) -> usize {
        let new = self.states.len();
        let number = *self.numbers.entry(state).or_insert(new);
        if number == new {
            self.states.push(state);
            self.before.push(Vec::new());
        }
        number
    }

    fn explore(mut self, next_of: &mut [Vec<u32>], found: &mut Dependencies) {
        let destination = self.destination;
        let sources = (0..self.graph.npus()).map(NodeId).filter(move |&npu| npu != destination);
        for source in sources.clone() {
            self.number((source, None, RouteState::default()));
        }
        let (mut at, mut arrived) = (0, Vec::new());
        let mut stuck: Vec<Stuck> = Vec::new();
        let mut hops: Vec<Hop> = Vec::new();
        while let Some(&(node, held, state)) = self.states.get(at) {
            if node == self.destination {
                arrived.push(at);
                at += 1;
                continue;
            }
            for draw in 0..self.routing.draws() {
                hops.clear();
                self.routing.hops(node, state, self.destination, draw, &mut hops);
                if hops.is_empty() {
                    stuck.push(Stuck { node, destination: self.destination, state });
                }
                for hop in &hops {
                    let link = self.graph.link(hop.link);
                    assert_eq!(link.from, node, "a hop starts where its packet is");
                    assert!(hop.channel < self.routing.channels(), "a hop's channel exists");
                    let wanted =
                        hop.link * u32::from(self.routing.channels()) + u32::from(hop.channel);
                    if let Some(held) = held {
                        let next = &mut next_of[held as usize];
                        if !next.contains(&wanted) {
                            next.push(wanted);
                        }
                    }
                    let number = self.number((link.to, Some(wanted), hop.state));
                    if self.before[number].last() != Some(&at) {
                        self.before[number].push(at);
                    }
                }
            }
            at += 1;
        }
        let mut joined = vec![false; self.states.len()];
        while let Some(state) = arrived.pop() {
            if !std::mem::replace(&mut joined[state], true) {
                arrived.extend(&self.before[state]);
            }
        }
        let lost = self.states.iter().zip(&joined).filter(|&(_, joined)| !joined);
        stuck.extend(lost.map(|(&(node, _, state), _)| Stuck { node, destination, state }));
        stuck.sort_unstable();
        stuck.dedup();
        found.stuck.extend(stuck);
        let apart = sources.zip(&joined).filter(|&(_, joined)| !joined);
        found.unreachable.extend(apart.map(|(source, _)| [source, destination]));
        found.states += self.states.len();
    }
}

/// Some circle of a graph; each node lists those after it.
fn cycle(next_of: &[Vec<u32>]) -> Option<Vec<u32>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Never,
        OnPath,
        Done,
    }
    let mut seen = vec![Seen::Never; next_of.len()];
    for root in 0..next_of.len() as u32 {
        if seen[root as usize] != Seen::Never {
            continue;
        }
        seen[root as usize] = Seen::OnPath;
        let mut path = vec![(root, 0)];
        while let Some((node, tried)) = path.last_mut() {
            let Some(&next) = next_of[*node as usize].get(*tried) else {
                seen[*node as usize] = Seen::Done;
                path.pop();
                continue;
            };
            *tried += 1;
            match seen[next as usize] {
                Seen::Done => {}
                Seen::Never => {
                    seen[next as usize] = Seen::OnPath;
                    path.push((next, 0));
                }
                Seen::OnPath => {
                    let circle = path.iter().map(|&(node, _)| node);
                    return Some(circle.skip_while(|&node| node != next).collect());
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_a_circle_if_there_is_one() {
        assert_eq!(cycle(&[vec![1], vec![2, 3], vec![], vec![2]]), None);
        assert_eq!(cycle(&[vec![1], vec![2, 3], vec![], vec![1]]), Some(vec![1, 3]));
        assert_eq!(cycle(&[vec![0]]), Some(vec![0]));
    }

    /// Whether something is left after all nodes that none leads to were taken away, again and again.
    fn has_circle(next_of: &[Vec<u32>]) -> bool {
        let mut left: Vec<bool> = vec![true; next_of.len()];
        loop {
            let led_to = |node: usize| {
                let mut others = next_of.iter().zip(&left).filter(|&(_, left)| *left);
                others.any(|(next, _)| next.contains(&(node as u32)))
            };
            let Some(free) = (0..left.len()).find(|&node| left[node] && !led_to(node)) else {
                return left.contains(&true);
            };
            left[free] = false;
        }
    }

    proptest! {
        #[test]
        fn finds_circles_as_the_plain_way_does(
            edges in prop::collection::vec((0usize..9, 0u32..9), 0..14),
        ) {
            let mut next_of = vec![Vec::new(); 9];
            for (from, to) in edges {
                next_of[from].push(to);
            }
            let found = cycle(&next_of);
            prop_assert_eq!(found.is_some(), has_circle(&next_of));
            for (held, wanted) in found.iter().flatten().zip(found.iter().flatten().cycle().skip(1)) {
                prop_assert!(next_of[*held as usize].contains(wanted));
            }
        }
    }
}
