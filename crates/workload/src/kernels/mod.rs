//! Kernels: what a layer runs on a device, and how long that takes.
//!
//! - [`product`]: products of matrices, by tiles and waves.
//! - [`attention`]: fused by kind and head size, or unfused.
//! - [`stream`]: elementwise work, bound by memory.
//! - [`recipe`]: products in fewer bits.
//! - [`single`]: one kernel alone, to be held against what was measured.
//!
//! A pass over a layer takes as long as its kernels on the device, or as the host needs to launch them:
//!
//! ```text
//! pass = max(Σ kernel, kernels · launch)
//! pass = Σ kernel + kernels · launch        with `launch: blocking`
//! ```
//!
//! Every rate is the device file's (`device/file.rs`); nothing here knows of a run. Ignored: kernels that run
//! at the same time, clocks that change with the work, what the host does besides.

pub mod attention;
pub mod product;
pub mod recipe;
pub mod single;
pub mod stream;

pub use attention::{Attention, AttentionKind};
pub use product::{Product, Split};
pub use recipe::{Format, Recipe};
pub use stream::Stream;

use allrail_core::Bandwidth;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::file::{KernelRates, Peaks};
use crate::spec::Precision;
use product::{Rates, Shape};

/// One kernel, or a few of one kind, of one sample through an uncut layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A product with weights.
    Product(Product),
    /// Attention.
    Attention(Attention),
    /// Elementwise work.
    Stream(Stream),
}

/// How kernels get to the device.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a way to launch kernels"))]
pub enum Launch {
    /// One operator after the other.
    #[default]
    Eager,
    /// Elementwise work fused by a compiler.
    Compiled,
    /// The same, recorded once and launched as one graph.
    Graph,
    /// Elementwise work fused by hand, and one operator launched after the other: Megatron-LM, Transformer
    /// Engine.
    Fused,
    /// As `fused`, and attention with its maps recorded as graphs.
    GraphedAttention,
    /// As `fused`, and the host waits for each kernel before it launches the next one
    /// (`CUDA_LAUNCH_BLOCKING=1`).
    Blocking,
}

impl Launch {
    /// Whether elementwise work is fused.
    pub(crate) const fn fuses(self) -> bool {
        !matches!(self, Self::Eager)
    }

    /// Seconds of the host for a kernel of a layer.
    fn cost(self, rates: &KernelRates, attends: bool) -> f64 {
        let costs = rates.launch;
        match self {
            Self::GraphedAttention if attends => costs.graph.as_s(),
            Self::Eager | Self::Fused | Self::GraphedAttention => costs.eager.as_s(),
            Self::Compiled => costs.compiled.as_s(),
            Self::Graph => costs.graph.as_s(),
            Self::Blocking => costs.blocking.as_s(),
        }
    }
}

/// What one NPU has of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Samples.
    pub(crate) samples: u64,
    /// Ways that products and heads are cut.
    pub(crate) cut: u64,
    /// Ways that what is not cut by tensor parallelism is cut.
    pub(crate) whole: u64,
    /// Ways that experts are spread.
    pub(crate) experts: u64,
    /// Ways that the tokens of a sample are cut.
    pub(crate) tokens: u64,
}

/// Seconds of a microbatch through a layer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassTimes {
    pub(crate) forward: f64,
    pub(crate) input: f64,
    pub(crate) weight: f64,
    /// Of the forward pass: of what has no weights.
    pub(crate) attention: f64,
    /// The same of the gradient of the input.
    pub(crate) attention_input: f64,
    /// Of the forward pass: of elementwise work.
    pub(crate) streams: f64,
}

/// Kernels of one job on a device.
#[derive(Clone, Debug)]
pub(crate) struct KernelModel {
    pub(crate) peak: Peaks,
    pub(crate) memory_bandwidth: Bandwidth,
    pub(crate) rates: KernelRates,
    pub(crate) precision: Precision,
    pub(crate) recipe: Recipe,
    pub(crate) attention: AttentionKind,
    pub(crate) launch: Launch,
}

/// On the device, and how many.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    seconds: f64,
    kernels: f64,
}

impl Run {
    fn add(&mut self, seconds: f64, kernels: f64) {
        self.seconds += seconds;
        self.kernels += kernels;
    }
}

impl KernelModel {
    fn width(&self) -> f64 {
        Format::of(self.precision).bytes()
    }

    fn memory(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes per second")]
        let bandwidth = self.memory_bandwidth.bytes_per_second() as f64;
        bandwidth * self.rates.stream
    }

