//! In which order each position of a pipeline runs its passes.
//!
//! - `gpipe` (Huang et al., 2019): all forward passes, then all backward passes.
//! - `1f1b` (`PipeDream`-flush; Narayanan et al., SC'21, §2.2): p − 1 − position forward passes, then
//!   one forward and one backward in turn.
//! - `interleaved` (the same, §2.2.2): each position has v pieces of the model, piece c at position
//!   c mod p; microbatches come in groups of p.
//! - `chimera` (Li & Hoefler, SC'21): half of the microbatches go down the positions and half up, so
//!   that each position has one stage of either direction. The order is that of a greedy list
//!   schedule in which a forward and a backward pass take one unit each, backward passes go first,
//!   then the forward pass that is furthest along its pipeline; it attains the paper's 2m + p − 2
//!   units.
//!
//! - `zero_bubble` (ZB-H1; Qi, Wan, Huang, Lin, ICLR 2024, §2): 1F1B whose backward passes are cut in two,
//!   the gradient of the inputs, which the stage before waits for, and that of the weights, which nobody
//!   does: position i does it i microbatches later, so that it fills what would be idle and every position keeps
//!   as many microbatches as 1F1B's first.
//! - `dual_pipe` (DeepSeek-V3): see `dual_pipe.rs`.
//! - `pipedream`, `pipedream_2bw`, `pipemare` (`PipeDream`, Narayanan et al., SOSP'19, §3.2; `PipeDream`-2BW,
//!   ICML'21; `PipeMare`, Yang et al., `MLSys`'21): 1F1B that is never flushed. The k-th forward pass of position i
//!   is followed by the backward pass of the microbatch that came p − 1 − i before, which in the first
//!   p − 1 − i turns of a step is one of the step before. The first iteration has no step before it: it runs these
//!   backward passes all the same, and is not measured.
//!
//! The bubble of the first two, with f and b the time of one pass: (p − 1)(f + b) of
//! (m + p − 1)(f + b); of `zero_bubble`, with b of the inputs and w of the weights, (p − 1)(f + b − w); of what is
//! never flushed, 0: a step of m microbatches takes m(f + b) of the slowest stage.

use allrail_core::FieldError;

use super::dual_pipe;
use super::slot::{Slot, Turn};
use crate::spec::PipelineSchedule;

/// What is run, in numbers.
#[derive(Clone, Copy, Debug)]
pub struct Pipeline {
    /// Positions.
    pub positions: u32,
    /// Microbatches.
    pub microbatches: u32,
    /// Pieces per position.
    pub pieces: u32,
    /// The schedule.
    pub schedule: PipelineSchedule,
}

impl Pipeline {
    /// How many pieces the model is cut into.
    #[must_use]
    pub const fn total_pieces(&self) -> u32 {
        self.positions * self.pieces
    }

    /// Where a piece is.
    #[must_use]
    pub const fn position(&self, piece: u32, direction: u32) -> u32 {
        if direction == 0 { piece % self.positions } else { self.positions - 1 - piece }
    }

    /// Whether the numbers go together.
    ///
    /// # Errors
    /// Microbatches that a schedule cannot take.
    pub fn check(&self) -> Result<(), FieldError> {
        let (p, m) = (self.positions, self.microbatches);
        let fail = |field: &str, value: u32, why: &str, hint: String| {
            Err(FieldError::new(format!("workload.parallelism.{field}"), value, why, hint))
        };
        match self.schedule {
            PipelineSchedule::Interleaved if p > 1 && !m.is_multiple_of(p) => fail(
                "microbatches",
                m,
                "`interleaved` runs them in groups of as many as there are stages",
                format!("a multiple of {p}"),
            ),
            schedule if schedule.goes_both_ways() && p > 1 && !p.is_multiple_of(2) => fail(
                "pp",
                p,
                &format!("`{}` pairs the stages of two directions", schedule.tag()),
                "an even number of stages".to_owned(),
            ),
            schedule if schedule.goes_both_ways() && p > 1 && !m.is_multiple_of(2) => fail(
                "microbatches",
                m,
                &format!("`{}` sends half of them each way", schedule.tag()),
                "an even number".to_owned(),
            ),
            PipelineSchedule::DualPipe if p > 1 && m < 2 * p => fail(
                "microbatches",
                m,
                "`dual_pipe` needs two for every stage",
                format!("at least {}", 2 * p),
            ),
            schedule if !self.flushes() && m < p => fail(
                "microbatches",
                m,
                &format!("`{}` has one in flight for every stage", schedule.tag()),
                format!("at least {p}"),
            ),
            _ => Ok(()),
        }
    }

