//! What is decided before any node: the layout, the pieces of the model, what each layer costs.
//!
//! A microbatch is the batch of a replica over the number of microbatches.

use std::collections::BTreeMap;
use std::ops::Range;

use allrail_core::{Time, counted};

use super::batch::Batches;
use super::compressed;
use super::layout::Layout;
use super::order::Pipeline;
use super::pieces;
use super::rows::{self, Touched};
use crate::compression::Compression;
use crate::device::{self, Cost, Device};
use crate::error::WorkloadError;
use crate::kernels::{Launch, Part, PassTimes};
use crate::models::{self, Cut, Layer, ModelLayers};
use crate::spec::{Axis, Optimizer, PipelineSchedule, Precision, Workload};
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

pub(super) fn wrong(field: &str, value: impl ToString, why: &str, hint: &str) -> WorkloadError {
    WorkloadError::new(format!("workload.{field}"), value, why, hint)
}

/// Of layers and microbatches: an iteration has some four nodes for each.
const MOST_PASSES: u64 = 8_000_000;
/// The ranks of every class are listed.
const MOST_NPUS: u64 = 1 << 24;

impl<'w> Plan<'w> {
    /// Decides.
    ///
    /// # Errors
    /// Anything that does not go together.
    pub(crate) fn new(workload: &'w Workload, sizes: &[u32]) -> Result<Self, WorkloadError> {
        let model = models::model(workload)?;
        let npus = sizes.iter().try_fold(1u64, |product, size| product.checked_mul((*size).into()));
        if npus.is_none_or(|npus| npus == 0 || npus > MOST_NPUS) {
            let shown: Vec<String> = sizes.iter().map(u32::to_string).collect();
            let why = format!("a training step takes 1 to {MOST_NPUS} NPUs");
            let hint = "take a smaller fabric";
            return Err(WorkloadError::new("fabric", shown.join(" × "), why, hint));
        }
        let layout = Layout::new(&workload.parallelism, sizes)?;
        let parallelism = &workload.parallelism;
        let pp = layout.degree(Axis::Pp);
        let replicas = layout.degree(Axis::Dp) * layout.degree(Axis::Ep);
        let Batches { replica: batch, microbatches } = Batches::new(workload, replicas, pp)?;
        if workload.iterations == 0 {
            return Err(wrong("iterations", 0, "it is zero", "at least 1"));
        }
        compressed::check_apart(workload)?;
        let mut parts = parallelism.context.parts(u64::from(layout.degree(Axis::Cp)));
        if parallelism.async_tp {
            parts += 2 * u64::from(layout.degree(Axis::Tp));
        }
        let passes = model.layers.len() as u64 * u64::from(microbatches) * parts;
        if passes > MOST_PASSES {
            let why =
                format!("{passes} passes of a layer are more than {MOST_PASSES} an iteration");
            let hint = "take fewer and larger microbatches";
            return Err(wrong("parallelism.microbatches", microbatches, &why, hint));
        }
        let pieces = match (parallelism.schedule, parallelism.virtual_stages) {
            (PipelineSchedule::Interleaved, given) => given.unwrap_or(2),
            (_, None | Some(1)) => 1,
            (schedule, Some(given)) => {
                let why = format!("`{}` has one piece of the model per stage", schedule.tag());
                let hint = "take `schedule: interleaved`";
                return Err(wrong("parallelism.virtual_stages", given, &why, hint));
            }
        };
        if pieces == 0 {
            return Err(wrong("parallelism.virtual_stages", 0, "it is zero", "at least 1"));
        }
        if parallelism.zero > 3 {
            return Err(wrong("parallelism.zero", parallelism.zero, "there is no such", "0 to 3"));
        }
        let pieces = if pp == 1 { 1 } else { pieces };
        let pipeline =
            Pipeline { positions: pp, microbatches, pieces, schedule: parallelism.schedule };
        pipeline.check()?;
        let mut plan = Self {
            pieces: pieces::cut(&model, pipeline.total_pieces(), parallelism)?,
            device: Device::new(&workload.compute, workload.precision)?,
            samples: u64::from(batch / microbatches),
            times: Vec::new(),
            gradient_precision: workload.gradient_precision.unwrap_or(workload.precision),
            compression: compressed::compression(workload)?,
            rows: BTreeMap::new(),
            workload,
            model,
            layout,
            pipeline,
        };
        plan.divides()?;
        plan.cuts_tokens()?;
        plan.experts_go_together()?;
        plan.overlaps_tensors()?;
        plan.shards_go_together()?;
        plan.goes_without_flush()?;
        plan.rows = rows::find(&plan)?;
        plan.has_what_is_recomputed()?;
        plan.times = plan.times()?;
        plan.is_run_to_its_end()?;
        Ok(plan)
    }

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

