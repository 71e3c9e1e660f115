//! When the messages of a program leave, in steps that all ranks count alike, and where chunks lie meanwhile.
//!
//! A message is a step's as soon as
//!
//! - its sender holds all that it carries when the step begins;
//! - what its steps of the file wait for is over: a block's steps go one after the other, so a message that
//!   leaves behind one that came is of a later step, others may be of the same;
//! - its receiver has a place for it: that of the state that it adds to, which all who take that state have
//!   sent by then, or one whose content is sent and needed no more. What ends at a block goes there.
//!
//! In a step everything leaves before anything is put down, so places may be swapped: what may be in a step is
//! the largest set of messages each of which has a place if all the others leave.
//!
//! What a block sends one after the other may be one step or several: together they cost one latency, one by one
//! they fill a pipeline. Both are tried, and that is taken in which the busiest ranks of the steps send the least
//! in all; of equals, that of fewer steps.
//!
//! Programs have scratch buffers, and steps that wait for each other because of them. If neither goes, it is
//! tried again without the order of blocks, by what chunks are made of alone.

use std::collections::{BTreeMap, BTreeSet};

use super::chains::{Chain, Chains, Held};
use super::flow::{At, Flow};
use super::{Block, File, Wrong, title};

/// A message in a step: the blocks that it is taken from and put into, and whether it is added there.
pub(super) struct Move {
    pub(super) message: usize,
    pub(super) chunks: Vec<(u32, u32, bool)>,
}

/// An end of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Sent(usize),
    Received(usize),
}

/// What the ends of each message wait for.
#[derive(Clone)]
struct Waits {
    sent: Vec<Vec<Event>>,
    received: Vec<Vec<Event>>,
    /// The message that its block sends before it, where that is a step of its own.
    behind: Vec<Option<usize>>,
}

impl Waits {
    fn free(count: usize) -> Self {
        let none = || vec![Vec::new(); count];
        Self { sent: none(), received: none(), behind: vec![None; count] }
    }
}

/// The messages of every step.
///
/// # Errors
/// The first message that there is no place for.
pub(super) fn steps(file: &File, flow: &Flow, chains: &Chains) -> Result<Vec<Vec<Move>>, Wrong> {
    let (ordered, free) = (waits(file, flow), Waits::free(flow.messages.len()));
    let mut stuck = Vec::new();
    for together in [ordered, free] {
        let one_by_one = Waits { behind: behind(flow), ..together.clone() };
        let ways = [together, one_by_one].map(|waits| Places::new(file, flow, chains, waits).run());
        let [together, one_by_one] = ways;
        match (together, one_by_one) {
            (Ok(one), Ok(other)) if cost(flow, &other) < cost(flow, &one) => return Ok(other),
            (Ok(found), _) | (Err(_), Ok(found)) => return Ok(found),
            (Err(left), Err(_)) => stuck = left,
        }
    }
    Err(refuse(file, flow, chains, &stuck))
}

/// What the busiest rank of each step sends, in all, and the steps.
fn cost(flow: &Flow, steps: &[Vec<Move>]) -> (usize, usize) {
    let busiest = |moves: &Vec<Move>| {
        let mut sent: BTreeMap<u32, usize> = BTreeMap::new();
        for one in moves {
            *sent.entry(flow.messages[one.message].from).or_default() += one.chunks.len();
        }
        sent.into_values().max().unwrap_or(0)
    };
    (steps.iter().map(busiest).sum(), steps.len())
}

/// The message before each one of its block.
fn behind(flow: &Flow) -> Vec<Option<usize>> {
    let mut by_block: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (number, message) in flow.messages.iter().enumerate() {
        by_block.entry(message.sent.0).or_default().push((message.sent.1, number));
    }
    let mut behind = vec![None; flow.messages.len()];
    for sent in by_block.values_mut() {
        sent.sort_unstable();
        for pair in sent.windows(2) {
            behind[pair[1].1] = Some(pair[0].1);
        }
    }
    behind
}

