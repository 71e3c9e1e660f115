//! The machines of a group that exchanges gradients over servers: one worker each.
//!
//! The last of the dimensions that the group spans joins machines; the places on the others are NPUs of one.

use allrail_core::DimensionId;
use allrail_workload::{Group, Part};

use crate::training::players::{Players, ProcessGroup};

/// The dimension that joins the machines of a group; none where the group lies on no dimension.
#[must_use]
pub(crate) fn joining(group: &Group) -> Option<DimensionId> {
    group.parts.iter().map(|part| part.dimension).max()
}

/// How many machines there are.
#[must_use]
pub(crate) fn count(group: &Group, joining: DimensionId) -> u32 {
    group.parts.iter().filter(|part| part.dimension == joining).map(|part| part.size).product()
}

/// How many NPUs of the group a machine has.
#[must_use]
pub(crate) fn npus(group: &Group, joining: DimensionId) -> u64 {
    let within = group.parts.iter().filter(|part| part.dimension != joining);
    within.map(|part| u64::from(part.size)).product()
}

/// Of each worker of a process group, the players that its NPUs are: a class of ranks may be on several
/// machines, and a machine of several classes. Of the instances that a process group stands for, the one with
/// the most players is taken; a player of none of its machines counts to the last.
#[must_use]
pub(crate) fn players(
    group: &Group,
    players: &Players,
    process_group: &ProcessGroup,
) -> Vec<Vec<u32>> {
    let Some(joining) = joining(group) else { return vec![process_group.players.clone()] };
    let instance = |player: &u32| workers(group, joining, players, *player);
    let distinct = |workers: &Vec<Vec<u32>>| {
        let found = |player: &&u32| workers.iter().any(|own| own.contains(player));
        process_group.players.iter().filter(found).count()
    };
    let mut workers = Vec::new();
    for candidate in process_group.players.iter().map(instance) {
        if workers.is_empty() || distinct(&candidate) > distinct(&workers) {
            workers = candidate;
        }
    }
    for player in &process_group.players {
        let missing = !workers.iter().any(|own| own.contains(player));
        if let Some(last) = workers.last_mut().filter(|_| missing) {
            last.push(*player);
        }
    }
    workers
}

/// The workers of the instance that a player's first rank is in.
fn workers(group: &Group, joining: DimensionId, players: &Players, player: u32) -> Vec<Vec<u32>> {
    let ranks = players.members(group, players.ranks[player as usize]);
    let mut workers: Vec<Vec<u32>> = vec![Vec::new(); count(group, joining) as usize];
    for (position, rank) in (0u32..).zip(ranks) {
        let Some(player) = players.of(rank) else { continue };
        let own = &mut workers[machine(&group.parts, joining, position) as usize];
        if !own.contains(&player) {
            own.push(player);
        }
    }
    workers
}

/// The machine at a position of the group: positions count the first part fastest.
fn machine(parts: &[Part], joining: DimensionId, mut position: u32) -> u32 {
    let (mut machine, mut stride) = (0, 1);
    for part in parts {
        if part.dimension == joining {
            machine += position % part.size * stride;
            stride *= part.size;
        }
        position /= part.size;
    }
    machine
}
