//! All ranks of a group in one place, with frames delivered by an adversary.

use std::collections::VecDeque;

use allrail_collective::rank::{Action, Chunk, Combine, Message, RankPlan};

use super::cases::Draw;

/// What a buffer is made of.
pub(crate) trait Element: Copy + PartialEq + std::fmt::Debug {
    fn plus(self, other: Self) -> Self;
}

impl Element for i64 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Element for f32 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

/// In which order the adversary lets things happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Adversary {
    /// Anything that can happen.
    Any,
    /// What became possible last.
    Newest,
    /// What became possible first.
    Oldest,
    /// Whatever one rank sends comes only when nothing else is left to happen.
    Late(usize),
    /// Sends leave only when no frame is in the air.
    LeaveLate,
}

/// Whether messages wait for those that they should.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Waits {
    Kept,
    /// Receives are combined as they come.
    ReceivesIgnored,
    /// Sends leave at once.
    SendsIgnored,
}

/// Something that may happen next: by rank, chunk and place.
#[derive(Clone, Copy)]
enum Event {
    Leave(usize, usize, u32),
    Arrive(usize, usize, u32),
}

pub(crate) struct Outcome<T> {
    /// Each rank's buffer.
    pub(crate) buffers: Vec<Vec<T>>,
    /// The most elements that lay aside at once, per rank and chunk.
    pub(crate) aside: Vec<Vec<u64>>,
}

struct Rank<'a, T> {
    plan: &'a RankPlan,
    buffer: Vec<T>,
    /// Per chunk and place: how many messages are still to be done before.
    pending: Vec<Vec<usize>>,
    /// Per chunk and place: what came and is not combined.
    frames: Vec<Vec<Option<Vec<T>>>>,
    aside: Vec<u64>,
    most: Vec<u64>,
}

/// Runs `plans` (of one group, in the order of `buffers`) until nothing more happens.
pub(crate) fn run<T: Element>(
    plans: &[RankPlan],
    buffers: Vec<Vec<T>>,
    adversary: Adversary,
    waits: Waits,
    draw: &mut Draw,
) -> Outcome<T> {
    let mut ranks: Vec<Rank<'_, T>> =
        plans.iter().zip(buffers).map(|(p, b)| Rank::new(p, b)).collect();
    let (now, later) = (VecDeque::new(), VecDeque::new());
    let mut events = Events { plans, adversary, now, later };
    for (r, rank) in ranks.iter().enumerate() {
        for (c, chunk) in rank.plan.chunks.iter().enumerate() {
            let ready = chunk.messages().iter().filter(|message| {
                message.action == Action::Send
                    && (waits == Waits::SendsIgnored || chunk.waits_for(message.place).is_empty())
            });
            ready.for_each(|message| events.push(Event::Leave(r, c, message.place)));
        }
    }
    let mut done = 0;
    while let Some(event) = events.next(draw) {
        match event {
            Event::Leave(r, c, place) => {
                let chunk = &plans[r].chunks[c];
                let message = &chunk.messages()[place as usize];
                let data: Vec<T> =
                    chunk.ranges(message).flat_map(|run| ranks[r].elements(run).to_vec()).collect();
                let to =
                    plans.iter().position(|plan| plan.rank == message.peer).expect("of the group");
                let receive = plans[to].chunks[c]
                    .receive(
                        message.stage as usize,
                        message.step as usize,
                        plans[r].rank,
                        message.index,
                    )
                    .expect("what is sent is awaited");
                assert_eq!(receive.elements, message.elements);
                let slot = &mut ranks[to].frames[c][receive.place as usize];
                assert!(slot.replace(data).is_none(), "a frame comes once");
                events.push(Event::Arrive(to, c, receive.place));
                done += 1;
                ranks[r].free(r, (c, place), waits, &mut events);
            }
            Event::Arrive(r, c, place) => {
                let rank = &mut ranks[r];
                let message = &plans[r].chunks[c].messages()[place as usize];
                if waits != Waits::ReceivesIgnored && rank.pending[c][place as usize] > 0 {
                    rank.aside[c] += message.elements;
                    rank.most[c] = rank.most[c].max(rank.aside[c]);
                    // It comes again when it may be combined.
                    rank.pending[c][place as usize] |= ASIDE;
                    continue;
                }
                rank.combine(c, message);
                done += 1;
                rank.free(r, (c, place), waits, &mut events);
            }
        }
    }
    let all: usize =
        plans.iter().flat_map(|plan| &plan.chunks).map(|chunk| chunk.messages().len()).sum();
    if waits == Waits::Kept {
        assert_eq!(done, all, "nothing waits for ever");
    }
    let aside = ranks.iter().map(|rank| rank.most.clone()).collect();
    Outcome { buffers: ranks.into_iter().map(|rank| rank.buffer).collect(), aside }
}

