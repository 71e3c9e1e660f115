//! What happens: the network model's events and the timers, taken in one by one.

use allrail_collective::StageRef;
use allrail_core::Time;
use allrail_network::NetworkModel;

use super::flight::{AFTER, Departure, Going, Inner};
use super::link_queues::LinkQueues;
use super::lowered::Carried;
use super::{Event, Executors};

/// Where something happens: what of a time comes first is first here.
#[derive(Clone, Copy)]
enum Source {
    Before,
    NetworkModel,
    After,
}

impl<W: NetworkModel> Executors<W> {
    /// When something happens next; not all of it is an event for the caller.
    #[must_use]
    pub(crate) fn next_time(&self) -> Option<Time> {
        if let Some((time, _)) = self.ready.front() {
            return Some(*time);
        }
        self.soonest().map(|(time, _)| time)
    }

    /// When something happens next, and where.
    #[inline]
    fn soonest(&self) -> Option<(Time, Source)> {
        let network_model = self.network_model.next_time().map(|time| (time, Source::NetworkModel));
        let Some((time, class)) = self.timers.peek() else { return network_model };
        match network_model {
            Some((before, _)) if before < time || before == time && class >= AFTER => network_model,
            _ if class < AFTER => Some((time, Source::Before)),
            _ => Some((time, Source::After)),
        }
    }

    /// Goes on by itself from `now`, where all has been taken in, until the caller has to hear of
    /// something, or all that happens next is at `limit` or later; returns the time that it has come to.
    /// So much at a time only, that its caller can look about now and then.
    pub(crate) fn run_before(&mut self, mut now: Time, limit: Time) -> Time {
        const AT_ONCE: u64 = 1 << 6;
        let last = self.events + AT_ONCE;
        while self.ready.is_empty() {
            let next = self.soonest().filter(|(time, _)| *time < limit);
            match next {
                Some((time, source)) if self.is_settled() || time == now => {
                    if time > now && self.events >= last {
                        break;
                    }
                    now = time;
                    self.take(now, source);
                }
                _ if !self.is_settled() => self.settle(now),
                _ => break,
            }
        }
        now
    }

