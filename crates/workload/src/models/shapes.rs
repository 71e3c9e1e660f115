//! Layers by shape: a file gives kernels, channels and sizes, and the numbers follow.
//!
//! | shape | parameters | forward FLOPs of a sample | output |
//! |---|---|---|---|
//! | convolution | (∏kernel · in/groups + bias) · out (+ 2 · out, normalised) | 2 · ∏kernel · in/groups · out · ∏output | out · ∏output |
//! | dense | (inputs + bias) · outputs | 2 · inputs · outputs · positions | outputs · positions |
//! | lstm | 4 · hidden · (inputs + hidden + bias) per direction | 2 · 4 · hidden · (inputs + hidden) · steps | directions · hidden · steps |
//! | embedding | rows · width | none (reads rows) | width · lookups |
//!
//! A layer may give numbers instead (`flops`, `parameters`, `output`), and measured times. A
//! normalisation reads and writes its output once more. Element-wise functions are taken as fused. A
//! recurrent layer reads its weights at every step.

use allrail_core::{FieldError, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layer::{Cut, Flops, Layer, ModelLayers};

/// A layer of a file, or several that repeat.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LayerSpec {
    /// For tables and traces.
    pub name: String,
    /// How often it comes, one after the other; 1 where absent.
    pub repeat: Option<u32>,
    /// Several layers instead of one: for `repeat`.
    pub layers: Vec<LayerSpec>,
    /// A convolution.
    pub convolution: Option<ConvolutionSpec>,
    /// A fully connected layer.
    pub dense: Option<DenseSpec>,
    /// A recurrent layer.
    pub lstm: Option<LstmSpec>,
    /// A table.
    pub embedding: Option<EmbeddingSpec>,
    /// By number: forward FLOPs of a sample.
    pub flops: Option<u64>,
    /// By number: parameters.
    pub parameters: Option<u64>,
    /// By number: elements of a sample that are handed on.
    pub output: Option<u64>,
    /// FLOPs of the backward pass over those of the forward pass, of a layer by number; 2 where
    /// absent.
    pub backward_factor: Option<f64>,
    /// Measured: the forward pass of a whole batch on one NPU.
    pub forward: Option<Time>,
    /// Measured: its backward pass.
    pub backward: Option<Time>,
    /// With `op`: elements of a sample that go to each neighbour.
    pub halo: Option<u64>,
    /// With `op`: elements of a sample's input that are gathered.
    pub gathered: Option<u64>,
}

/// A convolution in any number of dimensions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConvolutionSpec {
    /// Its sizes.
    pub kernel: Vec<u64>,
    /// Channels in and out.
    pub channels: [u64; 2],
    /// The size of the output.
    pub output: Vec<u64>,
    /// Channels are in so many groups that do not see one another.
    #[serde(default = "one")]
    pub groups: u64,
    /// One more parameter per output channel.
    #[serde(default)]
    pub bias: bool,
    /// A batch normalisation follows: two more per output channel.
    #[serde(default)]
    pub normalised: bool,
    /// How many channels the normalisation has, where it comes before the convolution.
    #[serde(default)]
    pub normalised_channels: Option<u64>,
    /// The convolution is transposed: FLOPs by the size of the input.
    #[serde(default)]
    pub input: Option<Vec<u64>>,
}

const fn one() -> u64 {
    1
}

/// A fully connected layer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DenseSpec {
    /// Its width before.
    pub inputs: u64,
    /// Its width after.
    pub outputs: u64,
    /// At how many positions of a sample it is applied.
    #[serde(default = "one")]
    pub positions: u64,
    /// Whether it adds one parameter per output.
    #[serde(default = "yes")]
    pub bias: bool,
}

const fn yes() -> bool {
    true
}

/// A layer of long short-term memory.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LstmSpec {
    /// The width of its input.
    pub inputs: u64,
    /// The width of its state.
    pub hidden: u64,
    /// Steps of a sample.
    pub steps: u64,
    /// 2 where it runs both ways.
    #[serde(default = "one")]
    pub directions: u64,
    /// Biases of each gate: frameworks have one or two.
    #[serde(default = "one")]
    pub biases: u64,
}

/// A table that is read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingSpec {
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub width: u64,
    /// Rows read per sample.
    #[serde(default = "one")]
    pub lookups: u64,
}

/// A number too large for a `u64`.
fn too_large(name: &str) -> FieldError {
    FieldError::new(
        "workload.model.layers",
        name,
        "its FLOPs, parameters or elements overflow",
        "give the sizes of one sample",
    )
}

fn product(name: &str, factors: impl IntoIterator<Item = u64>) -> Result<u64, FieldError> {
    factors
        .into_iter()
        .try_fold(1u64, u64::checked_mul)
        // Sums of these must fit as well.
        .filter(|product| *product < 1 << 58)
        .ok_or_else(|| too_large(name))
}