    /// FLOP/s that the best shape reaches.
    pub(crate) fn reached(&self, format: Format) -> f64 {
        let format = self.peak.nearest(format);
        self.peak.of(format).per_second() * self.rates.reached.of(format)
    }

    fn product_rates(&self, format: Format) -> Rates {
        #[expect(clippy::cast_precision_loss, reason = "bytes per second")]
        let cache = self.rates.cache_bandwidth.bytes_per_second() as f64;
        Rates {
            reached: self.reached(format),
            unaligned: self.reached(Format::Fp32),
            half_aligned: self.rates.half_aligned,
            units: f64::from(self.rates.units),
            cache,
            memory: self.memory(),
            width: format.bytes(),
        }
    }

    /// Of a microbatch through a layer's kernels.
    pub(crate) fn passes(&self, kernels: &[Kernel], part: &Part) -> PassTimes {
        let (mut forward, mut input, mut weight) = (Run::default(), Run::default(), Run::default());
        let (mut attention, mut attention_input, mut streams) = (0.0, 0.0, 0.0);
        for kernel in kernels {
            match kernel {
                Kernel::Product(product) => {
                    self.product(product, part, [&mut forward, &mut input, &mut weight]);
                }
                Kernel::Attention(of) => {
                    let before = [forward.seconds, input.seconds];
                    self.attend(of, part, [&mut forward, &mut input]);
                    attention += forward.seconds - before[0];
                    attention_input += input.seconds - before[1];
                }
                Kernel::Stream(stream) => {
                    let before = forward.seconds;
                    self.stream(stream, part, [&mut forward, &mut input]);
                    streams += forward.seconds - before;
                }
            }
        }
        let attends = kernels.iter().any(|kernel| matches!(kernel, Kernel::Attention(_)));
        let (start, launch) = (self.rates.start.as_s(), self.launch.cost(&self.rates, attends));
        let time = |run: Run| {
            let (device, host) = (run.seconds + run.kernels * start, run.kernels * launch);
            if self.launch == Launch::Blocking { device + host } else { device.max(host) }
        };
        PassTimes {
            forward: time(forward),
            input: time(input),
            weight: time(weight),
            attention,
            attention_input,
            streams,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn product(&self, product: &Product, part: &Part, [forward, input, weight]: [&mut Run; 3]) {
        let format = self.recipe.format().filter(|_| product.scaled);
        let rates = self.product_rates(format.unwrap_or(Format::of(self.precision)));
        let copies = if product.copies > 1 { product.copies.div_ceil(part.experts) } else { 1 };
        let m = (product.rows * part.samples).div_ceil(copies * part.tokens);
        let (n, k) = match product.split {
            Split::None => (product.outputs, product.inputs),
            Split::Inputs => (product.outputs, product.inputs.div_ceil(part.cut)),
            Split::Outputs => (product.outputs.div_ceil(part.cut), product.inputs),
        };
        // Rows in memory are those of the weights, whichever of the three is multiplied.
        let of = |shape: Shape| rates.seconds(shape, &[n, k]);
        // A library launches one for each of the weights.
        let launched = copies as f64;
        forward.add(of([m, n, k, copies]), launched);
        input.add(of([m, k, n, copies]), launched);
        weight.add(of([k, n, m, copies]), launched);
        if format.is_some() {
            let each = copies as f64 / self.memory();
            let [of_input, of_weight, of_gradient] = self.recipe.converted();
            let [m, n, k] = [m, n, k].map(|size| size as f64);
            let kernels = launched * if self.launch.fuses() { 1.0 } else { 2.0 };
            forward.add((m * k * of_input + k * n * of_weight) * each, 2.0 * kernels);
            input.add(m * n * of_gradient * each, kernels);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn attend(&self, attention: &Attention, part: &Part, [forward, backward]: [&mut Run; 2]) {
        let count = attention.heads.div_ceil(part.cut) * part.samples;
        // Each rank has as many of its pairs.
        let share = 1.0 / part.tokens as f64;
        let kind = self.attention;
        let size = attention.head.max(attention.value);
        let of_kind = || self.rates.attention.iter().filter(|rate| rate.kind == kind);
        let fitting = of_kind().filter(|rate| rate.head >= size).min_by_key(|rate| rate.head);
        if let Some(rate) = fitting.or_else(|| of_kind().max_by_key(|rate| rate.head)) {
            let padded = (rate.head as f64 / size as f64).max(1.0);
            let ramp = 1.0 + rate.half as f64 / attention.keys.max(1) as f64;
            let flops = attention.flops() * count as f64 * share * padded * ramp;
            forward.add(flops / rate.forward.per_second(), 1.0);
            backward.add(2.5 * flops / rate.backward.per_second(), 2.0);
            return;
        }
        let Attention { queries, keys: k, head: d, value: v, .. } = *attention;
        let q = queries.div_ceil(part.tokens);
        let rates = self.product_rates(Format::of(self.precision));
        let of = |shapes: &[[u64; 3]]| -> f64 {
            let lines = [d, v, k];
            shapes.iter().map(|[m, n, k]| rates.seconds([*m, *n, *k, count], &lines)).sum()
        };
        let scores =
            attention.scores() as f64 * share * count as f64 * self.width() / self.memory();
        // A softmax with its mask reads and writes once; its gradient reads two and writes one.
        let (left_out, kernels) = if attention.dropout { (2.5 * scores, 1.0) } else { (0.0, 0.0) };
        forward.add(of(&[[q, k, d], [q, v, k]]) + 2.0 * scores + left_out, 3.0 + kernels);
        let products = of(&[[k, v, q], [q, k, v], [q, d, k], [k, d, q]]);
        backward.add(products + 3.0 * scores + left_out, 5.0 + kernels);
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn stream(&self, stream: &Stream, part: &Part, [forward, backward]: [&mut Run; 2]) {
        let ways = part.tokens * if stream.cut { part.cut } else { part.whole };
        let each = part.samples as f64 / ways as f64 * self.width() / self.memory();
        let (there, back, kernels) = if self.launch.fuses() {
            (stream.fused_forward, stream.fused_backward, stream.kernels.min(1))
        } else {
            (stream.forward, stream.backward, stream.kernels)
        };
        forward.add(there as f64 * each, f64::from(kernels));
        backward.add(back as f64 * each, f64::from(kernels));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::preset;

    #[test]
    fn a_kernel_that_is_waited_for_costs_the_device_and_the_host() {
        let device = preset("a100").expect("known");
        let product = |rows| Product {
            rows,
            inputs: 4096,
            outputs: 4096,
            copies: 1,
            split: Split::None,
            scaled: true,
        };
        let part = Part { samples: 1, cut: 1, whole: 1, experts: 1, tokens: 1 };
        let forward = |launch, rows| {
            let model = KernelModel {
                peak: device.peak,
                memory_bandwidth: device.memory_bandwidth,
                rates: device.kernels.clone().expect("known"),
                precision: Precision::Bf16,
                recipe: Recipe::Plain,
                attention: AttentionKind::Flash2,
                launch,
            };
            model.passes(&[Kernel::Product(product(rows))], &part).forward
        };
        for rows in [16, 8192] {
            // On a graph the device alone counts: a microsecond of the host is less than its two.
            let (alone, waited) = (forward(Launch::Graph, rows), forward(Launch::Blocking, rows));
            assert!((waited - alone - 60e-6).abs() < 1e-12, "{alone} {waited}");
        }
    }

    #[test]
    fn a_scale_for_each_row_costs_what_single_kernels_show() {
        // torchao's table, a linear layer forward and backward of 32,768 rows: (inputs, outputs, speed-up).
        let published = [
            (2048, 2048, 0.73),
            (4096, 4096, 1.04),
            (8192, 4096, 1.11),
            (4096, 8192, 1.28),
            (8192, 8192, 1.41),
            (8192, 32_768, 1.62),
            (16_384, 16_384, 1.49),
        ];
        let device = preset("h100_96gb_500w").expect("known");
        let part = Part { samples: 1, cut: 1, whole: 1, experts: 1, tokens: 1 };
        for (inputs, outputs, speed_up) in published {
            let all = |recipe| {
                let model = KernelModel {
                    peak: device.peak,
                    memory_bandwidth: device.memory_bandwidth,
                    rates: device.kernels.clone().expect("known"),
                    precision: Precision::Bf16,
                    recipe,
                    attention: AttentionKind::Flash2,
                    launch: Launch::Compiled,
                };
                let rows = 32_768;
                let split = Split::None;
                let product = Product { rows, inputs, outputs, copies: 1, split, scaled: true };
                // A norm before it and a sigmoid behind it, each 10 bytes an element.
                let moved = 5 * rows * (inputs + outputs);
                let stream = Stream::plain(moved, 0, 2, false);
                let found =
                    model.passes(&[Kernel::Product(product), Kernel::Stream(stream)], &part);
                found.forward + found.input + found.weight
            };
            let ours = all(Recipe::Plain) / all(Recipe::Fp8Rowwise);
            let off = ours / speed_up - 1.0;
            assert!(off.abs() < 0.16, "{inputs} x {outputs}: {ours}, published {speed_up}");
        }
    }
}
