//! What is known of a device: the content of a device file.
//!
//! Every number is of the device alone, never of a run: peaks as published, parts of them as measured
//! with single kernels. A preset's `source` says where each comes from.

use allrail_core::{Bandwidth, Bytes, FieldError, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::flop_rate::FlopRate;
use crate::kernels::{AttentionKind, Format};

/// The version that is read.
pub const SCHEMA_VERSION: u32 = 1;

/// A device, as kernels see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceFile {
    /// 1.
    pub schema_version: u32,
    /// The tag.
    pub name: String,
    /// In a line.
    pub about: String,
    /// Where every number comes from, or how it was measured.
    pub source: String,
    /// How much memory it has.
    pub memory: Bytes,
    /// Of its memory.
    pub memory_bandwidth: Bandwidth,
    /// Of dense matrices.
    pub peak: Peaks,
    /// What is known of its kernels; without it, the roofline and an `efficiency` are all there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<KernelRates>,
}

/// FLOP/s at best, dense, by format; a format that it has not is computed in the next wider one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peaks {
    /// As frameworks use it by default.
    pub fp32: FlopRate,
    /// And fp16.
    pub bf16: FlopRate,
    /// 8 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<FlopRate>,
    /// 4 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp4: Option<FlopRate>,
}

/// How single kernels do on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelRates {
    /// Over how many units (streaming multiprocessors, cores) the tiles of a product are shared out.
    pub units: u32,
    /// The part of the peak that the best shape of a product reaches.
    pub reached: Reached,
    /// The part of that which is reached where operands' rows are a multiple of 16 bytes, but not of 32; all of
    /// it if left out.
    #[serde(default = "whole", skip_serializing_if = "is_whole")]
    pub half_aligned: f64,
    /// Of the cache that tiles are read from, all units together.
    pub cache_bandwidth: Bandwidth,
    /// The part of the memory's bandwidth that a stream reaches.
    pub stream: f64,
    /// From one kernel's end to the next one's work, on the device.
    pub start: Time,
    /// What a kernel costs the host, by how they are launched.
    pub launch: LaunchCosts,
    /// What fused attention reaches.
    pub attention: Vec<AttentionRate>,
}

/// Parts of peaks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// Of fp32.
    pub fp32: f64,
    /// Of bf16 and fp16.
    pub bf16: f64,
    /// Of 8 bits; as bf16 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<f64>,
    /// Of 4 bits; as fp8 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp4: Option<f64>,
}

/// What a kernel costs the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LaunchCosts {
    /// One operator after the other.
    pub eager: Time,
    /// Operators fused by a compiler.
    pub compiled: Time,
    /// A recorded graph.
    pub graph: Time,
    /// Of one that the host waits for: what the device does nothing in, from its end to the next one's begin.
    #[serde(default = "waited_for", skip_serializing_if = "is_usual")]
    pub blocking: Time,
}

/// Two published runs of ten nodes of A100s differ by 6.8 % with `CUDA_LAUNCH_BLOCKING` and without it (BigScience,
/// `chronicles-prequel.md`: 91.04 and 97.20 TFLOP/s on 80 GPUs, 14.5 s of a step of 521 microbatches through 8.5 layers a
/// stage): 3.3 ms a layer, of which 55 kernels are counted here, so 60 us each. It is the host's Python, autograd, launch
/// and wake-up, which are else hidden; of a pair on 160 GPUs neither is faster.
fn waited_for() -> Time {
    Time::from_us(60)
}

const fn whole() -> f64 {
    1.0
}

#[expect(
    clippy::float_cmp,
    clippy::trivially_copy_pass_by_ref,
    reason = "as it was written, for serde"
)]
fn is_whole(part: &f64) -> bool {
    *part == whole()
}

fn is_usual(time: &Time) -> bool {
    *time == waited_for()
}

