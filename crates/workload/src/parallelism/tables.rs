//! Which tables' gradients travel as rows, and what of each: `workload.sparse` over a layout.

use std::collections::BTreeMap;

use allrail_core::{FieldError, counted};

use super::plan::Plan;
use super::rows::{RowExchange, SparseGradient, Touched};
use crate::error::wrong;
use crate::models::Cut;

/// The tables whose gradients travel as rows, by layer.
///
/// # Errors
/// A layer that is no table of its own, numbers out of range, or what does not go with rows.
pub(super) fn find(plan: &Plan<'_>) -> Result<BTreeMap<usize, Touched>, FieldError> {
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

type Refuse<'a> = dyn Fn(&str, &dyn ToString, &str, &str) -> FieldError + 'a;

/// Refuses what does not go with rows.
fn together(plan: &Plan<'_>, i: usize, refuse: &Refuse<'_>, table: &str) -> Result<(), FieldError> {
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
    fn size(&self, plan: &Plan<'_>, i: usize, refuse: &Refuse<'_>) -> Result<Touched, FieldError> {
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
