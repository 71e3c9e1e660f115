//! Minimal routing whose virtual channel rises by a rule of turns, in tables.
//!
//! A packet carries a level and one flag. A [`Rule`] says for every link and flag whether the packet
//! may take the link, whether its level rises there, and what the flag is then. The level is the
//! virtual channel. Rules are chosen such that links of one level cannot wait for each other in a
//! circle; levels only rise, so that nothing can.
//!
//! For every node, destination and flag the tables know the fewest rises on a minimal path that keeps
//! the rule. A link is offered only if the levels that are left suffice: this is the look-ahead
//! without which packets get stuck.
//!
//! NPUs that hang by their only cable on one switch share a column of the table, which leads to that
//! switch. A node has few different lists of links, each kept once: 4 bytes for every node and column,
//! and 8 for every link of a list.

use std::collections::HashMap;

use allrail_core::{FieldError, counted};

use super::{FARTHEST, Hop, RouteState};
use crate::graph::{Graph, NodeId, measure};

/// What becomes of a packet that takes a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) rises: bool,
    pub(super) flag: bool,
}

/// What the link with this number means for a packet with this flag; `None` if it may not take it.
pub(super) trait Rule: Fn(u32, bool) -> Option<Turn> {}

impl<F: Fn(u32, bool) -> Option<Turn>> Rule for F {}

/// No path keeps the rule.
const NEVER: u8 = u8::MAX;

/// One link of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    link: u32,
    /// For each flag: the fewest rises from here on, by this link.
    needs: [u8; 2],
    /// Bits 0 and 1: whether the level rises, for each flag; bits 2 and 3: the flag after.
    turns: u8,
    /// Links to the destination, by this one.
    distance: u8,
}

/// Where paths to some NPUs meet: at their only neighbour, or, for an NPU of more cables, at itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Column {
    root: NodeId,
    /// Rises from the root on, for each flag.
    needs: [u8; 2],
    /// Links from the root on.
    distance: u8,
}

/// How an NPU is reached.
#[derive(Clone, Copy, Debug)]
struct End {
    column: u32,
    /// The root of the column and the link from there; none if the root is the NPU.
    last: Option<(NodeId, Entry)>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Layered {
    nodes: usize,
    /// For each NPU.
    ends: Vec<End>,
    /// For each column, for each node: which list.
    list_of: Vec<u32>,
    /// Where each list starts; one entry more than lists.
    starts: Vec<u32>,
    entries: Vec<Entry>,
    /// Channels that suffice for every pair; `None` if the rule leaves a pair without a path.
    needed: Option<u8>,
    top: u32,
    /// Level and rises to come may add up to this.
    limit: u32,
}

impl Layered {
    /// Tables for `graph`. Without `look_ahead`, links are offered by the rule alone.
    ///
    /// # Errors
    /// Two NPUs are too far apart for the tables, or the tables would be too large.
    pub(super) fn new(
        graph: &Graph,
        look_ahead: bool,
        rule: impl Rule,
    ) -> Result<Self, FieldError> {
        near_enough(graph)?;
        let (columns, ends) = columns(graph, &rule);
        let nodes = graph.nodes();
        small_enough(nodes, columns.len())?;
        let mut tables = Self {
            nodes,
            ends,
            list_of: vec![0; nodes * columns.len()],
            starts: vec![0, 0],
            entries: Vec::new(),
            needed: None,
            top: 0,
            limit: 0,
        };
        // List 0 is empty.
        let mut known: HashMap<Vec<Entry>, u32> = HashMap::from([(Vec::new(), 0)]);
        let mut list = Vec::new();
        let mut most = 0;
        let (mut distances, mut needs) = (vec![u8::MAX; nodes], vec![[NEVER; 2]; nodes]);
        let mut queue = Vec::new();
        for (number, &(column, only)) in columns.iter().enumerate() {
            distances.fill(u8::MAX);
            needs.fill([NEVER; 2]);
            distances[column.root.index()] = column.distance;
            needs[column.root.index()] = column.needs;
            queue.clear();
            queue.push(column.root);
            let mut head = 0;
            // Nodes come in the order of their distance, so that what lies ahead is known.
            while let Some(&node) = queue.get(head) {
                head += 1;
                let here = distances[node.index()];
                list.clear();
                for &(next, link) in graph.neighbours(node) {
                    let there = &mut distances[next.index()];
                    if *there == u8::MAX && u32::from(here) < FARTHEST {
                        *there = here + 1;
                        queue.push(next);
                    }
                    if *there < here {
                        list.extend(entry(link, here, &rule, |flag| {
                            if look_ahead { needs[next.index()][flag] } else { 0 }
                        }));
                    }
                }
                if node != column.root {
                    needs[node.index()] = [0, 1]
                        .map(|flag| list.iter().map(|e| e.needs[flag]).min().unwrap_or(NEVER));
                }
                if node.0 < graph.npus() && only != Some(node) {
                    most = most.max(needs[node.index()][0]);
                }
                // Often it is the list for the column before.
                let before = (number * nodes + node.index()).checked_sub(nodes);
                let before = before.map(|at| tables.list_of[at]);
                let same = before.filter(|&list_before| tables.list(list_before) == list);
                let of_list = same.or_else(|| known.get(&list).copied()).unwrap_or_else(|| {
                    let number = u32::try_from(known.len()).expect("few lists");
                    tables.entries.extend(&list);
                    tables.starts.push(u32::try_from(tables.entries.len()).expect("few links"));
                    known.insert(list.clone(), number);
                    number
                });
                tables.list_of[number * nodes + node.index()] = of_list;
            }
        }
        tables.needed = (most < NEVER).then_some(most + 1);
        tables.set_channels(tables.needed.unwrap_or(1));
        Ok(tables)
    }

