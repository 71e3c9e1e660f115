//! What a compression does to a gradient's bytes: for the runtime, which registers these tensors.

use allrail_core::FieldError;
use allrail_workload::compression::{ALL, CompressionSpec, Gradient};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::raise;

/// The compressions: name, about.
#[pyfunction]
pub(crate) fn compressions() -> String {
    let rows = ALL.iter().map(|known| json!({ "name": known.tag, "about": known.about }));
    Value::from_iter(rows).to_string()
}

/// The bytes of each collective of a gradient, one after the other, under a compression (JSON as in
/// `workload.compression`); nothing if it travels as it is.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands over lists")]
pub(crate) fn compressed_exchanges(
    compression: &str,
    shape: Vec<u64>,
    width: u64,
    ranks: u64,
) -> PyResult<Option<Vec<u64>>> {
    let wrong = |error: serde_json::Error| {
        raise(FieldError::new("compression", compression, error.to_string(), ""))
    };
    let spec: CompressionSpec = serde_json::from_str(compression).map_err(wrong)?;
    let compression = spec.compression().map_err(raise)?;
    let travel = compression.travel(&Gradient { shape: &shape, width, ranks });
    Ok(travel.map(|travel| travel.exchanges.iter().map(|exchange| exchange.bytes).collect()))
}
