//! What is under way, and where it is kept: places of a list, used again when they are free.

use std::sync::Arc;

use allrail_collective::Steps;
use allrail_core::{Bytes, Rank, Time};

use super::super::carrier::Ask;
use crate::traffic::rounds::Rounds;

/// A collective in flight: one for each of its parts.
pub(super) struct Flight {
    pub(super) rounds: Rounds<Arc<dyn Steps>>,
    pub(super) instance: u32,
    pub(super) join: u32,
}

/// One submission: over when all its flights are, and then some.
#[derive(Clone, Copy)]
pub(super) struct Join {
    pub(super) tag: u64,
    pub(super) flights: u32,
    pub(super) added: Time,
}

/// What a message of the world is for.
#[derive(Clone)]
pub(super) enum Purpose {
    /// The flight's own tag comes back to it.
    Step { flight: u32, own: u64 },
    /// The submission's message, and the ranks that it has yet to pass.
    Whole { tag: u64, from: Rank, left: Vec<Rank>, bytes: Bytes },
}

#[derive(Clone, Copy)]
pub(super) enum Inner {
    Arrived { message: u64 },
    Over { join: u32 },
    Begun { ask: Ask, tag: u64 },
}

/// Puts it where there is room.
pub(super) fn keep<T>(list: &mut Vec<T>, free: &mut Vec<u32>, one: T) -> u32 {
    if let Some(id) = free.pop() {
        list[id as usize] = one;
        return id;
    }
    list.push(one);
    u32::try_from(list.len() - 1).expect("fewer than 2^32 in flight")
}