    /// Whether a step ends with an empty pipeline.
    #[must_use]
    pub const fn flushes(&self) -> bool {
        self.schedule.flushes() || self.positions == 1
    }

    /// Whether a pass is the last of a step at its position, given how many of its kind are left.
    #[must_use]
    pub const fn is_last(&self, slot: Slot, left: u32) -> bool {
        if self.flushes() { left == 0 } else { slot.microbatch + 1 == self.microbatches }
    }

    /// The passes of every position, in order.
    #[must_use]
    pub fn orders(&self) -> Vec<Vec<Slot>> {
        match self.schedule {
            PipelineSchedule::Chimera if self.positions > 1 => self.chimera(),
            PipelineSchedule::DualPipe if self.positions > 1 => {
                dual_pipe::orders(self.positions, self.microbatches)
            }
            _ => (0..self.positions).map(|position| self.order(position)).collect(),
        }
    }

    fn order(&self, position: u32) -> Vec<Slot> {
        let (p, v) = (self.positions, self.pieces);
        let total = self.microbatches * v;
        let warm_up = match self.schedule {
            PipelineSchedule::GPipe => total,
            _ if v > 1 => (p - 1 - position) * 2 + (v - 1) * p,
            _ => p - 1 - position,
        }
        .min(total);
        // The k-th pass of a direction: which microbatch, which of the position's pieces.
        let slot = |k: u32, turn: Turn| {
            let (mut microbatch, mut piece) = (k, 0);
            if v > 1 {
                microbatch = k / (p * v) * p + k % p;
                piece = k % (p * v) / p;
            }
            if turn != Turn::Forward {
                piece = v - 1 - piece;
            }
            let piece = piece * p + position;
            Slot { turn, microbatch, piece, direction: 0, beside: false, carried: false }
        };
        if !self.flushes() {
            let behind = p - 1 - position;
            let pair = |k: u32| {
                let backward = slot((k + total - behind) % total, Turn::Backward);
                let carried = k == 0 && behind > 0;
                [slot(k, Turn::Forward), Slot { carried, ..backward }]
            };
            return (0..total).flat_map(pair).collect();
        }
        let split = self.schedule == PipelineSchedule::ZeroBubble && p > 1;
        let mut order: Vec<Slot> = (0..warm_up).map(|k| slot(k, Turn::Forward)).collect();
        for k in 0..total {
            if warm_up + k < total {
                order.push(slot(warm_up + k, Turn::Forward));
            }
            if !split {
                order.push(slot(k, Turn::Backward));
                continue;
            }
            order.push(slot(k, Turn::Inputs));
            if k >= position {
                order.push(slot(k - position, Turn::Weights));
            }
        }
        if split {
            let left = total.saturating_sub(position)..total;
            order.extend(left.map(|k| slot(k, Turn::Weights)));
        }
        order
    }

