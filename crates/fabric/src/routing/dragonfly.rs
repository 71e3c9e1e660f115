//! Dragonfly: minimal, or UGAL-L: minimal or a detour, whichever is less loaded (Kim et al., ISCA'08).
//!
//! *Minimal* is the shortest path with one global cable at most: local, global, local. UGAL decides
//! once, at the packet's first switch, between that and one detour drawn at random: through another
//! group, or, within its group, through another switch. Loads are compared times the links between
//! switches that lie ahead, which are known here; loads are those of that switch alone ("L").
//! On both parts of a detour, and among parallel cables, the packet is adaptive.
//!
//! Its channel is the number of global cables it has taken, so that it goes local 0, global 0,
//! local 1, global 1, local 2: no circle. A detour within a group takes local 0, local 1. Minimal
//! paths need two channels, UGAL three.
//!
//! Routers that share a switch are one node here, with all their cables.

use super::{Hop, RouteState, Routing};
use crate::graph::{Graph, NodeId};
use allrail_core::counted;

/// See the module.
#[derive(Clone, Debug)]
pub struct DragonflyRouting {
    npus: u32,
    groups: u32,
    /// Switches of a group.
    per_group: u32,
    /// For each NPU, the links to its switch and back, and the switch, from 0.
    ends: Vec<(u32, u32, u32)>,
    /// For each switch: the next links to each switch, and how far it is.
    to_switch: Lists,
    /// For each switch: the next links to each group, and how far it is.
    to_group: Lists,
    /// For each group, for each switch: how far the switch is, at most, from where packets enter.
    from_group: Vec<u8>,
    detours: bool,
    channels: u8,
}

/// A link, and whether it leaves the group.
#[derive(Clone, Copy, Debug)]
struct Next {
    link: u32,
    global: bool,
}

/// The next links for every pair of numbers.
#[derive(Clone, Debug, Default)]
struct Lists {
    across: usize,
    /// One entry more than pairs.
    starts: Vec<u32>,
    links: Vec<Next>,
    distances: Vec<u8>,
}

impl Lists {
    fn new(across: u32) -> Self {
        Self { across: across as usize, starts: vec![0], ..Self::default() }
    }

    fn push(&mut self, links: impl Iterator<Item = Next>, distance: u8) {
        self.links.extend(links);
        self.starts.push(u32::try_from(self.links.len()).expect("few links"));
        self.distances.push(distance);
    }

    fn get(&self, from: u32, to: u32) -> (&[Next], u8) {
        let pair = from as usize * self.across + to as usize;
        let range = self.starts[pair] as usize..self.starts[pair + 1] as usize;
        (&self.links[range], self.distances[pair])
    }

    /// Every pair has a link but those at distance 0.
    fn whole(&self) -> bool {
        let mut pairs = self.starts.windows(2).zip(&self.distances);
        pairs.all(|(at, &distance)| at[0] < at[1] || distance == 0)
    }

    fn bytes(&self) -> usize {
        4 * self.starts.len() + size_of::<Next>() * self.links.len() + self.distances.len()
    }
}

/// What a packet does: it is at its source or first switch, on its minimal path, or on the way to a
/// group.
const FRESH: u32 = 0;
const MINIMAL: u32 = 1;
const TO_GROUP: u32 = 2;

/// Bits 0 and 1: the channel; 2 and 3: what it does; above: the group that it makes for.
fn state(channel: u32, doing: u32, group: u32) -> RouteState {
    RouteState(channel | doing << 2 | group << 4)
}

impl DragonflyRouting {
    /// For `groups` groups on [`crate::topologies::dragonfly::Dragonfly`]'s graph, with `detours`
    /// (UGAL-L) or without. `None` if `graph` is not a whole one.
    #[must_use]
    pub fn new(graph: &Graph, groups: u32, detours: bool) -> Option<Self> {
        let (npus, switches) = (graph.npus(), u32::try_from(graph.switches()).ok()?);
        if groups < 2 || switches == 0 || !switches.is_multiple_of(groups) {
            return None;
        }
        let per_group = switches / groups;
        let mut ends = Vec::new();
        for npu in (0..npus).map(NodeId) {
            let &[(switch, link)] = graph.neighbours(npu) else { return None };
            ends.push((link, link ^ 1, switch.0.checked_sub(npus)?));
        }
        let group = |switch: u32| switch / per_group;
        let cables = |from: u32| {
            graph.neighbours(NodeId(npus + from)).iter().filter_map(move |&(to, link)| {
                let to = to.0.checked_sub(npus)?;
                Some((to, Next { link, global: group(to) != group(from) }))
            })
        };
        let local = |from: u32| cables(from).filter(|(_, next)| !next.global);
        let only = |(_, next): (u32, Next)| next;

        let mut adjacent = vec![false; switches as usize * switches as usize];
        for from in 0..switches {
            for (to, _) in cables(from) {
                adjacent[(from * switches + to) as usize] = true;
            }
        }
        let mut to_group = Lists::new(groups);
        for (from, goal) in pairs(switches, groups) {
            let enters = |at: u32| cables(at).any(|(to, _)| group(to) == goal);
            if goal == group(from) {
                to_group.push(std::iter::empty(), 0);
            } else if enters(from) {
                to_group.push(cables(from).filter(|&(to, _)| group(to) == goal).map(only), 1);
            } else {
                to_group.push(local(from).filter(|&(to, _)| enters(to)).map(only), 2);
            }
        }
        let mut to_switch = Lists::new(switches);
        for (from, goal) in pairs(switches, switches) {
            let joins = |at: u32| adjacent[(at * switches + goal) as usize];
            let (in_turn, distance) = to_group.get(from, group(goal));
            let straight = if distance == 1 { in_turn } else { &[] };
            let before: Vec<Next> = match distance {
                0 => Vec::new(),
                _ => local(from).filter(|&(to, _)| joins(to)).map(only).collect(),
            };
            if goal == from {
                to_switch.push(std::iter::empty(), 0);
            } else if joins(from) {
                to_switch.push(cables(from).filter(|&(to, _)| to == goal).map(only), 1);
            } else if before.is_empty() && straight.is_empty() {
                to_switch.push(in_turn.iter().copied(), 3);
            } else {
                to_switch.push(before.into_iter().chain(straight.iter().copied()), 2);
            }
        }
        if !to_group.whole() || !to_switch.whole() {
            return None;
        }
        let from_group = pairs(groups, switches).map(|(first, goal)| {
            let entries = first * per_group..(first + 1) * per_group;
            entries.map(|at| to_switch.get(at, goal).1).max().expect("a group has a switch")
        });
        let from_group = from_group.collect();
        let channels = if detours { 3 } else { 2 };
        Some(Self {
            npus,
            groups,
            per_group,
            ends,
            to_switch,
            to_group,
            from_group,
            detours,
            channels,
        })
    }