/// What each message waits for in the file.
fn waits(file: &File, flow: &Flow) -> Waits {
    let mut waits = Waits::free(flow.messages.len());
    let mut first = Vec::new();
    let mut blocks: Vec<&Block> = Vec::new();
    for gpu in &file.gpus {
        first.extend(std::iter::repeat_n(blocks.len(), gpu.blocks.len()));
        blocks.extend(&gpu.blocks);
    }
    let mut of_step: Vec<Vec<[Option<usize>; 2]>> =
        blocks.iter().map(|block| vec![[None; 2]; block.steps.len()]).collect();
    for (number, message) in flow.messages.iter().enumerate() {
        of_step[message.sent.0][message.sent.1][0] = Some(number);
        of_step[message.received.0][message.received.1][1] = Some(number);
    }
    // What is over when a step is.
    let mut over: Vec<Vec<Vec<Event>>> =
        blocks.iter().map(|block| vec![Vec::new(); block.steps.len()]).collect();
    for (block, step) in flow.order.iter().copied() {
        let mut before: Vec<Event> = Vec::new();
        if let Some(last) = step.checked_sub(1) {
            before.extend(&over[block][last]);
        }
        if let Some((other, at)) = blocks[block].steps[step].after {
            before.extend(&over[first[block] + other][at]);
        }
        before.sort_unstable();
        before.dedup();
        let [sent, received] = of_step[block][step];
        if let Some(message) = received {
            waits.received[message] =
                std::mem::replace(&mut before, vec![Event::Received(message)]);
        }
        if let Some(message) = sent {
            waits.sent[message] = std::mem::replace(&mut before, vec![Event::Sent(message)]);
        }
        over[block][step] = before;
    }
    waits
}

/// Where a chain is.
struct Way {
    /// The state that it is in, and how much of the next has come.
    state: usize,
    arrived: u32,
    /// Whether it is in the first one.
    begun: bool,
    /// Messages that still carry this state.
    sends: u32,
    block: Option<u32>,
}

/// The places of all ranks, from step to step.
struct Places<'a> {
    flow: &'a Flow,
    chains: &'a Chains,
    waits: Waits,
    /// Blocks of a shard in an all-to-all; 0 where a chunk has one place.
    shard: u32,
    blocks: u32,
    ways: Vec<Way>,
    /// The chain in each block, by rank.
    held: Vec<Vec<Option<usize>>>,
    done: Vec<bool>,
}

impl<'a> Places<'a> {
    fn new(file: &File, flow: &'a Flow, chains: &'a Chains, waits: Waits) -> Self {
        let ranks = u32::try_from(file.gpus.len()).expect("few ranks");
        let swaps = file.operation == crate::Operation::AllToAll;
        let mut held = vec![vec![None; file.chunks as usize]; file.gpus.len()];
        let way = |(number, chain): (usize, &Chain)| {
            if let Some(block) = chain.brought {
                held[chain.rank as usize][block as usize] = Some(number);
            }
            let (block, begun) = (chain.brought, chain.brought.is_some());
            Way { state: 0, arrived: 0, begun, sends: chain.states[0].sends, block }
        };
        let ways = chains.all.iter().enumerate().map(way).collect();
        let shard = if swaps { file.chunks / ranks } else { 0 };
        let done = vec![false; flow.messages.len()];
        Self { flow, chains, waits, shard, blocks: file.chunks, ways, held, done }
    }

    /// All steps; the messages that are left where no further one can be made.
    fn run(mut self) -> Result<Vec<Vec<Move>>, Vec<usize>> {
        let mut left: Vec<usize> = (0..self.flow.messages.len()).collect();
        let mut steps = Vec::new();
        while !left.is_empty() {
            let chosen = self.choose(&left);
            if chosen.is_empty() {
                return Err(left);
            }
            steps.push(self.carry(chosen));
            left.retain(|message| !self.done[*message]);
        }
        Ok(steps)
    }

