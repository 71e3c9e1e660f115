//! [`evaluate::finish`](crate::evaluate::finish) under smallest-first, many times faster: the inner
//! loop of the search.
//!
//! Smallest-first serves by (buffer, chunk). There are few different buffers (chunk sizes divided by
//! products of dimension sizes), so a queue is a bit set of chunks for each of them, and taking the
//! first one is counting zeros. The plain evaluator is its oracle: a property test compares them.
//!
//! A [`Condition`] may also take a stage apart into the messages of its steps, as the network model `links`
//! does: a message waits for the last one of its stage to arrive, messages that are ready are served
//! first come, first served, and another stage begins when there is none.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};

use crate::evaluate::Work;
use crate::room::{ActiveChunks, Room, Share};

/// A task, packed.
#[derive(Clone, Copy, Default)]
struct Task {
    /// Of all its messages.
    occupancy: u64,
    /// Of each.
    latency: u64,
    /// Whether a node between stores each message first.
    relay: bool,
    messages: u32,
    sizes: Sizes,
    dimension: u32,
    class: u32,
    share: Share,
}

/// How the messages of a task differ.
#[derive(Clone, Copy, Default)]
enum Sizes {
    #[default]
    Alike,
    Halving,
    Doubling,
}

impl Task {
    /// The occupancy of the message after which `left` others leave.
    fn message(&self, left: u32) -> u64 {
        let share = |power: u32| (self.occupancy << power) / ((1 << self.messages) - 1);
        match self.sizes {
            Sizes::Alike => self.occupancy / u64::from(self.messages),
            Sizes::Halving => share(left),
            Sizes::Doubling => share(self.messages - 1 - left),
        }
    }
}

/// How a dimension differs from its description, in 1024ths of it.
#[derive(Clone, Copy)]
pub(super) struct Condition {
    /// Of a stage's occupancy.
    pub(super) occupancy: u64,
    /// Of its latency.
    pub(super) latency: u64,
    /// Whether a node between stores each message first, and sends it on by a link of its own.
    pub(super) relay: bool,
    /// Whether a stage is as many messages as it has steps, or one.
    pub(super) by_message: bool,
}

impl Condition {
    pub(super) const AS_DESCRIBED: Self =
        Self { occupancy: 1024, latency: 1024, relay: false, by_message: false };
}

/// One dimension's server and its queue.
#[derive(Clone, Default)]
struct Server {
    free_at: u64,
    /// Of the link after the relay.
    relay_free_at: u64,
    room: Room,
    /// Chunks whose stage has begun and whose next message can leave.
    ready: VecDeque<u32>,
    /// Bit `c`: whether class `c` has a chunk waiting.
    classes: u128,
    /// `chunks[class · words ..]`: which chunks wait.
    chunks: Vec<u64>,
}

/// A schedule whose chunks can be exchanged, and run again and again.
pub(super) struct Fast {
    conditions: Vec<Condition>,
    /// Every buffer that can occur, ascending: the classes.
    buffers: Vec<Bytes>,
    tasks: Vec<Task>,
    stages: usize,
    words: usize,
    servers: Vec<Server>,
    /// Index of the next stage of each chunk.
    next: Vec<u32>,
    /// Messages of the stage before it that have not left.
    left: Vec<u32>,
    arrived: BinaryHeap<Reverse<(u64, u32)>>,
    limit: Option<ActiveChunks>,
}

impl Fast {
    /// `None` where there are more than 128 different buffers or chunks differ in their stages.
    pub(super) fn new(
        work: &Work,
        buffers: Vec<Bytes>,
        conditions: Vec<Condition>,
        active: Option<ActiveChunks>,
    ) -> Option<Self> {
        let chunks = work.chunks();
        let stages = work.chunk(0).len();
        if buffers.len() > 128 || (0..chunks).any(|chunk| work.chunk(chunk).len() != stages) {
            return None;
        }
        let words = chunks.div_ceil(64);
        let server = Server { chunks: vec![0; words * buffers.len()], ..Server::default() };
        let mut fast = Self {
            buffers,
            tasks: vec![Task::default(); chunks * stages],
            stages,
            words,
            servers: vec![server; conditions.len()],
            conditions,
            next: vec![0; chunks],
            left: vec![0; chunks],
            arrived: BinaryHeap::new(),
            limit: active,
        };
        for chunk in 0..chunks {
            fast.replace(chunk, work.chunk(chunk));
        }
        Some(fast)
    }