    /// Whether a step is neither too large to hold nor too long to count in picoseconds.
    fn is_run_to_its_end(&self) -> Result<(), WorkloadError> {
        const MONTH: f64 = 30.0 * 86_400.0;
        let each = |times: &Times| times.forward.as_s() + times.input.as_s() + times.weight.as_s();
        let step: f64 = self.times.iter().map(each).sum();
        let all = step
            * f64::from(self.pipeline.microbatches)
            * (f64::from(self.workload.iterations) + 1.0);
        if all > MONTH {
            let why = format!("all iterations compute for {:.1} days", all / 86_400.0);
            let hint = "30 days are counted; take fewer iterations or a faster device";
            return Err(wrong("iterations", self.workload.iterations, &why, hint));
        }
        Ok(())
    }

    /// Whether the model can be cut so.
    fn divides(&self) -> Result<(), WorkloadError> {
        let parallelism = &self.workload.parallelism;
        let (tp, op, ep) = (self.degree(Axis::Tp), self.degree(Axis::Op), self.degree(Axis::Ep));
        let uncut = |axis: &str, degree: u64, layer: &Layer, hint: &str| {
            let why = format!("layer `{}` cannot be cut so", layer.name);
            Err(wrong(&format!("parallelism.{axis}"), degree, &why, hint))
        };
        for layer in &self.model.layers {
            if tp > 1 && !matches!(layer.cut, Cut::Tensor { .. }) {
                return uncut("tp", tp, layer, "`tp` cuts transformers alone");
            }
            if op > 1 && !matches!(layer.cut, Cut::Spatial { .. } | Cut::Gathered { .. }) {
                return uncut("op", op, layer, "give every layer a `halo` (0: none) or `gathered`");
            }
            if self.pipeline.positions > 1 && matches!(layer.cut, Cut::Tables { .. }) {
                return uncut(
                    "pp",
                    self.degree(Axis::Pp),
                    layer,
                    "tables are spread over replicas",
                );
            }
        }
        if parallelism.sp && tp == 1 {
            let hint = "leave it out, or give `tp`";
            return Err(wrong("parallelism.sp", true, "it cuts what `tp` does not", hint));
        }
        for (name, number) in &self.model.divisible {
            if !number.is_multiple_of(tp) {
                let why = format!("it does not divide the {number} {name}");
                let hint = format!("a divisor of {number}");
                return Err(wrong("parallelism.tp", tp, &why, &hint));
            }
        }
        if let Some(heads) = self.model.kv_heads
            && !heads.is_multiple_of(tp)
            && !tp.is_multiple_of(heads)
        {
            let why = format!(
                "the {heads} of keys and values are neither divided nor copied",
                heads = counted(heads, "head")
            );
            return Err(wrong("parallelism.tp", tp, &why, "a divisor or a multiple"));
        }
        if ep > 1 {
            let counts: Vec<u64> = self
                .model
                .layers
                .iter()
                .filter_map(|l| l.experts)
                .map(|experts| u64::from(experts.count))
                .collect();
            if counts.is_empty() {
                let hint = "leave `ep` out: `dp` takes the NPUs";
                return Err(wrong("parallelism.ep", ep, "the model has no experts", hint));
            }
            if let Some(count) = counts.iter().find(|count| !count.is_multiple_of(ep)) {
                let why =
                    format!("it does not divide the {count}", count = counted(*count, "expert"));
                let hint = format!("a divisor of {count}");
                return Err(wrong("parallelism.ep", ep, &why, &hint));
            }
        }
        Ok(())
    }

