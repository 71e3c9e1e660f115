//! All ranks, and what is under way between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use allrail_engine::engine::Event;

use super::adversary::Adversary;
use super::clock::Clock;
use super::draw::Draw;
use super::faults::Fault;
use super::frame::{Address, Frame, Handed};
use super::matcher::Matcher;
use super::node::{Around, Node};
use super::{Driver, Injected, Job, Outcome};

/// Something that may happen next.
enum Happening {
    /// A rank's job begins.
    Start(u32),
    /// A rank submits its next tensor.
    Submit(u32),
    /// A rank does what it was handed.
    Work(u32, Handed),
    /// A frame comes.
    Frame(Frame),
    /// A coordinator's next message to another comes: these keep their order.
    Talk { from: u32, to: u32 },
    /// A rank hears that another is lost.
    Lost { rank: u32, lost: u32 },
    /// A rank is lost.
    Die(u32),
}

impl Happening {
    fn rank(&self) -> u32 {
        match self {
            Self::Start(rank)
            | Self::Submit(rank)
            | Self::Work(rank, _)
            | Self::Lost { rank, .. }
            | Self::Die(rank) => *rank,
            Self::Frame(frame) => frame.to,
            Self::Talk { to, .. } => *to,
        }
    }

    fn flies(&self) -> bool {
        matches!(self, Self::Frame(_) | Self::Talk { .. } | Self::Lost { .. })
    }
}

/// See the folder.
pub(crate) struct Loopback {
    adversary: Adversary,
    draw: Draw,
}

impl Loopback {
    /// Everything that this does is a function of the seed.
    pub(crate) fn new(seed: u64, ranks: u32) -> Self {
        let mut draw = Draw(!seed);
        Self { adversary: Adversary::draw(&mut draw, ranks as usize), draw }
    }
}

impl Driver for Loopback {
    fn run(&mut self, job: &Job) -> Outcome {
        let mut all = All::new(job, &mut self.draw);
        while all.goes_on() {
            match self.next(&mut all.pool) {
                Some(happening) => {
                    // So long that cycles and messages mix.
                    all.now += self.draw.next() % 20_000;
                    all.happen(happening, &mut self.draw);
                    if self.draw.one_in(16) {
                        all.fire(&mut self.draw);
                    }
                }
                None if all.jump() => all.fire(&mut self.draw),
                None => break,
            }
        }
        all.end()
    }
}

impl Loopback {
    fn next(&mut self, pool: &mut Vec<Happening>) -> Option<Happening> {
        if pool.is_empty() {
            return None;
        }
        let at = self.adversary.pick(&mut self.draw, pool, Happening::rank, Happening::flies);
        // Their order matters to those that take an end.
        Some(match self.adversary {
            Adversary::Oldest | Adversary::Newest => pool.remove(at),
            _ => pool.swap_remove(at),
        })
    }
}

/// A job under way.
struct All<'a> {
    job: &'a Job,
    nodes: Vec<Node>,
    clocks: Vec<Clock>,
    /// Ranks that are lost.
    dead: Vec<bool>,
    /// What is there for a rank that has not begun: its transport is opened when it has.
    unopened: Vec<Option<Vec<Happening>>>,
    /// The first rank of each rank's group.
    group_of: Vec<u32>,
    /// The groups in which a rank has stopped, or was lost.
    ending: BTreeSet<u32>,
    matcher: Matcher,
    pool: Vec<Happening>,
    channels: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    /// In nanoseconds; no rank knows it.
    now: u64,
    happened: u64,
    /// Data frames until one is added.
    until_added: Option<u64>,
    /// What a rank does until an operation of it fails.
    until_failed: Option<(u32, u64)>,
    /// Messages of coordinators until one is changed.
    until_garbled: Option<u64>,
    injected: Option<Injected>,
    /// What had been done when something was last done, and when that was.
    progress: (u64, u64),
}

