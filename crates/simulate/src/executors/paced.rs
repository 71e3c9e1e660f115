//! A stage whose messages leave one by one: a `direct` algorithm under a `window`.
//!
//! How many leave, and when, is [`Pace`]'s; here they become transfers. What has come for a later step
//! counts as well, as it lets a message leave, too.
//!
//! ```text
//! a message leaves = one has come + endpoint delay + it is reduced
//! a stage is over  = so for the last, + endpoint delay
//! ```

use allrail_collective::Pace;
use allrail_core::Time;
use allrail_fabric::{Contention, Fabric};
use allrail_network::NetworkModel;

use super::Executors;
use super::flight::{AFTER, BEFORE, Inner};
use super::lowered::Carried;
use crate::SimulateError;
use crate::scenario::{NetworkModelKind, field};

/// Refuses a window where a stage is one transfer, which has no messages.
///
/// # Errors
/// Names the field.
pub(crate) fn check(fabric: &Fabric, network_model: NetworkModelKind) -> Result<(), SimulateError> {
    let shared = |one: &allrail_fabric::Dimension| one.contention == Contention::Shared;
    match fabric.window {
        Some(window)
            if network_model == NetworkModelKind::Dims && fabric.dimensions.iter().any(shared) =>
        {
            Err(field(
                "fabric.window",
                window,
                "in `dims` a stage on shared links is one transfer, not messages",
                "leave it out, or use `network_model: links`",
            ))
        }
        _ => Ok(()),
    }
}

impl<W: NetworkModel> Executors<W> {
    /// A stage under a window begins.
    pub(super) fn begin_paced(
        &mut self,
        now: Time,
        id: u32,
        position: u32,
        chunk: u32,
        mut pace: Pace,
    ) {
        let (_, at, _) = self.running(id, position, chunk);
        let flight = &mut self.flights[id as usize];
        let place = flight.place(position, chunk);
        let first = pace.begin();
        flight.chunks[place].pace = Some(Box::new(pace));
        self.send_more(now, id, position, chunk, first);
        let flight = &self.flights[id as usize];
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let run = &flight.chunks[place].run;
        let early: Vec<u32> = (0..steps.steps(at)).map(|step| run.waiting(step)).collect();
        for (step, count) in (0u32..).zip(early) {
            for _ in 0..count {
                self.paced_arrival(now, id, position, chunk, step);
            }
        }
    }

    /// A message of a step of the stage has come.
    pub(super) fn paced_arrival(
        &mut self,
        now: Time,
        id: u32,
        position: u32,
        chunk: u32,
        step: u32,
    ) {
        let (_, at, _) = self.running(id, position, chunk);
        let flight = &mut self.flights[id as usize];
        let place = flight.place(position, chunk);
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let Some(pace) = &mut flight.chunks[place].pace else { return };
        if step < steps.steps(at) {
            pace.arrived();
            let delay = steps.endpoint_delay().unwrap_or(self.settings.endpoint_delay);
            let reduced = now + delay + steps.reducing(position, at, step);
            self.timers.push(reduced, AFTER, Inner::Reduced { flight: id, position, chunk });
        }
    }

    /// What has come is reduced.
    pub(super) fn reduced(&mut self, now: Time, id: u32, position: u32, chunk: u32) {
        let flight = &mut self.flights[id as usize];
        let place = flight.place(position, chunk);
        let Some(pace) = &mut flight.chunks[place].pace else { return };
        let more = pace.reduced();
        if pace.is_over() {
            self.end_paced(now, id, position, chunk);
        } else if more > 0 {
            self.send_more(now, id, position, chunk, more);
        }
    }

    fn end_paced(&mut self, now: Time, id: u32, position: u32, chunk: u32) {
        let (_, at, _) = self.running(id, position, chunk);
        let flight = &mut self.flights[id as usize];
        let place = flight.place(position, chunk);
        let Carried::Messages(steps) = &flight.lowered.carried else { return };
        let state = &mut flight.chunks[place];
        state.pace = None;
        for step in 0..steps.steps(at) {
            state.run.sent();
            state.run.complete_step(steps.expected(position, at, step));
        }
        state.run.end();
        let delay = steps.endpoint_delay().unwrap_or(self.settings.endpoint_delay);
        if delay == Time::ZERO {
            self.stage_over(now, id, position, at);
        } else {
            let over = Inner::StageOver { flight: id, position, chunk };
            self.timers.push(now + delay, BEFORE, over);
        }
    }

    /// Sends the last `count` of those that have left by now.
    fn send_more(&mut self, now: Time, id: u32, position: u32, chunk: u32, count: u32) {
        let (_, at, _) = self.running(id, position, chunk);
        let mut outgoing = std::mem::take(&mut self.outgoing);
        let flight = &self.flights[id as usize];
        let state = &flight.chunks[flight.place(position, chunk)];
        let (Carried::Messages(steps), Some(pace)) = (&flight.lowered.carried, &state.pace) else {
            return;
        };
        let (first, mut skip) = (state.run.number(), (pace.sent() - count) as usize);
        let (mut left, count) = (count as usize, steps.steps(at));
        for step in 0..count {
            let flight = &self.flights[id as usize];
            let Carried::Messages(steps) = &flight.lowered.carried else { break };
            outgoing.clear();
            steps.sends(position, at, step, &mut outgoing);
            let all = outgoing.len();
            if skip >= all {
                skip -= all;
                continue;
            }
            outgoing.truncate(all.min(skip + left));
            outgoing.drain(..skip);
            (skip, left) = (0, left - outgoing.len());
            for one in &mut outgoing {
                one.last_on_link = true;
            }
            self.hand_out(now, (id, position, chunk), first + u64::from(step), &outgoing);
            if left == 0 {
                break;
            }
        }
        self.outgoing = outgoing;
    }
}
