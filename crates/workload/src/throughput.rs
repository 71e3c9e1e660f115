//! What a step does, and how much that is a second.
//!
//! ```text
//! MFU = FLOPs that the model needs / (step · NPUs · peak of an NPU)
//! HFU = FLOPs that are computed    / (step · NPUs · peak of an NPU)
//! ```
//!
//! MFU is of Chowdhery et al. (PaLM, 2022, appendix B), HFU beside it of Korthikanti et al. ("Reducing
//! activation recomputation", 2022): the first counts one forward and one backward pass, the second
//! what the backward pass computes again, too (`recompute.rs`), and the padding of experts. FLOPs are
//! those of the model's matrices, a multiply-add as two; attention counts whole, not its causal half,
//! as in PaLM. The peak is the device's, without `efficiency`.

use serde::Serialize;

/// What a step of the whole job does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepWork {
    /// Samples of all replicas.
    pub samples: u64,
    /// Tokens of a sample, where the model has tokens.
    pub tokens: Option<u64>,
    /// FLOPs of one forward and one backward pass over all samples; `None` where shapes are not known.
    pub flops: Option<f64>,
    /// FLOPs beside these, of what the backward pass computes again and of the padding of experts.
    pub recomputed: f64,
    /// FLOP/s of an NPU at best.
    pub peak: Option<f64>,
}

/// The same a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Throughput {
    /// Samples of a step of the whole job.
    pub global_batch: u64,
    /// Of the whole job.
    pub samples_per_s: f64,
    /// Of one NPU.
    pub tokens_per_s_per_npu: Option<f64>,
    /// That the model needs, of one NPU.
    pub tflops_per_npu: Option<f64>,
    /// Model FLOPs utilisation, 0 to 1.
    pub mfu: Option<f64>,
    /// Hardware FLOPs utilisation, 0 to 1.
    pub hfu: Option<f64>,
}

impl StepWork {
    /// Of a step of so many seconds on so many NPUs.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts")]
    pub fn each_second(&self, step_s: f64, npus: u64) -> Option<Throughput> {
        if step_s <= 0.0 || npus == 0 {
            return None;
        }
        let samples_per_s = self.samples as f64 / step_s;
        let rate = self.flops.map(|flops| flops / step_s / npus as f64);
        let share = rate.zip(self.peak).map(|(rate, peak)| rate / peak);
        let again = self.flops.map_or(0.0, |flops| self.recomputed / flops);
        Some(Throughput {
            global_batch: self.samples,
            samples_per_s,
            tokens_per_s_per_npu: self.tokens.map(|t| samples_per_s * t as f64 / npus as f64),
            tflops_per_npu: rate.map(|rate| rate / 1e12),
            mfu: share,
            hfu: share.map(|share| share * (1.0 + again)),
        })
    }
}

impl Throughput {
    /// What of it counts where gradients of a part of the samples alone are averaged.
    #[must_use]
    pub fn of_which(self, averaged: f64) -> Self {
        let part = |rate: f64| rate * averaged;
        Self {
            samples_per_s: part(self.samples_per_s),
            tokens_per_s_per_npu: self.tokens_per_s_per_npu.map(part),
            tflops_per_npu: self.tflops_per_npu.map(part),
            mfu: self.mfu.map(part),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_peak_is_half_used() {
        let work = StepWork {
            samples: 8,
            tokens: Some(100),
            flops: Some(4e12),
            recomputed: 0.0,
            peak: Some(1e12),
        };
        let found = work.each_second(2.0, 4).expect("it takes time");
        assert_eq!((found.samples_per_s, found.tokens_per_s_per_npu), (4.0, Some(100.0)));
        assert_eq!((found.tflops_per_npu, found.mfu, found.hfu), (Some(0.5), Some(0.5), Some(0.5)));
        assert_eq!(work.each_second(0.0, 4), None);
        let again = StepWork { recomputed: 1e12, ..work }.each_second(2.0, 4).expect("time");
        assert_eq!((again.mfu, again.hfu), (Some(0.5), Some(0.625)));
        let unknown = StepWork { flops: None, ..work };
        assert_eq!(unknown.each_second(2.0, 4).and_then(|found| found.mfu), None);
    }
}
