//! The values of a program as what places hold, one after the other.
//!
//! A program of ours has one buffer and sums only what it receives. So of the values of a [`Flow`] those are
//! *states* of a place that are sent or are the result; what is received only to be added, and sums on the
//! way to another sum, are never held alone. A *chain* is the states that one place goes through: the chunk
//! that the rank brings or one that it receives, and then sums that each hold the state before, and what has
//! come. A sum of two states, or a state in two sums, needs a place more than there is, and is refused.
//!
//! What a rank receives in vain is refused, too: it would cost time for nothing.

use super::flow::{At, Flow, Made, Origin};
use super::{File, Wrong, title};
use crate::Operation;

/// What a place holds for a while.
pub(super) struct Chain {
    pub(super) rank: u32,
    /// Where it may be: block `kind` only, or in an all-to-all any block that is `kind` of its shard.
    pub(super) kind: u32,
    /// The block of its first state, where the rank brings it.
    pub(super) brought: Option<u32>,
    /// The block where its last state has to be.
    pub(super) end: Option<u32>,
    pub(super) states: Vec<State>,
}

/// A value that a place holds.
#[derive(Default)]
pub(super) struct State {
    /// How many messages make it of the state before.
    pub(super) arrivals: u32,
    /// How many carry it.
    pub(super) sends: u32,
}

/// A chain, and the number of a state there.
pub(super) type Held = (usize, usize);

/// All chains, and what the messages have to do with them.
pub(super) struct Chains {
    pub(super) all: Vec<Chain>,
    /// Of each message, chunk by chunk: the state that it carries, and that of which it is a part.
    pub(super) messages: Vec<Vec<(Held, Held)>>,
}

/// How a value is used.
#[derive(Clone, Default)]
struct Uses {
    live: bool,
    sends: u32,
    end: Option<u32>,
    /// The sum that it is a part of, and where.
    sum: Option<(u32, At)>,
    sums: u32,
    /// Its state, if it is one or comes to be a part of one.
    state: Option<Held>,
}

const TRACE: &str = "run it as the collective of a trace, which has scratch buffers (`allrail simulate --astra-sim`)";

/// Finds the chains.
///
/// # Errors
/// The step that needs more than there is.
pub(super) fn chains(file: &File, flow: &Flow) -> Result<Chains, Wrong> {
    let mut uses = vec![Uses::default(); flow.values.len()];
    for end in &flow.ends {
        uses[end.value as usize].end = Some(end.block);
    }
    live(flow, &mut uses);
    for message in &flow.messages {
        for (place, value) in (0u32..).zip(&message.brought) {
            if !uses[*value as usize].live {
                let why = format!(
                    "nothing is made of chunk {place} of the message that it receives, chunk {} of GPU {}",
                    flow.values[*value as usize].chunk, message.from
                );
                return Err(wrong(file, message.received, why, "leave it out of the message"));
            }
        }
    }
    let mut found = Chains { all: Vec::new(), messages: Vec::new() };
    for (number, made) in (0u32..).zip(&flow.values) {
        if is_state(&uses[number as usize], made) {
            found.state(file, flow, &mut uses, number)?;
        }
    }
    // What is added, and not held.
    for (number, made) in flow.values.iter().enumerate().rev() {
        let own = &uses[number];
        if own.live && !is_state(own, made) {
            if own.sums > 1 {
                let at = own.sum.expect("it is in a sum").1;
                let why = format!("chunk {} is added to two others", made.chunk);
                return Err(wrong(file, at, why, TRACE));
            }
            uses[number].state = own.sum.and_then(|(sum, _)| uses[sum as usize].state);
        }
    }
    for message in &flow.messages {
        let held = |value: &u32| uses[*value as usize].state.expect("it is used");
        let pairs: Vec<(Held, Held)> =
            message.taken.iter().map(held).zip(message.brought.iter().map(held)).collect();
        for (_, (chain, state)) in &pairs {
            found.all[*chain].states[*state].arrivals += 1;
        }
        found.messages.push(pairs);
    }
    Ok(found)
}