    /// (forward, gradient of the input, gradient of the weights) of a microbatch.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn costs(&self, layer: &Layer) -> [Cost; 3] {
        let shares = self.shares(layer);
        let (parameters, experts) = self.parameters(layer);
        let rows = matches!(layer.cut, Cut::Tables { .. });
        let weights = if rows { 0 } else { parameters + experts };
        let cut = (shares.cut * shares.tokens) as f64;
        let moved = (layer.moved as f64) * self.samples as f64 / cut;
        let reads = 1.0 + layer.weight_rereads as f64;
        let bytes = (weights as f64 * reads + moved) * self.width() as f64;
        let cost = |flops: u64, bytes: f64| Cost {
            flops: flops as f64 * self.samples as f64 / cut,
            bytes,
        };
        let part = |flops: u64| if flops == 0 { cost(0, 0.0) } else { cost(flops, bytes) };
        let weight = if rows { cost(0, bytes) } else { part(layer.flops.weight) };
        [cost(layer.flops.forward, bytes), part(layer.flops.input), weight]
    }

    fn times(&self) -> Result<Vec<Times>, WorkloadError> {
        let given = &self.workload.compute;
        let layers = &self.model.layers;
        let costs: Vec<[Cost; 3]> = layers.iter().map(|layer| self.costs(layer)).collect();
        let measured = given.forward.is_some() && given.backward.is_some();
        if given.forward.is_some() != given.backward.is_some() {
            let (field, value) = match given.forward {
                Some(time) => ("compute.backward", time),
                None => ("compute.forward", given.backward.unwrap_or(Time::ZERO)),
            };
            let hint = "give `forward` and `backward`";
            return Err(wrong(field, value, "of measured times both are needed", hint));
        }
        let unmeasured = layers.iter().find(|layer| layer.times.is_none());
        if let Some(layer) = unmeasured.filter(|_| !measured && !self.device.has_peak()) {
            let why = format!("nothing says how long layer `{}` takes", layer.name);
            let hint = "give `device: a100`, a `peak`, or measured times `forward` and `backward`";
            return Err(wrong("compute", "{}", &why, hint));
        }
        let nominal: Vec<PassTimes> =
            layers.iter().zip(&costs).map(|(layer, costs)| self.nominal(layer, costs)).collect();
        let totals = nominal.iter().fold([0.0; 2], |[forward, backward], pass| {
            [forward + pass.forward, backward + pass.input + pass.weight]
        });
        let microbatches = f64::from(self.pipeline.microbatches);
        let share = |part: f64, total: f64| {
            #[expect(clippy::cast_precision_loss, reason = "few layers")]
            let even = 1.0 / layers.len() as f64;
            (if total > 0.0 { part / total } else { even }) / microbatches
        };
        let recompute = self.workload.parallelism.recompute;
        let of = |layer: &Layer, nominal: &PassTimes| {
            let (input, weight) = (nominal.input, nominal.weight);
            let [forward, input, weight] = if let Some((forward, backward)) = layer.times {
                let part = share(input, input + weight) * microbatches;
                let part = if input + weight > 0.0 { part } else { 0.0 };
                let pass = self.device.measured(backward, 1.0 / microbatches);
                let forward = self.device.measured(forward, 1.0 / microbatches);
                [forward, pass * part, pass * (1.0 - part)]
            } else if let (Some(forward), Some(backward)) = (given.forward, given.backward) {
                let pass = |part: f64| self.device.measured(backward, share(part, totals[1]));
                let forward = self.device.measured(forward, share(nominal.forward, totals[0]));
                [forward, pass(input), pass(weight)]
            } else {
                [nominal.forward, input, weight]
            };
            // As much of the forward pass's time as of the model's.
            let part = nominal.attention / nominal.forward.max(f64::MIN_POSITIVE);
            let streams = nominal.streams / nominal.forward.max(f64::MIN_POSITIVE);
            let again = recompute.again(layer, part, streams);
            let scores = if recompute.repeats_scores(layer) { again } else { 0.0 };
            let attention = [
                forward * part,
                input * (nominal.attention_input / nominal.input.max(f64::MIN_POSITIVE))
                    + forward * scores,
            ];
            let input = input + forward * again;
            Times {
                forward: device::time(forward),
                input: device::time(input),
                weight: device::time(weight),
                attention: attention.map(device::time),
            }
        };
        Ok(layers.iter().zip(&nominal).map(|(layer, nominal)| of(layer, nominal)).collect())
    }

    /// Whether the host waits for each kernel, so that nothing travels beside computing.
    pub(super) fn waits_for_kernels(&self) -> bool {
        self.workload.compute.launch == Launch::Blocking
    }

    /// What it takes to add a microbatch's gradient to the sum, in picoseconds: it is read in the precision of
    /// parameters, the sum is read and written in that of gradients.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn accumulated(&self, layer: &Layer) -> f64 {
        let (parameters, experts) = self.parameters(layer);
        let each = self.width() + 2 * self.gradient_precision.bytes();
        let bytes = (parameters + experts) as f64 * each as f64;
        self.device.picoseconds(Cost { flops: 0.0, bytes })
    }

    /// What the device takes for a layer, in picoseconds; of a device that is not known, its FLOPs.
    fn nominal(&self, layer: &Layer, costs: &[Cost; 3]) -> PassTimes {
        let shares = self.shares(layer);
        let part = Part {
            samples: self.samples,
            cut: shares.cut,
            whole: shares.whole,
            experts: shares.experts,
            tokens: shares.tokens,
        };
        if let Some(times) = self.device.passes(&layer.kernels, &part) {
            let weight = times.weight + self.accumulated(layer);
            return PassTimes { weight, ..times };
        }
        let weigh = |cost: Cost| {
            if self.device.has_peak() { self.device.picoseconds(cost) } else { cost.flops }
        };
        let [forward, input, weight] = costs.map(weigh);
        #[expect(clippy::cast_precision_loss, reason = "a part")]
        let product = layer.flops.product as f64 / layer.flops.forward.max(1) as f64;
        let back = 2.0 * layer.flops.product as f64 / layer.flops.input.max(1) as f64;
        let attention = forward * product;
        let attention_input = input * back;
        PassTimes { forward, input, weight, attention, attention_input, streams: 0.0 }
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
        if let Some(touched) = self.updated_by_rows(i, parameters) {
            return touched;
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
}
