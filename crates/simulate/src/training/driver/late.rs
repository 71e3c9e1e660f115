//! Ranks come to exchanges that do not wait for everyone ([`super::partly`]).

use allrail_core::Time;
use allrail_workload::{NodeId, Pass, Work};

use super::state::Driver;
use crate::training::driver::record::Ran;

impl Driver<'_> {
    fn key(&self, ran: Ran) -> (u32, u32) {
        (ran.iteration, self.shape.ordinal[ran.node.index()])
    }

    fn size(&self, node: NodeId) -> f64 {
        match self.graph.node(node).work {
            Work::Collective { bytes, .. } => bytes.count() as f64,
            _ => 0.0,
        }
    }

    /// A player comes to an exchange that does not wait for everyone.
    pub(super) fn come_partly(&mut self, now: Time, ran: Ran, process_group: u32) {
        if !self.tensors.takes(ran.node) {
            // It has no bytes.
            self.over.push(ran);
            return;
        }
        let key = self.key(ran);
        let weight = self.players.weights[ran.player as usize];
        let left_out = self.leaves_out(ran);
        self.partly.bytes.1 += f64::from(weight) * self.size(ran.node);
        if self.partly.apart {
            // One that left an iteration out has pulled the parameters with the one before.
            if left_out {
                self.over.push(ran);
                self.through(ran);
            } else {
                self.gathered(now, process_group, vec![ran]);
            }
            return;
        }
        let exchange = self.partly.exchanges.entry(key).or_default();
        exchange.came += weight;
        if exchange.begun && exchange.done {
            self.over.push(ran);
            self.through(ran);
            return;
        }
        exchange.waiting.push(ran);
        if !exchange.enough && exchange.came >= self.partly.expected {
            exchange.enough = true;
            self.partly.beginning.push(key);
        }
    }

    /// Begins the exchanges for which enough have come; whether there were any.
    pub(super) fn begin_partly(&mut self, now: Time) -> bool {
        let beginning = std::mem::take(&mut self.partly.beginning);
        for key in &beginning {
            let exchange = self.partly.exchanges.get_mut(key).expect("it waits to begin");
            exchange.begun = true;
            let came = std::mem::take(&mut exchange.waiting);
            *self.partly.decided.entry(key.0).or_default() += 1;
            for ran in &came {
                let weight = self.players.weights[ran.player as usize];
                self.partly.bytes.0 += f64::from(weight) * self.size(ran.node);
            }
            let (last, group) = (came[came.len() - 1], self.graph.node(came[0].node).work);
            let Work::Collective { group, .. } = group else { continue };
            let process_group = self.players.process_group(last.player, group);
            self.gathered(now, process_group, came);
        }
        !beginning.is_empty()
    }

    /// Exchanges are over for those that were in them: for those that came late, too.
    pub(super) fn exchanged_partly(&mut self, over: &[Ran]) {
        for ran in over {
            let key = self.key(*ran);
            if let Some(exchange) = self.partly.exchanges.get_mut(&key)
                && !self.partly.apart
                && !exchange.done
            {
                exchange.done = true;
                let late = std::mem::take(&mut exchange.waiting);
                self.over.extend(&late);
                late.into_iter().for_each(|ran| self.through(ran));
            }
            self.through(*ran);
        }
    }

    /// A player is through an exchange.
    fn through(&mut self, ran: Ran) {
        let key = self.key(ran);
        let weight = self.players.weights[ran.player as usize];
        let exchange = self.partly.exchanges.entry(key).or_default();
        let before = exchange.through;
        exchange.through += weight;
        let expected = self.partly.expected;
        if self.partly.apart && before < expected && exchange.through >= expected {
            *self.partly.decided.entry(key.0).or_default() += 1;
        }
        if exchange.through == self.partly.all {
            self.partly.exchanges.remove(&key);
        }
    }

    /// Whether a player computes nothing of an iteration, as that is decided without it.
    pub(super) fn is_left_out(&mut self, ran: Ran) -> bool {
        self.settings.backup > 0
            && self.graph.node(ran.node).pass != Pass::Update
            && self.leaves_out(ran)
    }

    /// Whether a player leaves the iteration out: what its first node in it has found.
    fn leaves_out(&mut self, ran: Ran) -> bool {
        let decided = self.partly.decided.get(&ran.iteration).copied().unwrap_or(0);
        let each = self.partly.each;
        *self.partly.left_out.entry((ran.player, ran.iteration)).or_insert(decided >= each)
    }

    /// A player is through an iteration.
    pub(super) fn forget_partly(&mut self, ran: Ran) {
        self.partly.left_out.remove(&(ran.player, ran.iteration));
    }
}
