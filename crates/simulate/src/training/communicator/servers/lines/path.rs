//! The way of a push and of a pull: what follows when a line has served something.

use allrail_core::{Bandwidth, Time};
use allrail_schedule::tensor::Leg;

use super::{Inner, Message, Servers, Work};
use crate::training::communicator::servers::machines::{Local, Transfer};
use crate::training::communicator::servers::placement::Share;

impl Servers {
    /// An operation goes on within its machine, or leaves it.
    pub(super) fn proceed(&mut self, now: Time, index: u32) {
        let operation = self.operations.get(index);
        let (transfer, stage) = (operation.transfer, operation.stage);
        let push = transfer.leg == Leg::Push;
        let locals = if push { &self.machines.before } else { &self.machines.after };
        if let Some(local) = locals.get(stage).copied() {
            let (occupied, _) = self.machines.local(local, transfer.bytes);
            let overhead = if push && stage == 0 { transfer.overhead } else { Time::ZERO };
            let line = self.local(transfer.worker, local.line());
            self.queue(now, line, index, Work::Local(index), occupied + overhead);
        } else if push {
            self.scatter(now, index);
        } else {
            self.events.push(now + self.machines.latency, 2, Inner::Over { operation: index });
        }
    }

    /// An operation's messages set out.
    pub(super) fn scatter(&mut self, now: Time, index: u32) {
        let transfer = self.operations.get(index).transfer;
        let push = transfer.leg == Leg::Push;
        let mut parts: Vec<(u32, (u64, u64))> =
            match self.placed.share(transfer.partition, transfer.bytes) {
                Share::One(server) => vec![(server, (1, 1))],
                Share::All => {
                    let whole = self.placed.whole();
                    self.placed.parts().map(|(server, part)| (server, (part, whole))).collect()
                }
            };
        let first = transfer.worker as usize % parts.len();
        parts.rotate_left(first);
        let count = u32::try_from(parts.len()).expect("fewer than 2^32 servers");
        let operation = self.operations.get_mut(index);
        (operation.missing, operation.unanswered) = (count, count);
        // What a push costs before its bytes was paid within the machine, where there is something.
        let paid = push && !self.machines.before.is_empty();
        let mut overhead = if paid { Time::ZERO } else { transfer.overhead };
        for (place, (server, part)) in (0u32..).zip(parts) {
            let mut message = Message { operation: index, server, part, place, overhead, left: 2 };
            let own = self.is_own(message);
            if own {
                message.overhead = Time::ZERO;
            } else {
                overhead = Time::ZERO;
            }
            let number = self.messages.add(message);
            let up = transfer.worker;
            match (push, own) {
                (true, true) => self.landed(now, number),
                (true, false) => {
                    let time = message.overhead + self.bytes(message, self.machines.bandwidth);
                    self.queue(now, up, index, Work::Send(number), time);
                }
                (false, false) if self.machines.in_order => {
                    self.queue(now, up, index, Work::Request(number), Time::ZERO);
                }
                (false, _) => self.asked(now, number),
            }
        }
    }

    /// A message begins on its sender's link: it comes to its receiver's.
    pub(super) fn receive(&mut self, now: Time, number: u32) {
        let message = *self.messages.get(number);
        let Transfer { leg, worker, .. } = self.operations.get(message.operation).transfer;
        let (machine, bandwidth, overhead) = match leg {
            Leg::Push => {
                let host = self.host(message.server);
                (host, self.link(host), Time::ZERO)
            }
            _ => (worker, self.machines.bandwidth, message.overhead),
        };
        let time = overhead + self.bytes(message, bandwidth);
        self.queue(now, self.count + machine, message.operation, Work::Receive(number), time);
    }

    /// The bandwidth of a machine's link.
    fn link(&self, machine: u32) -> Bandwidth {
        if machine < self.machines.workers { self.machines.bandwidth } else { self.machines.own }
    }

