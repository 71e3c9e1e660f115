//! A stage on a rank: it starts, its steps send and receive, it is over.

use std::rc::Rc;

use allrail_collective::StageRef;
use allrail_core::{Bytes, DimensionId, Time};
use allrail_engine::{Progress, Run};
use allrail_network::{NetworkModel, Submission, Transfer};

use super::flight::{BEFORE, Departure, Going, Inner, LEFT, SEND, Service};
use super::lowered::{Carried, Outgoing};
use super::{Executors, Kept, StageSpan};

impl<W: NetworkModel> Executors<W> {
    /// A stage was chosen.
    pub(super) fn start(&mut self, now: Time, actor: u32, run: Run) {
        let (id, position) = self.actors[actor as usize].flights[run.collective.slot as usize];
        let flight = &self.flights[id as usize];
        match &flight.lowered.carried {
            Carried::Stages(times) => {
                let times = times[run.task as usize];
                let first = run.at.chunk == 0 && run.task == 0;
                let overhead = if first { flight.overhead } else { Time::ZERO };
                let service = Service { flight: id, position, run, times, overhead };
                let free_at = match self.ahead {
                    None => self.serve(now, actor, service),
                    Some(_) => self.hand_over(now, actor, service),
                };
                let port = &mut self.ports[actor as usize * self.dimensions + run.port as usize];
                (port.taken, port.free_at) = (free_at > now, free_at);
                if free_at == now {
                    self.free(actor, run.port);
                }
            }
            Carried::Messages(steps) => {
                let place = flight.place(position, run.at.chunk);
                let (first, pace) = (steps.first(run.at), steps.pace(run.at));
                let dataflow = steps.dataflow(position, run.at).is_some();
                let span = self.open_span(now, actor, id, &run);
                let chunk = &mut self.flights[id as usize].chunks[place];
                (chunk.task, chunk.span) = (run.task, span);
                chunk.run.begin(first);
                if dataflow {
                    self.begin_dataflow(now, id, position, run.at.chunk, first);
                    return;
                }
                if let Some(pace) = pace {
                    self.begin_paced(now, id, position, run.at.chunk, pace);
                    return;
                }
                self.send(now, id, position, run.at.chunk);
                self.advance(now, id, position, run.at.chunk);
            }
        }
    }

    /// In `dims`: the network model begins a stage. Returns when its last byte has left.
    #[inline]
    pub(super) fn serve(&mut self, now: Time, actor: u32, service: Service) -> Time {
        let Service { flight: id, position, run, times, overhead } = service;
        let span = self.open_span(now, actor, id, &run);
        let flight = &mut self.flights[id as usize];
        let occupancy = overhead + times.occupancy;
        let free_at = now + occupancy;
        let place = actor as usize * self.dimensions + run.port as usize;
        let port = &mut self.ports[place];
        port.busy += times.served;
        port.sent += times.sent;
        if let Some(span) = self.spans.get_mut(span as usize) {
            span.end = now + overhead + times.served;
        }
        let stages = flight.lowered.stages(position);
        if flight.tell_left && run.task + 1 == stages.chunk(run.at.chunk).end {
            self.timers.push(free_at, LEFT, Inner::Left { tag: flight.tag });
        }
        let slot = flight.first_slot + run.at.chunk;
        let going = Going { position, slot, step: run.at.stage };
        let kept = flight.place(position, run.at.chunk);
        if let Some(chunk) = flight.chunks.get_mut(kept) {
            chunk.span = span;
        }
        let dimension = DimensionId(u32::try_from(place).expect("fewer than 2^32 ports"));
        let transfer = Transfer::Stage { dimension, occupancy, latency: times.latency };
        self.transfers += 1;
        let tag = going.pack();
        self.network_model.submit(now, Submission { transfer, tag, sent_tag: None });
        free_at
    }

    fn open_span(&mut self, now: Time, actor: u32, flight: u32, run: &Run) -> u32 {
        let kept = match self.settings.kept {
            Kept::None => false,
            Kept::First => actor == 0,
            Kept::All => true,
        };
        if !kept {
            return u32::MAX;
        }
        let tag = self.flights[flight as usize].tag;
        let (at, port) = (run.at, run.port);
        self.spans.push(StageSpan { actor, port, tag, at, start: now, end: now, finish: now });
        u32::try_from(self.spans.len() - 1).expect("fewer than 2^32 stages")
    }

    pub(super) fn free(&mut self, actor: u32, port: u32) {
        let freed = self.actors[actor as usize].executor.port_free(port);
        freed.expect("a port that was taken exists");
        self.unsettle(actor);
    }

    /// The stage of a chunk that runs at a position: where, which, and on which port.
    pub(super) fn running(&self, id: u32, position: u32, chunk: u32) -> (u32, StageRef, u32) {
        let flight = &self.flights[id as usize];
        let state = &flight.chunks[flight.place(position, chunk)];
        let task = flight.lowered.stages(position).tasks()[state.task as usize];
        (flight.members[position as usize], StageRef { chunk, stage: task.stage }, task.port)
    }

