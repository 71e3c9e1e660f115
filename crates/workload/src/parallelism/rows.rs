//! Gradients of embedding tables that travel as rows.
//!
//! A batch reads some rows of a table, and the gradient of all others is zero. It travels dense, or as the rows
//! that a rank has touched with their places:
//!
//! | exchange of gradients | dense | rows |
//! |---|---|---|
//! | all-reduce | an all-reduce of V · c · w bytes | an all-gather of P · k · (i + c · w) bytes in all: everybody's rows, summed where they arrive |
//! | parameter servers | V · c · w bytes pushed and pulled | U(m) · (i + c · w) bytes pushed, and as many pulled |
//!
//! with a table of V rows and c columns, numbers of w bytes, places of i bytes, k touched rows of each of P ranks, m
//! NPUs of a machine. Of the rows of a rank a part `overlap` is touched by all, the rest by it alone, so n ranks
//! touch U(n) = min(V, k · overlap + n · k · (1 − overlap)). An update changes the U(P) rows of a step.
//!
//! Sources: Horovod gathers sparse gradients unless `sparse_as_dense` (`horovod/tensorflow/__init__.py`,
//! `_allreduce_cond` and `IndexedSlices`); Parallax sends sparse variables over servers and dense ones by
//! all-reduce, as bytes decide (Kim et al., `EuroSys`'19); MXNet's `row_sparse` push and pull carry rows
//! with their numbers. `allrail.torch` gathers the rows of `nn.Embedding(sparse=True)`.
//!
//! Ignored: the small exchange by which ranks tell how many rows they have; that a gather is padded to the longest
//! of them; on machines of several NPUs, that a sum of rows moves less than one of a dense tensor of U(m) rows.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, Time, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::emit::{Emitter, Span};
use super::gradients::place;
use super::plan::{Plan, wrong};
use crate::device::{self, Cost};
use crate::error::WorkloadError;
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::Cut;

/// An embedding table whose gradient may travel as rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SparseGradient {
    /// Name of the model's layer: an embedding table that every replica has.
    pub table: String,
    /// How its gradient travels: as `rows`, `dense`, or as it makes the simulated step shorter (`auto`).
    #[serde(default)]
    pub exchange: RowExchange,
    /// Number of rows that the batch of a rank touches in an iteration; as many as it looks up, and at most the
    /// table's, if left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub rows: Option<u64>,
    /// The same as a part of the table, above 0 and up to 1, instead of `rows`.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 0.02)]
    pub fraction: Option<f64>,
    /// Part of a rank's rows that all ranks touch, from 0 to 1; the others are its own.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    #[schemars(example = 0.3)]
    pub overlap: f64,
    /// Size of the place that travels with a row.
    #[serde(default = "place_of_a_row")]
    pub index: Bytes,
}

/// PyTorch's `int64`.
const fn place_of_a_row() -> Bytes {
    Bytes::new(8)
}

/// How the gradient of a table travels.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "an exchange of a table's gradient"))]
pub enum RowExchange {
    /// The one that makes the simulated step shorter.
    #[default]
    Auto,
    /// As rows with their places.
    Rows,
    /// Whole, with its zeros.
    Dense,
}

/// A table whose gradient travels as rows, as one NPU has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    /// Rows of the table.
    rows: u64,
    columns: u64,
    /// Rows that the NPU's batch touches.
    touched: u64,
    overlap: f64,
    index: u64,
}

impl Touched {
    /// Numbers of the whole table.
    pub(crate) fn parameters(&self) -> u64 {
        self.rows * self.columns
    }

    /// How many rows so many ranks touch together.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "an estimate")]
    #[expect(clippy::cast_sign_loss, reason = "it is positive")]
    pub(crate) fn union(&self, ranks: u64) -> u64 {
        let each = self.touched as f64;
        let all = each * self.overlap + ranks as f64 * each * (1.0 - self.overlap);
        // What is whole but for rounding is whole.
        self.rows.min((all * (1.0 - 1e-12)).ceil() as u64)
    }

    /// Of a row and its place, with numbers of so many bytes.
    fn row(&self, width: u64) -> u64 {
        self.index + self.columns * width
    }
}

