//! Single kernels on a device: what its file predicts for what was measured one by one.
//!
//! The times are those that a step is made of (`kernels/mod.rs`), of one kernel alone and without the host: what it
//! takes on the device and the start of each launch. `allrail calibrate device` fits a file to them, so that what
//! is fitted and what is simulated are one model.

use allrail_core::FieldError;
use serde::Deserialize;

use super::attention::{Attention, AttentionKind};
use super::recipe::{Format, Recipe};
use super::{KernelModel, Launch, Part, Run};
use crate::device::file::{DeviceFile, KernelRates};
use crate::spec::Precision;

/// A kernel that was measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kernel", rename_all = "snake_case", deny_unknown_fields)]
pub enum Single {
    /// `rows` × `inputs` times `inputs` × `outputs`.
    Product {
        /// Of the result.
        rows: u64,
        /// The inner dimension.
        inputs: u64,
        /// Columns of the result.
        outputs: u64,
        /// Of the operands.
        format: Format,
    },
    /// Fused attention of a kind in 16 bits, causal, as many keys as queries.
    Attention {
        /// Of which kind.
        kind: AttentionKind,
        /// Samples.
        samples: u64,
        /// Heads of a sample.
        heads: u64,
        /// Elements of a head.
        head: u64,
        /// Of a sample.
        tokens: u64,
        /// Its gradient, instead of it.
        backward: bool,
    },
    /// Elementwise work.
    Stream {
        /// Read and written.
        bytes: u64,
    },
}

/// Seconds of each kernel, by what a device's file says.
///
/// # Errors
/// The file cannot be right, or says nothing of kernels.
pub fn seconds(file: &DeviceFile, kernels: &[Single]) -> Result<Vec<f64>, FieldError> {
    file.check("device")?;
    let Some(rates) = &file.kernels else {
        let why = "it says nothing of kernels";
        return Err(FieldError::new("device.kernels", "", why, "add what they reach"));
    };
    Ok(kernels.iter().map(|kernel| alone(file, rates, *kernel)).collect())
}

fn alone(file: &DeviceFile, rates: &KernelRates, kernel: Single) -> f64 {
    let model = |attention| KernelModel {
        peak: file.peak,
        memory_bandwidth: file.memory_bandwidth,
        rates: rates.clone(),
        precision: Precision::Bf16,
        recipe: Recipe::Plain,
        attention,
        launch: Launch::Graph,
    };
    let run = match kernel {
        Single::Product { rows, inputs, outputs, format } => {
            let of_format = model(AttentionKind::Unfused).product_rates(format);
            let seconds = of_format.seconds([rows, outputs, inputs, 1], &[outputs, inputs]);
            Run { seconds, kernels: 1.0 }
        }
        Single::Attention { kind, samples, heads, head, tokens, backward } => {
            let attention = Attention {
                queries: tokens,
                keys: tokens,
                causal: true,
                heads,
                head,
                value: head,
                dropout: false,
            };
            let part = Part { samples, cut: 1, whole: 1, experts: 1, tokens: 1 };
            let (mut there, mut back) = (Run::default(), Run::default());
            model(kind).attend(&attention, &part, [&mut there, &mut back]);
            if backward { back } else { there }
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        Single::Stream { bytes } => {
            let seconds = bytes as f64 / model(AttentionKind::Unfused).memory();
            Run { seconds, kernels: 1.0 }
        }
    };
    run.seconds + run.kernels * rates.start.as_s()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::preset;

    fn a100() -> &'static DeviceFile {
        preset("a100").expect("known")
    }

    #[test]
    fn rates_of_the_file_are_what_comes_out() {
        let [bytes, tokens] = [1 << 30, 1 << 20];
        let attention = |backward| Single::Attention {
            kind: AttentionKind::Flash2,
            samples: 1,
            heads: 1,
            head: 128,
            tokens,
            backward,
        };
        let kernels = [Single::Stream { bytes }, attention(false), attention(true)];
        let found = seconds(a100(), &kernels).expect("right");
        let [streamed, there, back] = found[..] else { panic!("one of each") };
        assert!((streamed - (bytes as f64 / (0.88 * 2039e9) + 2e-6)).abs() < 1e-9);
        // Half of all pairs, four FLOPs of each element of a head; so long, `half` is next to nothing.
        let flops = 2.0 * (tokens as f64).powi(2) * 128.0;
        assert!((there / (flops / 200e12) - 1.0).abs() < 1e-3);
        assert!((back / (2.5 * flops / 185e12) - 1.0).abs() < 1e-3);
    }

    #[test]
    fn without_kernels_there_is_nothing_to_say() {
        let bare = DeviceFile { kernels: None, ..a100().clone() };
        let error = seconds(&bare, &[Single::Stream { bytes: 1 }]).expect_err("no kernels");
        assert_eq!(error.field, "device.kernels");
    }
}
