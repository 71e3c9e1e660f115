//! A stage whose messages wait for their own blocks only ([`allrail_collective::dataflow`]).
//!
//! Its port is free for other chunks at once: it is the links that have an order ([`super::link_queues`]).
//!
//! ```text
//! a message may leave = what it waits for has come + endpoint delay + it is reduced
//! a stage is over     = so for the last, + endpoint delay
//! ```

use std::cmp::Reverse;

use allrail_collective::StageRef;
use allrail_collective::dataflow::{Does, RankMessages};
use allrail_core::Time;
use allrail_engine::DataflowRun;
use allrail_network::{NetworkModel, Submission};

use super::Executors;
use super::flight::{AFTER, BEFORE, Going, Inner};
use super::link_queues::Waiting;
use super::lowered::{Carried, Outgoing};

impl<W: NetworkModel> Executors<W> {
    /// A stage begins, whose messages are counted from `first`.
    pub(super) fn begin_dataflow(
        &mut self,
        now: Time,
        id: u32,
        position: u32,
        chunk: u32,
        first: u64,
    ) {
        let (actor, at, port) = self.running(id, position, chunk);
        let flight = &mut self.flights[id as usize];
        let place = flight.place(position, chunk);
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let Some(messages) = steps.dataflow(position, at) else { return };
        let state = &mut flight.chunks[place];
        state.running = true;
        let kept = state.messages.get_or_insert_default();
        kept.run = DataflowRun::new(messages);
        let of_stage = first..first + messages.all().len() as u64;
        let early: Vec<u64> = kept.early.extract_if(.., |one| of_stage.contains(one)).collect();
        self.free(actor, port);
        self.tell(now, (id, position, at), DataflowRun::begin);
        for number in early {
            self.dataflow_arrival(now, id, position, at, number);
        }
    }

    /// Tells the run of a chunk's stage what has happened. What may leave then waits for its link, and the stage may be
    /// over.
    fn tell(
        &mut self,
        now: Time,
        (id, position, at): (u32, u32, StageRef),
        happened: impl FnOnce(&mut DataflowRun, &RankMessages, &mut Vec<u32>),
    ) {
        let flight = &mut self.flights[id as usize];
        let place = flight.place(position, at.chunk);
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let Some(messages) = steps.dataflow(position, at) else { return };
        let Some(kept) = &mut flight.chunks[place].messages else { return };
        let mut free = std::mem::take(&mut self.may_leave);
        happened(&mut kept.run, messages, &mut free);
        self.line_up(id, position, at, &mut free);
        self.may_leave = free;
        self.end_dataflow(now, id, position, at);
    }

    /// A message of a stage, by its number counted through the chunk's stages, has come.
    pub(super) fn dataflow_arrival(
        &mut self,
        now: Time,
        id: u32,
        position: u32,
        at: StageRef,
        number: u64,
    ) {
        let flight = &mut self.flights[id as usize];
        let place = flight.place(position, at.chunk);
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let state = &mut flight.chunks[place];
        // The stage that runs, if one does, is the one before which all numbers are over.
        if !state.running || state.run.number() != steps.first(at) {
            state.messages.get_or_insert_default().early.push(number);
            return;
        }
        let number = u32::try_from(number - steps.first(at)).expect("fewer than 2^32 messages");
        let delay = steps.endpoint_delay().unwrap_or(self.settings.endpoint_delay);
        let combined = now + delay + steps.combining(position, at, number);
        if combined == now {
            self.combined(now, id, position, at, number);
        } else {
            let inner = Inner::Combined { flight: id, position, at, number };
            self.timers.push(combined, AFTER, inner);
        }
    }

    /// A message that has come is where it belongs.
    pub(super) fn combined(
        &mut self,
        now: Time,
        id: u32,
        position: u32,
        at: StageRef,
        number: u32,
    ) {
        self.tell(now, (id, position, at), |run, messages, free| {
            let arrived = run.arrived(messages, number, free);
            arrived.expect("a network model delivers a message once");
        });
    }