    /// How many channels it takes so that every pair has a path; `None` if the rule forbids all paths
    /// of a pair.
    pub(super) fn needed(&self) -> Option<u8> {
        self.needed
    }

    /// Takes `channels` channels. If they do not suffice, the level stays at the last one: this can
    /// deadlock.
    pub(super) fn set_channels(&mut self, channels: u8) {
        self.top = u32::from(channels) - 1;
        let suffice = self.needed.is_some_and(|needed| channels >= needed);
        self.limit = if suffice { self.top } else { u32::from(NEVER) - 1 };
    }

    pub(super) fn channels(&self) -> u8 {
        self.top as u8 + 1
    }

    /// Bytes of the tables.
    pub(super) fn bytes(&self) -> usize {
        size_of::<End>() * self.ends.len()
            + 4 * (self.list_of.len() + self.starts.len())
            + size_of::<Entry>() * self.entries.len()
    }

    pub(super) fn hops(
        &self,
        node: NodeId,
        state: RouteState,
        destination: NodeId,
        out: &mut Vec<Hop>,
    ) {
        let End { column, last } = self.ends[destination.index()];
        if let Some((_, entry)) = last.filter(|&(root, _)| root == node) {
            out.extend(self.hop(entry, state));
            return;
        }
        let list = self.list_of[column as usize * self.nodes + node.index()];
        for &entry in self.list(list) {
            if let Some(hop) = self.hop(entry, state) {
                out.push(hop);
            }
        }
    }

    fn list(&self, number: u32) -> &[Entry] {
        let number = number as usize;
        &self.entries[self.starts[number] as usize..self.starts[number + 1] as usize]
    }

    fn hop(&self, entry: Entry, state: RouteState) -> Option<Hop> {
        let (level, flag) = (state.0 >> 1, state.0 & 1);
        let needs = entry.needs[flag as usize];
        if needs == NEVER || level + u32::from(needs) > self.limit {
            return None;
        }
        let turns = u32::from(entry.turns) >> flag;
        let level = (level + (turns & 1)).min(self.top);
        Some(Hop {
            link: entry.link,
            channel: level as u8,
            weight: entry.distance,
            state: RouteState(level << 1 | turns >> 2 & 1),
        })
    }
}

/// The columns, each with its NPU if it has only one, and how every NPU is reached.
fn columns(graph: &Graph, rule: &impl Rule) -> (Vec<(Column, Option<NodeId>)>, Vec<End>) {
    let mut known: HashMap<Column, u32> = HashMap::new();
    let mut columns = Vec::new();
    let ends = (0..graph.npus())
        .map(|npu| {
            let npu = NodeId(npu);
            let last = match graph.neighbours(npu) {
                &[(root, link)] => entry(link ^ 1, 1, rule, |_| 0).map(|entry| (root, entry)),
                _ => None,
            };
            let column = match last {
                Some((root, Entry { needs, distance, .. })) => Column { root, needs, distance },
                None => Column { root: npu, needs: [0; 2], distance: 0 },
            };
            let number = *known.entry(column).or_insert_with(|| {
                columns.push((column, Some(npu)));
                columns.len() as u32 - 1
            });
            let only = &mut columns[number as usize].1;
            *only = only.filter(|&only| only == npu);
            End { column: number, last }
        })
        .collect();
    (columns, ends)
}

/// The entry of a link, if one of the flags may take it. `ahead` has the rises from its end on.
fn entry(link: u32, distance: u8, rule: &impl Rule, ahead: impl Fn(usize) -> u8) -> Option<Entry> {
    let mut entry = Entry { link, needs: [NEVER; 2], turns: 0, distance };
    for flag in [0, 1] {
        let Some(turn) = rule(link, flag == 1) else { continue };
        entry.needs[flag] = ahead(usize::from(turn.flag)).saturating_add(u8::from(turn.rises));
        entry.turns |= u8::from(turn.rises) << flag | u8::from(turn.flag) << (2 + flag);
    }
    (entry.needs != [NEVER; 2]).then_some(entry)
}

fn near_enough(graph: &Graph) -> Result<(), FieldError> {
    let Some(farthest) = measure::distance_above(graph, FARTHEST) else { return Ok(()) };
    Err(FieldError::new(
        "fabric",
        format!("{farthest} between two NPUs", farthest = counted(farthest, "link")),
        format!("packets are routed over {FARTHEST} links at most"),
        "use `network_model: flows`, or a network of a smaller diameter",
    ))
}

/// Of the table of lists.
const MOST_BYTES: u64 = 4 << 30;

fn small_enough(nodes: usize, columns: usize) -> Result<(), FieldError> {
    let bytes = 4 * nodes as u64 * columns as u64;
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    let gib = |bytes: u64| bytes.div_ceil(1 << 30);
    Err(FieldError::new(
        "fabric",
        format!("{nodes} and switches", nodes = counted(nodes, "NPU")),
        format!("tables of routes would take {} GiB, more than {}", gib(bytes), gib(MOST_BYTES)),
        "use `network_model: flows`, or a smaller network",
    ))
}

/// How many links lie between each node and the nearest of the first `roots` nodes.
pub(super) fn distances(graph: &Graph, roots: u32) -> Vec<u32> {
    let mut distances = vec![u32::MAX; graph.nodes()];
    let mut queue: Vec<NodeId> = (0..roots).map(NodeId).collect();
    for root in &queue {
        distances[root.index()] = 0;
    }
    let mut head = 0;
    while let Some(&node) = queue.get(head) {
        head += 1;
        for &(next, _) in graph.neighbours(node) {
            if distances[next.index()] == u32::MAX {
                distances[next.index()] = distances[node.index()] + 1;
                queue.push(next);
            }
        }
    }
    distances
}
