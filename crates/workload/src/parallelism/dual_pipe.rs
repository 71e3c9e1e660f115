//! `DualPipe`: two pipelines in opposite directions, forward and backward passes side by side.
//!
//! Half of the microbatches go down the positions and half up. Each position has a stage of either direction,
//! so it is the j-th of both halves of the pipeline, counted from its nearer end, and both ends run alike. In
//! the middle of a step a forward pass of one direction runs layer by layer beside a backward pass of the other:
//! what either communicates passes beside what the other computes. Gradients of weights wait for idle
//! time at the beginning and the end of a step.
//!
//! The bubble, where F and B are a pass and its whole backward pass, W the weights' part, F&B both side by side
//! (DeepSeek-V3, 2412.19437, §3.2.1, table 2): (p/2 − 1)(F&B + B − 3W). It is the most where passes are not equal.
//! The order of passes is the one that its authors published (github.com/deepseek-ai/DualPipe): eight phases.

use std::collections::VecDeque;

use super::slot::{Slot, Turn};

/// Which pipeline: the one that begins at the nearer end, or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Near,
    Far,
}

/// A position that is being filled.
#[derive(Debug)]
struct Position {
    positions: u32,
    position: u32,
    /// Microbatches of a direction.
    half: u32,
    order: Vec<Slot>,
    /// By direction: passes that are in order.
    forward: [u32; 2],
    backward: [u32; 2],
    /// Backward passes whose weights' part is to come.
    later: VecDeque<Slot>,
}

impl Position {
    fn slot(&self, turn: Turn, from: Way) -> Slot {
        let upper = self.position >= self.positions / 2;
        let direction = u32::from((from == Way::Far) != upper);
        let counts = if turn == Turn::Forward { self.forward } else { self.backward };
        Slot {
            turn,
            microbatch: counts[direction as usize] + direction * self.half,
            piece: match direction {
                0 => self.position,
                _ => self.positions - 1 - self.position,
            },
            direction,
            beside: false,
            carried: false,
        }
    }

    fn forward(&mut self, from: Way) {
        let slot = self.slot(Turn::Forward, from);
        self.forward[slot.direction as usize] += 1;
        self.order.push(slot);
    }

    fn backward(&mut self, from: Way, turn: Turn) {
        let slot = self.slot(turn, from);
        self.backward[slot.direction as usize] += 1;
        self.order.push(slot);
        if turn == Turn::Inputs {
            self.later.push_back(Slot { turn: Turn::Weights, ..slot });
        }
    }

    fn weights(&mut self) {
        self.order.extend(self.later.pop_front());
    }

    fn both(&mut self, forward: Way, backward: Way) {
        self.forward(forward);
        if let Some(last) = self.order.last_mut() {
            last.beside = true;
        }
        self.backward(backward, Turn::Backward);
    }

    fn fill(mut self) -> Vec<Slot> {
        use Way::{Far, Near};
        let inner = self.position.min(self.positions - 1 - self.position);
        let outer = self.positions / 2 - 1 - inner;
        // 1, 2: forward passes alone, until the first backward pass comes.
        (0..2 * outer).for_each(|_| self.forward(Near));
        for _ in 0..=inner {
            self.forward(Near);
            self.forward(Far);
        }
        // 3
        for _ in 0..outer {
            self.backward(Far, Turn::Inputs);
            self.weights();
            self.forward(Far);
        }
        // 4: side by side. In the middle the first backward pass needs the forward pass before it.
        for k in 0..=self.half + inner - self.positions {
            if k == 0 && outer == 0 {
                self.forward(Near);
                self.backward(Far, Turn::Backward);
            } else {
                self.both(Near, Far);
            }
            self.both(Far, Near);
        }
        // 5
        for _ in 0..outer {
            self.backward(Far, Turn::Backward);
            self.both(Far, Near);
        }
        // 6: backward passes alone, the later half without the weights' part.
        let passes = 2 * (inner + 1);
        for k in 0..passes {
            let turn = if k < passes / 2 { Turn::Backward } else { Turn::Inputs };
            self.backward(if k % 2 == 0 { Far } else { Near }, turn);
        }
        // 7, 8
        for _ in 0..outer {
            self.weights();
            self.backward(Near, Turn::Inputs);
        }
        (0..=inner).for_each(|_| self.weights());
        self.order
    }
}

/// The passes of every position, of at least twice as many microbatches as positions, both even.
pub(super) fn orders(positions: u32, microbatches: u32) -> Vec<Vec<Slot>> {
    let fill = |position| {
        let blank = Position {
            positions,
            position,
            half: microbatches / 2,
            order: Vec::new(),
            forward: [0; 2],
            backward: [0; 2],
            later: VecDeque::new(),
        };
        blank.fill()
    };
    (0..positions).map(fill).collect()
}
