//! Compute time of a pass over a layer: its kernels, the roofline, or what was measured.
//!
//! - [`mod@file`]: what is known of a device. [`presets`]: the devices that are known.
//!
//! A device whose kernels are known, and no `efficiency`: the sum of its kernels (`kernels/`). A layer whose
//! kernels are not, and every layer where one number is wanted:
//!
//! time = scale · max(FLOPs / (peak · efficiency), bytes / memory bandwidth)
//!
//! `bytes` are the weights read once per pass and the activations read and written (Williams et al.,
//! CACM'09). The efficiency is of the peak alone. An update of the optimizer reads and writes its
//! state and is bound by memory. Measured times come first: of a layer, or of the whole forward and
//! backward pass, which are then shared out as the model has it.

pub mod file;
pub mod flop_rate;
pub mod presets;

use allrail_core::{Bandwidth, Bytes, FieldError, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use file::DeviceFile;
pub use flop_rate::FlopRate;
pub use presets::{PRESETS, preset};

use crate::kernels::{AttentionKind, Format, Kernel, KernelModel, Part, PassTimes, Recipe};
use crate::spec::{Compute, Precision};

/// The part of the peak that is reached where nothing is known of kernels.
const EFFICIENCY: f64 = 0.5;

/// A device's tag, or its file's content.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum DeviceChoice {
    /// Of a preset.
    Tag(String),
    /// What is known of it.
    File(Box<DeviceFile>),
}

impl<'de> Deserialize<'de> for DeviceChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = DeviceChoice;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a device's tag, or the content of its file")
            }

            fn visit_str<E>(self, tag: &str) -> Result<DeviceChoice, E> {
                Ok(DeviceChoice::Tag(tag.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DeviceChoice, A::Error> {
                let file = DeviceFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(DeviceChoice::File(Box::new(file)))
            }
        }
        deserializer.deserialize_any(Choice)
    }
}

impl JsonSchema for DeviceChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DeviceChoice".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let file = generator.subschema_for::<DeviceFile>();
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, file] })
    }
}

/// How fast an NPU computes.
#[derive(Clone, Debug)]
pub struct Device {
    /// FLOP/s at best.
    pub peak: Option<f64>,
    /// FLOP/s reached: the peak times the efficiency.
    flops: Option<f64>,
    /// Of its memory.
    memory_bandwidth: Option<Bandwidth>,
    /// How much it has.
    pub memory: Option<Bytes>,
    /// Whether its file knows of kernels, as those of GPUs do.
    pub has_kernels: bool,
    scale: f64,
    kernels: Option<KernelModel>,
}