    /// Messages that may leave wait for their links.
    fn line_up(&mut self, id: u32, position: u32, at: StageRef, free: &mut Vec<u32>) {
        let flight = &self.flights[id as usize];
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let messages = steps.dataflow(position, at);
        for number in free.drain(..) {
            let Outgoing { to, .. } = steps.message(position, at, number);
            let way = messages.and_then(|messages| messages.all()[number as usize].way);
            let ends = [position, to].map(|position| flight.members[position as usize]);
            let (priority, begun) = (Reverse(flight.priority), flight.begun);
            let chunk = at.chunk;
            let waiting = Waiting { priority, begun, chunk, number, flight: id, position };
            self.links.push((ends[0], ends[1], way), waiting);
        }
    }

    /// Every link that can send does.
    pub(super) fn settle_links(&mut self, now: Time) {
        while let Some((message, sent_tag)) = self.links.next() {
            let Waiting { flight: id, position, chunk, number, .. } = message;
            let (actor, at, _) = self.running(id, position, chunk);
            let flight = &self.flights[id as usize];
            let Carried::Messages(steps) = &flight.lowered.carried else { return };
            let Some(messages) = steps.dataflow(position, at) else { return };
            let Does::Sends(heard_as) = messages.all()[number as usize].does else { return };
            let one = steps.message(position, at, number);
            let step = u32::try_from(steps.first(at)).expect("fewer than 2^32 steps") + heard_as;
            let slot = flight.first_slot + chunk;
            let tag = Going { position: one.heard_by, slot, step }.pack();
            let destination = flight.members[one.to as usize];
            self.transfers += 1;
            self.ports[actor as usize * self.dimensions + one.dimension as usize].sent +=
                one.bytes.count() as f64;
            let transfer = self.transfer(actor, destination, &one);
            let submission = Submission { transfer, tag, sent_tag: Some(sent_tag) };
            match steps.via(position, at, number) {
                Some(via) => self.network_model.submit_along(now, submission, via),
                None => self.network_model.submit(now, submission),
            };
        }
    }

    /// A message has left its link.
    pub(super) fn left_link(&mut self, now: Time, message: Waiting) {
        let Waiting { flight: id, position, chunk, number, .. } = message;
        let (_, at, _) = self.running(id, position, chunk);
        let flight = &self.flights[id as usize];
        let span = flight.chunks[flight.place(position, chunk)].span;
        if let Some(span) = self.spans.get_mut(span as usize) {
            span.end = now;
        }
        self.tell(now, (id, position, at), |run, messages, free| run.left(messages, number, free));
    }

    /// The stage is over if all its messages are.
    fn end_dataflow(&mut self, now: Time, id: u32, position: u32, at: StageRef) {
        let flight = &mut self.flights[id as usize];
        let place = flight.place(position, at.chunk);
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let state = &mut flight.chunks[place];
        let over = state.messages.as_ref().is_some_and(|kept| kept.run.is_over());
        if !over || !std::mem::take(&mut state.running) {
            return;
        }
        state.run.end();
        let delay = steps.endpoint_delay().unwrap_or(self.settings.endpoint_delay);
        if delay == Time::ZERO {
            self.stage_over(now, id, position, at);
        } else {
            let over = Inner::StageOver { flight: id, position, chunk: at.chunk };
            self.timers.push(now + delay, BEFORE, over);
        }
    }

    /// How many of a chunk's messages are not done on a rank, and how many there are.
    pub(super) fn missing(&self, id: u32, position: u32, chunk: u32) -> Option<(u32, u32)> {
        let flight = &self.flights[id as usize];
        let state = flight.chunks.get(flight.place(position, chunk))?;
        state.messages.as_ref().filter(|_| state.running).map(|kept| kept.run.missing())
    }
}
