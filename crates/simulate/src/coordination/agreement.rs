//! When a tensor is ready on all ranks, for whoever runs a training step: players submit tensors, and
//! hear when each has been launched everywhere.

use std::collections::VecDeque;

use allrail_collective::Operation;
use allrail_coordinate::CoordinationSpec;
use allrail_core::{Bytes, Time};

use super::control_plane::ControlPlane;
use super::crowd::Crowd;
use super::faults::Faults;
use super::reports::Counts;
use super::settings::{Collectives, Coordination};
use crate::SimulateError;

/// What ranks agree on. Times never go back.
pub trait Agreement {
    /// A player has a tensor ready.
    fn submit(&mut self, now: Time, player: u32, tensor: u32);

    /// No tensor is ready before; `None` if none will be without another submission.
    fn earliest(&mut self) -> Option<Time>;

    /// When tensors are ready next, if that is by `until`. Finds out what happens up to then: no submission
    /// may come before that time, or before `until` where there is none.
    fn next_time(&mut self, until: Time) -> Option<Time>;

    /// The next tensors that are ready everywhere and go together, in the order of the buffer, if that is
    /// by `until`.
    fn next_event(&mut self, until: Time) -> Option<(Time, Vec<u32>)>;

    /// How much was said.
    fn counts(&self) -> Counts;
}

impl Coordination {
    /// The coordination of a job. A player stands for as many alike ranks as `players` says; these are what
    /// they ask for, each its own number of, and so many of them are submitted in a step. What is drawn
    /// follows from the seed.
    ///
    /// # Errors
    /// A group that cannot be.
    pub fn agreement(
        &self,
        players: &[u32],
        tensors: &[(Operation, Bytes)],
        in_step: usize,
        seed: u64,
    ) -> Result<Box<dyn Agreement>, SimulateError> {
        let Some(policy) = self.policy else {
            return Ok(Box::new(AtOnce::new(players.len(), tensors.len())));
        };
        let ranks = players.iter().sum::<u32>();
        let job = CoordinationSpec::new(policy, &self.settings, ranks, &self.groups)?;
        let mut control_plane =
            ControlPlane::new(policy, &job, tensors.len(), self.latency, Faults::default(), true);
        control_plane.start(|_| Time::ZERO);
        Ok(Box::new(Talk {
            control_plane,
            crowd: Crowd::new(players, tensors, in_step, self.skew, seed)
                .in_one_order(self.collectives == Collectives::All),
            now: Time::ZERO,
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

    fn earliest(&mut self) -> Option<Time> {
        self.ready.front().map(|(time, _)| *time)
    }

    fn next_time(&mut self, until: Time) -> Option<Time> {
        self.earliest().filter(|time| *time <= until)
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Vec<u32>)> {
        let is_due = self.ready.front().is_some_and(|(time, _)| *time <= until);
        if is_due { self.ready.pop_front() } else { None }
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// By the coordinators of all ranks.
struct Talk {
    control_plane: ControlPlane,
    /// What the ranks submit, each at its time.
    crowd: Crowd,
    now: Time,
    /// How many players have submitted each tensor.
    counts: Vec<u32>,
    /// Tensors that all players have submitted, and that are not ready yet.
    complete: u32,
    ready: VecDeque<(Time, Vec<u32>)>,
}

impl Talk {
    fn advance(&mut self, until: Time) -> bool {
        let launched = self.control_plane.advance(until, Some(&mut self.crowd));
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
        self.crowd.submit(now, player, tensor);
        for rank in self.crowd.ranks(player) {
            // The others have something to submit already, and come to this by themselves.
            if self.control_plane.is_idle(rank)
                && let Some(due) = self.crowd.due(rank)
            {
                self.control_plane.feed(rank, due);
            }
        }
        let count = &mut self.counts[tensor as usize];
        *count += 1;
        if *count == self.crowd.players() {
            *count = 0;
            self.complete += 1;
        }
    }

    fn earliest(&mut self) -> Option<Time> {
        let ready = self.ready.front().map(|(time, _)| *time);
        // Nothing can become ready that someone has not submitted.
        ready.or_else(|| self.control_plane.earliest().filter(|_| self.complete > 0))
    }

    fn next_time(&mut self, until: Time) -> Option<Time> {
        if self.ready.is_empty() && self.complete > 0 {
            self.advance(until);
        }
        self.ready.front().map(|(time, _)| *time).filter(|time| *time <= until)
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Vec<u32>)> {
        self.next_time(until)?;
        let event = self.ready.pop_front();
        self.now = self.now.max(event.as_ref().map_or(Time::ZERO, |(time, _)| *time));
        event
    }

    fn counts(&self) -> Counts {
        self.control_plane.counts()
    }
}
