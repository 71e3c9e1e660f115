//! Writes what one NPU does, one thing after the other, into a step graph.
//!
//! A loop says `compute`, `issue` and `wait`; the chain turns these into nodes. What it waits for is
//! remembered until the next compute node, which then depends on it.

use allrail_core::{Bytes, FieldError, Rank, Time, counted};
use allrail_workload::graph::{
    Actor, ActorId, Builder, Group, GroupId, Node, NodeId, Part, Pass, Purpose, StepGraph, Work,
};

use super::file::{AstraSim, Layer, LayerPass};
use super::groups::{Involved, involved};

const LONGEST_NS: u64 = 86_400 * 1_000_000_000;
const LARGEST_BYTES: u64 = 1 << 50;

/// Which collective of a layer, and the computing before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Forward,
    InputGradient,
    WeightGradient,
}

/// A collective that overtakes the others, or one that takes its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Its,
    First,
}

/// The graph under construction.
pub(super) struct Chain<'a> {
    file: &'a AstraSim,
    builder: Builder,
    actor: ActorId,
    groups: Vec<(Vec<Part>, GroupId)>,
    involved: Vec<Involved>,
    /// The last node of the chain.
    last: Option<NodeId>,
    first: Option<NodeId>,
    /// What the next compute node waits for beside it.
    pending: Vec<NodeId>,
    /// It waits for these of the pass before: layers whose gradient must have come.
    carried: Vec<usize>,
    /// Per layer: when its collectives of this pass are over.
    over: Vec<[Option<NodeId>; 3]>,
    /// (node, layer): carried over from the weight gradients, once they are known.
    gates: Vec<(NodeId, usize)>,
    npus: u64,
    /// Per layer: which of its collectives the loop has asked for.
    asked: Vec<[bool; 3]>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(file: &'a AstraSim, sizes: &[u32]) -> Result<Self, FieldError> {
        let npus: u64 = sizes.iter().map(|size| u64::from(*size)).product();
        for (field, scale) in
            [("compute_scale", file.options.compute_scale), ("comm_scale", file.options.comm_scale)]
        {
            if !scale.is_finite() || scale <= 0.0 {
                return Err(FieldError::new(
                    format!("workload.model.astra_sim.options.{field}"),
                    scale,
                    "it is not a positive number",
                    "1 is no change",
                ));
            }
        }
        let mut builder = Builder::default();
        let ranks = u32::try_from(npus)
            .map_err(|_| FieldError::new("fabric", npus, "too many NPUs", "use fewer than 2^32"))?;
        let actor = builder
            .actor(Actor { name: "all ranks".into(), ranks: (0..ranks).map(Rank).collect() });
        let involved = (0..file.layers.len())
            .map(|index| involved(file, index, sizes))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            file,
            builder,
            actor,
            groups: Vec::new(),
            involved,
            last: None,
            first: None,
            pending: Vec::new(),
            carried: Vec::new(),
            over: vec![[None; 3]; file.layers.len()],
            gates: Vec::new(),
            npus,
            asked: vec![[false; 3]; file.layers.len()],
        })
    }

    /// How many layers there are.
    pub(super) fn layers(&self) -> usize {
        self.file.layers.len()
    }

    /// What a layer communicates, whether or not it finds somebody to talk to.
    pub(super) fn collective(&self, index: usize, of: Of) -> Option<allrail_collective::Operation> {
        phase(&self.file.layers[index], of).collective
    }

    /// The next computing waits for this layer's gradient of the pass before.
    pub(super) fn gate(&mut self, index: usize) {
        self.carried.push(index);
    }

    /// Computes a layer's share of a pass.
    pub(super) fn compute(&mut self, index: usize, of: Of) -> Result<(), FieldError> {
        let layer = &self.file.layers[index];
        let time = scaled(phase(layer, of).compute_ns, self.file.options.compute_scale);
        if time > LONGEST_NS {
            return Err(self.out_of_range(index, "compute time is more than a day"));
        }
        let time = Time::from_ns(time);
        let (what, pass) = match of {
            Of::Forward => ("forward", Pass::Forward),
            Of::InputGradient => ("input gradient", Pass::Backward),
            Of::WeightGradient => ("weight gradient", Pass::Backward),
        };
        let mut after = std::mem::take(&mut self.pending);
        after.extend(self.last);
        after.sort_unstable();
        after.dedup();
        let name = format!("{}, {what}", layer.name);
        let node = Node { actor: self.actor, work: Work::Compute { time }, tensor: None, pass };
        let id = self.builder.node(&name, node, &after);
        self.gates.extend(std::mem::take(&mut self.carried).into_iter().map(|layer| (id, layer)));
        self.first.get_or_insert(id);
        self.last = Some(id);
        Ok(())
    }

    /// Starts a collective of a layer, if it has one and somebody to talk to. It is over when the
    /// update time has passed after it.
    pub(super) fn issue(&mut self, index: usize, of: Of, turn: Turn) -> Result<(), FieldError> {
        self.asked[index][of as usize] = true;
        let layer = &self.file.layers[index];
        let phase = phase(layer, of);
        let gradient = of == Of::WeightGradient;
        let parts = self.involved[index].of(gradient, phase.over).to_vec();
        let given = scaled(phase.bytes, self.file.options.comm_scale);
        let Some(operation) = phase.collective.filter(|_| given > 0 && !parts.is_empty()) else {
            return Ok(());
        };
        let members: u64 = parts.iter().map(|part| u64::from(part.size)).product();
        let gathers =
            operation == allrail_collective::Operation::AllGather && !self.file.options.gathered;
        let bytes = given.saturating_mul(if gathers { members } else { 1 });
        if bytes > LARGEST_BYTES {
            return Err(self.out_of_range(index, "collective is of more than 1 PiB"));
        }
        if layer.update_ns > LONGEST_NS {
            return Err(self.out_of_range(index, "update time is more than a day"));
        }
        let group = self.group(parts, members);
        let expert = operation == allrail_collective::Operation::AllToAll;
        let (what, purpose) = match of {
            Of::WeightGradient => ("weight gradient", Purpose::Data),
            Of::Forward if expert => ("forward", Purpose::Expert),
            Of::Forward => ("forward", Purpose::Tensor),
            Of::InputGradient if expert => ("input gradient", Purpose::Expert),
            Of::InputGradient => ("input gradient", Purpose::Tensor),
        };
        let place = u32::try_from(index).expect("fewer than 2^32 layers");
        let node = Node {
            actor: self.actor,
            work: Work::Collective { operation, bytes: Bytes::new(bytes), group, purpose },
            tensor: gradient.then_some(place),
            pass: if of == Of::Forward { Pass::Forward } else { Pass::Backward },
        };
        let after: Vec<NodeId> = self.last.into_iter().collect();
        let name = format!("{}, {what}", layer.name);
        let id = self.builder.node(&name, node, &after);
        if turn == Turn::First {
            self.builder.urgent(id);
        }
        let update = Node {
            actor: self.actor,
            work: Work::Compute { time: Time::from_ns(layer.update_ns) },
            tensor: None,
            pass: Pass::Update,
        };
        let over = self.builder.node(&format!("{name}, update"), update, &[id]);
        self.builder.delay(over);
        self.over[index][of as usize] = Some(over);
        Ok(())
    }

    /// The next computing waits until a layer's collective is over, if it was started.
    pub(super) fn wait(&mut self, index: usize, of: Of) {
        self.pending.extend(self.over[index][of as usize]);
    }

    fn out_of_range(&self, index: usize, what: &str) -> FieldError {
        FieldError::new(
            format!("workload.model.astra_sim.layers[{index}]"),
            &self.file.layers[index].name,
            format!("its {what}"),
            "scale it otherwise",
        )
    }

    fn group(&mut self, parts: Vec<Part>, members: u64) -> GroupId {
        if let Some((_, id)) = self.groups.iter().find(|(known, _)| *known == parts) {
            return *id;
        }
        let dimensions: Vec<String> = parts.iter().map(|part| part.dimension.name()).collect();
        let name = if members == self.npus {
            "all ranks".to_owned()
        } else {
            format!("{} on {}", counted(members, "rank"), dimensions.join(", "))
        };
        let group =
            Group { name, parts: parts.clone(), ranks: Vec::new(), actors: vec![self.actor] };
        let id = self.builder.group(group);
        self.groups.push((parts, id));
        id
    }

    /// What is said of collectives that the file has and its loop does not run; `None` if it runs all.
    pub(super) fn left(&self) -> Option<String> {
        let passes = [Of::Forward, Of::InputGradient, Of::WeightGradient];
        let there = |layer: &Layer, of| {
            let phase = phase(layer, of);
            phase.collective.is_some() && phase.bytes > 0
        };
        let (mut all, mut left) = (0, Vec::new());
        for (layer, asked) in self.file.layers.iter().zip(&self.asked) {
            for of in passes.into_iter().filter(|of| there(layer, *of)) {
                all += 1;
                if !asked[of as usize] {
                    left.push(layer.name.as_str());
                }
            }
        }
        let first = left.first()?;
        Some(format!(
            "warning: `{}` runs {} of the file's {all}, as in ASTRA-sim; the first that it \
             leaves out is of layer `{first}`",
            self.file.training_loop.name(),
            all - left.len(),
            all = counted(all, "collective")
        ))
    }

    /// Closes the graph: the next pass begins where this one's chain ends.
    pub(super) fn finish(mut self) -> Result<StepGraph, FieldError> {
        if !self.pending.is_empty() {
            // The chain ends with a wait: what comes next is of the next pass.
            let mut after = std::mem::take(&mut self.pending);
            after.extend(self.last);
            let node = Node {
                actor: self.actor,
                work: Work::Compute { time: Time::from_ps(0) },
                tensor: None,
                pass: Pass::Unknown,
            };
            self.last = Some(self.builder.node("end of the pass", node, &after));
        }
        if let (Some(first), Some(last)) = (self.first, self.last) {
            self.builder.carry(first, last);
        }
        for (node, layer) in &self.gates {
            if let Some(over) = self.over[*layer][Of::WeightGradient as usize] {
                self.builder.carry(*node, over);
            }
        }
        self.builder.finish()
    }
}

fn phase(layer: &Layer, of: Of) -> LayerPass {
    match of {
        Of::Forward => layer.forward,
        Of::InputGradient => layer.input_gradient,
        Of::WeightGradient => layer.weight_gradient,
    }
}

/// A whole number scaled and rounded down, as ASTRA-sim does: in 32-bit floats. Of sizes above
/// 16 MiB the last digits change, and so whether they divide into chunks.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn scaled(value: u64, scale: f64) -> u64 {
    (value as f32 * scale as f32) as u64
}
