//! How long each layer takes: from a device's kernels, a roofline or measured times.

use allrail_core::{FieldError, Time};

use super::plan::{Plan, Times};
use crate::device::{self, Cost};
use crate::error::wrong;
use crate::kernels::{Part, PassTimes};
use crate::models::{Cut, Layer};

impl Plan<'_> {
    pub(super) fn times(&self) -> Result<Vec<Times>, FieldError> {
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

    /// What it takes to add a microbatch's gradient to the sum, in picoseconds: it is read in the precision of
    /// parameters, the sum is read and written in that of gradients.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn accumulated(&self, layer: &Layer) -> f64 {
        let (parameters, experts) = self.parameters(layer);
        let each = self.width() + 2 * self.gradient_precision.bytes();
        let bytes = (parameters + experts) as f64 * each as f64;
        self.device.picoseconds(Cost { flops: 0.0, bytes })
    }
}
