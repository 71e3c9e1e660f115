//! What a program moves and adds, without saying where it keeps it: the values that its run makes.
//!
//! A value is a chunk as one rank has it at one time: brought, received, or the sum of two others. A copy is
//! the value that it is a copy of. Filled by [`prove`](super::prove), read by [`convert`](super::convert).

use super::value::Value;

/// A step: its block, of all ranks' counted on, and its number there.
pub(super) type At = (usize, usize);

/// The values of a program and the messages that carry them.
#[derive(Default)]
pub struct Flow {
    pub(super) values: Vec<Made>,
    pub(super) messages: Vec<Carried>,
    pub(super) ends: Vec<End>,
    /// Every step, in an order in which each comes after those that it waits for.
    pub(super) order: Vec<At>,
}

/// A value: whose, of which chunk of the operation, and from what.
pub(super) struct Made {
    pub(super) rank: u32,
    pub(super) chunk: u32,
    pub(super) origin: Origin,
}

#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// The rank has it at the start.
    Brought,
    /// It came with this message.
    Received(usize),
    /// Two others added, in a step.
    Sum(u32, u32, At),
}

/// A message.
pub(super) struct Carried {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) sent: At,
    pub(super) received: At,
    /// Its values as the sender has them, and as the receiver.
    pub(super) taken: Vec<u32>,
    pub(super) brought: Vec<u32>,
}

/// A block of a rank's result, and what it is.
pub(super) struct End {
    pub(super) block: u32,
    pub(super) value: u32,
}

impl Flow {
    /// A new value; its number.
    pub(super) fn value(&mut self, rank: u32, chunk: u32, origin: Origin) -> u32 {
        self.values.push(Made { rank, chunk, origin });
        u32::try_from(self.values.len() - 1).expect("a file has fewer than 2^32 chunks in all")
    }

    /// A message leaves; its number.
    pub(super) fn sent(&mut self, (from, to): (u32, u32), sent: At, values: &[Value]) -> usize {
        let taken = values.iter().map(|value| value.number).collect();
        self.messages.push(Carried { from, to, sent, received: sent, taken, brought: Vec::new() });
        self.messages.len() - 1
    }

    /// It comes: the same as values of the receiver.
    pub(super) fn received(
        &mut self,
        rank: u32,
        message: usize,
        received: At,
        values: Vec<Value>,
    ) -> Vec<Value> {
        let came = |value: Value| {
            let number = self.value(rank, value.chunk, Origin::Received(message));
            Value { number, ..value }
        };
        let came: Vec<Value> = values.into_iter().map(came).collect();
        let carried = &mut self.messages[message];
        carried.received = received;
        carried.brought = came.iter().map(|value| value.number).collect();
        came
    }
}
