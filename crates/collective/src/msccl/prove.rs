//! Proves that an MSCCL program does its operation, for any timing.
//!
//! It is run once, step by step, with names in the place of numbers: *which* chunk of the operation a place
//! holds, and *whose* contributions are summed in it. Proved is that
//!
//! - what is sent on a channel is received, as many chunks at a time, and the other way round;
//! - nothing waits in a circle;
//! - no step takes a chunk from a place that holds none, adds different chunks, or a contribution twice;
//! - of two steps that touch one place, one of them writing, one waits for the other, on whatever way: so any
//!   other order of the run gives the same;
//! - at the end every rank holds what the operation defines.
//!
//! Who waits for whom is kept as clocks: of each block, how many of its steps are known to be over.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use allrail_core::counted;

use super::clock::{Clock, join, knows};
use super::flow::{At, End, Flow, Origin};
use super::value::{self, Value, is_of, ranks};
use super::{Block, Buffer, File, Step, Wrong, title};
use crate::Operation;

/// A place of a rank, and what has happened to it.
#[derive(Default)]
struct Held {
    value: Option<Value>,
    written: Option<At>,
    read: Vec<At>,
}

struct Message {
    values: Vec<Value>,
    clock: Clock,
    from: At,
    /// Of the flow.
    number: usize,
}

/// A step's waiting, or its mistake.
enum Outcome {
    Done,
    Waits(At),
}