/// Makes layers of a file's list.
///
/// # Errors
/// A layer with no shape or two, a size of zero, an empty list, numbers that overflow.
pub fn model(name: &str, specs: &[LayerSpec]) -> Result<ModelLayers, FieldError> {
    let mut model = ModelLayers { name: name.to_owned(), ..ModelLayers::default() };
    expand(specs, "", "workload.model.layers", 0, &mut model.layers)?;
    if model.layers.is_empty() {
        return Err(FieldError::new(
            "workload.model.layers",
            "[]",
            "a model has at least one layer",
            "give each layer a `convolution`, `dense`, `lstm`, `embedding` or numbers",
        ));
    }
    for (layer, unit) in model.layers.iter_mut().zip(0u32..) {
        layer.unit = unit;
        layer.block = true;
    }
    #[expect(clippy::cast_precision_loss, reason = "a bound")]
    let sum = |number: fn(&Layer) -> u64| -> f64 {
        model.layers.iter().map(|layer| number(layer) as f64).sum()
    };
    let sums = [sum(|l| l.flops.total()), sum(|l| l.parameters), sum(|l| l.saved.max(l.moved))];
    if sums.iter().any(|sum| 8.0 * sum > super::sizes::MOST) {
        return Err(too_large("all of them"));
    }
    // Nothing waits for the gradient of the data.
    model.layers[0].flops.input = 0;
    Ok(model)
}

const MOST_LAYERS: usize = 100_000;

fn expand(
    specs: &[LayerSpec],
    prefix: &str,
    field: &str,
    depth: u32,
    layers: &mut Vec<Layer>,
) -> Result<(), FieldError> {
    for (i, spec) in specs.iter().enumerate() {
        let at = format!("{field}[{i}]");
        let wrong = |why: &str, hint: &str| FieldError::new(&at, &spec.name, why, hint);
        let shapes = [
            spec.convolution.is_some(),
            spec.dense.is_some(),
            spec.lstm.is_some(),
            spec.embedding.is_some(),
            spec.flops.is_some() || spec.parameters.is_some(),
            !spec.layers.is_empty(),
        ];
        if shapes.iter().filter(|given| **given).count() != 1 {
            return Err(wrong(
                "a layer has exactly one shape",
                "give one of `convolution`, `dense`, `lstm`, `embedding`, `flops` and \
                 `parameters`, or `layers` to repeat",
            ));
        }
        let repeat = spec.repeat.unwrap_or(1);
        if repeat == 0 {
            return Err(FieldError::new(
                format!("{at}.repeat"),
                0,
                "it repeats no time",
                "leave the layer out",
            ));
        }
        if depth > 4 {
            return Err(wrong("lists are nested more than four deep", "write the layers out"));
        }
        for k in 0..repeat {
            if layers.len() >= MOST_LAYERS {
                return Err(wrong("the model has more than 100,000 layers", "repeat fewer"));
            }
            let mut name = format!("{prefix}{}", spec.name);
            if repeat > 1 {
                name =
                    if name.is_empty() { (k + 1).to_string() } else { format!("{name}.{}", k + 1) };
            }
            if spec.layers.is_empty() {
                layers.push(spec.layer(name, &at)?);
            } else {
                let prefix = if name.is_empty() { name } else { format!("{name}.") };
                expand(&spec.layers, &prefix, &format!("{at}.layers"), depth + 1, layers)?;
            }
        }
    }
    Ok(())
}

impl LayerSpec {
    fn layer(&self, name: String, at: &str) -> Result<Layer, FieldError> {
        let shape = self.shape(&name, at)?;
        let mut layer = Layer { name, ..shape };
        if let Some(halo) = self.halo {
            layer.cut = Cut::Spatial { halo };
        } else if let Some(input) = self.gathered {
            layer.cut = Cut::Gathered { input };
        }
        layer.times = match (self.forward, self.backward) {
            (Some(forward), Some(backward)) => Some((forward, backward)),
            (None, None) => None,
            _ => {
                return Err(FieldError::new(
                    at,
                    &layer.name,
                    "of measured times both are needed",
                    "give `forward` and `backward`",
                ));
            }
        };
        Ok(layer)
    }

    fn shape(&self, name: &str, at: &str) -> Result<Layer, FieldError> {
        match (&self.convolution, &self.dense, &self.lstm, &self.embedding) {
            (Some(shape), ..) => shape.layer(name, at),
            (_, Some(shape), ..) => shape.layer(name, at),
            (_, _, Some(shape), _) => shape.layer(name, at),
            (.., Some(shape)) => shape.layer(name, at),
            _ => self.by_number(name, at),
        }
    }

    fn by_number(&self, name: &str, at: &str) -> Result<Layer, FieldError> {
        let (flops, output) = (self.flops.unwrap_or(0), self.output.unwrap_or(0));
        let factor = self.backward_factor.unwrap_or(2.0);
        if !(0.0..=100.0).contains(&factor) {
            return Err(FieldError::new(
                format!("{at}.backward_factor"),
                factor,
                "it is no ratio",
                "2 where the gradients of inputs and weights cost as much as the forward pass each",
            ));
        }
        let parameters = self.parameters.unwrap_or(0);
        product(name, [flops, 128])?;
        product(name, [parameters.max(output), 8])?;
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        #[expect(clippy::cast_sign_loss, reason = "between 0 and 100")]
        let backward = (flops as f64 * factor) as u64;
        let weight = if parameters == 0 { 0 } else { backward.min(flops) };
        Ok(Layer {
            flops: Flops { forward: flops, input: backward - weight, weight, product: 0 },
            parameters,
            moved: 2 * output,
            output,
            saved: output,
            ..Layer::default()
        })
    }
}

