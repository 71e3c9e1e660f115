//! Compute time of a pass over a layer: the roofline, or what was measured.
//!
//! time = scale · max(FLOPs / (peak · efficiency), bytes / memory bandwidth)
//!
//! `bytes` are the weights read once per pass and the activations read and written (Williams et al.,
//! CACM'09). The efficiency is of the peak alone. An update of the optimizer reads and writes its
//! state and is bound by memory. Measured times come first: of a layer, or of the whole forward and
//! backward pass, which are then shared out as the roofline has it.
//!
//! Ignored: launch overheads, caches, sizes too small to fill the device.

use allrail_core::{Bandwidth, Bytes, Time};

use crate::error::WorkloadError;
use crate::spec::{Compute, Precision};

/// A device: its peaks are of dense matrices.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The tag in files.
    pub tag: &'static str,
    /// For the docs.
    pub about: &'static str,
    /// TFLOP/s in fp32 (as frameworks use it by default), fp16 and bf16, fp8.
    peak: [f64; 3],
    /// GB/s.
    memory_bandwidth: u64,
    /// GB.
    memory: u64,
    /// Of every number.
    pub source: &'static str,
}

/// Every device. Where it has no fp8, its fp16 peak is taken.
pub static PRESETS: &[Preset] = &[
    Preset {
        tag: "a100",
        about: "NVIDIA A100 SXM, 80 GB",
        peak: [19.5, 312.0, 312.0],
        memory_bandwidth: 2_039,
        memory: 80,
        source: "NVIDIA A100 datasheet (2021): FP32 19.5, FP16 and BF16 tensor core 312 TFLOPS, \
                 2,039 GB/s, 80 GB",
    },
    Preset {
        tag: "a100_40gb",
        about: "NVIDIA A100 SXM, 40 GB",
        peak: [19.5, 312.0, 312.0],
        memory_bandwidth: 1_555,
        memory: 40,
        source: "NVIDIA A100 datasheet (2020): 1,555 GB/s, 40 GB",
    },
    Preset {
        tag: "h100",
        about: "NVIDIA H100 SXM, 80 GB",
        peak: [67.0, 989.4, 1_978.9],
        memory_bandwidth: 3_350,
        memory: 80,
        source: "NVIDIA H100 datasheet: FP32 67, FP16 and BF16 989.4, FP8 1,978.9 TFLOPS without \
                 sparsity, 3.35 TB/s, 80 GB",
    },
    Preset {
        tag: "v100",
        about: "NVIDIA V100 SXM2, 32 GB",
        peak: [15.7, 125.0, 125.0],
        memory_bandwidth: 900,
        memory: 32,
        source: "NVIDIA V100 datasheet (2018): FP32 15.7, tensor core 125 TFLOPS, 900 GB/s, 32 GB",
    },
    Preset {
        tag: "tpu_v3",
        about: "Google TPU v3, a chip of two cores",
        peak: [123.0, 123.0, 123.0],
        memory_bandwidth: 900,
        memory: 32,
        source: "Google Cloud, TPU v3: 123 TFLOPS bf16 a chip, 900 GB/s, 32 GiB; fp32 matrices are \
                 multiplied in bf16 by default",
    },
    Preset {
        tag: "tpu_v4",
        about: "Google TPU v4, a chip of two cores",
        peak: [275.0, 275.0, 275.0],
        memory_bandwidth: 1_200,
        memory: 32,
        source: "Jouppi et al., ISCA'23, table 4: 275 TFLOPS bf16, 1,200 GB/s, 32 GiB",
    },
];

/// How fast an NPU computes.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// FLOP/s at best.
    pub peak: Option<f64>,
    /// FLOP/s reached: the peak times the efficiency.
    flops: Option<f64>,
    /// Of its memory.
    memory_bandwidth: Option<Bandwidth>,
    /// How much it has.
    pub memory: Option<Bytes>,
    scale: f64,
}

fn wrong(field: &str, value: impl ToString, why: &str, hint: &str) -> WorkloadError {
    WorkloadError::new(format!("workload.compute.{field}"), value, why, hint)
}

/// What one pass over a layer costs, before it is a time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// FLOPs.
    pub flops: f64,
    /// Bytes of memory read and written.
    pub bytes: f64,
}

impl Device {
    /// Reads a workload's `compute`.
    ///
    /// # Errors
    /// A device that is not known, a peak that is none, a factor out of range.
    pub fn new(compute: &Compute, precision: Precision) -> Result<Self, WorkloadError> {
        let preset = match &compute.device {
            None => None,
            Some(tag) => Some(preset(tag)?),
        };
        if !(compute.efficiency > 0.0 && compute.efficiency <= 1.0) {
            let hint = "above 0 and at most 1; 0.5 is usual for large matrices";
            return Err(wrong("efficiency", compute.efficiency, "it is no part of the peak", hint));
        }
        if !(compute.scale > 0.0 && compute.scale <= 1e6) {
            let hint = "above 0; 1 leaves the times as they are";
            return Err(wrong("scale", compute.scale, "it is no factor", hint));
        }
        let own = compute.peak.as_deref().map(flop_rate).transpose()?;
        let known = preset.map(|preset| 1e12 * preset.peak[index(precision)]);
        let gigabytes = |preset: &Preset| {
            Bandwidth::from_bytes_per_second(preset.memory_bandwidth * 1_000_000_000)
        };
        Ok(Self {
            peak: own.or(known),
            flops: own.or(known).map(|peak| peak * compute.efficiency),
            memory_bandwidth: compute.memory_bandwidth.or_else(|| preset.and_then(gigabytes)),
            memory: compute
                .memory
                .or_else(|| preset.map(|preset| Bytes::new(preset.memory * 1_000_000_000))),
            scale: compute.scale,
        })
    }

