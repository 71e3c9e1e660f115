//! A pipeline's pieces are consecutive layers: as many transformer layers each, or, of other models,
//! split so that the FLOPs before each cut are nearest to their share.

use std::ops::Range;

use crate::error::WorkloadError;
use crate::models::{Layer, ModelLayers};

/// The layers of each piece.
pub(super) fn cut(model: &ModelLayers, pieces: u32) -> Result<Vec<Range<usize>>, WorkloadError> {
    let layers = &model.layers;
    let units = layers.last().map_or(0, |layer| layer.unit + 1);
    let fail = |why: String, hint: &str| {
        Err(WorkloadError::new("workload.parallelism.pp", pieces, why, hint))
    };
    if units < pieces {
        let hint = "stages times `virtual_stages` are at most as many";
        return fail(format!("the model has {units} layers to cut"), hint);
    }
    let mut pieces_of: Vec<Range<usize>> = Vec::new();
    // The last unit of each piece.
    let ends: Vec<u32> = if model.kv_heads.is_some() {
        if !units.is_multiple_of(pieces) {
            let hint = "stages times `virtual_stages` divide the layers";
            return fail(format!("it does not divide the {units} layers"), hint);
        }
        (1..=pieces).map(|k| k * (units / pieces) - 1).collect()
    } else {
        balanced(layers, units, pieces)
    };
    let mut start = 0;
    for end in ends {
        let after = layers.partition_point(|layer| layer.unit <= end);
        pieces_of.push(start..after);
        start = after;
    }
    Ok(pieces_of)
}

/// Cuts where the FLOPs before are nearest to their share.
fn balanced(layers: &[Layer], units: u32, pieces: u32) -> Vec<u32> {
    let mut before = vec![0u128; units as usize + 1];
    for layer in layers {
        before[layer.unit as usize + 1] += u128::from(layer.flops.total());
    }
    for unit in 1..before.len() {
        before[unit] += before[unit - 1];
    }
    let total = before[units as usize];
    let mut ends = Vec::new();
    let mut first = 0;
    for k in 1..=pieces {
        // At least one unit for each piece before and after.
        let latest = units - (pieces - k) - 1;
        let share = total * u128::from(k) / u128::from(pieces);
        let off = |end: u32| before[end as usize + 1].abs_diff(share);
        let end = if k == pieces {
            units - 1
        } else {
            (first..=latest).min_by_key(|end| off(*end)).unwrap_or(latest)
        };
        ends.push(end);
        first = end + 1;
    }
    ends
}
