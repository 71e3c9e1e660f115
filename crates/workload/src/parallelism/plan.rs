//! What is decided before any node: the layout, the pieces of the model, what each layer costs.
//!
//! A microbatch is the batch of a replica over the number of microbatches. `planner.rs` decides.

use std::collections::BTreeMap;
use std::ops::Range;

use allrail_core::Time;

use super::layout::Layout;
use super::order::Pipeline;
use super::rows::Touched;
use crate::compression::Compression;
use crate::device::{self, Cost, Device};
use crate::kernels::Launch;
use crate::models::{Cut, Layer, ModelLayers};
use crate::spec::{Axis, Optimizer, Precision, Workload};
use crate::throughput::StepWork;

/// Everything that the nodes are made from.
#[derive(Debug)]
pub(crate) struct Plan<'w> {
    pub(crate) workload: &'w Workload,
    pub(crate) model: ModelLayers,
    pub(crate) layout: Layout,
    pub(crate) pipeline: Pipeline,
    /// The layers of each piece.
    pub(crate) pieces: Vec<Range<usize>>,
    pub(crate) device: Device,
    /// Samples of a microbatch.
    pub(crate) samples: u64,
    /// By layer.
    pub(crate) times: Vec<Times>,
    pub(crate) gradient_precision: Precision,
    pub(crate) compression: Option<Box<dyn Compression>>,
    /// By layer: tables whose gradients travel as rows.
    pub(crate) rows: BTreeMap<usize, Touched>,
}

/// Of one microbatch through one layer, on one NPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) forward: Time,
    pub(crate) input: Time,
    pub(crate) weight: Time,
    /// Of the forward pass and of the gradient of the input: attention between tokens.
    pub(crate) attention: [Time; 2],
}

/// How many ways the parts of a layer are cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// Parameters that tensor parallelism cuts, and FLOPs.
    pub(crate) cut: u64,
    /// Activations that sequence parallelism alone cuts.
    pub(crate) whole: u64,
    /// Tokens of a sample: every activation and FLOP.
    pub(crate) tokens: u64,
    /// Experts.
    pub(crate) experts: u64,
    /// Tables.
    pub(crate) tables: u64,
    /// Parameters, where operator parallelism cuts them.
    pub(crate) outputs: u64,
}

