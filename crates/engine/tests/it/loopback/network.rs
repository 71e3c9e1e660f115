//! All ranks, and what is under way between them.

use super::adversary::Adversary;
use super::draw::Draw;
use super::matcher::Matcher;
use super::node::{Frame, Handed, Node};
use super::{Driver, Job, Outcome};

/// Something that may happen next.
enum Happening {
    /// A rank submits its next tensor.
    Submit(u32),
    /// A rank does what it was handed.
    Work(u32, Handed),
    /// A frame comes.
    Frame(Frame),
}

impl Happening {
    fn rank(&self) -> u32 {
        match self {
            Self::Submit(rank) | Self::Work(rank, _) => *rank,
            Self::Frame(frame) => frame.to,
        }
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

    fn next(&mut self, pool: &mut Vec<Happening>) -> Option<Happening> {
        if pool.is_empty() {
            return None;
        }
        let flies = |one: &Happening| matches!(one, Happening::Frame(_));
        let at = self.adversary.pick(&mut self.draw, pool, Happening::rank, flies);
        // Their order matters to those that take an end.
        Some(match self.adversary {
            Adversary::Oldest | Adversary::Newest => pool.remove(at),
            _ => pool.swap_remove(at),
        })
    }
}

impl Driver for Loopback {
    fn run(&mut self, job: &Job) -> Outcome {
        let mut nodes: Vec<Node> = (0..job.ranks()).map(|rank| Node::new(job, rank)).collect();
        let mut matcher = Matcher::new(&job.sizes);
        let mut submitted = vec![0; nodes.len()];
        let mut pool: Vec<Happening> = (0..job.ranks()).map(Happening::Submit).collect();
        while let Some(happening) = self.next(&mut pool) {
            let rank = happening.rank();
            let node = &mut nodes[rank as usize];
            match happening {
                Happening::Submit(_) => {
                    let next = &mut submitted[rank as usize];
                    let list = &job.submissions[rank as usize];
                    if let Some(tensor) = list.get(*next) {
                        *next += 1;
                        node.submit(job, *tensor, &mut matcher);
                        pool.push(Happening::Submit(rank));
                    }
                }
                Happening::Work(_, handed) => {
                    let sent = node.work(job, handed, &mut matcher);
                    pool.extend(sent.map(Happening::Frame));
                }
                Happening::Frame(frame) => node.frame(frame),
            }
            while let Some(handed) = node.next_work() {
                pool.push(Happening::Work(rank, handed));
            }
        }
        let idle = |(rank, node): (usize, &mut Node)| {
            if !node.is_idle() {
                node.outcome.errors.push(format!("rank {rank} waits for ever"));
            }
        };
        nodes.iter_mut().enumerate().for_each(idle);
        Outcome {
            events: nodes.iter().map(|node| node.decider.events).sum(),
            ranks: nodes.into_iter().map(|node| node.outcome).collect(),
            mismatches: matcher.mismatches,
        }
    }
}
