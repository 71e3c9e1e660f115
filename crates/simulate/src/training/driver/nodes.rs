//! What becomes of a node that waits for nothing any more.

use std::cmp::Reverse;

use allrail_core::{Rank, Time};
use allrail_workload::{GroupId, NodeId, Peer, Work};

use super::outcome::Priority;
use super::shape::message_channel;
use super::state::{Driver, Flying, MessageKey, Timer};
use crate::training::communicator::{Ask, Submission};
use crate::training::driver::record::{Ran, Record};

impl Driver<'_> {
    /// A node that waits for nothing any more.
    pub(super) fn ready(&mut self, now: Time, ran: Ran, cause: Option<Ran>) {
        let index = self.shape.index(ran.player, ran.node);
        let iteration = self.iteration(ran.iteration).expect("it is under way");
        iteration.records[index] = Record { start: now, finish: now, cause };
        match self.turn(ran.node) {
            Some(turn) => self.await_turn(ran, turn),
            None => self.issue(now, ran),
        }
    }

    /// A node is run, or waits for others.
    pub(super) fn issue(&mut self, now: Time, ran: Ran) {
        let cause = self.record(ran).and_then(|record| record.cause);
        let node = self.graph.node(ran.node);
        match node.work {
            Work::Compute { time } if time == Time::ZERO => self.over.push(ran),
            Work::Compute { .. } if self.is_left_out(ran) => self.over.push(ran),
            Work::Compute { time } if self.graph.is_delay(ran.node) => {
                self.timers.push(now + time, 0, Timer::Passed { ran });
            }
            Work::Compute { .. } => {
                self.engines[ran.player as usize].ready.push(Reverse((ran.iteration, ran.node)));
                self.attend(ran.player);
            }
            Work::Collective { .. }
                if node.tensor.is_some() && !self.settings.exchanges(ran.iteration) =>
            {
                self.over.push(ran);
            }
            Work::Collective { group, .. } => self.come(now, ran, group),
            Work::Send { bytes, group, peer, .. } => {
                let (key, ranks) = self.message(ran, group, peer, true);
                let process_group = self.players.process_group(ran.player, group);
                let ask =
                    Ask::Message { bytes, process_group, source: key.0, destination: key.1, ranks };
                let priority = self.priority(ran.node);
                let waiting = self.mailboxes.entry(key).or_default().receiver;
                if let Some(receiver) = waiting {
                    // What the sender waited for is what the receiver waited for.
                    let index = self.shape.index(receiver.player, receiver.node);
                    let iteration = self.iteration(receiver.iteration).expect("it is under way");
                    iteration.records[index].start = now;
                    if cause.is_some() {
                        iteration.records[index].cause = cause;
                    }
                }
                let flying = Flying::Message { key, sender: Some(ran) };
                self.submit(now, ran, Submission::of(ask, priority), flying);
            }
            Work::Receive { group, peer, .. } => {
                let (key, _) = self.message(ran, group, peer, false);
                let mailbox = self.mailboxes.entry(key).or_default();
                if mailbox.arrived {
                    self.mailboxes.remove(&key);
                    self.over.push(ran);
                } else {
                    mailbox.receiver = Some(ran);
                }
            }
        }
    }

    /// The message that a send or receive is about, and the ranks that it stands for.
    pub(super) fn message(
        &self,
        ran: Ran,
        group: GroupId,
        peer: Peer,
        sends: bool,
    ) -> (MessageKey, (Rank, Rank)) {
        let (other, rank) = match self.shape.peers.get(&ran.node) {
            Some(end) => *end,
            None => self
                .players
                .peer(ran.player, &self.graph.groups()[group.index()], peer)
                .expect("a checked graph's peers exist"),
        };
        let channel = message_channel(ran.player, other, group, peer, sends);
        let actor = self.players.actors[ran.player as usize];
        let each = self.shape.messages[&(actor, group, peer, sends)];
        let count = u64::from(ran.iteration) * u64::from(each)
            + u64::from(self.shape.ordinal[ran.node.index()]);
        let own = self.players.ranks[ran.player as usize];
        let ranks = if sends { (own, rank) } else { (rank, own) };
        ((channel.0, channel.1, channel.2, channel.3, count), ranks)
    }

    /// A player comes to a collective; the last one starts it.
    pub(super) fn come(&mut self, now: Time, ran: Ran, group: GroupId) {
        let process_group = self.players.process_group(ran.player, group);
        let players = &self.players.process_groups[process_group as usize].players;
        let expected = players.len();
        if self.settings.backup > 0 {
            self.come_partly(now, ran, process_group);
            return;
        }
        if self.tensors.takes(ran.node) || self.tensors.holds(process_group, ran.node) {
            let position = players.iter().position(|player| *player == ran.player);
            let position = position.expect("a player is in its process group");
            self.tensors.come(now, process_group, ran, position);
            if self.tensors.are_apart() && self.tensors.takes(ran.node) {
                self.gathered(now, process_group, vec![ran]);
                return;
            }
        }
        if expected == 1 {
            self.gathered(now, process_group, vec![ran]);
            return;
        }
        let key = (process_group, ran.iteration, self.shape.ordinal[ran.node.index()]);
        let came = self.gatherings.entry(key).or_default();
        came.push(ran);
        if came.len() == expected {
            let came = self.gatherings.remove(&key).expect("it is there");
            self.gathered(now, process_group, came);
        }
    }

    /// All have come to a collective; the last of `came` was the last.
    pub(super) fn gathered(&mut self, now: Time, process_group: u32, came: Vec<Ran>) {
        let last = came[came.len() - 1];
        let cause = self.record(last).and_then(|record| record.cause);
        for ran in &came {
            let index = self.shape.index(ran.player, ran.node);
            let iteration = self.iteration(ran.iteration).expect("it is under way");
            iteration.records[index].start = now;
            if *ran != last {
                iteration.records[index].cause = cause;
            }
        }
        if self.tensors.takes(last.node) {
            self.tensors.ready(process_group, came);
        } else if self.tensors.holds(process_group, last.node) {
            self.tensors.hold(process_group, came);
        } else {
            self.start(now, process_group, came);
        }
    }

    /// A collective that no tensor scheduler speaks for starts; the last of `came` was the last.
    pub(super) fn start(&mut self, now: Time, process_group: u32, came: Vec<Ran>) {
        let last = came[came.len() - 1];
        let Work::Collective { operation, bytes, .. } = self.graph.node(last.node).work else {
            unreachable!("only collectives gather")
        };
        let priority = self.priority(last.node);
        let ask = Ask::Collective { operation, bytes, process_group };
        self.submit(now, last, Submission::of(ask, priority), Flying::Collective(came));
    }

    /// The priority of what no tensor scheduler speaks for: a pass waits for it.
    pub(super) fn priority(&mut self, node: NodeId) -> i64 {
        const FIRST: i64 = 1 << 60;
        const URGENT: i64 = 1 << 61;
        self.issued += 1;
        match self.settings.priority {
            _ if self.graph.is_urgent(node) => URGENT - self.issued,
            Priority::Fifo => -self.issued,
            Priority::Lifo => self.issued,
            Priority::Explicit => self.explicit(node),
            Priority::Tensor => FIRST - self.issued,
        }
    }

    /// As its trace says, then by its turn: 2³² of these are apart.
    fn explicit(&self, node: NodeId) -> i64 {
        // A bit is left for what is urgent.
        let told = i64::from(self.graph.priority(node)).clamp(-(1 << 28), 1 << 28);
        (told << 32) - self.issued
    }

    pub(super) fn submit(&mut self, now: Time, by: Ran, submission: Submission, flying: Flying) {
        let tag = match self.free.pop() {
            Some(tag) => {
                self.flying[usize::try_from(tag).expect("a tag is an index")] = flying;
                tag
            }
            None => {
                self.flying.push(flying);
                self.flying.len() as u64 - 1
            }
        };
        if self.settings.timeline {
            self.out.asked.push((by, submission.ask));
        }
        self.communicator.submit(now, Submission { tag, ..submission });
    }

    /// Lets the tensor schedulers act on what has come; whether any did.
    pub(super) fn feed(&mut self, now: Time) -> bool {
        let began = self.begin_partly(now);
        let Some(wanted) = self.tensors.act(now) else { return began };
        for (scheduler, id, at) in wanted.timers {
            self.timers.push(at, 1, Timer::Tensor { scheduler, id });
        }
        for start in wanted.starts {
            let process_group = self.tensors.process_group(start.step.scheduler);
            // Each of several workers counts its own, so that those in step are equals.
            let own = start.portion.map(|portion| (process_group, portion.worker));
            let issued = match own {
                Some(worker) => self.issued_apart.entry(worker).or_default(),
                None => &mut self.issued,
            };
            *issued += 1;
            let issued = *issued;
            let priority = match self.settings.priority {
                Priority::Fifo => -issued,
                Priority::Lifo => issued,
                Priority::Explicit => self.explicit(start.by.node),
                Priority::Tensor => (start.priority.clamp(-(1 << 27), 1 << 27) << 32) - issued,
            };
            self.exchange(now, process_group, true);
            let flying = Flying::Tensor { step: start.step };
            let submission = Submission {
                overhead: start.overhead,
                portion: start.portion,
                ..Submission::of(start.ask, priority)
            };
            self.submit(now, start.by, submission, flying);
        }
        if self.settings.backup > 0 {
            self.exchanged_partly(&wanted.over);
        }
        self.over.extend(wanted.over);
        true
    }
}
