//! The grid of ranks of an all-reduce: rank `r` is NPU `r`, in row `r / columns`.

use allrail_collective::CollectiveError;
use allrail_collective::grid::{GridAllReduce, named};
use serde_json::Value;

use super::scenario::{Traffic, wrong};
use crate::SimulateError;

/// Rows and columns of the ranks: the scenario's, or the fabric's own, or as square as it goes.
pub(super) fn shape(
    traffic: &Traffic,
    fabric: &Value,
    npus: u32,
) -> Result<[u32; 2], SimulateError> {
    let fits = |[rows, columns]: [u32; 2]| u64::from(rows) * u64::from(columns) == u64::from(npus);
    if let Some(shape) = traffic.shape {
        if !fits(shape) {
            let why = format!("its product is not the {npus} NPUs");
            let [rows, columns] = square(npus);
            let hint = format!("for example `shape: [{rows}, {columns}]`");
            return Err(wrong("traffic.shape", format!("{shape:?}"), why, hint));
        }
        return Ok(shape);
    }
    Ok(own(fabric).filter(|shape| fits(*shape)).unwrap_or_else(|| square(npus)))
}

/// How the fabric numbers its NPUs, if it is a grid.
fn own(fabric: &Value) -> Option<[u32; 2]> {
    let sides = |key: &str| -> Option<Vec<u32>> {
        serde_json::from_value(fabric.get(key).cloned().unwrap_or_default()).ok()
    };
    match fabric.get("topology").and_then(Value::as_str)? {
        "hammingmesh" => {
            let (board, grid) = (sides("board")?, sides("grid")?);
            Some([board.first()? * grid.get(1)?, board.get(1)? * grid.first()?])
        }
        _ => {
            let shape = sides("shape")?;
            Some([*shape.first()?, shape.get(1..)?.iter().product()])
        }
    }
}

/// The most square grid of `npus`, no fewer columns than rows.
fn square(npus: u32) -> [u32; 2] {
    let rows = (1..=npus.isqrt()).rev().find(|rows| npus.is_multiple_of(*rows)).unwrap_or(1);
    [rows, npus / rows]
}

/// The algorithm, if it can run on a grid of that shape.
pub(super) fn algorithm(
    name: &str,
    [rows, columns]: [u32; 2],
) -> Result<&'static dyn GridAllReduce, SimulateError> {
    let algorithm = named(name).map_err(|error| explain(name, &error))?;
    algorithm.check(rows, columns).map_err(|error| explain(name, &error))?;
    Ok(algorithm)
}

/// The field is the traffic's, whatever a collective calls it.
fn explain(name: &str, error: &CollectiveError) -> SimulateError {
    let report = SimulateError::from(error.clone()).report();
    wrong("traffic.algorithm", name, report.why, report.hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_are_the_fabrics_own_or_square() {
        let mesh =
            serde_json::json!({ "topology": "hammingmesh", "board": [2, 3], "grid": [4, 5] });
        assert_eq!(own(&mesh), Some([10, 12]));
        let torus = serde_json::json!({ "topology": "torus", "shape": [4, 2, 3] });
        assert_eq!(own(&torus), Some([4, 6]));
        let tree = serde_json::json!({ "topology": "fat_tree", "npus": 1024 });
        assert_eq!(own(&tree), None);
        assert_eq!((square(1024), square(12), square(7)), ([32, 32], [3, 4], [1, 7]));
    }
}