    /// Sends the messages of the current step.
    pub(super) fn send(&mut self, now: Time, id: u32, position: u32, chunk: u32) {
        let (_, at, _) = self.running(id, position, chunk);
        let flight = &mut self.flights[id as usize];
        let kept = flight.place(position, chunk);
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let state = &mut flight.chunks[kept];
        let (step, number) = (state.run.step(), state.run.number());
        state.run.sent();
        let mut outgoing = std::mem::take(&mut self.outgoing);
        outgoing.clear();
        steps.sends(position, at, step, &mut outgoing);
        state.expected = steps.expected(position, at, step);
        self.hand_out(now, (id, position, chunk), number, &outgoing);
        self.outgoing = outgoing;
    }

    /// Hands messages of a chunk's step, by its number, to the network model.
    pub(super) fn hand_out(
        &mut self,
        now: Time,
        (id, position, chunk): (u32, u32, u32),
        number: u64,
        outgoing: &[Outgoing],
    ) {
        let (actor, _, port) = self.running(id, position, chunk);
        let flight = &self.flights[id as usize];
        let span = flight.chunks[flight.place(position, chunk)].span;
        let slot = flight.first_slot + chunk;
        let members = Rc::clone(&flight.members);
        let told = flight.tell_left;
        let departure = Departure { actor, port, told, of: if told { id } else { span } };
        let first = actor as usize * self.dimensions;
        let place = first + port as usize;
        let step = u32::try_from(number).expect("fewer than 2^32 steps");
        // Where no message takes the port, none waits for it.
        let takes_port = self.ahead.is_some() && outgoing.iter().any(|one| one.last_on_link);
        for one in outgoing {
            let Outgoing { to, heard_by, dimension, last_on_link, .. } = one;
            self.ports[first + *dimension as usize].sent += one.bytes.count() as f64;
            let bytes = self.carried(one);
            let sent_tag = match &mut self.ahead {
                None => {
                    self.ports[place].unsent += u32::from(*last_on_link);
                    (*last_on_link || told).then(|| departure.pack())
                }
                Some(ahead) if takes_port => Some(ahead.give(place, departure, bytes)),
                Some(ahead) => told.then(|| ahead.give(place, departure, Bytes::default())),
            };
            let tag = Going { position: *heard_by, slot, step }.pack();
            let transfer = self.transfer(actor, members[*to as usize], one);
            let submission = Submission { transfer, tag, sent_tag };
            // What a stage sends to the same rank in later steps waits for what it has sent there before.
            self.network_model.submit_in_stream(now, submission, u64::from(slot));
        }
        self.transfers += outgoing.len() as u64;
        let is_free = match &self.ahead {
            None => self.ports[place].unsent == 0,
            Some(ahead) => ahead.lets_choose(place),
        };
        if is_free {
            self.free(actor, port);
        } else {
            let taken = self.actors[actor as usize].executor.port_taken(port);
            taken.expect("a port that a stage runs on exists");
        }
    }

    /// The bytes of a message that the network model carries.
    fn carried(&self, one: &Outgoing) -> Bytes {
        if self.settings.infinite { Bytes::default() } else { one.bytes }
    }

    /// A message from one actor to another, as the network model takes it.
    pub(super) fn transfer(&self, actor: u32, destination: u32, one: &Outgoing) -> Transfer {
        Transfer::Message {
            dimension: DimensionId(one.dimension),
            source: self.npus[actor as usize],
            destination: self.npus[destination as usize],
            bytes: self.carried(one),
        }
    }

    /// Completes every step whose messages have all come.
    pub(super) fn advance(&mut self, now: Time, id: u32, position: u32, chunk: u32) {
        loop {
            let flight = &mut self.flights[id as usize];
            let Carried::Messages(steps) = &flight.lowered.carried else { return };
            let place = flight.place(position, chunk);
            let state = &mut flight.chunks[place];
            if !state.run.complete_step(state.expected) {
                return;
            }
            let task = flight.lowered.stages(position).tasks()[state.task as usize];
            let at = StageRef { chunk, stage: task.stage };
            let delay = steps.endpoint_delay().unwrap_or(self.settings.endpoint_delay);
            let reducing = steps.reducing(position, at, state.run.step() - 1);
            if state.run.step() < steps.steps(at) {
                if delay + reducing == Time::ZERO {
                    self.send(now, id, position, chunk);
                    continue;
                }
                self.timers.push(
                    now + delay + reducing,
                    SEND,
                    Inner::Send { flight: id, position, chunk },
                );
                return;
            }
            state.run.end();
            if delay + reducing == Time::ZERO {
                self.stage_over(now, id, position, at);
            } else {
                // The last step's, and the stage's own.
                let over = Inner::StageOver { flight: id, position, chunk };
                self.timers.push(now + delay + delay + reducing, BEFORE, over);
            }
            return;
        }
    }

    /// A stage is over at a position.
    pub(super) fn stage_over(&mut self, now: Time, id: u32, position: u32, at: StageRef) {
        let flight = &self.flights[id as usize];
        let actor = flight.members[position as usize];
        let place = flight.place(position, at.chunk);
        if let Some(chunk) = flight.chunks.get(place)
            && let Some(span) = self.spans.get_mut(chunk.span as usize)
        {
            span.finish = now;
        }
        let collective = flight.ids[position as usize];
        let executor = &mut self.actors[actor as usize].executor;
        let progress = executor.stage_over(collective, at);
        let progress = progress.expect("a stage that was started and is over for the first time");
        self.stages_over += 1;
        self.attend(now, actor);
        if progress == Progress::Over {
            self.position_over(now, id);
        }
    }
}