/// The tables whose gradients travel as rows, by layer.
///
/// # Errors
/// A layer that is no table of its own, numbers out of range, or what does not go with rows.
pub(super) fn find(plan: &Plan<'_>) -> Result<BTreeMap<usize, Touched>, WorkloadError> {
    let mut found = BTreeMap::new();
    let mut named = Vec::new();
    for (n, said) in plan.workload.sparse.iter().enumerate() {
        let refuse = |key: &str, value: &dyn ToString, why: &str, hint: &str| {
            wrong(&format!("sparse[{n}].{key}"), value.to_string(), why, hint)
        };
        let layers = &plan.model.layers;
        let table = &said.table;
        let known = layers.iter().position(|layer| layer.name == *table);
        let Some(i) = known.filter(|i| layers[*i].lookups.is_some()) else {
            let tables = layers.iter().filter(|layer| layer.lookups.is_some());
            let tables: Vec<String> = tables.map(|layer| format!("`{}`", layer.name)).collect();
            let why = match known.map(|i| layers[i].cut) {
                Some(Cut::Tables { .. }) => {
                    "its tables are spread over replicas, and keep their gradients"
                }
                Some(_) => "this layer is no embedding table",
                None => "the model has no such layer",
            };
            let hint = match tables.as_slice() {
                [] => "leave `sparse` out: the model has no table that replicas share".to_owned(),
                tables => format!("its tables: {}", tables.join(", ")),
            };
            return Err(refuse("table", table, why, &hint));
        };
        if named.contains(&i) {
            return Err(refuse("table", table, "it is listed twice", "list each table once"));
        }
        named.push(i);
        let sized = said.size(plan, i, &refuse)?;
        together(plan, i, &refuse, table)?;
        if said.exchange == RowExchange::Rows {
            found.insert(i, sized);
        }
    }
    Ok(found)
}

type Refuse<'a> = dyn Fn(&str, &dyn ToString, &str, &str) -> WorkloadError + 'a;

/// Refuses what does not go with rows.
fn together(
    plan: &Plan<'_>,
    i: usize,
    refuse: &Refuse<'_>,
    table: &str,
) -> Result<(), WorkloadError> {
    let workload = plan.workload;
    let why = if plan.model.tied > 0 && i == 0 {
        "the head reads the same table, so every row has a gradient"
    } else if workload.parallelism.zero > 0 {
        "with ZeRO gradients are scattered, and rows are gathered"
    } else if workload.every > 1 {
        "replicas that train apart average whole parameters"
    } else if workload.compression.is_some() {
        "compressed gradients are dense"
    } else if plan.leaves_each() {
        "gradients travel after every microbatch, and rows once a step"
    } else {
        return Ok(());
    };
    Err(refuse("table", &table, why, "leave `sparse` out"))
}

impl SparseGradient {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a count")]
    #[expect(clippy::cast_sign_loss, reason = "it is positive")]
    fn size(
        &self,
        plan: &Plan<'_>,
        i: usize,
        refuse: &Refuse<'_>,
    ) -> Result<Touched, WorkloadError> {
        let layer = &plan.model.layers[i];
        let [rows, columns] = layer.matrices.first().copied().unwrap_or_default();
        let (none, most) = ("leave one of them out", format!("1 to {rows}"));
        let touched = match (self.rows, self.fraction) {
            (Some(count), Some(_)) => {
                return Err(refuse("rows", &count, "`fraction` says the same", none));
            }
            (Some(count), None) => {
                if count == 0 || count > rows {
                    let why = format!("the table has {rows}", rows = counted(rows, "row"));
                    return Err(refuse("rows", &count, &why, &most));
                }
                count
            }
            (None, Some(part)) => {
                if !(part > 0.0 && part <= 1.0) {
                    let hint = "for example `0.02`, or leave it out";
                    return Err(refuse(
                        "fraction",
                        &part,
                        "it is no part of a table above 0",
                        hint,
                    ));
                }
                ((part * rows as f64 * (1.0 - 1e-12)).ceil() as u64).max(1)
            }
            (None, None) => {
                let samples = plan.samples.saturating_mul(u64::from(plan.pipeline.microbatches));
                let lookups = layer.lookups.unwrap_or(1).div_ceil(plan.shares(layer).tokens);
                rows.min(lookups.saturating_mul(samples)).max(1)
            }
        };
        if !(0.0..=1.0).contains(&self.overlap) {
            let hint = "for example `0.3`, or leave it out";
            return Err(refuse("overlap", &self.overlap, "it is no part from 0 to 1", hint));
        }
        let index = self.index.count();
        if index > 64 {
            let why = "the place of a row has up to 64 bytes";
            return Err(refuse("index", &self.index, why, "for example `8 B`"));
        }
        // Tensor parallelism cuts a table by rows.
        let cut = plan.shares(layer).outputs;
        let sized = Touched {
            rows: rows.div_ceil(cut),
            columns,
            touched: touched.div_ceil(cut),
            overlap: self.overlap,
            index,
        };
        let ranks = plan.exchanging();
        let width = plan.gradient_precision.bytes();
        let all = u128::from(ranks) * u128::from(sized.touched) * u128::from(sized.row(width));
        if all > 1 << 62 {
            let hint = "touch fewer, or `exchange: dense`";
            let why = "the rows of all ranks are 2^62 bytes and more";
            return Err(refuse("table", &self.table, why, hint));
        }
        Ok(sized)
    }
}