    /// Gives a chunk other tasks.
    pub(super) fn replace(&mut self, chunk: usize, tasks: &[crate::evaluate::Task]) {
        for (place, task) in self.tasks[chunk * self.stages..].iter_mut().zip(tasks) {
            let class = self.buffers.binary_search(&task.buffer);
            let class = class.expect("every buffer that can occur has a class");
            let condition = self.conditions[task.dimension as usize];
            let of = |time: Time, share: u64| {
                let scaled = u128::from(time.as_ps()) * u128::from(share) / 1024;
                u64::try_from(scaled).unwrap_or(u64::MAX / 4)
            };
            let messages = if condition.by_message { task.steps.max(1) } else { 1 };
            let sizes = match task.operation {
                _ if !task.halving || messages == 1 => Sizes::Alike,
                Operation::AllGather => Sizes::Doubling,
                _ => Sizes::Halving,
            };
            *place = Task {
                occupancy: of(task.occupancy, condition.occupancy),
                latency: of(task.latency, condition.latency) / u64::from(messages),
                relay: condition.relay,
                messages,
                sizes,
                dimension: task.dimension,
                class: u32::try_from(class).expect("at most 128 classes"),
                share: task.share,
            };
        }
    }

    fn enqueue(&mut self, chunk: usize) {
        let task = self.tasks[chunk * self.stages + self.next[chunk] as usize];
        let server = &mut self.servers[task.dimension as usize];
        server.classes |= 1 << task.class;
        server.chunks[task.class as usize * self.words + chunk / 64] |= 1 << (chunk % 64);
    }

    /// When the schedule ends.
    pub(super) fn finish(&mut self) -> Time {
        for server in &mut self.servers {
            (server.free_at, server.relay_free_at) = (0, 0);
            server.room = Room::new(self.limit);
        }
        self.next.fill(0);
        for chunk in 0..self.next.len() {
            self.enqueue(chunk);
        }
        let mut now = 0u64;
        loop {
            while let Some(Reverse((time, chunk))) = self.arrived.peek().copied() {
                if time > now {
                    break;
                }
                self.arrived.pop();
                let place = chunk as usize;
                let task = self.tasks[place * self.stages + self.next[place] as usize - 1];
                let server = &mut self.servers[task.dimension as usize];
                if self.left[place] > 0 {
                    server.ready.push_back(chunk);
                    continue;
                }
                server.room.give_back(task.share);
                if (self.next[place] as usize) < self.stages {
                    self.enqueue(place);
                }
            }
            let mut next = self.arrived.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
            for server in &mut self.servers {
                let begins = server.classes != 0 && server.room.is_left();
                if !begins && server.ready.is_empty() {
                    continue;
                }
                if server.free_at <= now {
                    let chunk = if let Some(chunk) = server.ready.pop_front() {
                        chunk as usize
                    } else {
                        let chunk = server.first(self.words);
                        self.next[chunk] += 1;
                        let task = self.tasks[chunk * self.stages + self.next[chunk] as usize - 1];
                        server.room.take(task.share);
                        self.left[chunk] = task.messages;
                        chunk
                    };
                    let task = self.tasks[chunk * self.stages + self.next[chunk] as usize - 1];
                    self.left[chunk] -= 1;
                    let end = server.send(now, task.message(self.left[chunk]), task);
                    next = next.min(end);
                    let chunk = u32::try_from(chunk).expect("fewer than 2^32 chunks");
                    self.arrived.push(Reverse((end, chunk)));
                }
                let begins = server.classes != 0 && server.room.is_left();
                if begins || !server.ready.is_empty() {
                    next = next.min(server.free_at);
                }
            }
            if next == u64::MAX {
                return Time::from_ps(now);
            }
            now = next;
        }
    }
}

impl Server {
    /// Sends a message of a task at `now`; when it arrives.
    fn send(&mut self, now: u64, occupancy: u64, task: Task) -> u64 {
        self.free_at = now + occupancy;
        if !task.relay {
            return self.free_at + task.latency;
        }
        let half = task.latency / 2;
        self.relay_free_at = self.relay_free_at.max(self.free_at + half) + occupancy;
        self.relay_free_at + task.latency - half
    }

