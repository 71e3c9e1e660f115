//! The common form of every algorithm: per rank, a list of steps of sends and receives.
//!
//! A rank's buffer is divided into `blocks` equal blocks (padded, as NCCL's and PyTorch's
//! reduce-scatter are). What a send carries is what its blocks held before any receive of its step.
//! A message that leaves in the sender's step `k` is awaited in the receiver's step `k`: both count
//! the same steps, so a rank with nothing to do in a step has an empty one.
//!
//! What a send waits for is the program's [`Waits`]. Sums are made in the order of steps, and within one of the
//! receives, whatever comes first: neither changes what a rank has at the end.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the sends of a rank wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "what sends wait for"))]
pub enum Waits {
    /// All receives of the steps before.
    #[default]
    Steps,
    /// The receives before that touch their own blocks. From one rank to another, those that may leave do so one
    /// after the other, chunk by chunk, and within a chunk in the order of their steps.
    Blocks,
}

/// Blocks of a buffer, in the order in which a message carries them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// `count` blocks from `start`, going on at 0 after the last block of the buffer.
    Wrapped {
        /// The first block.
        start: u32,
        /// How many.
        count: u32,
    },
    /// Any blocks.
    List(Box<[u32]>),
}

impl Blocks {
    /// The blocks of a range that does not wrap.
    #[must_use]
    pub fn range(range: Range<u32>) -> Self {
        Self::Wrapped { start: range.start, count: range.end - range.start }
    }

    /// Any blocks of a buffer of `total`, in the shortest form.
    #[must_use]
    pub fn of(list: Vec<u32>, total: u32) -> Self {
        let follows = |pair: &[u32]| pair[1] == if pair[0] + 1 == total { 0 } else { pair[0] + 1 };
        match u32::try_from(list.len()) {
            Ok(count) if count <= total && list.windows(2).all(follows) => {
                Self::Wrapped { start: list.first().copied().unwrap_or(0), count }
            }
            _ => Self::List(list.into()),
        }
    }

    /// How many blocks.
    #[must_use]
    pub fn len(&self) -> u32 {
        match self {
            Self::Wrapped { count, .. } => *count,
            Self::List(list) => u32::try_from(list.len()).expect("fewer than 2^32 blocks"),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them that a buffer of `total` blocks does not have, if any; for a run longer than the
    /// buffer, where it would end.
    pub(crate) fn outside(&self, total: u32) -> Option<u64> {
        match self {
            Self::Wrapped { count: 0, .. } => None,
            Self::Wrapped { start, .. } if *start >= total => Some(u64::from(*start)),
            Self::Wrapped { start, count } if *count > total => {
                Some(u64::from(*start) + u64::from(*count) - 1)
            }
            Self::Wrapped { .. } => None,
            Self::List(list) => list.iter().find(|b| **b >= total).map(|b| u64::from(*b)),
        }
    }

    /// The blocks one by one, in a buffer of `total` blocks.
    pub fn iter(&self, total: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).map(move |i| match self {
            Self::Wrapped { start, .. } => {
                u32::try_from((u64::from(*start) + u64::from(i)) % u64::from(total))
                    .expect("smaller than a u32")
            }
            Self::List(list) => list[i as usize],
        })
    }
}

/// What a receive does with the blocks that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Adds them to what the rank holds.
    Reduce,
    /// Puts them in place of it.
    Replace,
}

/// One message that a rank sends in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// The peer.
    pub to: u32,
    /// What of the sender's buffer it carries.
    pub blocks: Blocks,
    /// The switches that it passes, as nodes of the network that the program was made for; those of any shortest
    /// way if there are none.
    pub via: Box<[u32]>,
}

/// One message that a rank waits for in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The peer.
    pub from: u32,
    /// Where in the receiver's buffer its blocks go, in the order in which it carries them.
    pub blocks: Blocks,
    /// How.
    pub combine: Combine,
}

/// What one rank does in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Leave together at the start of the step.
    pub sends: Vec<Send>,
    /// End the step when all are here.
    pub receives: Vec<Receive>,
}

/// What every rank does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// How many ranks.
    pub ranks: u32,
    /// Into how many equal blocks a buffer is divided.
    pub blocks: u32,
    /// What sends wait for.
    pub waits: Waits,
    /// `steps[rank][k]`; all ranks have the same number of steps.
    pub steps: Vec<Vec<Step>>,
}

impl Program {
    /// A program of `steps` empty steps per rank.
    #[must_use]
    pub fn empty(ranks: u32, blocks: u32, steps: usize) -> Self {
        let steps = vec![vec![Step::default(); steps]; ranks as usize];
        Self { ranks, blocks, waits: Waits::Steps, steps }
    }

    /// Adds one message to step `step`: `source`'s blocks `from` arrive in `destination`'s blocks
    /// `into`.
    pub fn message(
        &mut self,
        step: usize,
        source: (u32, Blocks),
        destination: (u32, Blocks),
        combine: Combine,
    ) {
        self.message_via(step, source, destination, combine, Box::default());
    }

