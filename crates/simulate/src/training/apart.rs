//! The workers of a process group whose gradients go over parameter servers: each has its own scheduler.
//!
//! Partitions are numbered in the order of the forward pass, whatever order tensors become ready in.

use std::collections::BTreeMap;

use allrail_schedule::tensor::{Cut, Piece, Tensor};

/// A worker that exchanges with parameter servers.
#[derive(Clone, Copy)]
pub(super) struct Worker {
    /// Number of its machine in the process group.
    pub(super) number: u32,
    /// Which of the iterations under way.
    pub(super) turn: u32,
    /// Index of its process group's [`Apart`].
    pub(super) group: usize,
}

/// The workers of a process group.
pub(super) struct Apart {
    /// Of each tensor: the number of its first partition, in the order of the forward pass.
    first: Vec<u32>,
    /// Of each tensor how it is cut; none of whole tensors.
    cuts: Vec<Option<Cut>>,
    /// How many workers there are.
    pub(super) workers: u32,
    /// The workers that a player's ranks are on.
    pub(super) workers_of: BTreeMap<u32, Vec<u32>>,
    /// By turn, player and tensor: how many of these have pulled it.
    pulled: BTreeMap<(u32, u32, u32), usize>,
}

impl Apart {
    /// Of each worker, its players; `next` is the number of the next partition, here and behind these.
    pub(super) fn new(
        list: &[Tensor],
        workers: &[Vec<u32>],
        cuts: Vec<Option<Cut>>,
        next: &mut u32,
    ) -> Self {
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by_key(|index| (list[*index].place, *index));
        let mut first = vec![0; list.len()];
        for index in order {
            first[index] = *next;
            let count = cuts[index].as_ref().map_or(1, |cut| cut.count(list[index].bytes).max(1));
            *next += u32::try_from(count).expect("few partitions");
        }
        let mut workers_of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (worker, players) in (0u32..).zip(workers) {
            for player in players {
                workers_of.entry(*player).or_default().push(worker);
            }
        }
        let workers = u32::try_from(workers.len()).expect("few workers");
        Self { first, cuts, workers, workers_of, pulled: BTreeMap::new() }
    }

    /// The number of a partition among all of the process group.
    pub(super) fn number(&self, piece: &Piece) -> u32 {
        let tensor = piece.tensor as usize;
        let within = self.cuts[tensor].as_ref().map_or(0, |cut| cut.index(piece.offset));
        self.first[tensor] + u32::try_from(within).expect("few partitions")
    }

    /// One of a player's machines has pulled a tensor: whether all of them have.
    pub(super) fn pulled(&mut self, turn: u32, player: u32, tensor: u32) -> bool {
        let pulled = self.pulled.entry((turn, player, tensor)).or_default();
        *pulled += 1;
        let all = *pulled == self.workers_of[&player].len();
        if all {
            *pulled = 0;
        }
        all
    }
}