fn not_zero(name: &str, at: &str, what: &str, sizes: &[u64]) -> Result<(), FieldError> {
    if sizes.contains(&0) {
        return Err(FieldError::new(
            format!("{at}.{what}"),
            name,
            "a size is zero",
            "sizes are at least 1",
        ));
    }
    Ok(())
}

impl DenseSpec {
    fn layer(&self, name: &str, at: &str) -> Result<Layer, FieldError> {
        not_zero(name, at, "dense", &[self.inputs, self.outputs, self.positions])?;
        let input = product(name, [self.inputs, self.positions])?;
        let output = product(name, [self.outputs, self.positions])?;
        Ok(Layer {
            flops: Flops::linear(product(name, [2, input, self.outputs])?),
            parameters: product(
                name,
                [self.inputs.saturating_add(self.bias.into()), self.outputs],
            )?,
            moved: input + output,
            output,
            saved: input,
            matrices: vec![[self.outputs, self.inputs]],
            ..Layer::default()
        })
    }
}

impl LstmSpec {
    fn layer(&self, name: &str, at: &str) -> Result<Layer, FieldError> {
        not_zero(name, at, "lstm", &[self.inputs, self.hidden, self.steps, self.directions])?;
        let gates = product(
            name,
            [4, self.hidden, self.inputs.saturating_add(self.hidden), self.directions],
        )?;
        let input = product(name, [self.inputs, self.steps])?;
        let output = product(name, [self.hidden, self.steps, self.directions])?;
        Ok(Layer {
            flops: Flops::linear(product(name, [2, gates, self.steps])?),
            parameters: gates + product(name, [4, self.hidden, self.biases, self.directions])?,
            moved: input + output,
            weight_rereads: self.steps - 1,
            output,
            matrices: [[4 * self.hidden, self.inputs], [4 * self.hidden, self.hidden]]
                .repeat(usize::try_from(self.directions).unwrap_or(1).min(2)),
            // Its input, four gates and the cell.
            saved: input + 5 * output,
            ..Layer::default()
        })
    }
}

impl EmbeddingSpec {
    fn layer(&self, name: &str, at: &str) -> Result<Layer, FieldError> {
        not_zero(name, at, "embedding", &[self.rows, self.width, self.lookups])?;
        let output = product(name, [self.width, self.lookups])?;
        Ok(Layer {
            parameters: product(name, [self.rows, self.width])?,
            moved: 2 * output,
            output,
            matrices: vec![[self.rows, self.width]],
            lookups: Some(self.lookups),
            ..Layer::default()
        })
    }
}

impl ConvolutionSpec {
    fn layer(&self, name: &str, at: &str) -> Result<Layer, FieldError> {
        let field = format!("{at}.convolution");
        let wrong = |why: &str, hint: &str| FieldError::new(&field, name, why, hint);
        let sizes = self.kernel.iter().chain(&self.channels).chain(&self.output);
        if sizes.chain(self.input.iter().flatten()).any(|size| *size == 0) || self.groups == 0 {
            return Err(wrong("a size is zero", "sizes are at least 1"));
        }
        if self.kernel.len() != self.output.len() || self.kernel.is_empty() {
            return Err(wrong(
                "`kernel` and `output` differ in dimensions",
                "such as `kernel: [3, 3], output: [56, 56]`",
            ));
        }
        let [inputs, outputs] = self.channels;
        if !inputs.is_multiple_of(self.groups) || !outputs.is_multiple_of(self.groups) {
            return Err(wrong("`groups` does not divide the channels", "1 where there are none"));
        }
        let kernel = product(name, self.kernel.iter().copied())?;
        let output = product(name, self.output.iter().copied())?;
        // A transposed convolution applies its kernel at every position of the input.
        let applied = match &self.input {
            Some(input) => product(name, input.iter().copied())?,
            None => output,
        };
        let weights = product(name, [kernel, inputs / self.groups, outputs])?;
        let normalised = match self.normalised_channels {
            Some(channels) => 2 * channels.min(1 << 40),
            None => 2 * u64::from(self.normalised) * outputs,
        };
        let elements = product(name, [outputs, output])?;
        // The input is as large as the stride makes it, which only the layer before knows; strides
        // are few, so the output's size stands for it.
        let input = product(name, [inputs, applied])?;
        let norm = if normalised > 0 { elements } else { 0 };
        Ok(Layer {
            flops: Flops::linear(product(name, [2, weights, applied])?),
            parameters: weights + u64::from(self.bias) * outputs + normalised,
            matrices: vec![[outputs, weights / outputs]],
            moved: input + elements + 2 * norm,
            output: elements,
            saved: input + norm,
            ..Layer::default()
        })
    }
}
