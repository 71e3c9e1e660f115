//! Who takes part in a trace's collectives, as groups of ours.
//!
//! A node names a process group (`pg_name`), whose ranks stand in `comm_group.json`, or says which
//! dimensions it spans (`involved_dim`), or neither: then it spans all ranks. Ranks that are a product
//! of parts of dimensions become such a product, so that alike groups are one; others are kept as
//! ranks.

use std::collections::BTreeMap;
use std::path::Path;

use allrail_core::{DimensionId, Rank, counted, either};
use allrail_workload::graph::Part;

use super::error::TraceError;
use crate::bounds;

/// Process groups by name: their ranks, ascending.
pub(super) type ProcessGroups = BTreeMap<String, Vec<u32>>;

/// Whom a communication spans, seen from one rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Shape {
    /// These parts of dimensions, around the rank.
    Parts(Vec<Part>),
    /// These ranks.
    Ranks(Vec<u32>),
}

/// Reads `comm_group.json`: an object of names and lists of ranks.
pub(super) fn read(path: &Path, npus: u32) -> Result<ProcessGroups, TraceError> {
    let text = bounds::read_text(path).map_err(|error| TraceError::unreadable(path, &error))?;
    let wrong = |place: &str, why: String, hint: &str| TraceError::new(path, place, why, hint);
    let tree: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| {
            wrong(
                "the file",
                format!("it is no object of groups: {error}"),
                "write `{\"0\": [0, 1]}`",
            )
        })?;
    let mut groups = ProcessGroups::new();
    for (name, value) in tree {
        let place = format!("group `{name}`");
        let listed: Vec<u32> = serde_json::from_value(value).map_err(|error| {
            wrong(&place, format!("it is no list of ranks: {error}"), "write `[0, 1, 2, 3]`")
        })?;
        let mut ranks = listed.clone();
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.len() != listed.len() {
            return Err(wrong(&place, "a rank is named twice".to_owned(), "name each rank once"));
        }
        if let Some(rank) = ranks.last().filter(|rank| **rank >= npus) {
            return Err(wrong(
                &place,
                format!(
                    "it has rank {rank}, and there {are} {npus}",
                    npus = counted(npus, "NPU"),
                    are = either(&npus, "is", "are")
                ),
                "its ranks are those of the fabric, counted from 0",
            ));
        }
        if ranks.is_empty() {
            return Err(wrong(&place, "it has no rank".to_owned(), "leave it out"));
        }
        groups.insert(name, ranks);
    }
    Ok(groups)
}

/// All dimensions of more than one NPU.
pub(super) fn everyone(sizes: &[u32]) -> Vec<Part> {
    (0u32..)
        .zip(sizes)
        .filter(|(_, size)| **size > 1)
        .map(|(i, size)| Part { dimension: DimensionId(i), size: *size, stride: 1 })
        .collect()
}

/// Those dimensions whose packed boolean is set.
pub(super) fn involved(flags: &[u8], sizes: &[u32]) -> Result<Vec<Part>, String> {
    if flags.len() < sizes.len() && flags.contains(&0) {
        return Err(format!(
            "`involved_dim` has {} {entry}, and the fabric has {}",
            flags.len(),
            counted(sizes.len(), "dimension"),
            entry = either(&flags.len(), "entry", "entries")
        ));
    }
    let used = |i: u32| flags.get(i as usize).is_none_or(|flag| *flag != 0);
    Ok(everyone(sizes).into_iter().filter(|part| used(part.dimension.0)).collect())
}

/// Ascending ranks as a product of parts of dimensions, if they are one.
pub(crate) fn product(ranks: &[u32], sizes: &[u32]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut stride = 1u32;
    let mut count = 1usize;
    for (i, size) in (0u32..).zip(sizes) {
        let mut places: Vec<u32> = ranks.iter().map(|rank| rank / stride % size).collect();
        places.sort_unstable();
        places.dedup();
        stride = stride.saturating_mul(*size);
        let many = u32::try_from(places.len()).ok()?;
        count *= places.len();
        if many == 1 {
            continue;
        }
        let apart = places[1] - places[0];
        let span = apart.checked_mul(many)?;
        let even = places.windows(2).all(|pair| pair[1] - pair[0] == apart);
        // An instance of the part: its first place is a multiple of its span, and what is below.
        if !even || size % span != 0 || places[0] % span >= apart {
            return None;
        }
        parts.push(Part { dimension: DimensionId(i), size: many, stride: apart });
    }
    (count == ranks.len()).then_some(parts)
}

impl Shape {
    /// Of ascending ranks.
    pub(super) fn of(ranks: &[u32], sizes: &[u32]) -> Self {
        product(ranks, sizes).map_or_else(|| Self::Ranks(ranks.to_vec()), Self::Parts)
    }

    /// The ranks that `rank` meets, ascending.
    pub(super) fn around(&self, rank: Rank, sizes: &[u32]) -> Vec<u32> {
        match self {
            Self::Ranks(ranks) => ranks.clone(),
            Self::Parts(parts) => {
                let strides: Vec<u32> = sizes
                    .iter()
                    .scan(1u32, |at, size| Some(std::mem::replace(at, at.saturating_mul(*size))))
                    .collect();
                let mut first = rank.0;
                for part in parts {
                    let unit = strides[part.dimension.index()];
                    let place = rank.0 / unit % sizes[part.dimension.index()];
                    first -= place / part.stride % part.size * part.stride * unit;
                }
                let mut ranks = vec![first];
                for part in parts {
                    let step = strides[part.dimension.index()] * part.stride;
                    ranks = (0..part.size)
                        .flat_map(|i| ranks.iter().map(move |rank| rank + i * step))
                        .collect();
                }
                ranks.sort_unstable();
                ranks
            }
        }
    }

    /// How many take part.
    pub(super) fn members(&self) -> u64 {
        match self {
            Self::Ranks(ranks) => ranks.len() as u64,
            Self::Parts(parts) => parts.iter().map(|part| u64::from(part.size)).product(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_found_and_hold_the_ranks_again() {
        let sizes = [4, 2, 8];
        for (ranks, parts) in [
            (vec![0, 1, 2, 3], vec![(0, 4, 1)]),
            (vec![5, 7], vec![(0, 2, 2)]),
            (vec![8, 12], vec![(1, 2, 1)]),
            (vec![1, 17, 33, 49], vec![(2, 4, 2)]),
            (vec![0, 2, 4, 6], vec![(0, 2, 2), (1, 2, 1)]),
            (vec![9], vec![]),
        ] {
            let shape = Shape::of(&ranks, &sizes);
            let expected = parts
                .iter()
                .map(|(d, size, stride)| Part {
                    dimension: DimensionId(*d),
                    size: *size,
                    stride: *stride,
                })
                .collect();
            assert_eq!(shape, Shape::Parts(expected), "{ranks:?}");
            for rank in &ranks {
                assert_eq!(shape.around(Rank(*rank), &sizes), ranks, "around {rank}");
            }
        }
    }

    #[test]
    fn what_is_no_product_stays_a_list() {
        let sizes = [4, 2, 8];
        for ranks in [vec![0, 1, 2], vec![1, 2], vec![0, 5], vec![0, 1, 4], vec![0, 3]] {
            assert_eq!(Shape::of(&ranks, &sizes), Shape::Ranks(ranks.clone()), "{ranks:?}");
        }
    }
}
