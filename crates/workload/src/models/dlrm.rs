//! Deep learning recommendation (Naumov et al., arXiv 1906.00091): embedding tables, two MLPs and
//! their interaction.
//!
//! The tables are spread over all replicas, each reading its own tables' rows for everyone's
//! samples: an all-to-all brings the rows of a replica's samples, while its bottom MLP runs, and the
//! interaction waits for both. The backward pass sends the rows' gradients back the same way. The
//! MLPs are data parallel. Tables are updated where they are: their gradients do not travel.
//!
//! Ignored: uneven tables, the indices' own all-to-all, duplicates among the rows.

use allrail_core::FieldError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layer::{Cut, Flops, Layer, ModelLayers};

/// The sizes of a DLRM.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DlrmSpec {
    /// How many tables.
    pub tables: u64,
    /// Rows of all tables together.
    pub rows: u64,
    /// Elements of a row.
    pub width: u64,
    /// Rows read per table and sample, summed before they travel.
    #[serde(default = "one")]
    pub lookups: u64,
    /// Widths of the bottom MLP, its input (dense features) first.
    pub bottom: Vec<u64>,
    /// Widths of the top MLP after the interaction.
    pub top: Vec<u64>,
    /// The width of the interaction's output, the first input of the top MLP; where absent, that of
    /// all pairs of vectors and the bottom's output.
    #[serde(default)]
    pub interaction: Option<u64>,
}

const fn one() -> u64 {
    1
}

impl DlrmSpec {
    /// Its layers: embedding, bottom, interaction, top.
    ///
    /// # Errors
    /// A size of zero or beyond a million million, an empty MLP.
    pub fn model(&self, name: &str) -> Result<ModelLayers, FieldError> {
        let wrong = |field: &str, value: u64, why: &str, hint: &str| {
            FieldError::new(format!("workload.model.dlrm.{field}"), value, why, hint)
        };
        let sizes = [("tables", self.tables, 1 << 20), ("rows", self.rows, 1 << 40)];
        let more = [("width", self.width, 1 << 14), ("lookups", self.lookups, 1 << 20)];
        for (field, value, most) in sizes.into_iter().chain(more) {
            if value == 0 || value > most {
                let hint = format!("1 to {most}");
                return Err(wrong(field, value, "it is out of range", &hint));
            }
        }
        for (field, widths, least) in [("bottom", &self.bottom, 2), ("top", &self.top, 1)] {
            if widths.len() < least || widths.iter().any(|w| *w == 0 || *w > 1 << 20) {
                return Err(wrong(
                    field,
                    widths.len() as u64,
                    "an MLP is a list of widths of 1 to a million",
                    "such as `bottom: [13, 512, 256, 128]`, `top: [1024, 512, 1]`",
                ));
            }
        }
        let vectors = self.tables + 1;
        let width = self.bottom[self.bottom.len() - 1];
        let interaction = self.interaction.unwrap_or(width + vectors * (vectors - 1) / 2);
        if interaction == 0 || interaction > 1 << 26 {
            let hint = "1 to 2^26; all pairs of tables give their number squared over 2";
            return Err(wrong("interaction", interaction, "it is out of range", hint));
        }
        let rows = self.tables * self.width;
        let mut layers = vec![Layer {
            name: "embedding".to_owned(),
            parameters: self.rows * self.width,
            moved: rows * (self.lookups + 1),
            output: rows,
            cut: Cut::Tables { exchanged: rows },
            ..Layer::default()
        }];
        mlp("bottom", &self.bottom, &mut layers);
        // No weights: both parts of the backward pass are of its inputs.
        let products = 2 * vectors * vectors * self.width;
        layers.push(Layer {
            name: "interaction".to_owned(),
            flops: Flops { forward: products, input: 2 * products, weight: 0, product: 0 },
            moved: vectors * self.width + interaction,
            output: interaction,
            saved: vectors * self.width,
            joins: true,
            ..Layer::default()
        });
        let top: Vec<u64> = [interaction].iter().chain(&self.top).copied().collect();
        mlp("top", &top, &mut layers);
        // The first dense layer needs no gradient of its input.
        layers[1].flops.input = 0;
        for (layer, unit) in layers.iter_mut().zip(0u32..) {
            layer.unit = unit;
        }
        Ok(ModelLayers { name: name.to_owned(), layers, ..ModelLayers::default() })
    }
}

fn mlp(name: &str, widths: &[u64], layers: &mut Vec<Layer>) {
    for (i, pair) in widths.windows(2).enumerate() {
        layers.push(Layer {
            name: format!("{name}.{}", i + 1),
            flops: Flops::linear(2 * pair[0] * pair[1]),
            parameters: (pair[0] + 1) * pair[1],
            moved: pair[0] + pair[1],
            output: pair[1],
            saved: pair[0],
            ..Layer::default()
        });
    }
}