    /// A line has done something.
    pub(super) fn served(&mut self, now: Time, work: Work) {
        match work {
            Work::Local(index) => {
                let operation = self.operations.get_mut(index);
                let (leg, stage, bytes) =
                    (operation.transfer.leg, operation.stage, operation.transfer.bytes);
                operation.stage += 1;
                let push = leg == Leg::Push;
                let locals = if push { &self.machines.before } else { &self.machines.after };
                let local: Local = locals[stage];
                let (_, latency) = self.machines.local(local, bytes);
                match latency {
                    Time::ZERO => self.proceed(now, index),
                    _ => self.events.push(now + latency, 0, Inner::Entered { operation: index }),
                }
            }
            Work::Send(number) | Work::Receive(number) => {
                let message = self.messages.get_mut(number);
                message.left -= 1;
                if message.left == 0 {
                    self.landed(now, number);
                }
            }
            Work::Sum(number) => self.summed(now, number),
            Work::Copy(number) => self.copied(now, number),
            Work::Request(number) => self.asked(now, number),
            Work::Word(number) => self.answered(now, number),
        }
    }

    /// A message has arrived.
    fn landed(&mut self, now: Time, number: u32) {
        let message = *self.messages.get(number);
        let index = message.operation;
        let operation = self.operations.get_mut(index);
        operation.missing -= 1;
        let all = operation.missing == 0;
        if operation.transfer.leg == Leg::Pull {
            self.messages.take(number);
            if all {
                self.proceed(now, index);
            }
            return;
        }
        if all {
            self.events.push(now + self.machines.latency, 1, Inner::Arrived { operation: index });
        }
        match self.machines.sum {
            _ if self.is_late(message) => self.drop(now, number),
            Some(sum) => {
                let (thread, time) = (self.thread(message.server), self.bytes(message, sum));
                self.queue(now, thread, index, Work::Sum(number), time);
            }
            None => self.summed(now, number),
        }
    }

    /// Whether enough other workers' pushes of a message's round have come before it.
    fn is_late(&self, message: Message) -> bool {
        let Transfer { partition, round, .. } = self.operations.get(message.operation).transfer;
        self.answered.get(&(partition, message.server)).is_some_and(|last| round <= *last)
    }

    /// A message of a push is not summed.
    fn drop(&mut self, now: Time, number: u32) {
        self.taken.1 += self.size(number);
        self.word(now, number);
    }

    /// The bytes of a message.
    fn size(&self, number: u32) -> f64 {
        let message = self.messages.get(number);
        let bytes = self.operations.get(message.operation).transfer.bytes.count();
        bytes as f64 * message.part.0 as f64 / message.part.1 as f64
    }

    /// A server has taken a message of a push in.
    fn summed(&mut self, now: Time, number: u32) {
        if !self.machines.synchronous {
            self.word(now, number);
            return;
        }
        let message = *self.messages.get(number);
        if self.is_late(message) {
            // Its round was answered while the server's thread summed it.
            self.drop(now, number);
            return;
        }
        let Transfer { partition, round, .. } = self.operations.get(message.operation).transfer;
        self.taken.0 += self.size(number);
        let key = (partition, round, message.server);
        let gathered = self.gathered.entry(key).or_default();
        gathered.push(number);
        if gathered.len() == (self.machines.workers - self.machines.backup) as usize {
            if self.machines.backup > 0 {
                self.answered.insert((partition, message.server), round);
            }
            for number in self.gathered.remove(&key).into_iter().flatten() {
                self.word(now, number);
            }
        }
    }

    /// A server answers a push.
    fn word(&mut self, now: Time, number: u32) {
        let message = *self.messages.get(number);
        if self.machines.in_order && !self.is_own(message) {
            let up = self.host(message.server);
            self.queue(now, up, message.operation, Work::Word(number), Time::ZERO);
        } else {
            self.answered(now, number);
        }
    }

    fn answered(&mut self, now: Time, number: u32) {
        let index = self.messages.take(number).operation;
        let operation = self.operations.get_mut(index);
        operation.unanswered -= 1;
        if operation.unanswered == 0 {
            self.events.push(now + self.machines.latency, 2, Inner::Over { operation: index });
        }
    }

    /// A server is asked for its part of a pull.
    fn asked(&mut self, now: Time, number: u32) {
        let message = *self.messages.get(number);
        match self.machines.copy {
            Some(copy) => {
                let (thread, time) = (self.thread(message.server), self.bytes(message, copy));
                self.queue(now, thread, message.operation, Work::Copy(number), time);
            }
            None => self.copied(now, number),
        }
    }

    /// A server has its part of a pull ready to send.
    fn copied(&mut self, now: Time, number: u32) {
        let message = *self.messages.get(number);
        if self.is_own(message) {
            self.landed(now, number);
            return;
        }
        let host = self.host(message.server);
        let time = self.bytes(message, self.link(host));
        self.queue(now, host, message.operation, Work::Send(number), time);
    }
}