fn wrong(field: &str, value: impl std::fmt::Display, why: &str, hint: &str) -> FieldError {
    FieldError::new(format!("workload.compute.{field}"), value, why, hint)
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
    /// A device that is not known or cannot be, a peak that is none, a factor out of range, a recipe or a kind
    /// of attention that the device has not.
    pub fn new(compute: &Compute, precision: Precision) -> Result<Self, FieldError> {
        let file = match &compute.device {
            None => None,
            Some(DeviceChoice::Tag(tag)) => Some(known(tag)?),
            Some(DeviceChoice::File(file)) => {
                file.check("workload.compute.device")?;
                Some(file.as_ref())
            }
        };
        if let Some(efficiency) = compute.efficiency.filter(|part| !(*part > 0.0 && *part <= 1.0)) {
            let hint = "above 0 and at most 1; 0.5 is usual for large matrices";
            return Err(wrong("efficiency", efficiency, "it is no part of the peak", hint));
        }
        if !(compute.scale > 0.0 && compute.scale <= 1e6) {
            let hint = "above 0; 1 leaves the times as they are";
            return Err(wrong("scale", compute.scale, "it is no factor", hint));
        }
        let own = match &compute.peak {
            None => None,
            Some(text) => Some(
                FlopRate::parse(text)
                    .map_err(|why| wrong("peak", text, why, "write it as `312 TFLOP/s`"))?,
            ),
        };
        let format = compute.recipe.format().unwrap_or(Format::of(precision));
        if let Some(file) = file.filter(|file| !file.peak.has(format)) {
            let why = format!("`{}` has no products of {} bits", file.name, 8.0 * format.bytes());
            return Err(if compute.recipe == Recipe::Plain {
                let hint = "take bf16, or a device that has them";
                FieldError::new("workload.precision", precision.tag(), why, hint)
            } else {
                let hint = "`plain`, or a device that has them";
                wrong("recipe", compute.recipe.tag(), &why, hint)
            });
        }
        let peak = own.or_else(|| file.map(|file| file.peak.of(format)));
        let one_number = compute.efficiency.is_some() || own.is_some();
        let kernels = match file.filter(|_| !one_number) {
            None => None,
            Some(file) => kernels(file, compute, precision)?,
        };
        if kernels.is_none() && compute.recipe != Recipe::Plain && file.is_none() {
            let hint = "give `device`, whose peaks by format are known";
            return Err(wrong("recipe", compute.recipe.tag(), "nothing says how fast it is", hint));
        }
        if kernels.is_none()
            && let Some(kind) = compute.attention
        {
            let why = "one number stands for all compute, attention too";
            let hint = "leave it out, or leave `efficiency` and `peak` out and take a device whose \
                        kernels are known";
            return Err(wrong("attention", kind.tag(), why, hint));
        }
        let reached = kernels.as_ref().map(|kernels| kernels.reached(format));
        let efficiency = compute.efficiency.unwrap_or(EFFICIENCY);
        let flops = reached.or_else(|| peak.map(|peak| peak.per_second() * efficiency));
        Ok(Self {
            peak: peak.map(FlopRate::per_second),
            flops,
            memory_bandwidth: compute.memory_bandwidth.or_else(|| file.map(|f| f.memory_bandwidth)),
            memory: compute.memory.or_else(|| file.map(|file| file.memory)),
            has_kernels: file.is_some_and(|file| file.kernels.is_some()),
            scale: compute.scale,
            kernels,
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

    /// Whether the scores of attention are in memory.
    #[must_use]
    pub fn keeps_scores(&self) -> bool {
        self.kernels.as_ref().is_some_and(|kernels| kernels.attention.keeps_scores())
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

    /// The kernels of a layer, scaled, if these are known.
    pub(crate) fn passes(&self, kernels: &[Kernel], part: &Part) -> Option<PassTimes> {
        let model = self.kernels.as_ref().filter(|_| !kernels.is_empty())?;
        let times = model.passes(kernels, part);
        let scaled = |seconds: f64| 1e12 * seconds * self.scale;
        Some(PassTimes {
            forward: scaled(times.forward),
            input: scaled(times.input),
            weight: scaled(times.weight),
            attention: scaled(times.attention),
            attention_input: scaled(times.attention_input),
            streams: scaled(times.streams),
        })
    }

    /// A measured time, scaled.
    #[must_use]
    pub fn measured(&self, time: Time, share: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "picoseconds of less than a day")]
        let picoseconds = time.as_ps() as f64;
        picoseconds * share * self.scale
    }
}

/// The kernels of a job on a device, if its file knows them.
fn kernels(
    file: &DeviceFile,
    compute: &Compute,
    precision: Precision,
) -> Result<Option<KernelModel>, FieldError> {
    let recipe = compute.recipe;
    let Some(rates) = file.kernels.clone() else {
        if let Some(kind) = compute.attention {
            let why = format!("nothing is known of the kernels of `{}`", file.name);
            return Err(wrong("attention", kind.tag(), &why, "leave it out"));
        }
        return Ok(None);
    };
    let has = |kind: AttentionKind| rates.attention.iter().any(|rate| rate.kind == kind);
    let best = rates.attention.iter().map(|rate| rate.kind).max();
    let fused = best.filter(|_| precision != Precision::Fp32);
    let attention = compute.attention.or(fused).unwrap_or(AttentionKind::Unfused);
    if attention != AttentionKind::Unfused && !has(attention) {
        let mut known: Vec<&str> = rates.attention.iter().map(|rate| rate.kind.tag()).collect();
        known.dedup();
        let why = format!("nothing says how fast `{}` is at it", file.name);
        known.insert(0, AttentionKind::Unfused.tag());
        let hint = format!("one of {}", known.join(", "));
        return Err(wrong("attention", attention.tag(), &why, &hint));
    }
    let memory_bandwidth = compute.memory_bandwidth.unwrap_or(file.memory_bandwidth);
    let peak = file.peak;
    let launch = compute.launch;
    Ok(Some(KernelModel { peak, memory_bandwidth, rates, precision, recipe, attention, launch }))
}

fn known(tag: &str) -> Result<&'static DeviceFile, FieldError> {
    preset(tag).ok_or_else(|| {
        let known: Vec<&str> = PRESETS.iter().map(|device| device.name.as_str()).collect();
        let hint = format!(
            "use one of {}, or a device's file, or give `peak`, `memory_bandwidth` and `memory`",
            known.join(", ")
        );
        wrong("device", tag, "no such device is known", &hint)
    })
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

    fn of(compute: &Compute) -> Result<Device, FieldError> {
        Device::new(compute, Precision::Fp16)
    }

    fn tag(tag: &str) -> Option<DeviceChoice> {
        Some(DeviceChoice::Tag(tag.into()))
    }

    #[test]
    fn the_slower_of_the_two_roofs_counts() {
        let compute = Compute {
            peak: Some("100 TFLOP/s".into()),
            memory_bandwidth: "1 TB/s".parse().ok(),
            ..Compute::default()
        };
        let device = of(&compute).expect("right");
        // At efficiency 0.5: 50 TFLOP/s, so 5e10 FLOPs take 1 ms, and 1e9 bytes take 1 ms.
        let of = |flops, bytes| time(device.picoseconds(Cost { flops, bytes }));
        assert_eq!(of(5e10, 0.0), Time::from_us(1_000));
        assert_eq!(of(5e10, 2e9), Time::from_us(2_000));
        assert_eq!(of(1e11, 1e9), Time::from_us(2_000));
    }

    #[test]
    fn a_wrong_device_is_refused_with_what_is_known() {
        let of = |compute: Compute| of(&compute).map_err(|e| e.field);
        let unknown = Compute { device: tag("h1000"), ..Compute::default() };
        let error = Device::new(&unknown, Precision::Fp16).expect_err("not known");
        assert!(error.hint.contains("a100"), "{error:?}");
        for peak in ["312", "TFLOP/s", "-3 TFLOP/s", "312 TB/s", "3 FLOP/s", "1 XFLOP/s"] {
            let compute = Compute { peak: Some(peak.into()), ..Compute::default() };
            assert_eq!(of(compute).expect_err(peak), "workload.compute.peak");
        }
        for efficiency in [0.0, -0.5, 1.5, f64::NAN] {
            let compute = Compute { efficiency: Some(efficiency), ..Compute::default() };
            assert_eq!(of(compute).expect_err("no part"), "workload.compute.efficiency");
        }
        let eight = Compute { device: tag("a100"), recipe: Recipe::Mxfp8, ..Compute::default() };
        assert_eq!(of(eight).expect_err("no fp8"), "workload.compute.recipe");
        let third = Some(AttentionKind::Flash3);
        let third = Compute { device: tag("a100"), attention: third, ..Compute::default() };
        assert_eq!(of(third).expect_err("not there"), "workload.compute.attention");
    }

    #[test]
    fn every_preset_is_sound_and_its_tag_is_read_in_any_case() {
        for device in PRESETS.iter() {
            device.check(&device.name).expect("sound");
            assert!(!device.source.is_empty());
            let shouted =
                Compute { device: tag(&device.name.to_uppercase()), ..Compute::default() };
            assert!(of(&shouted).expect(&device.name).has_peak());
        }
    }

    #[test]
    fn a_file_of_another_version_or_faster_than_its_peak_is_refused() {
        let h100 = preset("h100").expect("known").clone();
        let field = |file: DeviceFile| {
            let device = Some(DeviceChoice::File(Box::new(file)));
            of(&Compute { device, ..Compute::default() }).expect_err("wrong").field
        };
        let newer = DeviceFile { schema_version: 2, ..h100.clone() };
        assert_eq!(field(newer), "workload.compute.device.schema_version");
        let mut faster = h100.clone();
        faster.kernels.as_mut().expect("known").reached.bf16 = 1.2;
        assert_eq!(field(faster), "workload.compute.device.kernels.reached.bf16");
        let mut faster = h100;
        faster.kernels.as_mut().expect("known").attention[0].forward =
            FlopRate::parse("3 PFLOP/s").expect("a rate");
        assert_eq!(field(faster), "workload.compute.device.kernels.attention[0]");
    }
}
