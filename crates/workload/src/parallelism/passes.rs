//! One pass of a microbatch through one piece of the model, layer by layer.
//!
//! A pass begins with what the piece before has handed on, and hands on to the next. What a layer computes and
//! exchanges is in `layers.rs`. Two passes side by side take turns, a layer each, so that one computes
//! while the other communicates.
//!
//! A block whose activations are not kept is computed again before its gradient, with all that it exchanges
//! (`recompute.rs`).
//!
//! A stage sends the whole output of its last layer to the next one, from each rank of a tensor
//! group; with `sp` its share. With `scatter_messages` it sends a share without `sp`, too, which is gathered where
//! it arrives. Unless `overlap_messages`, it computes nothing until a message has arrived.

use std::collections::BTreeMap;
use std::ops::Range;

use allrail_collective::Operation;
use allrail_core::Time;

use super::emit::{Emitter, Span};
use super::layers::{Run, suffix};
use super::slot::{Slot, Turn};
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::{Cut, Layer};
use crate::spec::Axis;

/// What passes hand on from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    /// By (direction-free) microbatch and piece: what the pass waits for.
    forward: BTreeMap<(u32, u32), Vec<NodeId>>,
    backward: BTreeMap<(u32, u32), Vec<NodeId>>,
    /// Passes that wait for what the iteration before hands on, by the same: their first nodes.
    carried: BTreeMap<(u32, u32), NodeId>,
}

impl Handed {
    /// Whether a pass has all that it needs from other passes.
    pub(crate) fn ready(&self, slot: Slot) -> bool {
        let at = (slot.microbatch, slot.piece);
        match slot.turn {
            _ if slot.carried => true,
            Turn::Forward => slot.piece == 0 || self.forward.contains_key(&at),
            Turn::Backward | Turn::Inputs => self.backward.contains_key(&at),
            // It comes after the inputs' part at the same position.
            Turn::Weights => true,
        }
    }
}

/// The last node that gives a layer's gradient, of the last microbatch.
pub(crate) type Done = Vec<(usize, NodeId)>;

/// A pass that is under way.
#[derive(Debug)]
struct Walk {
    slot: Slot,
    position: usize,
    /// The layers of its piece, and how many of them are through.
    layers: Range<usize>,
    through: usize,
    /// What the next layer waits for.
    data: Vec<NodeId>,
    /// Embeddings on their way.
    rows: Vec<NodeId>,
    /// Whether its gradients travel, and the nodes that give them.
    leaves: bool,
    done: Done,
}