    /// Takes the waiting chunk with the smallest buffer.
    fn first(&mut self, words_per_class: usize) -> usize {
        let class = self.classes.trailing_zeros() as usize;
        let words = &mut self.chunks[class * words_per_class..][..words_per_class];
        let word = words.iter().position(|word| *word != 0);
        let word = word.expect("a class that is marked has a chunk");
        let chunk = word * 64 + words[word].trailing_zeros() as usize;
        words[word] &= words[word] - 1;
        if words.iter().all(|word| *word == 0) {
            self.classes &= !(1 << class);
        }
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{Parameters, Problem, stages};
    use crate::evaluate;
    use crate::queue::{Order, queues};
    use allrail_collective::StageModel;
    use allrail_collective::algorithm::named;
    use allrail_core::DimensionId;
    use allrail_fabric::{Dimension, Fabric, Kind};
    use proptest::prelude::*;

    fn fabric(sizes: &[(u32, u64, u64)]) -> Fabric {
        let dimensions = sizes.iter().map(|(size, gbps, ns)| {
            Dimension::new(
                Kind::Switch,
                *size,
                1,
                format!("{gbps} Gb/s").parse().expect("a bandwidth"),
                Time::from_ns(*ns),
            )
        });
        Fabric {
            memory_bandwidth: None,
            window: None,
            name: String::new(),
            dimensions: dimensions.collect(),
        }
    }

    proptest! {
        /// The plain evaluator is the oracle, before and after a chunk has been exchanged.
        #[test]
        fn ends_when_the_plain_evaluator_does(
            sizes in prop::collection::vec((2u32..9, 50u64..2000, 0u64..5000), 2..5),
            bytes in prop::collection::vec(1u64..5_000_000, 1..90),
            draws in prop::collection::vec(0usize..24, 180),
            active in prop::sample::select(vec![
                None,
                Some(ActiveChunks::AtMost(1)),
                Some(ActiveChunks::AtMost(3)),
                Some(ActiveChunks::FILL),
            ]),
        ) {
            let fabric = fabric(&sizes);
            let dimensions: Vec<DimensionId> = fabric.ids().collect();
            let algorithms = vec![named("halving_doubling").expect("known"); dimensions.len()];
            let parts = [Operation::ReduceScatter, Operation::AllGather];
            let model = StageModel::new(&fabric, &algorithms, &dimensions, &parts, Time::ZERO)
                .expect("modelled");
            // Two sizes of chunks, as dividing a buffer gives.
            let chunks: Vec<Bytes> = bytes.iter().map(|b| Bytes::new(1_000_000 + b % 2)).collect();
            let orders = super::super::permutations(&dimensions);
            let schedule: Vec<_> = (0..chunks.len()).map(|c| {
                let order = |draw: usize| &orders[draws[draw] % orders.len()];
                stages(Operation::AllReduce, order(2 * c), order(2 * c + 1))
            }).collect();
            let work = |schedule: &[Vec<_>]| {
                let stages = schedule.iter().map(Vec::as_slice);
                Work::new(&model, chunks.iter().copied().zip(stages)).expect("fits")
            };
            let plain = |work: &Work| {
                let mut queues = queues(Order::SMALLEST_FIRST, dimensions.len(), &[]);
                evaluate::finish(work, &mut queues, active)
            };
            let problem = Problem {
                model: &model,
                operation: Operation::AllReduce,
                dimensions: &dimensions,
                chunks: &chunks,
                order: Order::SMALLEST_FIRST,
                active_chunks: active,
                parameters: &Parameters::default(),
                seed: 0,
                watch: &|_, _| {},
            };
            let first = work(&schedule);
            let conditions = vec![Condition::AS_DESCRIBED; dimensions.len()];
            let buffers = super::super::buffers(&problem);
            let mut fast = Fast::new(&first, buffers, conditions, active).expect("alike chunks");
            prop_assert_eq!(fast.finish(), plain(&first));

            let mut other = schedule.clone();
            other[0] = stages(Operation::AllReduce, &orders[orders.len() - 1], &orders[0]);
            let second = work(&other);
            fast.replace(0, second.chunk(0));
            prop_assert_eq!(fast.finish(), plain(&second));
            fast.replace(0, first.chunk(0));
            prop_assert_eq!(fast.finish(), plain(&first));
        }
    }
}
