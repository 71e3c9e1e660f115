//! An algorithm's messages for one place of a line.
//!
//! A block of the algorithm is a *digit*: (shard, part), `shard · parts + part`.

use allrail_core::counted;

use super::message::Action;
use crate::{Algorithm, CollectiveError, Operation, Program, algorithm};

/// A message of the algorithm; peers are coordinates.
#[derive(Clone, Debug)]
pub(super) struct LineMessage {
    pub(super) step: u32,
    pub(super) peer: u32,
    pub(super) index: u32,
    pub(super) action: Action,
    /// Of the rank's own buffer, in the order in which it carries them.
    pub(super) digits: Vec<u32>,
}

/// What the rank at one coordinate of a line does in a stage: sends of a step before its receives.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) steps: u32,
    /// Into how many shards a stage divides; 1 where nobody owns one.
    pub(super) shards: u32,
    /// Blocks of a shard.
    pub(super) parts: u32,
    /// Whether what arrives goes where the sender had it.
    pub(super) in_place: bool,
    pub(super) messages: Vec<LineMessage>,
}

impl Line {
    /// For the rank at coordinate `own` of `size`.
    pub(super) fn new(
        algorithm: &dyn Algorithm,
        operation: Operation,
        size: u32,
        own: u32,
    ) -> Result<Self, CollectiveError> {
        algorithm::check(algorithm, operation, size)?;
        let in_place = operation != Operation::AllToAll;
        let sharded = !matches!(operation, Operation::AllReduce | Operation::Broadcast);
        let shards = if sharded { size } else { 1 };
        if size == 1 {
            return Ok(Self { steps: 0, shards, parts: 1, in_place, messages: Vec::new() });
        }
        let program = algorithm.program(operation, size);
        let wrong = |what: &str| {
            let tag = algorithm.tag();
            CollectiveError::Plan(format!(
                "`{tag}` over {size} for {operation}: {what}",
                size = counted(size, "rank")
            ))
        };
        if program.blocks == 0 || !program.blocks.is_multiple_of(shards) {
            return Err(wrong("its blocks are not divided into shards"));
        }
        let parts = program.blocks / shards;
        let mut messages = Vec::new();
        for (step, content) in (0u32..).zip(&program.steps[own as usize]) {
            let sent = content.sends.iter().enumerate().map(|(i, send)| {
                let before = content.sends[..i].iter().filter(|other| other.to == send.to).count();
                (own, send.to, before, Action::Send)
            });
            let received = content.receives.iter().enumerate().map(|(i, receive)| {
                let from = receive.from;
                let before =
                    content.receives[..i].iter().filter(|other| other.from == from).count();
                (from, own, before, Action::Receive(receive.combine))
            });
            for (source, destination, index, action) in sent.chain(received) {
                let mut pairs = pairs(&program, step, (source, destination), index)
                    .ok_or_else(|| wrong("what one rank sends another does not await"))?;
                let fits = |(from, into): &(u32, u32)| {
                    if in_place { from == into } else { from % parts == into % parts }
                };
                if !pairs.iter().all(fits) {
                    return Err(wrong("a block would move to one of another length"));
                }
                pairs.sort_unstable();
                let sends = action == Action::Send;
                messages.push(LineMessage {
                    step,
                    peer: if sends { destination } else { source },
                    index: u32::try_from(index).map_err(|_| wrong("too many messages"))?,
                    action,
                    digits: pairs
                        .iter()
                        .map(|(from, into)| if sends { *from } else { *into })
                        .collect(),
                });
            }
        }
        let steps = u32::try_from(program.step_count()).map_err(|_| wrong("too many steps"))?;
        Ok(Self { steps, shards, parts, in_place, messages })
    }
}

/// The blocks of a message as (in the sender's buffer, in the receiver's); `None` unless both sides
/// have it alike.
fn pairs(
    program: &Program,
    step: u32,
    (source, destination): (u32, u32),
    index: usize,
) -> Option<Vec<(u32, u32)>> {
    let of = |rank: u32| &program.steps[rank as usize][step as usize];
    let send = of(source).sends.iter().filter(|send| send.to == destination).nth(index)?;
    let receive = of(destination).receives.iter().filter(|one| one.from == source).nth(index)?;
    let total = program.blocks;
    (send.blocks.len() == receive.blocks.len())
        .then(|| send.blocks.iter(total).zip(receive.blocks.iter(total)).collect())
}
