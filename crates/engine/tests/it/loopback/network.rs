//! All ranks, and what is under way between them.

use std::collections::{BTreeMap, VecDeque};

use allrail_engine::engine::Event;

use super::adversary::Adversary;
use super::clock::Clock;
use super::draw::Draw;
use super::frame::{Frame, Handed};
use super::job::Fault;
use super::matcher::Matcher;
use super::node::{Around, Node};
use super::{Driver, Job, Outcome};

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
    /// Whether others were told that a rank has stopped.
    told: Vec<bool>,
    matcher: Matcher,
    pool: Vec<Happening>,
    channels: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    /// In nanoseconds; no rank knows it.
    now: u64,
    happened: u64,
    /// Data frames until one is sent twice.
    until_twice: Option<u64>,
    twice: bool,
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
        let mut until_twice = None;
        match job.fault {
            Some(Fault::Lost(rank)) => pool.push(Happening::Die(rank)),
            Some(Fault::Twice(count)) => until_twice = Some(count),
            Some(Fault::Differs(_)) | None => {}
        }
        Self {
            job,
            nodes: (0..ranks).map(|rank| Node::new(job, rank)).collect(),
            clocks: (0..ranks).map(|_| Clock::draw(draw)).collect(),
            dead: vec![false; ranks as usize],
            unopened: (0..ranks).map(|_| job.engine.is_some().then(Vec::new)).collect(),
            told: vec![false; ranks as usize],
            matcher: Matcher::new(&job.sizes),
            pool,
            channels: BTreeMap::new(),
            now: 0,
            happened: 0,
            until_twice,
            twice: false,
            progress: (0, 0),
        }
    }

    /// Whether something is left to do, and something is done now and then.
    fn goes_on(&mut self) -> bool {
        let over = |(node, dead): (&Node, &bool)| *dead || node.has_stopped() || node.is_done();
        let data = |one: &Happening| !matches!(one, Happening::Talk { .. } | Happening::Submit(_));
        if self.happened.is_multiple_of(64) {
            let all: u64 = self.nodes.iter().map(|node| node.progress).sum();
            if all > self.progress.0 {
                self.progress = (all, self.happened);
            }
            if self.nodes.iter().zip(&self.dead).all(over) && !self.pool.iter().any(data) {
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
            Happening::Work(_, handed) => {
                if let Some(frame) = node.work(&mut around, handed) {
                    if let Some(count) = &mut self.until_twice {
                        if *count == 0 {
                            self.twice = true;
                            self.pool.push(Happening::Frame(frame.clone()));
                        }
                        *count = count.wrapping_sub(1);
                    }
                    self.pool.push(Happening::Frame(frame));
                }
            }
            Happening::Frame(frame) => node.frame(&mut around, frame),
            Happening::Talk { from, .. } => {
                let channel = self.channels.get_mut(&(from, rank));
                if let Some(bytes) = channel.and_then(VecDeque::pop_front) {
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
                    self.lose(rank);
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
        let alone = self.job.engine.as_ref().is_some_and(|setup| setup.coordination.is_none());
        if alone && node.has_stopped() && !self.told[rank as usize] {
            // Where nobody talks, the end of a rank is seen by its connections.
            self.tell_of(rank);
        }
    }

    fn tell_of(&mut self, lost: u32) {
        self.told[lost as usize] = true;
        let peers = self.job.group(&self.job.tensors[0].dimensions, lost);
        let others = peers.into_iter().filter(|rank| *rank != lost);
        self.pool.extend(others.map(|rank| Happening::Lost { rank, lost }));
    }

    fn lose(&mut self, rank: u32) {
        self.dead[rank as usize] = true;
        self.tell_of(rank);
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
            twice: self.twice,
        }
    }
}