impl Plan<'_> {
    /// What is assumed of tables whose gradients travel as rows.
    pub(super) fn row_notes(&self) -> Vec<String> {
        let of = |(i, table): (&usize, &Touched)| {
            let (name, Touched { rows, touched, .. }) = (&self.model.layers[*i].name, table);
            format!("the gradient of `{name}` travels as rows: a rank touches {touched} of {rows}")
        };
        self.rows.iter().map(of).collect()
    }

    /// Of so many parameters of a layer, those that an update changes.
    pub(super) fn updated_by_rows(&self, i: usize, parameters: u64) -> Option<u64> {
        let table = self.rows.get(&i)?;
        let ranks = self.exchanging();
        let rest = parameters.saturating_sub(table.parameters());
        Some(parameters.min(rest + table.union(ranks) * table.columns))
    }

    /// Bytes of a layer's gradient beyond those of a dense one, which may be negative: (fewer, more).
    pub(crate) fn kept_rows(&self, i: usize) -> (u64, u64) {
        let Some(table) = self.rows.get(&i) else { return (0, 0) };
        let ranks = self.exchanging();
        let width = self.gradient_precision.bytes();
        // Everybody's rows; with servers what is pushed and what is pulled.
        let copies = if self.workload.by_servers { 2 } else { ranks };
        (table.parameters() * width, copies * table.touched * table.row(width))
    }
}

impl Emitter<'_> {
    /// The exchange of a layer's gradient whose table travels as rows; none where it does not. As
    /// [`Self::exchange`].
    pub(super) fn exchange_rows(
        &mut self,
        position: usize,
        i: usize,
        name: &str,
        (parameters, span): (u64, Span),
        ready: &[NodeId],
    ) -> Option<(Option<NodeId>, Time)> {
        let plan = self.plan;
        let table = *plan.rows.get(&i)?;
        let width = plan.gradient_precision.bytes();
        let ranks = self.ranks(span);
        let kind = (Purpose::Data, Some(place(i)), Pass::Backward);
        let servers = plan.workload.by_servers;
        let what = if servers {
            let parts = plan.layout.together(span.axes());
            let last = parts.iter().map(|part| part.dimension).max();
            let within = parts.iter().filter(|part| Some(part.dimension) != last);
            let npus = within.map(|part| u64::from(part.size)).product();
            (Operation::AllReduce, table.union(npus) * table.row(width), span)
        } else {
            (Operation::AllGather, ranks * table.touched * table.row(width), span)
        };
        let rows = self.collective(position, &format!("{name}, rows"), what, kind, ready);
        let rest = parameters.saturating_sub(table.parameters()) * width;
        let dense =
            self.collective(position, name, (Operation::AllReduce, rest, span), kind, ready);
        let both: Vec<NodeId> = rows.into_iter().chain(dense).collect();
        let last = match both.as_slice() {
            [] => None,
            [one] => Some(*one),
            both => Some(self.instant(position, &format!("{name}, all"), Pass::Backward, both)),
        };
        // Everybody's rows are read, and their sums written.
        let numbers = if servers { 0 } else { ranks * table.touched + table.union(ranks) };
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let bytes = numbers as f64 * (table.columns * width) as f64;
        let sums = device::time(plan.device.picoseconds(Cost { flops: 0.0, bytes }));
        Some((last, if ranks > 1 { sums } else { Time::ZERO }))
    }
}