/// Proves it, and says what moves and is added on the way.
///
/// # Errors
/// The first step that is wrong, with its line.
pub fn prove(algorithm: &File) -> Result<Flow, Wrong> {
    let mut run = Run::new(algorithm)?;
    loop {
        let mut moved = false;
        for block in 0..run.blocks.len() {
            while run.next[block] < run.blocks[block].1.steps.len() {
                let Outcome::Done = run.step(block)? else { break };
                run.next[block] += 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    run.all_over()?;
    run.check_end()?;
    Ok(run.flow)
}

struct Run<'a> {
    algorithm: &'a File,
    /// (rank, block) of all ranks; those of a rank stand together.
    blocks: Vec<(usize, &'a Block)>,
    first: Vec<usize>,
    next: Vec<usize>,
    clocks: Vec<Clock>,
    /// Of steps that others wait for.
    over: BTreeMap<At, Clock>,
    awaited: BTreeMap<At, ()>,
    /// By (source, destination, channel): who sends and who receives, and what is on its way.
    channels: BTreeMap<(u32, u32, u32), [Option<usize>; 2]>,
    under_way: BTreeMap<(u32, u32, u32), VecDeque<Message>>,
    held: Vec<BTreeMap<(Buffer, u32), Held>>,
    flow: Flow,
}

impl<'a> Run<'a> {
    fn new(algorithm: &'a File) -> Result<Self, Wrong> {
        let mut blocks = Vec::new();
        let mut first = Vec::new();
        for (rank, gpu) in algorithm.gpus.iter().enumerate() {
            first.push(blocks.len());
            blocks.extend(gpu.blocks.iter().map(|block| (rank, block)));
        }
        let mut awaited = BTreeMap::new();
        let mut channels: BTreeMap<_, [Option<usize>; 2]> = BTreeMap::new();
        for (number, (rank, block)) in blocks.iter().enumerate() {
            for step in &block.steps {
                awaited.extend(step.after.map(|(of, at)| ((first[*rank] + of, at), ())));
            }
            let own = u32::try_from(*rank).expect("few ranks");
            let ends = [block.send.map(|to| (own, to)), block.receive.map(|from| (from, own))];
            for (end, pair) in ends.into_iter().enumerate() {
                let Some((from, to)) = pair else { continue };
                let place = &mut channels.entry((from, to, block.channel)).or_default()[end];
                if place.replace(number).is_some() {
                    let what = ["send", "receive"][end];
                    let why = format!(
                        "two blocks of GPU {rank} {what} between GPU {from} and GPU {to} on channel {}",
                        block.channel
                    );
                    let hint = "a channel joins one block to one";
                    let title = format!("block {} of GPU {rank}", block.id);
                    return Err(Wrong::new(title, why, hint));
                }
            }
        }
        let ranks = algorithm.gpus.len();
        let clock: Clock = vec![0; blocks.len()].into();
        let mut run = Self {
            algorithm,
            next: vec![0; blocks.len()],
            clocks: vec![clock; blocks.len()],
            blocks,
            first,
            over: BTreeMap::new(),
            awaited,
            channels,
            under_way: BTreeMap::new(),
            held: (0..ranks).map(|_| BTreeMap::new()).collect(),
            flow: Flow::default(),
        };
        run.start();
        Ok(run)
    }

    /// What the ranks bring.
    fn start(&mut self) {
        let (chunks, ranks) = (self.algorithm.chunks, self.held.len() as u32);
        for rank in 0..ranks {
            let from = value::only(rank, ranks);
            let each = chunks / ranks;
            let brought = match self.algorithm.operation {
                Operation::AllGather => each,
                Operation::Broadcast if rank > 0 => 0,
                _ => chunks,
            };
            for place in 0..brought {
                let chunk = match self.algorithm.operation {
                    Operation::AllGather => rank * each + place,
                    Operation::AllToAll => rank * chunks + place,
                    _ => place,
                };
                let number = self.flow.value(rank, chunk, Origin::Brought);
                let place = self.alias(rank as usize, (Buffer::Input, place));
                let value = Some(Value { chunk, from: Rc::clone(&from), number });
                self.held[rank as usize].insert(place, Held { value, ..Held::default() });
            }
        }
    }

    /// The place that a name means: in place, those of input and output are one.
    fn alias(&self, rank: usize, (buffer, at): (Buffer, u32)) -> (Buffer, u32) {
        if !self.algorithm.in_place {
            return (buffer, at);
        }
        let own = self.algorithm.chunks / self.held.len() as u32 * rank as u32;
        match (buffer, self.algorithm.operation) {
            (Buffer::Input, Operation::AllGather) => (Buffer::Output, own + at),
            (Buffer::Output, Operation::ReduceScatter) => (Buffer::Input, own + at),
            (Buffer::Output, Operation::AllReduce | Operation::AllToAll | Operation::Broadcast) => {
                (Buffer::Input, at)
            }
            _ => (buffer, at),
        }
    }

    fn title(&self, (block, step): At) -> String {
        let (rank, of) = self.blocks[block];
        title(rank, of, step)
    }

    fn wrong(&self, at: At, why: impl Into<String>, hint: &str) -> Wrong {
        Wrong::new(self.title(at), why, hint)
    }

    /// The step that a block waits for, or the next one done.
    fn step(&mut self, block: usize) -> Result<Outcome, Wrong> {
        let (rank, of) = self.blocks[block];
        let at = (block, self.next[block]);
        let step = &of.steps[at.1];
        let own = rank as u32;
        let mut clock: Vec<u32> = self.clocks[block].to_vec();
        if let Some((other, number)) = step.after {
            let before = (self.first[rank] + other, number);
            let Some(known) = self.over.get(&before) else { return Ok(Outcome::Waits(before)) };
            join(&mut clock, known);
        }
        let mut came = None;
        if step.kind.receives {
            let key = (of.receive.expect("it was read so"), own, of.channel);
            let Some(message) = self.under_way.get_mut(&key).and_then(VecDeque::pop_front) else {
                return self.sender(at, key).map(Outcome::Waits);
            };
            if message.values.len() != step.count as usize {
                let why = format!(
                    "it receives {}, and {} sends {}",
                    counted(step.count, "chunk"),
                    self.title(message.from),
                    message.values.len()
                );
                return Err(self.wrong(at, why, "both ends of a message have the same `cnt`"));
            }
            join(&mut clock, &message.clock);
            came = Some(self.flow.received(own, message.number, at, message.values));
        }
        clock[block] = at.1 as u32 + 1;
        let mut values = came.unwrap_or_default();
        if step.kind.reads {
            let taken = self.take(at, rank, step.source, step, &clock)?;
            values = if values.is_empty() { taken } else { self.sum(at, &values, &taken)? };
        }
        if step.kind.adds && !step.kind.receives {
            let there = self.take(at, rank, step.destination, step, &clock)?;
            values = self.sum(at, &values, &there)?;
        }
        if step.kind.stores {
            self.store(at, rank, step, &values, &clock)?;
        }
        let clock: Clock = clock.into();
        if step.kind.sends {
            let key = (own, of.send.expect("it was read so"), of.channel);
            if self.channels[&key][1].is_none() {
                let why = format!("GPU {} has no block that receives on channel {}", key.1, key.2);
                return Err(self.wrong(
                    at,
                    why,
                    "give it one, with `recv` and `chan` of this block",
                ));
            }
            let number = self.flow.sent((own, key.1), at, &values);
            let message = Message { values, clock: Rc::clone(&clock), from: at, number };
            self.under_way.entry(key).or_default().push_back(message);
        }
        if self.awaited.contains_key(&at) {
            self.over.insert(at, Rc::clone(&clock));
        }
        self.clocks[block] = clock;
        self.flow.order.push(at);
        Ok(Outcome::Done)
    }

    /// The step of a sender that a receive waits for.
    fn sender(&self, at: At, key: (u32, u32, u32)) -> Result<At, Wrong> {
        let never = |why: String| {
            Err(self.wrong(at, why, "a deadlock: mend the sender, or leave the step out"))
        };
        let Some(sender) = self.channels[&key][0] else {
            return never(format!("GPU {} has no block that sends on channel {}", key.0, key.2));
        };
        let steps = &self.blocks[sender].1.steps;
        let left = (self.next[sender]..steps.len()).find(|k| steps[*k].kind.sends);
        match left {
            Some(_) => Ok((sender, self.next[sender])),
            None => never(format!(
                "it receives more often than block {} of GPU {} sends",
                self.blocks[sender].1.id, key.0
            )),
        }
    }

    fn take(
        &mut self,
        at: At,
        rank: usize,
        (buffer, from): (Buffer, u32),
        step: &Step,
        clock: &[u32],
    ) -> Result<Vec<Value>, Wrong> {
        let mut values = Vec::with_capacity(step.count as usize);
        for k in 0..step.count {
            let place = self.alias(rank, (buffer, from + k));
            let held = self.held[rank].get(&place);
            let Some(value) = held.and_then(|held| held.value.clone()) else {
                let why =
                    format!("it takes chunk {} of {}, which holds nothing", from + k, name(buffer));
                return Err(self.wrong(at, why, "something has to be put there before"));
            };
            let raced = held.and_then(|held| held.written).filter(|other| !knows(clock, *other));
            self.apart(at, raced, (buffer, from + k))?;
            if let Some(held) = self.held[rank].get_mut(&place) {
                held.read.retain(|other| !knows(clock, *other));
                held.read.push(at);
            }
            values.push(value);
        }
        Ok(values)
    }

    fn store(
        &mut self,
        at: At,
        rank: usize,
        step: &Step,
        values: &[Value],
        clock: &[u32],
    ) -> Result<(), Wrong> {
        let (buffer, into) = step.destination;
        for (k, value) in (0..).zip(values) {
            let place = self.alias(rank, (buffer, into + k));
            let held = self.held[rank].entry(place).or_default();
            let others = held.read.iter().chain(&held.written).copied();
            let raced = others.filter(|other| *other != at).find(|other| !knows(clock, *other));
            (held.value, held.written, held.read) = (Some(value.clone()), Some(at), Vec::new());
            self.apart(at, raced, (buffer, into + k))?;
        }
        Ok(())
    }

    /// Refuses two steps that touch a place in no order.
    fn apart(
        &self,
        at: At,
        other: Option<At>,
        (buffer, chunk): (Buffer, u32),
    ) -> Result<(), Wrong> {
        let Some(other) = other else { return Ok(()) };
        let why = format!(
            "it and {} touch chunk {chunk} of {}, and neither waits for the other",
            self.title(other),
            name(buffer)
        );
        Err(self.wrong(at, why, "let one wait: `depid` and `deps`, or a `nop` that has them"))
    }

    fn sum(&mut self, at: At, one: &[Value], other: &[Value]) -> Result<Vec<Value>, Wrong> {
        let mut sums = Vec::with_capacity(one.len());
        for (one, other) in one.iter().zip(other) {
            if one.chunk != other.chunk {
                let why = format!("it adds chunk {} to chunk {}", one.chunk, other.chunk);
                return Err(self.wrong(at, why, "only what is of one chunk is added"));
            }
            if one.from.iter().zip(&*other.from).any(|(a, b)| a & b != 0) {
                let why = format!(
                    "it counts a rank twice: chunk {} of {} and of {}",
                    one.chunk,
                    ranks(&one.from),
                    ranks(&other.from)
                );
                return Err(self.wrong(at, why, "every rank is added once"));
            }
            let from = one.from.iter().zip(&*other.from).map(|(a, b)| a | b).collect();
            let rank = self.blocks[at.0].0 as u32;
            let number =
                self.flow.value(rank, one.chunk, Origin::Sum(one.number, other.number, at));
            sums.push(Value { chunk: one.chunk, from, number });
        }
        Ok(sums)
    }

    /// Refuses a run that has stopped before its end, and messages that nobody receives.
    fn all_over(&mut self) -> Result<(), Wrong> {
        let waiting =
            (0..self.blocks.len()).find(|b| self.next[*b] < self.blocks[*b].1.steps.len());
        if let Some(mut block) = waiting {
            let mut way: Vec<usize> = Vec::new();
            while !way.contains(&block) {
                way.push(block);
                let Outcome::Waits((on, _)) = self.step(block)? else { break };
                block = on;
            }
            let circle = way.iter().position(|one| *one == block).unwrap_or(0);
            let named: Vec<String> =
                way[circle..].iter().map(|one| self.title((*one, self.next[*one]))).collect();
            let why = format!("a deadlock: {} waits for itself", named.join(", which waits for "));
            let at = (block, self.next[block]);
            return Err(self.wrong(at, why, "break the circle"));
        }
        let lost = self.under_way.values().find_map(VecDeque::front).map(|message| message.from);
        lost.map_or(Ok(()), |from| {
            Err(self.wrong(
                from,
                "nobody receives what it sends",
                "receive it, or leave the step out",
            ))
        })
    }

    fn check_end(&mut self) -> Result<(), Wrong> {
        let (chunks, count) = (self.algorithm.chunks, self.held.len() as u32);
        let each = chunks / count;
        let operation = self.algorithm.operation;
        for rank in 0..count {
            let kept = if operation == Operation::ReduceScatter { each } else { chunks };
            for place in 0..kept {
                let (chunk, from) = match operation {
                    Operation::ReduceScatter => (rank * each + place, None),
                    Operation::AllGather => (place, Some(place / each)),
                    Operation::AllToAll => {
                        let from = place / each;
                        (from * chunks + rank * each + place % each, Some(from))
                    }
                    Operation::AllReduce => (place, None),
                    Operation::Broadcast => (place, Some(0)),
                };
                let at = self.alias(rank as usize, (Buffer::Output, place));
                let held = self.held[rank as usize].get(&at).and_then(|held| held.value.as_ref());
                let whole = held.is_some_and(|held| match from {
                    Some(from) => is_of(&held.from, from),
                    None => held.from.iter().map(|word| word.count_ones()).sum::<u32>() == count,
                });
                if let Some(held) = held.filter(|held| whole && held.chunk == chunk) {
                    let block = if operation == Operation::ReduceScatter { chunk } else { place };
                    self.flow.ends.push(End { block, value: held.number });
                    continue;
                }
                let what = held.map_or("nothing".to_owned(), |held| {
                    format!("chunk {} of {}", held.chunk, ranks(&held.from))
                });
                let of = from.map_or("all ranks".to_owned(), |from| format!("rank {from}"));
                let why = format!(
                    "chunk {place} of its output ends as {what}; `{operation}` needs chunk {chunk} of {of}"
                );
                let last = self.held[rank as usize].get(&at).and_then(|held| held.written);
                let title = match last {
                    Some(step) => format!("{}, the last to write there", self.title(step)),
                    None => format!("GPU {rank}"),
                };
                let hint = "every rank holds the operation's result at the end";
                return Err(Wrong::new(title, why, hint));
            }
        }
        Ok(())
    }
}

const fn name(buffer: Buffer) -> &'static str {
    match buffer {
        Buffer::Input => "the input",
        Buffer::Output => "the output",
        Buffer::Scratch => "the scratch buffer",
    }
}