impl Plan<'_> {
    /// What a step of all replicas does.
    pub(crate) fn work(&self) -> StepWork {
        let replicas = self.degree(Axis::Dp) * self.degree(Axis::Ep);
        let samples = self.samples * u64::from(self.pipeline.microbatches) * replicas;
        let flops = self.model.flops() as f64 * samples as f64;
        StepWork {
            samples,
            tokens: self.model.tokens,
            flops: (flops > 0.0).then_some(flops),
            recomputed: (self.recomputed() + self.model.padding() as f64) * samples as f64,
            peak: self.device.peak,
        }
    }

    /// FLOPs of one sample that the backward pass computes again.
    pub(crate) fn recomputed(&self) -> f64 {
        let recompute = self.workload.parallelism.recompute;
        self.model.layers.iter().map(|layer| recompute.flops(layer) as f64).sum()
    }

    /// How many layers each piece of a transformer has, where they are not as many.
    pub(crate) fn uneven_stages(&self) -> Option<String> {
        let layers = |piece: &Range<usize>| {
            let units = self.model.layers[piece.clone()].chunk_by(|a, b| a.unit == b.unit);
            units.filter(|unit| unit.iter().any(|layer| layer.block)).count()
        };
        let counts: Vec<usize> = self.pieces.iter().map(layers).collect();
        let even = counts.iter().all(|count| *count == counts[0]);
        let shown: Vec<String> = counts.iter().map(usize::to_string).collect();
        let transformer = self.model.kv_heads.is_some();
        (transformer && !even).then(|| format!("stages have {} layers", shown.join(", ")))
    }

    /// That pieces of stages were asked for where there are no stages.
    pub(crate) fn idle_pieces(&self) -> Option<String> {
        let given = self.workload.parallelism.virtual_stages.filter(|given| *given > 1);
        let told = |given| format!("`virtual_stages` {given} change nothing: there is no pipeline");
        given.filter(|_| self.pipeline.positions == 1).map(told)
    }

    pub(crate) fn degree(&self, axis: Axis) -> u64 {
        u64::from(self.layout.degree(axis))
    }

    /// How many ranks exchange the gradients of a replica's dense parameters.
    pub(crate) fn exchanging(&self) -> u64 {
        self.degree(Axis::Dp) * self.degree(Axis::Cp) * self.degree(Axis::Ep)
    }

    /// Bytes of a parameter or an activation.
    pub(crate) fn width(&self) -> u64 {
        self.workload.precision.bytes()
    }

    /// How many ways a layer is cut.
    pub(crate) fn shares(&self, layer: &Layer) -> Shares {
        let (tp, op) = (self.degree(Axis::Tp), self.degree(Axis::Op));
        let cut = match layer.cut {
            Cut::Tensor { .. } => tp,
            Cut::Spatial { .. } | Cut::Gathered { .. } => op,
            Cut::Whole | Cut::Tables { .. } => 1,
        };
        Shares {
            cut,
            whole: match layer.cut {
                Cut::Tensor { .. } if self.workload.parallelism.sp => tp,
                Cut::Spatial { .. } => op,
                _ => 1,
            },
            tokens: self.degree(Axis::Cp),
            experts: self.degree(Axis::Ep),
            tables: match layer.cut {
                Cut::Tables { .. } => self.degree(Axis::Dp) * self.degree(Axis::Ep),
                _ => 1,
            },
            outputs: match layer.cut {
                Cut::Gathered { .. } => op,
                Cut::Tensor { .. } => tp,
                _ => 1,
            },
        }
    }

    /// (parameters that all replicas have, parameters of experts) of a layer on one NPU.
    pub(crate) fn parameters(&self, layer: &Layer) -> (u64, u64) {
        let shares = self.shares(layer);
        let cut = layer.parameters.div_ceil(shares.outputs * shares.tables);
        let experts = layer.experts.map_or(0, |experts| {
            u64::from(experts.count) / shares.experts * experts.parameters.div_ceil(shares.cut)
        });
        (cut + layer.replicated, experts)
    }

    /// Whether the host waits for each kernel, so that nothing travels beside computing.
    pub(super) fn waits_for_kernels(&self) -> bool {
        self.workload.compute.launch == Launch::Blocking
    }

    /// Bytes that the optimizer keeps beside a parameter and its gradient.
    pub(crate) fn optimizer_bytes(&self) -> u64 {
        let copy = if self.workload.precision == Precision::Fp32 { 0 } else { 4 };
        match self.workload.optimizer {
            Optimizer::Adam => copy + 8,
            Optimizer::Momentum => copy + 4,
            Optimizer::Sgd => copy,
            Optimizer::None => 0,
        }
    }

    /// How many of an NPU's parameters of a layer, by its place, an update changes: of tables, those of the rows
    /// that were read, if none was read twice.
    pub(crate) fn updated(&self, i: usize, parameters: u64) -> u64 {
        if let Some(table) = self.rows.get(&i) {
            let rest = parameters.saturating_sub(table.parameters());
            return parameters.min(rest + table.updated(self.exchanging()));
        }
        let layer = &self.model.layers[i];
        let Cut::Tables { exchanged } = layer.cut else { return parameters };
        let batch = self.samples.saturating_mul(u64::from(self.pipeline.microbatches));
        parameters.min(exchanged.saturating_mul(batch))
    }

    /// How long it takes to move so many bytes for each of these parameters.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn moved(&self, parameters: u64, each: u64) -> Time {
        let bytes = parameters as f64 * each as f64;
        device::time(self.device.picoseconds(Cost { flops: 0.0, bytes }))
    }

    /// How long the update of so many parameters takes: the gradient is read, the optimizer's state
    /// and the parameters are read and written.
    pub(crate) fn update(&self, parameters: u64) -> Time {
        if self.workload.optimizer == Optimizer::None {
            return Time::ZERO;
        }
        let each = self.gradient_precision.bytes() + 2 * (self.optimizer_bytes() + self.width());
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let bytes = parameters as f64 * each as f64;
        device::time(self.device.picoseconds(Cost { flops: 0.0, bytes }))
    }

    /// What is assumed of tables whose gradients travel as rows.
    pub(super) fn row_notes(&self) -> Vec<String> {
        let of = |(i, table): (&usize, &Touched)| {
            let (name, Touched { rows, touched, .. }) = (&self.model.layers[*i].name, table);
            format!("the gradient of `{name}` travels as rows: a rank touches {touched} of {rows}")
        };
        self.rows.iter().map(of).collect()
    }

    /// Bytes of a layer's gradient beyond those of a dense one, which may be negative: (fewer, more).
    pub(crate) fn kept_rows(&self, i: usize) -> (u64, u64) {
        let Some(table) = self.rows.get(&i) else { return (0, 0) };
        let ranks = self.exchanging();
        let width = self.gradient_precision.bytes();
        // Everybody's rows; with servers what is pushed and what is pulled.
        let copies = if self.workload.by_servers { 2 } else { ranks };
        (table.parameters() * width, copies * table.touched * table.row(width))
    }
}