/// Marks a receive that has come and waits.
const ASIDE: usize = 1 << 40;

/// What may happen next.
struct Events<'a> {
    plans: &'a [RankPlan],
    adversary: Adversary,
    now: VecDeque<Event>,
    /// Only when nothing else is left.
    later: VecDeque<Event>,
}

impl Events<'_> {
    fn push(&mut self, event: Event) {
        let held_back = match (self.adversary, event) {
            (Adversary::Late(slow), Event::Arrive(r, c, place)) => {
                let message = &self.plans[r].chunks[c].messages()[place as usize];
                message.peer == self.plans[slow].rank
            }
            (Adversary::LeaveLate, Event::Leave(..)) => true,
            _ => false,
        };
        if held_back { &mut self.later } else { &mut self.now }.push_back(event);
    }

    fn next(&mut self, draw: &mut Draw) -> Option<Event> {
        let events = if self.now.is_empty() { &mut self.later } else { &mut self.now };
        match self.adversary {
            _ if events.is_empty() => None,
            Adversary::Newest => events.pop_back(),
            Adversary::Oldest => events.pop_front(),
            _ => events.swap_remove_back(draw.below(events.len())),
        }
    }
}

impl<'a, T: Element> Rank<'a, T> {
    fn new(plan: &'a RankPlan, buffer: Vec<T>) -> Self {
        let waits = |chunk: &Chunk| {
            chunk.messages().iter().map(|message| chunk.waits_for(message.place).len()).collect()
        };
        Self {
            plan,
            buffer,
            pending: plan.chunks.iter().map(waits).collect(),
            frames: plan.chunks.iter().map(|chunk| vec![None; chunk.messages().len()]).collect(),
            aside: vec![0; plan.chunks.len()],
            most: vec![0; plan.chunks.len()],
        }
    }

    fn elements(&self, run: std::ops::Range<u64>) -> &[T] {
        &self.buffer[run.start as usize..run.end as usize]
    }

    fn combine(&mut self, chunk: usize, message: &Message) {
        let data = self.frames[chunk][message.place as usize].take().expect("it came");
        let mut data = data.into_iter();
        for run in self.plan.chunks[chunk].ranges(message) {
            for held in &mut self.buffer[run.start as usize..run.end as usize] {
                let came = data.next().expect("as long as awaited");
                *held = match message.action {
                    Action::Receive(Combine::Reduce) => held.plus(came),
                    Action::Receive(Combine::Replace) => came,
                    Action::Send => panic!("a send is not combined"),
                };
            }
        }
        assert!(data.next().is_none(), "as long as awaited");
    }

    /// A message is done.
    fn free(&mut self, r: usize, (c, place): (usize, u32), waits: Waits, events: &mut Events<'_>) {
        let chunk = &self.plan.chunks[c];
        for next in chunk.frees(place) {
            let pending = &mut self.pending[c][*next as usize];
            *pending -= 1;
            let message = &chunk.messages()[*next as usize];
            if *pending == 0 && message.action == Action::Send && waits != Waits::SendsIgnored {
                events.push(Event::Leave(r, c, *next));
            } else if *pending == ASIDE {
                *pending = 0;
                self.aside[c] -= message.elements;
                events.push(Event::Arrive(r, c, *next));
            }
        }
    }
}