impl<'a> All<'a> {
    fn new(job: &'a Job, draw: &mut Draw) -> Self {
        let ranks = job.ranks();
        let mut pool: Vec<Happening> = match job.engine {
            Some(_) => (0..ranks).map(Happening::Start).collect(),
            None => (0..ranks).map(Happening::Submit).collect(),
        };
        let (mut until_added, mut until_failed, mut until_garbled) = (None, None, None);
        match job.fault {
            Some(Fault::Lost(rank)) => pool.push(Happening::Die(rank)),
            Some(Fault::Twice(count) | Fault::Stray(count)) => until_added = Some(count),
            Some(Fault::Fails(rank, count)) => until_failed = Some((rank, count)),
            Some(Fault::Garbled(count)) => until_garbled = Some(count),
            Some(Fault::Differs(_)) | None => {}
        }
        let dimensions = &job.tensors[0].dimensions;
        Self {
            job,
            nodes: (0..ranks).map(|rank| Node::new(job, rank)).collect(),
            clocks: (0..ranks).map(|_| Clock::draw(draw)).collect(),
            dead: vec![false; ranks as usize],
            unopened: (0..ranks).map(|_| job.engine.is_some().then(Vec::new)).collect(),
            group_of: (0..ranks).map(|rank| job.group(dimensions, rank)[0]).collect(),
            ending: BTreeSet::new(),
            matcher: Matcher::new(&job.sizes),
            pool,
            channels: BTreeMap::new(),
            now: 0,
            happened: 0,
            until_added,
            until_failed,
            until_garbled,
            injected: None,
            progress: (0, 0),
        }
    }

    /// Whether something is left to do, and something is done now and then.
    fn goes_on(&mut self) -> bool {
        // Where one has stopped, the others have to hear of it.
        let over = |((node, dead), group): ((&Node, &bool), &u32)| {
            *dead || node.has_stopped() || (node.is_done() && !self.ending.contains(group))
        };
        let data = |one: &Happening| !matches!(one, Happening::Talk { .. } | Happening::Submit(_));
        if self.happened.is_multiple_of(64) {
            let all: u64 = self.nodes.iter().map(|node| node.progress).sum();
            if all > self.progress.0 {
                self.progress = (all, self.happened);
            }
            let ranks = self.nodes.iter().zip(&self.dead).zip(&self.group_of);
            if ranks.into_iter().all(over) && !self.pool.iter().any(data) {
                return false;
            }
        }
        self.happened += 1;
        // A few rounds of talk at the worst lie between two things that are done.
        self.happened - self.progress.1 < 20_000 + 400 * self.nodes.len() as u64
    }

    fn happen(&mut self, happening: Happening, draw: &mut Draw) {
        let rank = happening.rank();
        if self.dead[rank as usize] {
            return;
        }
        match (&mut self.unopened[rank as usize], &happening) {
            (held, Happening::Start(_)) => self.pool.extend(held.take().into_iter().flatten()),
            (Some(held), Happening::Frame(_) | Happening::Talk { .. } | Happening::Lost { .. }) => {
                held.push(happening);
                return;
            }
            _ => {}
        }
        let node = &mut self.nodes[rank as usize];
        let now = self.clocks[rank as usize].shows(self.now);
        let mut around = Around { job: self.job, matcher: &mut self.matcher, now };
        let could_submit = node.can_submit();
        let mut submits = false;
        match happening {
            Happening::Start(_) => {
                node.tell(&mut around, Event::Start);
                submits = true;
            }
            Happening::Submit(_) => {
                node.submit(&mut around);
                submits = true;
            }
            Happening::Work(_, (operation, ..)) if self.until_failed == Some((rank, 0)) => {
                self.until_failed = None;
                let of_rank = Injected { from: rank, to: rank, operation: Some(operation) };
                self.injected = Some(of_rank);
                node.fail(&mut around, operation);
            }
            Happening::Work(_, handed) => {
                if let Some((_, left)) = self.until_failed.as_mut().filter(|one| one.0 == rank) {
                    *left -= 1;
                }
                if let Some(frame) = node.work(&mut around, handed) {
                    if let Some(count) = &mut self.until_added {
                        if *count == 0 {
                            let added = match self.job.fault {
                                Some(Fault::Stray(_)) => frame.altered(draw),
                                _ => frame.clone(),
                            };
                            let operation = match added.address {
                                Address::Named((operation, _)) => Some(operation),
                                Address::Counted(..) => None,
                            };
                            let Frame { from, to, .. } = added;
                            self.injected = Some(Injected { from, to, operation });
                            self.pool.push(Happening::Frame(added));
                        }
                        *count = count.wrapping_sub(1);
                    }
                    self.pool.push(Happening::Frame(frame));
                }
            }
            Happening::Frame(frame) => node.frame(&mut around, frame),
            Happening::Talk { from, .. } => {
                let channel = self.channels.get_mut(&(from, rank));
                if let Some(mut bytes) = channel.and_then(VecDeque::pop_front) {
                    if self.until_garbled == Some(0) {
                        self.injected = Some(Injected { from, to: rank, operation: None });
                        let at = draw.below(2 * bytes.len());
                        bytes.truncate(at);
                        bytes.insert(0, u8::MAX);
                    }
                    self.until_garbled = self.until_garbled.and_then(|left| left.checked_sub(1));
                    node.hear(&mut around, self.job.place(from), &bytes);
                }
            }
            Happening::Lost { lost, .. } => {
                if !node.has_stopped() {
                    let rank = self.job.place(lost);
                    node.tell(&mut around, Event::PeerLost { rank });
                }
            }
            Happening::Die(_) => {
                // Not at once.
                if draw.one_in(8) {
                    self.lose(rank, draw);
                } else {
                    self.pool.push(Happening::Die(rank));
                }
                return;
            }
        }
        if node.can_submit() && (submits || !could_submit) {
            self.pool.push(Happening::Submit(rank));
        }
        self.collect(rank);
    }