    /// With fewer channels: a packet stays in the last. This can deadlock.
    #[must_use]
    pub fn with_channels(mut self, channels: u8) -> Self {
        self.channels = channels;
        self
    }

    /// Bytes of its tables.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.to_switch.bytes()
            + self.to_group.bytes()
            + self.from_group.len()
            + 12 * self.ends.len()
    }

    /// How many groups, and switches of a group, a detour may lead through.
    fn choices(&self) -> [u32; 2] {
        [self.groups - 2, self.per_group.saturating_sub(2)]
    }

    fn towards(&self, at: u32, goal: u32, channel: u32, out: &mut Vec<Hop>) {
        let (links, weight) = self.to_switch.get(at, goal);
        self.offer(links, weight, channel, out, |global| {
            state(channel + u32::from(global), MINIMAL, 0)
        });
    }

    /// By way of `group`, where the packet's minimal path begins.
    fn towards_group(&self, at: u32, group: u32, goal: u32, channel: u32, out: &mut Vec<Hop>) {
        let (links, near) = self.to_group.get(at, group);
        let switches = self.per_group * self.groups;
        let far = self.from_group[(group * switches + goal) as usize];
        self.offer(links, near + far, channel, out, |global| {
            if global { state(channel + 1, MINIMAL, 0) } else { state(channel, TO_GROUP, group) }
        });
    }

    fn detour(&self, at: u32, goal: u32, draw: u32, out: &mut Vec<Hop>) {
        let [by_group, by_switch] = self.choices();
        let (here, there) = (at / self.per_group, goal / self.per_group);
        if here != there && by_group > 0 {
            self.towards_group(at, other(draw % by_group, here, there), goal, 0, out);
        } else if here == there && by_switch > 0 {
            let first = here * self.per_group;
            let by = first + other(draw % by_switch, at - first, goal - first);
            let (links, _) = self.to_switch.get(at, by);
            self.offer(links, 2, 0, out, |_| state(1, MINIMAL, 0));
        }
    }

    fn offer(
        &self,
        links: &[Next],
        weight: u8,
        channel: u32,
        out: &mut Vec<Hop>,
        after: impl Fn(bool) -> RouteState,
    ) {
        let channel = channel.min(u32::from(self.channels) - 1) as u8;
        let hop = |next: &Next| Hop { link: next.link, channel, weight, state: after(next.global) };
        out.extend(links.iter().map(hop));
    }
}

fn pairs(from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..from).flat_map(move |from| (0..to).map(move |to| (from, to)))
}

/// The `number`-th number that is neither `one` nor `two`, which differ.
fn other(number: u32, one: u32, two: u32) -> u32 {
    let number = number + u32::from(number >= one.min(two));
    number + u32::from(number >= one.max(two))
}

impl Routing for DragonflyRouting {
    fn about(&self) -> String {
        let way = if self.detours { "UGAL-L" } else { "minimal" };
        format!("{way}, adaptive among parallel cables, {}", counted(self.channels, "channel"))
    }

    fn channels(&self) -> u8 {
        self.channels
    }

    fn draws(&self) -> u32 {
        if self.detours { self.choices().map(|n| n.max(1)).iter().product() } else { 1 }
    }

    fn hops(
        &self,
        node: NodeId,
        RouteState(carried): RouteState,
        destination: NodeId,
        draw: u32,
        out: &mut Vec<Hop>,
    ) {
        let (_, down, goal) = self.ends[destination.index()];
        let Some(at) = node.0.checked_sub(self.npus) else {
            let (up, _, _) = self.ends[node.index()];
            out.push(Hop { link: up, channel: 0, weight: 1, state: state(0, FRESH, 0) });
            return;
        };
        if at == goal {
            out.push(Hop { link: down, channel: 0, weight: 1, state: RouteState(carried) });
            return;
        }
        let (channel, group) = (carried & 3, carried >> 4);
        match carried >> 2 & 3 {
            TO_GROUP => self.towards_group(at, group, goal, channel, out),
            MINIMAL => self.towards(at, goal, channel, out),
            _ => {
                self.towards(at, goal, 0, out);
                if self.detours {
                    self.detour(at, goal, draw, out);
                }
            }
        }
    }
}
