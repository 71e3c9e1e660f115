//! Iterations: what a new one waits for, and who is told when that is over.
//!
//! A node is *gated* if it waits for nothing in its iteration, and a *waiter* if the graph says for what of
//! the iteration before. With a lag of k both wait for all that the iteration before computes, and for all of
//! the k-th before that.

use allrail_core::Time;
use allrail_workload::NodeId;

use super::state::{Driver, Iteration};
use crate::training::driver::record::{Ran, Record};

impl Driver<'_> {
    /// Creates the next iteration, if there is one.
    pub(super) fn open(&mut self, now: Time) {
        let number = self.iterations.back().map_or(0, |iteration| iteration.number + 1);
        if number == self.settings.iterations {
            return;
        }
        // Records are kept of the iterations under way and of two that are over.
        // The newer one may be over first.
        let over = |iteration: &Iteration| iteration.total_left == 0;
        while self.iterations.len() > 2 && self.iterations.iter().take(2).all(over) {
            self.iterations.pop_front();
        }
        self.iterations.push_back(self.fresh(number));
        if number > 0 && number <= self.settings.lag {
            self.begin_ungated(now, number);
        }
        if number == 0 {
            if self.settings.iterations > 1 {
                self.open(now);
            }
            self.begin_first(now);
        }
    }

    /// An iteration of which nothing has run.
    fn fresh(&self, number: u32) -> Iteration {
        let actors = || self.players.actors.iter().map(|actor| actor.index());
        let nodes = |actor: usize| u32::try_from(self.shape.nodes[actor].len()).expect("few nodes");
        Iteration {
            number,
            total_left: self.shape.states as u64,
            ranks_left: self.players.weights.iter().sum(),
            ended: false,
            left: actors().map(nodes).collect(),
            sources_left: actors().map(|actor| self.shape.sources[actor]).collect(),
            computing_left: actors().map(|actor| self.shape.computing[actor]).collect(),
            records: vec![Record::default(); self.shape.states],
            missing: self.missing(number),
        }
    }

    /// How much each player's nodes wait for in an iteration.
    fn missing(&self, number: u32) -> Vec<u32> {
        let mut missing = Vec::with_capacity(self.shape.states);
        for actor in &self.players.actors {
            missing.extend(self.shape.nodes[actor.index()].iter().map(|id| {
                u32::try_from(self.graph.after(*id).len()).expect("fewer than 2^32 dependencies")
            }));
        }
        if number == 0 {
            return missing;
        }
        for (player, actor) in (0u32..).zip(&self.players.actors) {
            let computes = self.shape.computing[actor.index()] > 0;
            // With a lag: all of the iteration so many before the last, and what the last one computes.
            let gates = match self.settings.lag {
                0 => 1,
                lag => u32::from(number > lag) + u32::from(computes),
            };
            for id in &self.shape.gated[actor.index()] {
                missing[self.shape.index(player, *id)] += gates;
            }
            let all = self.settings.barrier || self.settings.lag > 0;
            for id in &self.shape.waiters[actor.index()] {
                let waits = if all { gates } else { self.carried_to(*id) };
                missing[self.shape.index(player, *id)] += waits;
            }
        }
        missing
    }

    /// How many nodes of the iteration before a waiter waits for.
    fn carried_to(&self, id: NodeId) -> u32 {
        let known = self.graph.carried();
        let from = known.partition_point(|(node, _)| *node < id);
        let to = known.partition_point(|(node, _)| *node <= id);
        u32::try_from(to - from).expect("few dependencies")
    }

    /// Begins the first iteration, which waits for none.
    fn begin_first(&mut self, now: Time) {
        for player in 0..u32::try_from(self.players.len()).expect("few players") {
            let actor = self.players.actors[player as usize];
            for place in 0..self.shape.nodes[actor.index()].len() {
                let node = self.shape.nodes[actor.index()][place];
                if self.iterations[0].missing[self.shape.index(player, node)] == 0 {
                    self.ready(now, Ran { player, node, iteration: 0 }, None);
                }
            }
        }
    }

    /// With a lag: players that compute nothing wait for nothing in the first iterations.
    fn begin_ungated(&mut self, now: Time, number: u32) {
        for player in 0..u32::try_from(self.players.len()).expect("few players") {
            let actor = self.players.actors[player as usize].index();
            if self.shape.computing[actor] > 0 {
                continue;
            }
            let nodes = [&self.shape.gated[actor], &self.shape.waiters[actor]];
            let nodes: Vec<_> = nodes.into_iter().flatten().copied().collect();
            for node in nodes {
                let index = self.shape.index(player, node);
                let iteration = self.iterations.back().expect("it is just opened");
                if iteration.missing[index] == 0 {
                    self.ready(now, Ran { player, node, iteration: number }, None);
                }
            }
        }
    }

    /// With a lag: what waits for the computing of an iteration, or for all of it so many iterations later.
    pub(super) fn lag_on(&mut self, now: Time, ran: Ran, player_over: bool) {
        let mut released = Vec::new();
        if !self.shape.late[ran.node.index()] {
            let iteration = self.iteration(ran.iteration).expect("it is under way");
            let left = &mut iteration.computing_left[ran.player as usize];
            *left -= 1;
            released.extend((*left == 0).then_some(ran.iteration + 1));
        }
        released.extend(player_over.then_some(ran.iteration + 1 + self.settings.lag));
        let actor = self.players.actors[ran.player as usize].index();
        for iteration in released.into_iter().filter(|number| *number < self.settings.iterations) {
            for place in 0..self.shape.gated[actor].len() + self.shape.waiters[actor].len() {
                let gated = &self.shape.gated[actor];
                let node = match gated.get(place) {
                    Some(node) => *node,
                    None => self.shape.waiters[actor][place - gated.len()],
                };
                self.release(now, Ran { node, iteration, ..ran }, ran);
            }
        }
    }

    /// One thing less to wait for.
    pub(super) fn release(&mut self, now: Time, ran: Ran, cause: Ran) {
        while self.iteration(ran.iteration).is_none() {
            self.open(now);
        }
        let index = self.shape.index(ran.player, ran.node);
        let iteration = self.iteration(ran.iteration).expect("it is under way");
        iteration.missing[index] -= 1;
        if iteration.missing[index] == 0 {
            self.ready(now, ran, Some(cause));
        }
    }
}