    /// Takes the next event at `until` or before. The caller settles once it has taken in all that
    /// happens at a time.
    pub(crate) fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        loop {
            if self.ready.front().is_some_and(|(time, _)| *time <= until) {
                return self.ready.pop_front();
            }
            let (next, source) = self.soonest().filter(|(next, _)| *next <= until)?;
            self.take(next, source);
        }
    }

    /// Takes in one thing that happens at `now`, the next there is.
    fn take(&mut self, now: Time, source: Source) {
        self.events += 1;
        match source {
            Source::Before | Source::After => {
                if let Some((_, inner)) = self.timers.pop() {
                    self.happens(now, inner);
                }
                if self.eager && matches!(source, Source::Before) {
                    self.settle(now);
                }
            }
            Source::NetworkModel if self.eager => self.take_by_dimension(now),
            Source::NetworkModel => {
                if let Some((_, event)) = self.network_model.next_event(now) {
                    self.hear(now, event);
                }
            }
        }
    }

    /// What the network model has of now, by dimension; each dimension chooses at once.
    fn take_by_dimension(&mut self, now: Time) {
        let mut events: Vec<allrail_network::Event> = Vec::new();
        while self.network_model.next_time() == Some(now) {
            events.extend(self.network_model.next_event(now).map(|(_, event)| event));
        }
        events.sort_by_key(|event| match *event {
            allrail_network::Event::Sent { tag } if LinkQueues::is_link(tag) => (0, 0),
            allrail_network::Event::Sent { tag } => (self.departure(tag).port, 0),
            allrail_network::Event::Delivered { tag } => (self.port_of(Going::unpack(tag)), 1),
        });
        for event in events {
            self.hear(now, event);
            self.settle(now);
        }
    }

    /// What a message that has left was sent from.
    fn departure(&self, tag: u64) -> Departure {
        self.ahead.as_ref().map_or_else(|| Departure::unpack(tag), |ahead| ahead.departure(tag))
    }

    /// The port on which a transfer's stage runs.
    fn port_of(&self, going: Going) -> u32 {
        let flight = &self.flights[self.slots.flight(going.slot) as usize];
        let chunk = going.slot - flight.first_slot;
        flight.task_of(going.position, chunk, u64::from(going.step)).map_or(0, |task| task.port)
    }

    fn hear(&mut self, now: Time, event: allrail_network::Event) {
        match event {
            allrail_network::Event::Delivered { tag } => {
                let going = Going::unpack(tag);
                if self.settings.overhead > Time::ZERO {
                    let at = now + self.settings.overhead;
                    self.timers.push(at, AFTER, Inner::Waited { going });
                } else {
                    self.arrived(now, going);
                }
            }
            allrail_network::Event::Sent { tag } => {
                if let Some(message) = self.links.left(tag) {
                    self.left_link(now, message);
                    return;
                }
                let Departure { actor, port, told, of } = self.departure(tag);
                if told {
                    let tag = self.flights[of as usize].tag;
                    self.ready.push_back((now, Event::Left { tag }));
                } else if let Some(span) = self.spans.get_mut(of as usize) {
                    span.end = now;
                }
                let place = actor as usize * self.dimensions + port as usize;
                let state = &mut self.ports[place];
                if let Some(ahead) = &mut self.ahead {
                    if ahead.has_left(place, tag) {
                        self.free(actor, port);
                    }
                } else if state.unsent > 0 {
                    state.unsent -= 1;
                    if state.unsent == 0 {
                        self.free(actor, port);
                    }
                }
            }
        }
    }

    /// A transfer has come to where it goes.
    fn arrived(&mut self, now: Time, going: Going) {
        let Going { position, slot, step } = going;
        let id = self.slots.flight(slot);
        let flight = &mut self.flights[id as usize];
        let chunk = slot - flight.first_slot;
        match &flight.lowered.carried {
            Carried::Stages(_) => {
                self.stage_over(now, id, position, StageRef { chunk, stage: step });
            }
            Carried::Messages(steps) => {
                if steps.has_dataflow()
                    && let Some(task) = flight.task_of(position, chunk, u64::from(step))
                    && let at = (StageRef { chunk, stage: task.stage })
                    && steps.dataflow(position, at).is_some()
                {
                    self.dataflow_arrival(now, id, position, at, u64::from(step));
                    return;
                }
                let place = flight.place(position, chunk);
                let run = &mut flight.chunks[place].run;
                run.arrived(u64::from(step)).expect("a network model delivers a message once");
                if flight.chunks[place].pace.is_none() {
                    self.advance(now, id, position, chunk);
                    return;
                }
                let first = flight.chunks[place].run.number();
                let step = u32::try_from(u64::from(step) - first).expect("no step before it");
                self.paced_arrival(now, id, position, chunk, step);
            }
        }
    }

    fn happens(&mut self, now: Time, inner: Inner) {
        match inner {
            Inner::Free { actor, port } => {
                self.free_port(now, actor, port);
                self.unsettle(actor);
            }
            Inner::LinkFree { actor, port } => self.link_free(actor, port),
            Inner::Send { flight, position, chunk } => {
                self.send(now, flight, position, chunk);
                self.advance(now, flight, position, chunk);
            }
            Inner::Reduced { flight, position, chunk } => {
                self.reduced(now, flight, position, chunk);
            }
            Inner::Combined { flight, position, at, number } => {
                self.combined(now, flight, position, at, number);
            }
            Inner::StageOver { flight, position, chunk } => {
                let (_, at, _) = self.running(flight, position, chunk);
                self.stage_over(now, flight, position, at);
            }
            Inner::Left { tag } => self.ready.push_back((now, Event::Left { tag })),
            Inner::Over { flight } => {
                let over = &self.flights[flight as usize];
                let tag = over.tag;
                self.slots.give_back(over.first_slot, over.lowered.chunks());
                self.free_flights.push(flight);
                self.ready.push_back((now, Event::Over { tag }));
            }
            Inner::Waited { going } => self.arrived(now, going),
            Inner::Begin { flight } => self.begin(now, flight),
        }
    }
}