    /// The same past certain switches.
    pub fn message_via(
        &mut self,
        step: usize,
        (source, from): (u32, Blocks),
        (destination, into): (u32, Blocks),
        combine: Combine,
        via: Box<[u32]>,
    ) {
        self.steps[source as usize][step].sends.push(Send { to: destination, blocks: from, via });
        self.steps[destination as usize][step].receives.push(Receive {
            from: source,
            blocks: into,
            combine,
        });
    }

    /// The same with rank `order[i]` in the place of rank `i`; blocks keep their numbers.
    #[must_use]
    pub fn relabelled(mut self, order: &[u32]) -> Self {
        let mut steps = vec![Vec::new(); self.steps.len()];
        for (place, mut of_rank) in self.steps.into_iter().enumerate() {
            for step in &mut of_rank {
                step.sends.iter_mut().for_each(|send| send.to = order[send.to as usize]);
                step.receives.iter_mut().for_each(|one| one.from = order[one.from as usize]);
            }
            steps[order[place] as usize] = of_rank;
        }
        self.steps = steps;
        self
    }

    /// [`Program::relabelled`] with the shards of a buffer: what rank `i` kept, or started from, is
    /// shard `order[i]`, as the definition of a reduce-scatter or an all-gather asks.
    #[must_use]
    pub(crate) fn relabelled_with_shards(self, order: &[u32]) -> Self {
        let (total, each) = (self.blocks, self.blocks / self.ranks);
        let moved = self.renumbered(total, |b| order[(b / each) as usize] * each + b % each);
        moved.relabelled(order)
    }

    /// The same on a buffer of `total` blocks, in which block `b` of this one stands at `at(b)`.
    #[must_use]
    pub fn renumbered(mut self, total: u32, at: impl Fn(u32) -> u32) -> Self {
        let of = self.blocks;
        // A run that wraps in its own buffer does not in the other one.
        let moved = |blocks: &mut Blocks| {
            *blocks = Blocks::of(blocks.iter(of).map(&at).collect(), total);
        };
        for step in self.steps.iter_mut().flatten() {
            step.sends.iter_mut().for_each(|send| moved(&mut send.blocks));
            step.receives.iter_mut().for_each(|one| moved(&mut one.blocks));
        }
        self.blocks = total;
        self
    }

    /// Both at once over the same ranks and the same buffer.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        let steps = self.step_count().max(other.step_count());
        for (mine, others) in self.steps.iter_mut().zip(other.steps) {
            mine.resize(steps, Step::default());
            for (step, also) in mine.iter_mut().zip(others) {
                step.sends.extend(also.sends);
                step.receives.extend(also.receives);
            }
        }
        self
    }

    /// Both at once over the same ranks, on a buffer of this one's blocks and then the other's.
    #[must_use]
    pub fn beside(self, other: Self) -> Self {
        let (first, total) = (self.blocks, self.blocks + other.blocks);
        self.renumbered(total, |block| block).merged(other.renumbered(total, |b| first + b))
    }

    /// [`Program::beside`] on a buffer of one shard for each rank: each is a shard of this one and then
    /// one of the other.
    #[must_use]
    pub(crate) fn beside_in_shards(self, other: Self) -> Self {
        let [mine, others] = [self.blocks, other.blocks].map(|blocks| blocks / self.ranks);
        let (each, total) = (mine + others, self.blocks + other.blocks);
        let first = self.renumbered(total, |block| block / mine * each + block % mine);
        first.merged(other.renumbered(total, |b| b / others * each + mine + b % others))
    }

    /// How many steps each rank has.
    #[must_use]
    pub fn step_count(&self) -> usize {
        self.steps.first().map_or(0, Vec::len)
    }

    /// How many blocks `rank` sends in all.
    #[must_use]
    pub fn blocks_sent(&self, rank: u32) -> u64 {
        self.steps[rank as usize]
            .iter()
            .flat_map(|step| &step.sends)
            .map(|send| u64::from(send.blocks.len()))
            .sum()
    }

    /// The longest chain of messages of which each waits for the one before it: the sum of what a message of each
    /// step costs. Messages of one step side by side, and no message waits for another's bytes to leave.
    #[must_use]
    pub fn chain(&self, cost: impl Fn(usize) -> u64) -> u64 {
        // When a rank has all that it awaits in its steps so far.
        let mut ready = vec![0u64; self.steps.len()];
        let mut later = ready.clone();
        for step in 0..self.step_count() {
            let cost = cost(step);
            for (rank, steps) in self.steps.iter().enumerate() {
                let arrives = ready[rank].saturating_add(cost);
                for send in &steps[step].sends {
                    let at = &mut later[send.to as usize];
                    *at = arrives.max(*at);
                }
            }
            ready.clone_from(&later);
        }
        ready.into_iter().max().unwrap_or(0)
    }
}