/// Marks what the result is made of, and counts how it is used.
fn live(flow: &Flow, uses: &mut [Uses]) {
    let mut left: Vec<u32> = flow.ends.iter().map(|end| end.value).collect();
    while let Some(number) = left.pop() {
        if std::mem::replace(&mut uses[number as usize].live, true) {
            continue;
        }
        match flow.values[number as usize].origin {
            Origin::Brought => {}
            Origin::Received(message) => {
                let message = &flow.messages[message];
                let place = message.brought.iter().position(|value| *value == number);
                let taken = message.taken[place.expect("it came with the message")];
                uses[taken as usize].sends += 1;
                left.push(taken);
            }
            Origin::Sum(one, other, at) => {
                for part in [one, other] {
                    let part_uses = &mut uses[part as usize];
                    part_uses.sum = Some((number, at));
                    part_uses.sums += 1;
                    left.push(part);
                }
            }
        }
    }
}

/// Whether a place holds it for itself.
fn is_state(uses: &Uses, made: &Made) -> bool {
    let brought = matches!(made.origin, Origin::Brought);
    uses.live && (brought || uses.sends > 0 || uses.end.is_some())
}

fn wrong(file: &File, (block, step): At, why: String, hint: &str) -> Wrong {
    let of_rank = file
        .gpus
        .iter()
        .enumerate()
        .flat_map(|(rank, gpu)| gpu.blocks.iter().map(move |block| (rank, block)));
    let (rank, of) = of_rank.clone().nth(block).expect("a block of the file");
    Wrong::new(title(rank, of, step), why, hint)
}

impl Chains {
    /// Puts a state behind the one that it has taken up, or at the head of a chain of its own.
    fn state(
        &mut self,
        file: &File,
        flow: &Flow,
        uses: &mut [Uses],
        number: u32,
    ) -> Result<(), Wrong> {
        let made = &flow.values[number as usize];
        let own = uses[number as usize].clone();
        let mut before: Option<u32> = None;
        let mut parts = vec![number];
        while let Some(part) = parts.pop() {
            let Origin::Sum(one, other, at) = flow.values[part as usize].origin else { continue };
            for part in [one, other] {
                if !is_state(&uses[part as usize], &flow.values[part as usize]) {
                    parts.push(part);
                } else if let Some(held) = before.replace(part) {
                    let why = format!(
                        "it adds two chunks {} that its rank holds ({}; {}), and an algorithm here adds \
                         only what it receives, once",
                        made.chunk,
                        told(file, flow, held),
                        told(file, flow, part),
                    );
                    return Err(wrong(file, at, why, TRACE));
                }
            }
        }
        let state = State { arrivals: 0, sends: own.sends };
        let held = match before {
            Some(before) => {
                let taken = &uses[before as usize];
                if taken.sums > 1 || taken.end.is_some() {
                    let at = taken.sum.expect("it is in a sum").1;
                    let why = format!(
                        "chunk {} is needed beside the sum that it becomes a part of",
                        made.chunk
                    );
                    return Err(wrong(file, at, why, TRACE));
                }
                let (chain, last) = taken.state.expect("a state comes after its parts");
                self.all[chain].states.push(state);
                self.all[chain].end = own.end;
                (chain, last + 1)
            }
            None => {
                let (kind, brought) = place(file, made);
                let brought = matches!(made.origin, Origin::Brought).then_some(brought);
                let (rank, end) = (made.rank, own.end);
                self.all.push(Chain { rank, kind, brought, end, states: vec![state] });
                (self.all.len() - 1, 0)
            }
        };
        uses[number as usize].state = Some(held);
        Ok(())
    }
}

/// Where a value may be, and its block at the start.
fn place(file: &File, made: &Made) -> (u32, u32) {
    match file.operation {
        Operation::AllToAll => {
            let each = file.chunks / u32::try_from(file.gpus.len()).expect("few ranks");
            (made.chunk % each, made.chunk % file.chunks)
        }
        _ => (made.chunk, made.chunk),
    }
}

/// How a rank came to a value.
fn told(file: &File, flow: &Flow, number: u32) -> String {
    match flow.values[number as usize].origin {
        Origin::Brought => "its own".to_owned(),
        Origin::Received(message) => {
            let message = &flow.messages[message];
            let place = wrong(file, message.received, String::new(), "").place;
            format!("what came in {place}, and is passed on")
        }
        Origin::Sum(_, _, at) => format!("the sum of {}", wrong(file, at, String::new(), "").place),
    }
}