impl Emitter<'_> {
    /// Adds a pass; of a backward pass, which node gives which layer's gradient, ready to leave if it `leaves`.
    pub(crate) fn pass(&mut self, slot: Slot, leaves: bool, handed: &mut Handed) -> Done {
        if slot.carried {
            let position = self.plan.pipeline.position(slot.piece, slot.direction) as usize;
            let none = (Time::ZERO, Pass::Backward);
            let first = self.compute(position, "gradient of the step before", none, &[]);
            handed.carried.insert((slot.microbatch, slot.piece), first);
        }
        let mut walk = self.enter(slot, leaves, handed);
        while self.step(&mut walk) {}
        self.hand_on(walk, handed)
    }

    /// Adds two passes of one position side by side, which hand on when both are through; of each what
    /// [`Self::pass`] gives.
    pub(crate) fn both(
        &mut self,
        [one, other]: [(Slot, bool); 2],
        handed: &mut Handed,
    ) -> [Done; 2] {
        let mut walks = [one, other].map(|(slot, leaves)| self.enter(slot, leaves, handed));
        while walks.each_mut().map(|walk| self.step(walk)).contains(&true) {}
        walks.map(|mut walk| {
            walk.data.extend(self.stages[walk.position].chain);
            self.hand_on(walk, handed)
        })
    }

    /// What is handed on to the next iteration is what its passes wait for.
    pub(crate) fn carry_on(&mut self, handed: &Handed) {
        for (at, first) in &handed.carried {
            for before in handed.backward.get(at).into_iter().flatten() {
                self.builder.carry(*first, *before);
            }
        }
    }

    fn enter(&self, slot: Slot, leaves: bool, handed: &mut Handed) -> Walk {
        let plan = self.plan;
        let at = (slot.microbatch, slot.piece);
        let data = match slot.turn {
            Turn::Forward => handed.forward.remove(&at),
            Turn::Backward | Turn::Inputs if slot.carried => None,
            Turn::Backward | Turn::Inputs => handed.backward.remove(&at),
            Turn::Weights => None,
        };
        Walk {
            slot,
            position: plan.pipeline.position(slot.piece, slot.direction) as usize,
            layers: plan.pieces[slot.piece as usize].clone(),
            through: 0,
            data: data.unwrap_or_default(),
            rows: Vec::new(),
            leaves,
            done: Done::new(),
        }
    }

    /// The next layer of a pass; whether there was one.
    fn step(&mut self, walk: &mut Walk) -> bool {
        let Range { start, end } = walk.layers;
        if start + walk.through == end {
            return false;
        }
        match walk.slot.turn {
            Turn::Forward => self.step_forward(walk, start + walk.through),
            Turn::Backward | Turn::Inputs => self.step_backward(walk, end - 1 - walk.through),
            Turn::Weights => {
                let i = end - 1 - walk.through;
                let gradient = self.layer_weights(walk.position, i, walk.slot);
                self.done(walk, i, gradient);
            }
        }
        walk.through += 1;
        true
    }

    fn step_forward(&mut self, walk: &mut Walk, i: usize) {
        let layer = &self.plan.model.layers[i];
        if layer.joins {
            walk.data.append(&mut walk.rows);
        }
        let data = std::mem::take(&mut walk.data);
        walk.data = self.layer_forward(walk.position, i, walk.slot, Run::FIRST, data);
        if matches!(layer.cut, Cut::Tables { .. }) {
            walk.rows = std::mem::take(&mut walk.data);
        }
    }

    fn step_backward(&mut self, walk: &mut Walk, i: usize) {
        let (slot, position) = (walk.slot, walk.position);
        let layer = &self.plan.model.layers[i];
        if matches!(layer.cut, Cut::Tables { .. }) {
            walk.data.append(&mut walk.rows);
        }
        if let Some(block) = self.repeated(&walk.layers, i) {
            let mut again = walk.data.clone();
            for j in block {
                again = self.layer_forward(position, j, slot, Run::AGAIN, again);
            }
            walk.data.extend(again);
        }
        let data = std::mem::take(&mut walk.data);
        let (data, gradient) = self.layer_backward(position, i, slot, data);
        walk.data = data;
        if slot.turn == Turn::Backward {
            self.done(walk, i, gradient);
        }
        if layer.joins {
            walk.rows = self.rows_back(position, i, slot, &walk.data);
        }
    }

    /// A layer's gradient is there.
    fn done(&mut self, walk: &mut Walk, i: usize, mut gradient: NodeId) {
        let layer = &self.plan.model.layers[i];
        let before = if walk.leaves { self.before_leaving(layer) } else { Time::ZERO };
        if before > Time::ZERO {
            let name = format!("{} gradient compressed", layer.name);
            gradient = self.compute(walk.position, &name, (before, Pass::Backward), &[gradient]);
        }
        let copied = if walk.leaves { self.copied_gradient(layer) } else { Time::ZERO };
        if copied > Time::ZERO {
            let name = format!("{} gradient copied", layer.name);
            gradient = self.compute(walk.position, &name, (copied, Pass::Backward), &[gradient]);
        }
        walk.done.push((i, gradient));
    }

    /// A pass is through its piece: the next one gets its data.
    fn hand_on(&mut self, walk: Walk, handed: &mut Handed) -> Done {
        let Walk { slot, position, layers, data, done, .. } = walk;
        let (plan, at) = (self.plan, slot.microbatch);
        let all = &plan.model.layers;
        match slot.turn {
            Turn::Forward if slot.piece + 1 == plan.pipeline.total_pieces() => {
                handed.backward.insert((at, slot.piece), data);
            }
            Turn::Forward => {
                let last = &all[layers.end - 1];
                let what = (last, "activations", slot.piece + 1, Pass::Forward);
                let data = self.send_on(position, slot, what, data);
                handed.forward.insert((at, slot.piece + 1), data);
            }
            Turn::Backward | Turn::Inputs if slot.piece > 0 => {
                let before = &all[layers.start - 1];
                let what = (before, "gradient", slot.piece - 1, Pass::Backward);
                let data = self.send_on(position, slot, what, data);
                handed.backward.insert((at, slot.piece - 1), data);
            }
            _ => {}
        }
        done
    }

    /// What a layer hands on, at the position of another piece: a message, where that is another one.
    fn send_on(
        &mut self,
        position: usize,
        slot: Slot,
        (layer, word, piece, pass): (&Layer, &str, u32, Pass),
        data: Vec<NodeId>,
    ) -> Vec<NodeId> {
        let destination = self.plan.pipeline.position(piece, slot.direction) as usize;
        if destination == position {
            return data;
        }
        let name = format!("{} {word}{}", layer.name, suffix(self, slot));
        // Of a microbatch, from one rank.
        let whole = self.plan.shares(layer).whole;
        let parallelism = &self.plan.workload.parallelism;
        let scattered = parallelism.scatter_messages && !parallelism.sp;
        let ranks = if scattered { self.plan.degree(Axis::Tp) } else { 1 };
        let bytes = self.bytes(layer.output, whole * ranks);
        let data = self.after(position, &data);
        let what = (bytes, Purpose::Pipeline, pass);
        let (send, receive) = self.message((position, destination), &name, what, &data);
        if !parallelism.overlap_messages || self.plan.waits_for_kernels() {
            self.stages[position].chain = Some(send);
        }
        if ranks == 1 {
            return vec![receive];
        }
        let what = (Operation::AllGather, self.bytes(layer.output, whole), Span::Tensor);
        let kind = (Purpose::Tensor, None, pass);
        let gathered = self.collective(destination, &name, what, kind, &[receive]);
        vec![gathered.unwrap_or(receive)]
    }

    /// The block that ends with a layer, if it is computed again before that layer's gradient.
    fn repeated(&self, layers: &Range<usize>, i: usize) -> Option<Range<usize>> {
        let all = &self.plan.model.layers;
        let recompute = self.plan.workload.parallelism.recompute;
        let goes_on = |i: usize| recompute.joins(&all[i], &all[i + 1]);
        if !recompute.repeats(&all[i]) || (i + 1 < layers.end && goes_on(i)) {
            return None;
        }
        let before = (layers.start..i).rev().take_while(|before| goes_on(*before)).count();
        Some(i - before..i + 1)
    }
}
