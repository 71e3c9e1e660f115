//! The loop: players run the nodes of a step graph, iteration after iteration.
//!
//! A node is ready when everything that it waits for is over. Then
//!
//! - a *compute* node waits for its player's compute engine, which runs one at a time, the earliest
//!   iteration and node first; one of no time is over at once, and a *delay* when its time has
//!   passed, without the engine;
//! - a *collective* waits until all players of its process group have come: the k-th of one meets the k-th
//!   of the others. If it exchanges a gradient it is handed to the tensor scheduler ([`crate::training::gradients`]),
//!   else to the communicator. Where gradients go over parameter servers, a player's come by themselves;
//! - a *send* is handed to the communicator and is over when it has left; a *receive* is over when its
//!   message has arrived: the k-th from a peer takes the k-th that the peer sends.
//!
//! Issued *in turn*, a player's collectives and sends run one after the other, and so do its delays: of those
//! that are ready the one of the earliest iteration and node.
//!
//! The next iteration's nodes wait for those of this one that the graph says; with a *global barrier*
//! they wait for all of these. A node that waits for nothing at all waits for its player's last
//! iteration to end. With a *lag* of k both wait for the computing of this iteration and for all of the k-th before
//! it: what is exchanged meanwhile is applied k iterations later.
//!
//! With *backup* workers an exchange does not wait for the last ranks (`partly`).
//!
//! With a *slowdown* a player computes slower while gradients of it are exchanged (`pace`).
//!
//! At one time, everything that ends is taken in before anything that waits is chosen.

mod compute;
mod iterations;
mod late;
mod nodes;
mod outcome;
mod pace;
mod partly;
pub(super) mod record;
mod shape;
mod stall;
mod state;
mod turns;

use std::ops::ControlFlow;

use allrail_core::Time;

use crate::SimulateError;
use crate::driver::Observer;
use crate::training::communicator::Event;
use crate::training::driver::record::{Ran, Record};
pub(super) use outcome::{Outcome, Priority, Records, Settings};
pub(super) use state::Driver;
use state::{Flying, Iteration, Timer};

