//! When a tensor is ready on all ranks, for whoever runs a training step: players submit tensors, and
//! hear when each has been launched everywhere.

use std::collections::VecDeque;

use allrail_core::{Bytes, Time};
use allrail_schedule::coordinate::{Event, Job, Request};

use super::faults::Faults;
use super::network::Network;
use super::settings::Coordination;
use crate::SimulateError;

/// What ranks agree on. Times never go back.
pub trait Agreement {
    /// A player has a tensor ready.
    fn submit(&mut self, now: Time, player: u32, tensor: u32);

    /// When something may happen; `None` if nothing will without another submission.
    fn next_time(&self) -> Option<Time>;

    /// The next tensors that are ready everywhere and go together, in the order of the buffer, if that is
    /// by `until`.
    fn next_event(&mut self, until: Time) -> Option<(Time, Vec<u32>)>;
}

impl Coordination {
    /// The coordination of a job. A player stands for as many alike ranks as `players` says; the
    /// tensors have these bytes, and are all-reduced.
    ///
    /// # Errors
    /// A group that cannot be.
    pub fn agreement(
        &self,
        players: &[u32],
        tensors: &[Bytes],
    ) -> Result<Box<dyn Agreement>, SimulateError> {
        let Some(policy) = self.policy else {
            return Ok(Box::new(AtOnce::new(players.len(), tensors.len())));
        };
        let ranks = players.iter().sum::<u32>();
        let job = Job::new(policy, &self.settings, ranks, &self.groups)?;
        let mut network =
            Network::new(policy, &job, tensors.len(), self.latency, Faults::default(), true);
        network.start(|_| Time::ZERO);
        let ends = players.iter().scan(0, |end, ranks| {
            *end += ranks;
            Some(*end)
        });
        Ok(Box::new(Talk {
            network,
            now: Time::ZERO,
            next: None,
            first_rank: std::iter::once(0).chain(ends).collect(),
            bytes: tensors.to_vec(),
            counts: vec![0; tensors.len()],
            complete: 0,
            ready: VecDeque::new(),
        }))
    }
}

/// Without any talk: ready when the last has submitted.
struct AtOnce {
    players: u32,
    counts: Vec<u32>,
    ready: VecDeque<(Time, Vec<u32>)>,
}

impl AtOnce {
    fn new(players: usize, tensors: usize) -> Self {
        Self { players: players as u32, counts: vec![0; tensors], ready: VecDeque::new() }
    }
}

impl Agreement for AtOnce {
    fn submit(&mut self, now: Time, _: u32, tensor: u32) {
        let count = &mut self.counts[tensor as usize];
        *count += 1;
        if *count == self.players {
            *count = 0;
            self.ready.push_back((now, vec![tensor]));
        }
    }

    fn next_time(&self) -> Option<Time> {
        self.ready.front().map(|(time, _)| *time)
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Vec<u32>)> {
        let is_due = self.ready.front().is_some_and(|(time, _)| *time <= until);
        if is_due { self.ready.pop_front() } else { None }
    }
}

/// By the coordinators of all ranks.
struct Talk {
    network: Network,
    now: Time,
    /// When the network does something next.
    next: Option<Time>,
    /// Of each player, and the number of all ranks.
    first_rank: Vec<u32>,
    bytes: Vec<Bytes>,
    /// How many players have submitted each tensor.
    counts: Vec<u32>,
    /// Tensors that all players have submitted, and that are not ready yet.
    complete: u32,
    ready: VecDeque<(Time, Vec<u32>)>,
}

impl Talk {
    fn advance(&mut self, until: Time) -> bool {
        let launched = self.network.advance(until, None);
        let any = launched.is_some();
        if let Some(one) = launched {
            for response in &one.launch.responses {
                self.ready.push_back((one.last, response.tensors.clone()));
                self.complete -= response.tensors.len() as u32;
            }
        }
        any
    }
}

impl Agreement for Talk {
    fn submit(&mut self, now: Time, player: u32, tensor: u32) {
        if now > self.now {
            while self.advance(now) {}
            self.now = now;
        }
        let player = player as usize;
        let request = Request::all_reduce(tensor, self.bytes[tensor as usize]);
        for rank in self.first_rank[player]..self.first_rank[player + 1] {
            self.network.tell(now, rank, Event::Submit(request), None);
        }
        let count = &mut self.counts[tensor as usize];
        *count += 1;
        if *count as usize + 1 == self.first_rank.len() {
            *count = 0;
            self.complete += 1;
        }
        self.next = self.network.next_time();
    }

    fn next_time(&self) -> Option<Time> {
        let ready = self.ready.front().map(|(time, _)| *time);
        // Nothing can become ready that someone has not submitted.
        ready.or(self.next.filter(|_| self.complete > 0))
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Vec<u32>)> {
        if self.ready.is_empty() && self.complete > 0 {
            self.advance(until);
            self.next = self.network.next_time();
        }
        let is_due = self.ready.front().is_some_and(|(time, _)| *time <= until);
        let event = if is_due { self.ready.pop_front() } else { None };
        self.now = self.now.max(event.as_ref().map_or(Time::ZERO, |(time, _)| *time));
        event
    }
}