    fn chimera(&self) -> Vec<Vec<Slot>> {
        let (p, half) = (self.positions as usize, self.microbatches / 2);
        let mut orders: Vec<Vec<Slot>> = vec![Vec::new(); p];
        // Passes done by (direction, piece), as of the beginning of a unit of time.
        let mut done = [vec![[0u32; 2]; p], vec![[0u32; 2]; p]];
        while orders.iter().any(|order| order.len() < 2 * self.microbatches as usize) {
            let before = done.clone();
            for (position, order) in orders.iter_mut().enumerate() {
                let mut best: Option<(bool, usize, u32, usize)> = None;
                for (direction, stages) in before.iter().enumerate() {
                    let piece = if direction == 0 { position } else { p - 1 - position };
                    let [forward, backward] = stages[piece];
                    let returned = if piece + 1 == p { forward } else { stages[piece + 1][1] };
                    let arrived = if piece == 0 { half } else { stages[piece - 1][0] };
                    let kept = u32::try_from(p - piece).expect("few stages");
                    if backward < forward.min(returned) {
                        best = best.max(Some((true, p - piece, u32::MAX - backward, direction)));
                    }
                    if forward < arrived.min(half) && forward - backward < kept {
                        best = best.max(Some((false, piece, u32::MAX - forward, direction)));
                    }
                }
                let Some((backward, _, microbatch, direction)) = best else { continue };
                let piece = if direction == 0 { position } else { p - 1 - position };
                done[direction][piece][usize::from(backward)] += 1;
                let direction = u32::from(direction == 1);
                order.push(Slot {
                    turn: if backward { Turn::Backward } else { Turn::Forward },
                    // Those that go up are numbered after those that go down.
                    microbatch: u32::MAX - microbatch + direction * half,
                    piece: u32::try_from(piece).expect("few stages"),
                    direction,
                    beside: false,
                    carried: false,
                });
            }
        }
        orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(positions: u32, microbatches: u32, schedule: PipelineSchedule) -> Pipeline {
        Pipeline { positions, microbatches, pieces: 1, schedule }
    }

    #[test]
    fn orders_of_the_papers() {
        let letter = |turn: Turn| match turn {
            Turn::Forward => 'F',
            Turn::Backward => 'B',
            Turn::Inputs => 'I',
            Turn::Weights => 'W',
        };
        let shown = |pipeline: Pipeline, position: usize| -> String {
            let order = &pipeline.orders()[position];
            order
                .iter()
                .map(|s| format!("{}{}", letter(s.turn), s.microbatch))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let gpipe = pipeline(2, 3, PipelineSchedule::GPipe);
        assert_eq!(shown(gpipe, 0), "F0 F1 F2 B0 B1 B2");
        let flush = pipeline(4, 8, PipelineSchedule::OneForwardOneBackward);
        assert_eq!(shown(flush, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
        let halves = pipeline(4, 5, PipelineSchedule::ZeroBubble);
        assert_eq!(shown(halves, 0), "F0 F1 F2 F3 I0 W0 F4 I1 W1 I2 W2 I3 W3 I4 W4");
        assert_eq!(shown(halves, 2), "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 I4 W2 W3 W4");
        assert_eq!(shown(flush, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
        // A step's first backward passes are of the last microbatches of the step before.
        let steady = pipeline(4, 5, PipelineSchedule::PipeDream);
        assert_eq!(shown(steady, 0), "F0 B2 F1 B3 F2 B4 F3 B0 F4 B1");
        assert_eq!(shown(steady, 2), "F0 B4 F1 B0 F2 B1 F3 B2 F4 B3");
        assert_eq!(shown(steady, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
        let carried = |position: usize| -> Vec<bool> {
            steady.orders()[position].iter().map(|slot| slot.carried).collect()
        };
        assert_eq!(carried(0).iter().filter(|carried| **carried).count(), 1);
        assert!(carried(0)[1] && !carried(3).contains(&true));
    }

    #[test]
    fn every_pass_is_run_once_where_its_piece_is() {
        for schedule in [
            PipelineSchedule::OneForwardOneBackward,
            PipelineSchedule::Chimera,
            PipelineSchedule::ZeroBubble,
            PipelineSchedule::DualPipe,
            PipelineSchedule::PipeDream,
        ] {
            for (p, m) in [(2, 4), (4, 8), (4, 10), (8, 16), (12, 30)] {
                let pipeline = pipeline(p, m, schedule);
                let mut seen = std::collections::BTreeSet::new();
                for (position, order) in (0..).zip(pipeline.orders()) {
                    for slot in order {
                        assert_eq!(pipeline.position(slot.piece, slot.direction), position);
                        let again = (slot.turn, slot.microbatch, slot.piece);
                        assert!(seen.insert(again));
                        let ends = (Turn::Backward, slot.microbatch, slot.piece);
                        assert!(slot.turn != Turn::Weights || seen.insert(ends));
                    }
                }
                seen.retain(|(turn, ..)| matches!(turn, Turn::Forward | Turn::Backward));
                assert_eq!(seen.len(), 2 * (p * m) as usize);
            }
        }
    }
}