    /// The messages of the next step, with the block that each of their chunks begins a chain in.
    fn choose(&self, left: &[usize]) -> Vec<(usize, Vec<Option<u32>>)> {
        let is_there = |message: &usize| {
            let there = |(taken, _): &(Held, Held)| {
                let way = &self.ways[taken.0];
                way.begun && way.state == taken.1 && way.arrived == 0
            };
            self.chains.messages[*message].iter().all(there)
        };
        let mut chosen: Vec<usize> = left.iter().copied().filter(is_there).collect();
        let mut among = vec![false; self.done.len()];
        let mut leaving = vec![0u32; self.ways.len()];
        loop {
            among.fill(false);
            leaving.fill(0);
            for message in &chosen {
                among[*message] = true;
                for ((chain, _), _) in &self.chains.messages[*message] {
                    leaving[*chain] += 1;
                }
            }
            let before = chosen.len();
            chosen.retain(|message| self.may(*message, &among, &leaving));
            if chosen.len() < before {
                continue;
            }
            let placed = self.place(&chosen, &leaving);
            if placed.len() == before {
                return placed;
            }
            chosen = placed.into_iter().map(|(message, _)| message).collect();
        }
    }

    /// Whether a message may be in a step beside those of `among`, places aside.
    fn may(&self, message: usize, among: &[bool], leaving: &[u32]) -> bool {
        let by_now = |message: usize| self.done[message] || among[message];
        let is_over = |event: &Event, sending: bool| match *event {
            Event::Received(message) if sending => self.done[message],
            Event::Sent(message) | Event::Received(message) => by_now(message),
        };
        let ordered = self.waits.behind[message].is_none_or(|before| self.done[before])
            && self.waits.sent[message].iter().all(|event| is_over(event, true))
            && self.waits.received[message].iter().all(|event| is_over(event, false));
        // What it adds to is complete, and everyone has it who takes it.
        let adds = |(_, (chain, state)): &(Held, Held)| {
            let way = &self.ways[*chain];
            match state.checked_sub(1) {
                None => true,
                Some(before) => {
                    way.begun
                        && way.state == before
                        && (way.arrived > 0 || way.sends == leaving[*chain])
                }
            }
        };
        ordered && self.chains.messages[message].iter().all(adds)
    }

    /// Finds blocks for the chains that begin; drops messages that find none. What ends somewhere goes first.
    fn place(&self, chosen: &[usize], leaving: &[u32]) -> Vec<(usize, Vec<Option<u32>>)> {
        let mut begun: BTreeSet<usize> = BTreeSet::new();
        let mut reserved: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut placed = Vec::with_capacity(chosen.len());
        let ends = |message: &usize| {
            let pairs = &self.chains.messages[*message];
            pairs.iter().all(|(_, (chain, _))| self.chains.all[*chain].end.is_some())
        };
        let (first, then): (Vec<usize>, Vec<usize>) = chosen.iter().copied().partition(ends);
        for message in first.into_iter().chain(then) {
            let pairs = &self.chains.messages[message];
            let mut blocks = Vec::with_capacity(pairs.len());
            for (_, (chain, state)) in pairs {
                if *state > 0 || self.ways[*chain].block.is_some() {
                    blocks.push(None);
                    continue;
                }
                let free = self.free(*chain, leaving, &reserved).filter(|_| begun.insert(*chain));
                let Some(block) = free else { break };
                reserved.insert((self.chains.all[*chain].rank, block));
                blocks.push(Some(block));
            }
            if blocks.len() == pairs.len() {
                placed.push((message, blocks));
                continue;
            }
            for (block, (_, (chain, _))) in blocks.iter().zip(pairs) {
                if let Some(block) = *block {
                    begun.remove(chain);
                    reserved.remove(&(self.chains.all[*chain].rank, block));
                }
            }
        }
        placed.sort_unstable_by_key(|(message, _)| *message);
        placed
    }