/// Fused attention of one kind on heads of one size: of long sequences, FLOPs that a causal mask hides not
/// counted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttentionRate {
    /// Which.
    pub kind: AttentionKind,
    /// Elements of a head; others take the next larger one, and its padding.
    pub head: u64,
    /// Forward.
    pub forward: FlopRate,
    /// Backward; its FLOPs are 2.5 times the forward pass's.
    pub backward: FlopRate,
    /// The sequence at which half of that is reached.
    pub half: u64,
}

impl Peaks {
    /// Whether it computes in a format.
    #[must_use]
    pub const fn has(&self, format: Format) -> bool {
        match format {
            Format::Fp32 | Format::Bf16 => true,
            Format::Fp8 => self.fp8.is_some(),
            Format::Fp4 => self.fp4.is_some(),
        }
    }

    /// A format, or the next wider one that it has.
    #[must_use]
    pub const fn nearest(&self, format: Format) -> Format {
        match format {
            Format::Fp4 if !self.has(format) => self.nearest(Format::Fp8),
            Format::Fp8 if !self.has(format) => Format::Bf16,
            has => has,
        }
    }

    /// Of a format, or the next wider one.
    #[must_use]
    pub fn of(&self, format: Format) -> FlopRate {
        match format {
            Format::Fp32 => self.fp32,
            Format::Bf16 => self.bf16,
            Format::Fp8 => self.fp8.unwrap_or(self.bf16),
            Format::Fp4 => self.fp4.unwrap_or_else(|| self.of(Format::Fp8)),
        }
    }
}

impl Reached {
    /// Of a format.
    #[must_use]
    pub fn of(&self, format: Format) -> f64 {
        match format {
            Format::Fp32 => self.fp32,
            Format::Bf16 => self.bf16,
            Format::Fp8 => self.fp8.unwrap_or(self.bf16),
            Format::Fp4 => self.fp4.unwrap_or_else(|| self.of(Format::Fp8)),
        }
    }
}

impl DeviceFile {
    /// Whether its numbers can be a device's.
    ///
    /// # Errors
    /// Which one cannot, under `field`.
    pub fn check(&self, field: &str) -> Result<(), FieldError> {
        let wrong = |key: &str, value: String, why: &str, hint: &str| {
            Err(FieldError::new(format!("{field}.{key}"), value, why, hint))
        };
        if self.schema_version != SCHEMA_VERSION {
            let hint = format!("this allrail reads version {SCHEMA_VERSION}; measure it anew");
            let shown = self.schema_version.to_string();
            return wrong("schema_version", shown, "it is of another version", &hint);
        }
        let Some(kernels) = &self.kernels else { return Ok(()) };
        let Reached { fp32, bf16, fp8, fp4 } = kernels.reached;
        let parts = [
            ("reached.fp32", Some(fp32)),
            ("reached.bf16", Some(bf16)),
            ("reached.fp8", fp8),
            ("reached.fp4", fp4),
            ("half_aligned", Some(kernels.half_aligned)),
            ("stream", Some(kernels.stream)),
        ];
        for (key, part) in parts {
            if let Some(part) = part.filter(|part| !(*part > 0.0 && *part <= 1.0)) {
                let hint = "above 0 and at most 1: no device is faster than its peak";
                let why = "it is no part of the peak";
                return wrong(&format!("kernels.{key}"), part.to_string(), why, hint);
            }
        }
        if kernels.units == 0 {
            return wrong("kernels.units", "0".into(), "it has none", "at least 1");
        }
        for (i, rate) in kernels.attention.iter().enumerate() {
            let most = self.peak.bf16.per_second().max(self.peak.fp32.per_second());
            let faster = rate.forward.per_second().max(rate.backward.per_second()) > most;
            let at = format!("kernels.attention[{i}]");
            if faster {
                let why = "it is faster than the peak";
                return wrong(&at, rate.forward.to_string(), why, "measure it anew");
            }
            if rate.head == 0 {
                return wrong(
                    &format!("{at}.head"),
                    "0".into(),
                    "a head has elements",
                    "64 or 128",
                );
            }
        }
        Ok(())
    }
}
