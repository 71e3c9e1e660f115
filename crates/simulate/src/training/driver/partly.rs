//! Backup workers: exchanges of gradients that do not wait for the last ranks.
//!
//! An exchange begins once all but `backup` ranks have come to it (those that come at that very time are in
//! it, too), and averages what is there: J. Chen, X. Pan, R. Monga, S. Bengio, R. Jozefowicz, "Revisiting
//! distributed synchronous SGD", 2016, §3. What comes later is dropped; whoever is late goes on with the
//! result once that is there. Bytes travel as if all took part: a partial collective, into which processes
//! beside the training put nothing for those that are late (S. Li et al., "Taming unbalanced training
//! workloads in deep learning with partial collective operations", PPoPP 2020).
//!
//! With parameter servers each push travels, and the servers wait for all but `backup` workers.
//!
//! A rank that comes to an iteration which is decided without it (all of its exchanges have begun; with
//! servers, all but the backup workers have the results) computes nothing of it but updates: so it starts
//! again with the newest parameters. An iteration is over once all but `backup` ranks are through it.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, counted, either};
use allrail_workload::{GroupId, StepGraph, Work};

use crate::SimulateError;
use crate::scenario::field;
use crate::training::communicator::servers::workers;
use crate::training::driver::record::Ran;
use crate::training::players::Players;

/// An exchange of one iteration.
#[derive(Default)]
pub(super) struct Exchange {
    /// Who is in it, until it begins; then who is late and waits for its result.
    pub(super) waiting: Vec<Ran>,
    /// How many ranks have come, and how many have the result.
    pub(super) came: u32,
    pub(super) through: u32,
    /// Whether enough have come; then whether the result is there.
    pub(super) enough: bool,
    pub(super) begun: bool,
    pub(super) done: bool,
}

/// What does not wait for everyone.
#[derive(Default)]
pub(super) struct Partly {
    /// How many ranks a worker is.
    pub(super) ranks: u32,
    /// How many ranks there are, and how many are waited for.
    pub(super) all: u32,
    pub(super) expected: u32,
    /// Whether each goes to parameter servers by itself.
    pub(super) apart: bool,
    /// By iteration and place among the group's.
    pub(super) exchanges: BTreeMap<(u32, u32), Exchange>,
    /// Exchanges that begin once all of this time have come.
    pub(super) beginning: Vec<(u32, u32)>,
    /// Of each iteration, how many exchanges are decided; there are so many.
    pub(super) decided: BTreeMap<u32, u32>,
    pub(super) each: u32,
    /// Whether a player leaves an iteration out.
    pub(super) left_out: BTreeMap<(u32, u32), bool>,
    /// Bytes of gradients, by what became of them: averaged; all.
    pub(super) bytes: (f64, f64),
}

fn refused(backup: u32, why: &str, hint: &str) -> SimulateError {
    field("schedule.tensor.backup_workers", backup, why, hint)
}

impl Partly {
    /// Refuses graphs whose ranks communicate otherwise than by all-reduces of gradients among all.
    pub(super) fn new(
        graph: &StepGraph,
        players: &Players,
        backup: u32,
        apart: bool,
    ) -> Result<Self, SimulateError> {
        if backup == 0 {
            return Ok(Self::default());
        }
        let mut group: Option<GroupId> = None;
        let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
        for id in graph.ids() {
            let node = graph.node(id);
            if matches!(node.work, Work::Compute { .. }) {
                continue;
            }
            let name = graph.name(id);
            let hint = "leave it out, or train with data parallelism alone, without ZeRO";
            let Work::Collective { operation: Operation::AllReduce, group: own, bytes, .. } =
                node.work
            else {
                let why = format!("a late rank leaves gradients out, and `{name}` needs all ranks");
                return Err(refused(backup, &why, hint));
            };
            if node.tensor.is_none() || group.is_some_and(|other| other != own) {
                let why = format!("gradients alone may be left out, of one group: not `{name}`");
                return Err(refused(backup, &why, hint));
            }
            group = Some(own);
            if bytes == Bytes::default() {
                continue;
            }
            *counts.entry(node.actor.index()).or_default() += 1;
        }
        let (Some(group), Some(each)) = (group, counts.values().next().copied()) else {
            return Err(refused(backup, "ranks exchange no gradients", "leave it out"));
        };
        let process_groups = players.process_groups.iter().filter(|one| one.group == group);
        let found: Vec<_> = process_groups.collect();
        let all: u32 = players.weights.iter().sum();
        let [only] = found[..] else {
            return Err(refused(backup, "gradients are exchanged among parts of the ranks", HINT));
        };
        if only.ranks.len() != all as usize {
            return Err(refused(backup, "gradients are exchanged among parts of the ranks", HINT));
        }
        let of = &graph.groups()[group.index()];
        let ranks = match workers::joining(of).filter(|_| apart) {
            Some(joining) => u32::try_from(workers::npus(of, joining)).unwrap_or(u32::MAX),
            None => 1,
        };
        let workers = all / ranks;
        if backup >= workers {
            let why = format!(
                "there {are} {workers}, and a step needs one at least",
                workers = counted(workers, "worker"),
                are = either(&workers, "is", "are")
            );
            let hint = format!("0 to {}", workers - 1);
            return Err(refused(backup, &why, &hint));
        }
        let expected = all - backup * ranks;
        Ok(Self { ranks, all, expected, apart, each, ..Self::default() })
    }

    /// How many ranks so many workers are.
    pub(super) fn ranks(&self, workers: u32) -> u32 {
        self.ranks * workers
    }

    /// The part of all gradients that was averaged; `at_servers` has the bytes that servers summed, and those
    /// that they dropped, if there are any.
    pub(super) fn averaged(&self, at_servers: Option<(f64, f64)>) -> Option<f64> {
        let (averaged, all) = match at_servers.filter(|_| self.apart) {
            Some((summed, _)) => (summed * f64::from(self.ranks), self.bytes.1),
            None => self.bytes,
        };
        (self.all > 0 && all > 0.0).then(|| (averaged / all).min(1.0))
    }
}

const HINT: &str = "leave it out, or train with data parallelism alone";
