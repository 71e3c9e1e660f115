//! How many elements are exchanged, how wide they are, and where they may be cut.

use std::ops::Range;

use allrail_core::{Bytes, FieldError, counted};

use crate::CollectiveError;

/// Where nothing else is said, buffers are cut every so many bytes: a cache line.
pub const GRANULE: Bytes = Bytes::new(64);

/// The whole buffer of a collective, as every rank has it: before a reduce-scatter, after an
/// all-gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Buffer {
    elements: u64,
    width: u32,
    granule: u64,
}

impl Buffer {
    /// A buffer of `elements` of `width` bytes each, cut at [`GRANULE`].
    ///
    /// # Errors
    /// [`CollectiveError::Field`] if an element has no bytes, or there are 2^64 bytes or more.
    pub fn new(elements: u64, width: u32) -> Result<Self, CollectiveError> {
        let refuse = |field, value: String, why: &str, hint: &str| {
            Err(CollectiveError::Field(FieldError::new(field, value, why, hint)))
        };
        if width == 0 {
            return refuse("width", "0".to_owned(), "an element has 1 byte at least", "4 for f32");
        }
        if elements.checked_mul(u64::from(width)).is_none() {
            let why = format!(
                "of {width} each, they are 2^64 bytes or more",
                width = counted(width, "byte")
            );
            return refuse("elements", elements.to_string(), &why, "fewer elements");
        }
        Self { elements, width, granule: 1 }.cut_at(GRANULE)
    }

    /// The same, cut at whole elements of `granule` bytes or a little more; one byte means one element.
    ///
    /// # Errors
    /// [`CollectiveError::Field`] if it is nothing.
    pub fn cut_at(self, granule: Bytes) -> Result<Self, CollectiveError> {
        if granule == Bytes::default() {
            return Err(FieldError::new(
                "granule",
                "0",
                "a granule has 1 byte at least",
                format!("{GRANULE}"),
            )
            .into());
        }
        Ok(Self { granule: granule.count().div_ceil(u64::from(self.width)), ..self })
    }

    /// How many elements.
    #[must_use]
    pub fn elements(self) -> u64 {
        self.elements
    }

    /// Bytes of an element.
    #[must_use]
    pub fn width(self) -> u32 {
        self.width
    }

    /// Elements of a granule.
    #[must_use]
    pub fn granule(self) -> u64 {
        self.granule
    }

    /// All bytes.
    #[must_use]
    pub fn size(self) -> Bytes {
        Bytes::new(self.elements * u64::from(self.width))
    }
}

/// The shard of rank `rank` of `ranks` in a buffer of `elements`: ⌈elements / ranks⌉ each, in the
/// order of the ranks, the last ones shorter or empty. So do `torch.chunk`, FSDP2 and `DTensor` divide.
///
/// ```
/// use allrail_collective::rank::shard;
/// assert_eq!([0, 1, 2, 3].map(|rank| shard(9, rank, 4)), [0..3, 3..6, 6..9, 9..9]);
/// ```
#[must_use]
pub fn shard(elements: u64, rank: u32, ranks: u32) -> Range<u64> {
    let each = elements.div_ceil(u64::from(ranks.max(1)));
    let start = |rank: u64| each.saturating_mul(rank).min(elements);
    start(u64::from(rank))..start(u64::from(rank) + 1)
}

/// Where part `place` of `of` equal ones begins in `length` elements, cut at whole granules.
pub(crate) fn cut(length: u64, granule: u64, place: u64, of: u64) -> u64 {
    let granules = length.div_ceil(granule);
    let whole = match granules.checked_mul(place) {
        Some(product) => product / of,
        None => u64::try_from(u128::from(granules) * u128::from(place) / u128::from(of))
            .expect("a part is no larger than the whole"),
    };
    whole.saturating_mul(granule).min(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_granules_and_differ_by_one() {
        for (length, granule, of) in
            [(0, 1, 3), (1, 16, 4), (100, 16, 4), (1003, 1, 7), (97, 5, 97)]
        {
            let cuts: Vec<u64> = (0..=of).map(|place| cut(length, granule, place, of)).collect();
            assert_eq!((cuts[0], cuts[of as usize]), (0, length));
            assert!(cuts[..of as usize].iter().all(|at| at % granule == 0 || *at == length));
            let granules = |pair: &[u64]| (pair[1] - pair[0]).div_ceil(granule);
            let most = cuts.windows(2).map(granules).max().unwrap_or(0);
            let least = cuts.windows(2).map(granules).min().unwrap_or(0);
            assert!(most - least <= 1, "{cuts:?}");
        }
        assert_eq!(cut(u64::MAX, 1, u64::MAX - 1, u64::MAX), u64::MAX - 1);
    }

    #[test]
    fn a_granule_is_whole_elements() {
        let buffer = |width| Buffer::new(10, width).expect("a buffer");
        assert_eq!([1, 3, 4, 8, 100].map(|width| buffer(width).granule()), [64, 22, 16, 8, 1]);
        let one = buffer(4).cut_at(Bytes::new(1)).expect("a granule");
        assert_eq!((one.granule(), one.size()), (1, Bytes::new(40)));
        assert!(buffer(4).cut_at(Bytes::new(0)).is_err());
        assert!(Buffer::new(1, 0).is_err() && Buffer::new(u64::MAX, 2).is_err());
    }

    #[test]
    fn shards_are_those_of_torch_chunk() {
        for (elements, ranks) in [(0, 3), (2, 5), (9, 4), (10, 4), (12, 4), (1003, 512)] {
            let shards: Vec<_> = (0..ranks).map(|rank| shard(elements, rank, ranks)).collect();
            assert!(shards.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((shards[0].start, shards[shards.len() - 1].end), (0, elements));
        }
        assert_eq!(shard(10, 3, 4), 9..10);
        assert_eq!(shard(u64::MAX, u32::MAX - 1, u32::MAX).end, u64::MAX);
    }
}
