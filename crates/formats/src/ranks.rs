//! Regular sets of ranks as parts of dimensions.
//!
//! Ranks number a fabric's coordinates, first dimension fastest. `count` ranks that are `stride`
//! apart are therefore a product of parts where both cut the dimensions evenly: on 8 × 4, ranks 0, 2,
//! 4 … 14 (8 of them, 2 apart) are every second one on the first dimension and two on the second.

use allrail_core::DimensionId;
use allrail_workload::graph::Part;

/// The parts of dimensions of these `sizes` that hold `count` ranks, `stride` apart; `None` where
/// they are no product of parts.
#[must_use]
pub fn parts(sizes: &[u32], stride: u64, count: u64) -> Option<Vec<Part>> {
    let (mut skip, mut left) = (stride, count);
    let mut parts = Vec::new();
    for (dimension, size) in (0u32..).zip(sizes) {
        let size = u64::from(*size);
        if left == 1 {
            break;
        }
        if skip >= size {
            if skip % size != 0 {
                return None;
            }
            skip /= size;
            continue;
        }
        if size % skip != 0 {
            return None;
        }
        let room = size / skip;
        let taken = left.min(room);
        if room % taken != 0 || left % taken != 0 {
            return None;
        }
        parts.push(Part {
            dimension: DimensionId(dimension),
            size: u32::try_from(taken).ok()?,
            stride: u32::try_from(skip).ok()?,
        });
        left /= taken;
        if left > 1 && taken < room {
            return None;
        }
        skip = 1;
    }
    (left == 1).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sizes: &[u32], stride: u64, count: u64) -> Option<Vec<(u32, u32, u32)>> {
        parts(sizes, stride, count)
            .map(|parts| parts.iter().map(|p| (p.dimension.0, p.size, p.stride)).collect())
    }

    #[test]
    fn regular_ranks_are_parts_of_dimensions() {
        assert_eq!(shown(&[8, 4], 1, 8), Some(vec![(0, 8, 1)]));
        assert_eq!(shown(&[8, 4], 8, 4), Some(vec![(1, 4, 1)]));
        assert_eq!(shown(&[8, 4], 1, 32), Some(vec![(0, 8, 1), (1, 4, 1)]));
        assert_eq!(shown(&[8, 4], 2, 8), Some(vec![(0, 4, 2), (1, 2, 1)]));
        assert_eq!(shown(&[16, 64], 128, 8), Some(vec![(1, 8, 8)]));
        assert_eq!(shown(&[8, 4], 1, 1), Some(vec![]));
    }

    #[test]
    fn what_cuts_a_dimension_unevenly_is_none() {
        assert_eq!(shown(&[8, 4], 1, 3), None, "three of eight");
        assert_eq!(shown(&[8, 4], 3, 2), None, "three apart");
        assert_eq!(shown(&[6, 4], 1, 12), Some(vec![(0, 6, 1), (1, 2, 1)]));
        assert_eq!(shown(&[6, 4], 1, 8), None, "one dimension and a third");
        assert_eq!(shown(&[8, 4], 1, 64), None, "more than there are");
    }

    /// The plain version: the ranks of the parts are the ranks of the progression.
    #[test]
    fn parts_hold_exactly_the_ranks_of_the_progression() {
        let sizes = [6u32, 4, 5];
        let strides: Vec<u64> = sizes
            .iter()
            .scan(1u64, |at, s| Some(std::mem::replace(at, *at * u64::from(*s))))
            .collect();
        let mut found = 0;
        for stride in 1..=60 {
            for count in 1..=120 {
                let Some(parts) = parts(&sizes, stride, count) else { continue };
                found += 1;
                let mut ranks = vec![0u64];
                for part in &parts {
                    let step = strides[part.dimension.index()] * u64::from(part.stride);
                    ranks = (0..u64::from(part.size))
                        .flat_map(|i| ranks.iter().map(move |rank| rank + i * step))
                        .collect();
                }
                let expected: Vec<u64> = (0..count).map(|i| i * stride).collect();
                assert_eq!(ranks, expected, "{count} ranks, {stride} apart");
            }
        }
        assert!(found > 40, "{found} progressions are products");
    }
}