    /// Takes what a rank has for others, and for itself.
    fn collect(&mut self, rank: u32) {
        let node = &mut self.nodes[rank as usize];
        while let Some(handed) = node.next_work() {
            self.pool.push(Happening::Work(rank, handed));
        }
        for (to, payload) in node.said.drain(..) {
            self.channels.entry((rank, to)).or_default().push_back(payload);
            self.pool.push(Happening::Talk { from: rank, to });
        }
        if node.has_stopped() {
            self.ending.insert(self.group_of[rank as usize]);
        }
    }

    /// Some of its peers see the end of a rank by their connections, one at least.
    fn lose(&mut self, lost: u32, draw: &mut Draw) {
        self.dead[lost as usize] = true;
        let peers = self.job.group(&self.job.tensors[0].dimensions, lost);
        let mut others: Vec<u32> = peers.into_iter().filter(|rank| *rank != lost).collect();
        draw.shuffle(&mut others);
        others.truncate(1 + draw.below(others.len().max(1)));
        self.ending.insert(self.group_of[lost as usize]);
        self.pool.extend(others.into_iter().map(|rank| Happening::Lost { rank, lost }));
    }

    /// The next timer and its rank, by the time that nobody knows.
    fn next_timer(&self) -> Option<(u64, u32)> {
        let timer = |rank: u32| {
            let place = rank as usize;
            let deadline = self.nodes[place].deadline().filter(|_| !self.dead[place])?;
            Some((self.clocks[place].at(deadline), rank))
        };
        (0..self.job.ranks()).filter_map(timer).min()
    }

    /// Nothing happens until a clock comes to something.
    fn jump(&mut self) -> bool {
        let timer = self.next_timer();
        self.now = self.now.max(timer.map_or(0, |(at, _)| at));
        timer.is_some()
    }

    /// A timer that is due fires, if one is.
    fn fire(&mut self, draw: &mut Draw) {
        if let Some((at, rank)) = self.next_timer()
            && at <= self.now
        {
            let now = self.clocks[rank as usize].shows(self.now);
            let node = &mut self.nodes[rank as usize];
            let could_submit = node.can_submit();
            let mut around = Around { job: self.job, matcher: &mut self.matcher, now };
            node.tell(&mut around, Event::Time);
            if node.can_submit() && !could_submit {
                self.pool.push(Happening::Submit(rank));
            }
            self.collect(rank);
            self.now += draw.next() % 1_000;
        }
    }

    fn end(mut self) -> Outcome {
        for (rank, node) in self.nodes.iter_mut().enumerate() {
            if !self.dead[rank] && !node.has_stopped() && !node.is_done() {
                let done: Vec<usize> = node.outcome.results.iter().map(Vec::len).collect();
                let text = format!("it waits for ever, and tensors are done {done:?} times");
                node.outcome.errors.push(text);
            }
        }
        Outcome {
            events: self.nodes.iter().map(|node| node.events).sum(),
            dead: (0..).zip(&self.dead).filter(|(_, dead)| **dead).map(|(rank, _)| rank).collect(),
            ranks: self.nodes.into_iter().map(|node| node.outcome).collect(),
            mismatches: self.matcher.mismatches,
            injected: self.injected,
        }
    }
}