    /// A block that a chain may begin in.
    fn free(&self, number: usize, leaving: &[u32], reserved: &BTreeSet<(u32, u32)>) -> Option<u32> {
        let chain = &self.chains.all[number];
        let is_free = |block: &u32| {
            let left = |other: usize| {
                let (way, of) = (&self.ways[other], &self.chains.all[other]);
                let last = way.begun && way.state + 1 == of.states.len() && way.arrived == 0;
                last && of.end.is_none() && way.sends == leaving[other]
            };
            let held = self.held[chain.rank as usize][*block as usize];
            held.is_none_or(left) && !reserved.contains(&(chain.rank, *block))
        };
        let step = if self.shard == 0 { self.blocks } else { self.shard };
        let anywhere = || (chain.kind..self.blocks).step_by(step as usize).find(is_free);
        match chain.end {
            Some(end) => Some(end).filter(is_free),
            None => anywhere(),
        }
    }

    /// Carries out a step.
    fn carry(&mut self, chosen: Vec<(usize, Vec<Option<u32>>)>) -> Vec<Move> {
        let mut moves = Vec::with_capacity(chosen.len());
        // All leave.
        for (message, _) in &chosen {
            self.done[*message] = true;
            for ((chain, _), _) in &self.chains.messages[*message] {
                self.ways[*chain].sends -= 1;
            }
        }
        let from: Vec<Vec<u32>> = chosen
            .iter()
            .map(|(message, _)| {
                let block = |(taken, _): &(Held, Held)| {
                    self.ways[taken.0].block.expect("what is sent lies somewhere")
                };
                self.chains.messages[*message].iter().map(block).collect()
            })
            .collect();
        // All come: what begins a chain before what is added to it.
        for (message, blocks) in &chosen {
            let pairs = &self.chains.messages[*message];
            for (block, (_, (chain, _))) in blocks.iter().zip(pairs) {
                let Some(block) = *block else { continue };
                self.ways[*chain].block = Some(block);
                let rank = self.chains.all[*chain].rank as usize;
                self.held[rank][block as usize] = Some(*chain);
            }
        }
        for ((message, blocks), from) in chosen.into_iter().zip(from) {
            let mut chunks = Vec::with_capacity(from.len());
            let pairs = &self.chains.messages[message];
            for ((from, begins), (_, (chain, state))) in from.into_iter().zip(blocks).zip(pairs) {
                let way = &mut self.ways[*chain];
                let of = &self.chains.all[*chain].states[*state];
                way.arrived += 1;
                if way.arrived == of.arrivals {
                    (way.state, way.arrived, way.begun, way.sends) = (*state, 0, true, of.sends);
                }
                let into = way.block.expect("it has a place");
                chunks.push((from, into, begins.is_none()));
            }
            moves.push(Move { message, chunks });
        }
        moves
    }
}

/// Says what there is no place for.
fn refuse(file: &File, flow: &Flow, chains: &Chains, left: &[usize]) -> Wrong {
    let first = left.iter().min_by_key(|message| {
        flow.order.iter().position(|at| *at == flow.messages[**message].received)
    });
    let message = *first.expect("some message is left");
    let carried = &flow.messages[message];
    let (_, (chain, _)) = chains.messages[message][0];
    let chunk = flow.values[carried.brought[0] as usize].chunk;
    let rank = chains.all[chain].rank;
    let (block, step): At = carried.received;
    let of = file.gpus.iter().flat_map(|gpu| &gpu.blocks).nth(block).expect("a block of the file");
    let why = format!(
        "GPU {rank} has no place for chunk {chunk} here: in one buffer without scratch, what lies there is \
         needed later"
    );
    let hint = "have it sent before, or run the program as the collective of a trace \
                (`allrail simulate --astra-sim`)";
    Wrong::new(title(rank as usize, of, step), why, hint)
}
