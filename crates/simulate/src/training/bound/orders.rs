//! Where passes stand in the orders of positions, and who takes what they hand on.

use allrail_workload::Outline;
use allrail_workload::parallelism::slot::{Slot, Turn};

/// Where passes stand in the orders of positions, and who takes what they hand on.
pub(super) struct Orders<'o> {
    outline: &'o Outline,
    /// By microbatch and piece: (position, place) of the forward pass, and of the backward pass.
    forward: Vec<Option<(usize, usize)>>,
    backward: Vec<Option<(usize, usize)>>,
    /// By piece and direction: the microbatch of the last pass that ends one.
    last: Vec<u32>,
}

impl<'o> Orders<'o> {
    pub(super) fn new(outline: &'o Outline) -> Self {
        let passes = outline.microbatches as usize * outline.pieces as usize;
        let mut found = Self {
            outline,
            forward: vec![None; passes],
            backward: vec![None; passes],
            last: vec![u32::MAX; outline.pieces as usize * 2],
        };
        for (q, order) in outline.orders.iter().enumerate() {
            for (k, slot) in order.iter().enumerate() {
                let at = found.at(slot.microbatch, slot.piece);
                match slot.turn {
                    Turn::Forward => found.forward[at] = Some((q, k)),
                    Turn::Backward | Turn::Inputs => found.backward[at] = Some((q, k)),
                    Turn::Weights => {}
                }
                if slot.ends() {
                    found.last[(slot.piece * 2 + slot.direction) as usize] = slot.microbatch;
                }
            }
        }
        found
    }

    pub(super) const fn at(&self, microbatch: u32, piece: u32) -> usize {
        microbatch as usize * self.outline.pieces as usize + piece as usize
    }

    pub(super) fn is_last(&self, slot: &Slot) -> bool {
        self.last[(slot.piece * 2 + slot.direction) as usize] == slot.microbatch
    }

    /// Who waits for what a pass hands on.
    pub(super) fn taker(&self, slot: &Slot) -> Option<(usize, usize)> {
        let (at, piece) = (slot.microbatch, slot.piece);
        match slot.turn {
            Turn::Forward if piece + 1 == self.outline.pieces => self.backward[self.at(at, piece)],
            Turn::Forward => self.forward[self.at(at, piece + 1)],
            Turn::Backward | Turn::Inputs => self.backward[self.at(at, piece.checked_sub(1)?)],
            Turn::Weights => None,
        }
    }

    /// From and to of the passes that run side by side with one.
    pub(super) fn pair(&self, q: usize, k: usize) -> (usize, usize) {
        let order = &self.outline.orders[q];
        if order[k].beside && k + 1 < order.len() {
            return (k, k + 2);
        }
        if k > 0 && order[k - 1].beside {
            return (k - 1, k + 1);
        }
        (k, k + 1)
    }

    /// All passes, each behind what it waits for.
    pub(super) fn sequence(&self) -> Vec<(usize, usize)> {
        let orders = &self.outline.orders;
        let mut next = vec![0; orders.len()];
        let mut done: Vec<Vec<bool>> =
            orders.iter().map(|order| vec![false; order.len()]).collect();
        let mut before: Vec<Vec<Option<(usize, usize)>>> =
            orders.iter().map(|order| vec![None; order.len()]).collect();
        for (q, order) in orders.iter().enumerate() {
            for (k, slot) in order.iter().enumerate() {
                if let Some((p, j)) = self.taker(slot) {
                    before[p][j] = Some((q, k));
                }
            }
        }
        let mut sequence = Vec::new();
        loop {
            let mut moved = false;
            for q in 0..orders.len() {
                while next[q] < orders[q].len() {
                    let (from, to) = self.pair(q, next[q]);
                    let ready = |k: usize| before[q][k].is_none_or(|(p, j)| done[p][j]);
                    if !(from..to).all(ready) {
                        break;
                    }
                    done[q][from..to].fill(true);
                    sequence.extend((from..to).map(|k| (q, k)));
                    next[q] = to;
                    moved = true;
                }
            }
            if !moved {
                return sequence;
            }
        }
    }
}