impl Driver<'_> {
    /// Runs to the end of the last iteration.
    ///
    /// # Errors
    /// [`SimulateError::Stalled`] with who waits for what; [`SimulateError::Interrupted`].
    pub(super) fn run(mut self, observer: Observer<'_>) -> Result<Outcome, SimulateError> {
        const OBSERVE_EVERY: u32 = 1 << 8;
        let total = self.shape.states as u64 * u64::from(self.settings.iterations);
        let mut countdown = OBSERVE_EVERY;
        let mut now = Time::ZERO;
        self.open(now);
        loop {
            self.settle(now);
            while self.next_time(now) == Some(now) {
                self.take_event(now);
                self.settle(now);
                countdown -= 1;
                if countdown == 0 {
                    countdown = OBSERVE_EVERY;
                    if observer(self.nodes_done, total) == ControlFlow::Break(()) {
                        return Err(SimulateError::Interrupted);
                    }
                }
            }
            if self.feed(now) {
                continue;
            }
            self.choose(now);
            if std::mem::take(&mut self.took_turns) {
                // What was issued may be over, or wait for a tensor scheduler's word.
                continue;
            }
            self.communicator.choose(now);
            if !self.tensors.are_coordinated() {
                // Whatever comes before a timer is the communicator's own.
                let limit = self.timers.next_time().unwrap_or(Time::MAX);
                now = self.communicator.run_before(now, limit);
            }
            match self.next_time(Time::MAX) {
                Some(next) => now = next,
                None => break,
            }
        }
        if self.out.ends.len() < self.settings.iterations as usize {
            self.tensors.stalled();
            return Err(SimulateError::Stalled {
                time_us: now.as_us(),
                waits: self.waits(),
                hint: "every member of a group must come to each of its collectives, and every \
                       receive needs its send",
            });
        }
        for (player, engine) in self.engines.iter().enumerate() {
            if engine.idle_since < now {
                // What was over last is what all that are alike waited for.
                let actor = |ran: &Ran| self.players.actors[ran.player as usize];
                let alike = self.out.last.filter(|ran| actor(ran) == self.players.actors[player]);
                let gaps = self.attribute(
                    u32::try_from(player).expect("few players"),
                    (engine.idle_since, now),
                    alike.or(engine.over),
                );
                self.out.gaps[player].extend(gaps);
            }
        }
        let mut out = self.out;
        out.averaged = self.partly.averaged(self.communicator.taken());
        out.talk = self.tensors.counts();
        out.ends.truncate(self.settings.measured as usize);
        out.records = Records {
            local: self.shape.local,
            offsets: self.shape.offsets,
            iterations: self.iterations.into_iter().map(|it| (it.number, it.records)).collect(),
        };
        Ok(out)
    }

    /// When something happens next. What coordinators find out is looked for up to then, and not beyond
    /// `limit`: whatever comes first may be what they have to hear.
    fn next_time(&mut self, limit: Time) -> Option<Time> {
        let own = match (self.timers.next_time(), self.communicator.next_time()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.tensors.next_time(own.map_or(limit, |own| own.min(limit))).or(own)
    }

    fn take_event(&mut self, now: Time) {
        if self.timers.next_time() == Some(now) {
            let Some((_, timer)) = self.timers.pop() else { return };
            match timer {
                Timer::Computed { player } => {
                    if self.is_stale(now, player) {
                        return;
                    }
                    let engine = &mut self.engines[player as usize];
                    let ran = engine.running.take().expect("an engine that ends was running");
                    engine.last = Some(ran);
                    engine.idle_since = now;
                    self.paced(now, ran);
                    self.count(now, ran);
                    self.attend(player);
                    self.over.push(ran);
                }
                Timer::Passed { ran } => self.over.push(ran),
                Timer::Tensor { scheduler, id } => self.tensors.timer(scheduler, id),
            }
            return;
        }
        if self.tensors.next_time(now) == Some(now) {
            self.tensors.take_agreed(now);
            for (process_group, came) in self.tensors.take_released() {
                self.start(now, process_group, came);
            }
            return;
        }
        let Some((_, event)) = self.communicator.next_event(now) else { return };
        match event {
            Event::Sent { tag } => {
                let tag = usize::try_from(tag).expect("a tag is an index");
                if !self.settings.acknowledged
                    && let Flying::Message { sender, .. } = &mut self.flying[tag]
                    && let Some(ran) = sender.take()
                {
                    self.over.push(ran);
                }
            }
            Event::Arrived { tag } => {
                let tag = usize::try_from(tag).expect("a tag is an index");
                if let Flying::Tensor { step } = self.flying[tag] {
                    self.tensors.arrived(step);
                }
            }
            Event::Delivered { tag } => self.delivered(now, tag),
        }
    }

    fn delivered(&mut self, now: Time, tag: u64) {
        let index = usize::try_from(tag).expect("a tag is an index");
        let flying = std::mem::replace(&mut self.flying[index], Flying::Free);
        if !self.settings.timeline {
            self.free.push(tag);
        }
        match flying {
            Flying::Collective(came) => self.over.extend(came),
            Flying::Message { key, sender } => {
                self.over.extend(sender);
                let mailbox = self.mailboxes.entry(key).or_default();
                mailbox.arrived = true;
                if let Some(receiver) = mailbox.receiver {
                    self.mailboxes.remove(&key);
                    self.over.push(receiver);
                }
            }
            Flying::Tensor { step } => {
                self.exchange(now, self.tensors.process_group(step.scheduler), false);
                self.tensors.finished(step);
            }
            Flying::Free => unreachable!("a communicator delivers what was submitted, once"),
        }
    }

    fn iteration(&mut self, number: u32) -> Option<&mut Iteration> {
        let first = self.iterations.front()?.number;
        self.iterations.get_mut(number.checked_sub(first)? as usize)
    }

    fn record(&self, ran: Ran) -> Option<&Record> {
        let first = self.iterations.front()?.number;
        let iteration = self.iterations.get(ran.iteration.checked_sub(first)? as usize)?;
        iteration.records.get(self.shape.index(ran.player, ran.node))
    }

    /// Tells everybody who waits for what is over, until nothing is.
    fn settle(&mut self, now: Time) {
        while let Some(ran) = self.over.pop() {
            let index = self.shape.index(ran.player, ran.node);
            let backup = self.settings.backup;
            let left_out = self.partly.ranks(backup);
            let weight = self.players.weights[ran.player as usize];
            let iteration = self.iteration(ran.iteration).expect("it is under way");
            iteration.records[index].finish = now;
            iteration.left[ran.player as usize] -= 1;
            iteration.total_left -= 1;
            let player_over = iteration.left[ran.player as usize] == 0;
            let mut all_over = iteration.total_left == 0;
            if backup > 0 {
                all_over = player_over && iteration.is_through(weight, left_out);
            }
            self.engines[ran.player as usize].over = Some(ran);
            if self.settings.lag > 0 {
                self.lag_on(now, ran, player_over);
            }
            if self.settings.backup > 0 && player_over {
                self.forget_partly(ran);
            }
            self.nodes_done += 1;
            self.end_turn(ran);
            let (from, to) = (
                self.shape.successors.0[ran.node.index()] as usize,
                self.shape.successors.0[ran.node.index() + 1] as usize,
            );
            for place in from..to {
                let next = self.shape.successors.1[place];
                self.release(now, Ran { node: next, ..ran }, ran);
            }
            let (from, to) = (
                self.shape.carried.0[ran.node.index()] as usize,
                self.shape.carried.0[ran.node.index() + 1] as usize,
            );
            let following = ran.iteration + 1;
            if self.settings.lag == 0 && from < to && following < self.settings.iterations {
                if self.settings.barrier {
                    let iteration = self.iteration(ran.iteration).expect("it is under way");
                    let left = &mut iteration.sources_left[ran.player as usize];
                    *left -= 1;
                    if *left == 0 {
                        let actor = self.players.actors[ran.player as usize].index();
                        for place in 0..self.shape.waiters[actor].len() {
                            let node = self.shape.waiters[actor][place];
                            self.release(now, Ran { node, iteration: following, ..ran }, ran);
                        }
                    }
                } else {
                    for place in from..to {
                        let node = self.shape.carried.1[place];
                        self.release(now, Ran { node, iteration: following, ..ran }, ran);
                    }
                }
            }
            if self.settings.lag == 0 && player_over && following < self.settings.iterations {
                let actor = self.players.actors[ran.player as usize].index();
                for place in 0..self.shape.gated[actor].len() {
                    let node = self.shape.gated[actor][place];
                    self.release(now, Ran { node, iteration: following, ..ran }, ran);
                }
            }
            if all_over {
                self.out.ends.push(now);
                self.out.started.push(self.tensors.started());
                if self.out.ends.len() == 1 {
                    self.out.usage.0 = self.communicator.usage(now);
                    self.out.computed.0 = self.computed(now);
                }
                if self.out.ends.len() == self.settings.measured as usize {
                    self.out.usage.1 = self.communicator.usage(now);
                    self.out.computed.1 = self.computed(now);
                    self.out.last = Some(ran);
                }
            }
        }
    }
}
