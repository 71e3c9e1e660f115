//! Who runs the nodes of a step graph, and who meets whom.
//!
//! A player is an actor (a class of ranks that are alike) in `dims`, a rank elsewhere. A group of
//! the graph stands for all its disjoint process groups; in `dims` one of them represents all, with the
//! group's actors as its players. Elsewhere every process group is one of its own: the ranks that differ
//! on the group's parts alone, numbered by their coordinates, first part fastest.

use std::collections::BTreeMap;

use allrail_core::{FieldError, Rank, counted};
use allrail_workload::{ActorId, Group, GroupId, Peer, StepGraph};

use crate::SimulateError;

/// One set of players that communicate with one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessGroup {
    /// Of which group.
    pub group: GroupId,
    /// Who takes part, by position where players are ranks.
    pub players: Vec<u32>,
    /// Its ranks by position; of a representative process group, those of the first actor's first rank.
    pub ranks: Vec<Rank>,
}

/// The players of a step graph.
#[derive(Clone, Debug)]
pub struct Players {
    /// The actor that each plays.
    pub actors: Vec<ActorId>,
    /// A rank of each: the rank itself, or the first of the class.
    pub ranks: Vec<Rank>,
    /// How many ranks each stands for.
    pub weights: Vec<u32>,
    /// Every process group.
    pub process_groups: Vec<ProcessGroup>,
    /// The player of each rank.
    of_rank: Vec<u32>,
    /// `process group_of[player]`: (group, index of its process group), ascending.
    process_group_of: Vec<Vec<(GroupId, u32)>>,
    sizes: Vec<u32>,
    classes: bool,
}

const NOBODY: u32 = u32::MAX;

impl Players {
    /// One player per actor: what `dims` runs. `sizes` are those of the fabric's dimensions.
    ///
    /// # Errors
    /// A rank or a part that the fabric does not have; a rank in two actors.
    pub fn classes(graph: &StepGraph, sizes: &[u32]) -> Result<Self, SimulateError> {
        Self::new(graph, sizes, true)
    }

    /// One player per rank.
    ///
    /// # Errors
    /// As for [`Players::classes`].
    pub fn ranks(graph: &StepGraph, sizes: &[u32]) -> Result<Self, SimulateError> {
        Self::new(graph, sizes, false)
    }

    fn new(graph: &StepGraph, sizes: &[u32], classes: bool) -> Result<Self, SimulateError> {
        let npus: u64 = sizes.iter().map(|size| u64::from(*size)).product();
        let mut players = Self {
            actors: Vec::new(),
            ranks: Vec::new(),
            weights: Vec::new(),
            process_groups: Vec::new(),
            of_rank: vec![NOBODY; usize::try_from(npus).unwrap_or(0)],
            process_group_of: Vec::new(),
            sizes: sizes.to_vec(),
            classes,
        };
        for (i, actor) in (0u32..).zip(graph.actors()) {
            for (k, rank) in actor.ranks.iter().enumerate() {
                if k == 0 || !classes {
                    players.actors.push(ActorId(i));
                    players.ranks.push(*rank);
                    let stands_for = if classes { actor.ranks.len() } else { 1 };
                    players.weights.push(u32::try_from(stands_for).expect("fewer than 2^32 ranks"));
                }
                let player = u32::try_from(players.actors.len() - 1).expect("few players");
                let wrong = |why: String| {
                    SimulateError::Field(FieldError::new(
                        "workload",
                        actor.name.clone(),
                        why,
                        format!("the fabric has the ranks 0 to {}", npus.saturating_sub(1)),
                    ))
                };
                let Some(slot) = players.of_rank.get_mut(rank.index()) else {
                    return Err(wrong(format!("it has rank {}, which the fabric has not", rank.0)));
                };
                if *slot != NOBODY {
                    return Err(wrong(format!("its rank {} belongs to two actors", rank.0)));
                }
                *slot = player;
            }
        }
        players.process_group_of = vec![Vec::new(); players.actors.len()];
        for (i, group) in (0u32..).zip(graph.groups()) {
            players.add_process_groups(graph, GroupId(i), group)?;
        }
        Ok(players)
    }