    /// Whether it has a peak: without one, times must be measured.
    #[must_use]
    pub fn has_peak(&self) -> bool {
        self.flops.is_some()
    }

    /// Whether the bandwidth of its memory is known.
    #[must_use]
    pub fn moves_bytes(&self) -> bool {
        self.memory_bandwidth.is_some()
    }

    /// The roofline, in picoseconds.
    #[must_use]
    pub fn picoseconds(&self, cost: Cost) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "bytes per second")]
        let bandwidth = self.memory_bandwidth.map(|rate| rate.bytes_per_second() as f64);
        let compute = self.flops.map_or(0.0, |rate| cost.flops / rate);
        let memory = bandwidth.map_or(0.0, |rate| cost.bytes / rate);
        1e12 * compute.max(memory) * self.scale
    }

    /// A measured time, scaled.
    #[must_use]
    pub fn measured(&self, time: Time, share: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "picoseconds of less than a day")]
        let picoseconds = time.as_ps() as f64;
        picoseconds * share * self.scale
    }
}

const fn index(precision: Precision) -> usize {
    match precision {
        Precision::Fp32 => 0,
        Precision::Fp16 | Precision::Bf16 => 1,
        Precision::Fp8 => 2,
    }
}

fn preset(tag: &str) -> Result<&'static Preset, WorkloadError> {
    PRESETS.iter().find(|preset| preset.tag == tag).ok_or_else(|| {
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.tag).collect();
        let hint = format!(
            "use one of {}, or give `peak`, `memory_bandwidth` and `memory`",
            known.join(", ")
        );
        wrong("device", tag, "no such device is known", &hint)
    })
}

/// Reads `312 TFLOP/s`; `TFLOPS` is taken too.
fn flop_rate(text: &str) -> Result<f64, WorkloadError> {
    const PREFIXES: &[(&str, f64)] =
        &[("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15), ("E", 1e18)];
    let hint = "write it as `312 TFLOP/s`";
    let fail = |why: &str| wrong("peak", text, why, hint);
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let number: f64 = number.parse().map_err(|_| fail("it does not start with a number"))?;
    let unit = unit.trim();
    let base = unit.strip_suffix("FLOP/s").or_else(|| unit.strip_suffix("FLOPS"));
    let base = base.or_else(|| unit.strip_suffix("FLOPs/s"));
    let prefix = base.ok_or_else(|| fail("its unit is none of compute"))?;
    let factor = PREFIXES.iter().find(|(name, _)| *name == prefix).map(|(_, factor)| factor);
    let rate = number * factor.ok_or_else(|| fail("its unit has no known prefix"))?;
    if !(1e6..=1e20).contains(&rate) {
        return Err(fail("it is no speed of an NPU"));
    }
    Ok(rate)
}

/// Picoseconds as a time, rounded; a day at most.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub fn time(picoseconds: f64) -> Time {
    const MOST: f64 = 86_400.0 * 1e12;
    Time::from_ps(picoseconds.round().clamp(0.0, MOST) as u64)
}

/// A time times a factor, rounded to a picosecond.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "picoseconds of less than a day")]
pub fn scaled(nominal: Time, factor: f64) -> Time {
    time(nominal.as_ps() as f64 * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_the_two_roofs_counts() {
        let compute = Compute {
            peak: Some("100 TFLOP/s".into()),
            memory_bandwidth: "1 TB/s".parse().ok(),
            ..Compute::default()
        };
        let device = Device::new(&compute, Precision::Fp16).expect("right");
        // At efficiency 0.5: 50 TFLOP/s, so 5e10 FLOPs take 1 ms, and 1e9 bytes take 1 ms.
        let of = |flops, bytes| time(device.picoseconds(Cost { flops, bytes }));
        assert_eq!(of(5e10, 0.0), Time::from_us(1_000));
        assert_eq!(of(5e10, 2e9), Time::from_us(2_000));
        assert_eq!(of(1e11, 1e9), Time::from_us(2_000));
    }

    #[test]
    fn a_wrong_device_is_refused_with_what_is_known() {
        let of = |compute: Compute| Device::new(&compute, Precision::Fp16).map_err(|e| e.field);
        let unknown = Compute { device: Some("b200".into()), ..Compute::default() };
        let error = Device::new(&unknown, Precision::Fp16).expect_err("not known");
        assert!(error.hint.contains("a100"), "{error:?}");
        for peak in ["312", "TFLOP/s", "-3 TFLOP/s", "312 TB/s", "3 FLOP/s", "1 XFLOP/s"] {
            let compute = Compute { peak: Some(peak.into()), ..Compute::default() };
            assert_eq!(of(compute).expect_err(peak), "workload.compute.peak");
        }
        for efficiency in [0.0, -0.5, 1.5, f64::NAN] {
            let compute = Compute { efficiency, ..Compute::default() };
            assert_eq!(of(compute).expect_err("no part"), "workload.compute.efficiency");
        }
    }
}
