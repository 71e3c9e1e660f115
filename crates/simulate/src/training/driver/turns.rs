//! What a player runs in turn: one communication, and one delay, after the other.

use std::cmp::Reverse;

use allrail_core::Time;
use allrail_workload::{NodeId, Work};

use super::state::{Driver, Turn};
use crate::training::driver::record::Ran;

const COMMUNICATION: usize = 0;
const DELAY: usize = 1;

impl Turn {
    /// Whether the next may begin.
    pub(super) fn can(&self) -> bool {
        self.running.is_none() && !self.ready.is_empty()
    }
}

impl Driver<'_> {
    /// Which turn a node takes, if any: a receive waits for nobody but its message.
    pub(super) fn turn(&self, node: NodeId) -> Option<usize> {
        if !self.settings.in_turn {
            return None;
        }
        if self.graph.opens(node) {
            return Some(COMMUNICATION);
        }
        match self.graph.node(node).work {
            _ if self.graph.is_within(node) => None,
            Work::Collective { .. } | Work::Send { .. } => Some(COMMUNICATION),
            Work::Compute { time } if self.graph.is_delay(node) && time > Time::ZERO => Some(DELAY),
            Work::Compute { .. } | Work::Receive { .. } => None,
        }
    }

    /// A node is ready, and waits for its turn.
    pub(super) fn await_turn(&mut self, ran: Ran, turn: usize) {
        let turn = &mut self.engines[ran.player as usize].turns[turn];
        turn.ready.push(Reverse((ran.iteration, ran.node)));
        self.attend(ran.player);
    }

    /// Begins what may.
    pub(super) fn take_turns(&mut self, now: Time, player: u32) {
        for place in [COMMUNICATION, DELAY] {
            let turn = &mut self.engines[player as usize].turns[place];
            if !turn.can() {
                continue;
            }
            let Some(Reverse((iteration, node))) = turn.ready.pop() else { continue };
            let ran = Ran { player, node, iteration };
            turn.running = Some(ran);
            let index = self.shape.index(player, node);
            let held = self.iteration(iteration).expect("it is under way");
            held.records[index].start = now;
            self.took_turns = true;
            self.issue(now, ran);
        }
    }

    /// A node is over: if it had the turn, the next may begin.
    pub(super) fn end_turn(&mut self, ran: Ran) {
        if !self.settings.in_turn || self.graph.opens(ran.node) {
            // What a collective's first node has taken its last one gives back.
            return;
        }
        let closes = self.graph.closes(ran.node);
        let place = if closes { Some(COMMUNICATION) } else { self.turn(ran.node) };
        let Some(place) = place else { return };
        let turn = &mut self.engines[ran.player as usize].turns[place];
        if closes || turn.running == Some(ran) {
            turn.running = None;
            self.attend(ran.player);
        }
    }
}
