//! A pipeline's pieces are consecutive layers: as the user says, or as many transformer layers each as it
//! goes (the first pieces one more), or, of other models, split so that the FLOPs before each cut are nearest
//! to their share.
//!
//! With `ends_as_layers` the embedding and the head take the place of a layer each, as Megatron-LM has it
//! (`--account-for-embedding-in-pipeline-split`, `--account-for-loss-in-pipeline-split`).

use allrail_core::{FieldError, counted};
use std::ops::Range;

use crate::models::{Layer, ModelLayers};
use crate::spec::Parallelism;

/// The layers of each piece.
pub(super) fn cut(
    model: &ModelLayers,
    pieces: u32,
    parallelism: &Parallelism,
) -> Result<Vec<Range<usize>>, FieldError> {
    let layers = &model.layers;
    let ends = u32::from(parallelism.ends_as_layers);
    let units = layers.last().map_or(0, |layer| layer.unit + 1);
    let places = units + 2 * ends;
    if places < pieces {
        let hint = "stages times `virtual_stages` are at most as many";
        let why = format!("the model has {} to cut{}", counted(places, "layer"), with_ends(ends));
        return Err(FieldError::new("workload.parallelism.pp", pieces, why, hint));
    }
    let counts = match &parallelism.stages {
        Some(given) => checked(given, pieces, places, ends)?,
        // Of a transformer all units are alike.
        None if model.kv_heads.is_some() => even(pieces, places),
        None => return Ok(ranges(layers, &balanced(layers, units, pieces), 0)),
    };
    let mut end = 0;
    let last_places: Vec<u32> = counts
        .iter()
        .map(|count| {
            end += count;
            end - 1
        })
        .collect();
    Ok(ranges(layers, &last_places, ends))
}

const fn with_ends(ends: u32) -> &'static str {
    if ends > 0 { " with the embedding and the head" } else { "" }
}

/// As many places each as it goes, the first pieces one more.
fn even(pieces: u32, places: u32) -> Vec<u32> {
    (0..pieces).map(|k| places / pieces + u32::from(k < places % pieces)).collect()
}

/// The user's own counts.
fn checked(given: &[u32], pieces: u32, places: u32, ends: u32) -> Result<Vec<u32>, FieldError> {
    let shown = || {
        let counts: Vec<String> = given.iter().map(u32::to_string).collect();
        format!("[{}]", counts.join(", "))
    };
    let fail = |why: String, hint: &str| {
        Err(FieldError::new("workload.parallelism.stages", shown(), why, hint))
    };
    if given.len() != pieces as usize {
        let why = format!(
            "it has {} for {}",
            counted(given.len(), "number"),
            counted(pieces, "piece of the model")
        );
        return fail(why, "one number a stage, with `virtual_stages` one a piece");
    }
    let sum: u64 = given.iter().map(|count| u64::from(*count)).sum();
    if sum != u64::from(places) {
        let of = with_ends(ends);
        let why = format!(
            "its numbers add up to {sum}, and the model has {}{of}",
            counted(places, "layer")
        );
        return fail(why, "every layer is on one stage");
    }
    if given.contains(&0) {
        return fail("a stage has no layer".to_owned(), "at least 1 each");
    }
    Ok(given.to_vec())
}

/// Ranges of layers, given the last place of each piece: a unit is a place, with `ends` the first layer and the
/// last one, too.
fn ranges(layers: &[Layer], last_places: &[u32], ends: u32) -> Vec<Range<usize>> {
    let after = |place: u32| match (ends, place) {
        (0, unit) => layers.partition_point(|layer| layer.unit <= unit),
        (_, 0) => 1,
        (_, place) => layers[..layers.len() - 1].partition_point(|layer| layer.unit < place),
    };
    let mut start = 0;
    let mut ranges = Vec::new();
    for (k, place) in last_places.iter().enumerate() {
        let end = if k + 1 == last_places.len() { layers.len() } else { after(*place) };
        ranges.push(start..end);
        start = end;
    }
    ranges
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