    fn add_process_groups(
        &mut self,
        graph: &StepGraph,
        id: GroupId,
        group: &Group,
    ) -> Result<(), SimulateError> {
        let wrong = |why: String| {
            SimulateError::Field(FieldError::new(
                "workload.parallelism.map",
                group.name.clone(),
                why,
                "a group is made of dimensions of the fabric, or of parts that divide them",
            ))
        };
        for part in &group.parts {
            let Some(size) = self.sizes.get(part.dimension.index()) else {
                return Err(wrong(format!(
                    "it spans {}, and the fabric has {}",
                    part.dimension.name(),
                    counted(self.sizes.len(), "dimension")
                )));
            };
            let whole = u64::from(part.size) * u64::from(part.stride);
            if whole == 0 || !u64::from(*size).is_multiple_of(whole) {
                return Err(wrong(format!(
                    "{}, {} apart, are no part of {}, which has {size}",
                    counted(part.size, "rank"),
                    part.stride,
                    part.dimension.name()
                )));
            }
        }
        if self.classes {
            let first = graph.actors()[group.actors[0].index()].ranks[0];
            let process_group = ProcessGroup {
                group: id,
                players: group.actors.iter().map(|actor| actor.0).collect(),
                ranks: self.members(group, first),
            };
            self.add(process_group);
            return Ok(());
        }
        let mut seen: BTreeMap<Rank, ()> = BTreeMap::new();
        for actor in &group.actors {
            for rank in &graph.actors()[actor.index()].ranks {
                if seen.contains_key(rank) {
                    continue;
                }
                let ranks = self.members(group, *rank);
                let mut players = Vec::with_capacity(ranks.len());
                for member in &ranks {
                    seen.insert(*member, ());
                    let player = self.of_rank.get(member.index()).copied().unwrap_or(NOBODY);
                    if player == NOBODY || !group.actors.contains(&self.actors[player as usize]) {
                        return Err(wrong(format!(
                            "rank {} is among its ranks, and runs no node in it",
                            member.0
                        )));
                    }
                    players.push(player);
                }
                self.add(ProcessGroup { group: id, players, ranks });
            }
        }
        Ok(())
    }

    fn add(&mut self, process_group: ProcessGroup) {
        let index =
            u32::try_from(self.process_groups.len()).expect("fewer than 2^32 process_groups");
        for player in &process_group.players {
            self.process_group_of[*player as usize].push((process_group.group, index));
        }
        self.process_groups.push(process_group);
    }

    /// The ranks of the group's process group that `rank` is in, by position.
    #[must_use]
    pub(crate) fn members(&self, group: &Group, rank: Rank) -> Vec<Rank> {
        if group.parts.is_empty() {
            return group.ranks.clone();
        }
        let strides: Vec<u32> = self
            .sizes
            .iter()
            .scan(1u32, |stride, size| {
                let own = *stride;
                *stride = stride.saturating_mul(*size);
                Some(own)
            })
            .collect();
        // The rank with its coordinate on every part set to zero, and then all combinations.
        let mut origin = rank.0;
        for part in &group.parts {
            let d = part.dimension.index();
            let coordinate = rank.0 / strides[d] % self.sizes[d] / part.stride % part.size;
            origin -= coordinate * part.stride * strides[d];
        }
        let mut members = vec![Rank(origin)];
        for part in &group.parts {
            let step = part.stride * strides[part.dimension.index()];
            let inner = std::mem::take(&mut members);
            for k in 0..part.size {
                members.extend(inner.iter().map(|rank| Rank(rank.0 + k * step)));
            }
        }
        members
    }

    /// The process group of `group` that a player is in.
    ///
    /// # Panics
    /// If it is in none: a checked graph's nodes are.
    #[must_use]
    pub fn process_group(&self, player: u32, group: GroupId) -> u32 {
        let known = &self.process_group_of[player as usize];
        let at = known.binary_search_by_key(&group, |(group, _)| *group);
        known[at.expect("a checked graph's node is in a group of its actor")].1
    }

    /// The player and the rank at `peer` of the group, seen from a rank of `player`.
    #[must_use]
    pub fn peer(&self, player: u32, group: &Group, peer: Peer) -> Option<(u32, Rank)> {
        let rank = self.ranks[player as usize];
        let members = self.members(group, rank);
        let count = i64::try_from(members.len()).ok()?;
        let position = match peer {
            Peer::At(position) => i64::from(position),
            Peer::Next(offset) => {
                let own = members.iter().position(|member| *member == rank)?;
                (i64::try_from(own).ok()? + i64::from(offset)).rem_euclid(count)
            }
        };
        let member = *members.get(usize::try_from(position).ok()?)?;
        let player = *self.of_rank.get(member.index())?;
        (player != NOBODY).then_some((player, member))
    }

    /// The player of a rank; `None` if it has none.
    #[must_use]
    pub fn of(&self, rank: Rank) -> Option<u32> {
        self.of_rank.get(rank.index()).copied().filter(|player| *player != NOBODY)
    }

    /// How many players there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.actors.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actors.is_empty()
    }

    /// Whether players are classes of ranks.
    #[must_use]
    pub(crate) fn are_classes(&self) -> bool {
        self.classes
    }
}
