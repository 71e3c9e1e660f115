//! How a buffer is cut into chunks.
//!
//! With `c = ⌊S / N⌋` for `S` bytes and `N` chunks, and of an all-gather with the bytes that each NPU
//! brings for `S`:
//!
//! | cut | chunks |
//! |---|---|
//! | `even` | `N` that differ by one byte at most |
//! | `rest` | as many of `c` bytes as fit, and one of the rest |
//! | `full` | `⌈S / c⌉` of `c` bytes: the last is padded |
//!
//! A smallest chunk of `m` bytes makes `N` chunks of `m` bytes of a buffer whose `c` is less; an
//! all-gather's chunks may be smaller.

use allrail_collective::plan::divide;
use allrail_collective::{CollectiveError, Operation};
use allrail_core::{Bytes, FieldError, counted, either};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Parameters;

/// More chunks than this are refused.
pub(crate) const MAX_CHUNKS: u32 = 1 << 16;

/// How a buffer is cut into chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a cut"))]
pub enum Cut {
    /// Parts that differ by one byte at most.
    #[default]
    Even,
    /// Parts rounded down, and the rest as one more.
    Rest,
    /// Parts rounded down, the last one padded.
    Full,
}

impl Cut {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Parameters {
    /// The bytes of every chunk of a buffer that `members` NPUs share.
    ///
    /// # Errors
    /// There is no chunk, one would be empty, or there are too many.
    pub fn cut(
        &self,
        operation: Operation,
        size: Bytes,
        chunks: u32,
        members: u64,
    ) -> Result<Vec<Bytes>, CollectiveError> {
        if self.cut == Cut::Even && self.smallest_chunk == Bytes::default() {
            return divide(size, chunks);
        }
        let gathers = operation == Operation::AllGather;
        let unit = if gathers { members.max(1) } else { 1 };
        let brought = size.count().div_ceil(unit);
        let chunks =
            if gathers { chunks.min(u32::try_from(brought).unwrap_or(chunks)) } else { chunks };
        let least = if gathers { 0 } else { self.smallest_chunk.count() };
        if brought / u64::from(chunks.max(1)) < least {
            return Ok(vec![Bytes::new(least); chunks as usize]);
        }
        if self.cut == Cut::Even {
            return divide(size, chunks);
        }
        // Says what is wrong with a buffer that has too few bytes.
        divide(Bytes::new(brought), chunks)?;
        let chunk = brought / u64::from(chunks);
        let count = brought.div_ceil(chunk);
        if count > u64::from(MAX_CHUNKS) {
            return Err(FieldError::new(
                "schedule.chunks",
                chunks,
                format!(
                    "cut so, {brought} {make} {count}",
                    brought = counted(brought, "byte"),
                    make = either(&brought, "makes", "make"),
                    count = counted(count, "chunk")
                ),
                "64 is the usual number",
            )
            .into());
        }
        let mut parts = vec![Bytes::new(chunk * unit); usize::try_from(count).expect("few chunks")];
        if self.cut == Cut::Rest
            && let Some(last) = parts.last_mut()
        {
            *last = Bytes::new((brought - (count - 1) * chunk) * unit);
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(cut: Cut, operation: Operation, size: u64, least: u64) -> Vec<u64> {
        let smallest_chunk = Bytes::new(least);
        let parameters = Parameters { cut, smallest_chunk, ..Parameters::default() };
        let parts = parameters.cut(operation, Bytes::new(size), 4, 8).expect("it can be cut");
        parts.into_iter().map(Bytes::count).collect()
    }

    #[test]
    fn what_does_not_divide_is_one_chunk_more() {
        let reduce = Operation::AllReduce;
        assert_eq!(cut(Cut::Even, reduce, 43, 0), [10, 11, 11, 11]);
        assert_eq!(cut(Cut::Rest, reduce, 43, 0), [10, 10, 10, 10, 3]);
        assert_eq!(cut(Cut::Full, reduce, 43, 0), [10, 10, 10, 10, 10]);
        assert_eq!(cut(Cut::Full, reduce, 40, 0), [10, 10, 10, 10]);
    }

    #[test]
    fn a_smallest_chunk_makes_the_buffer_larger_but_of_an_all_gather() {
        assert_eq!(cut(Cut::Full, Operation::AllReduce, 20, 8), [8, 8, 8, 8]);
        // Each of 8 NPUs brings 9 bytes.
        assert_eq!(cut(Cut::Full, Operation::AllGather, 72, 8), [16, 16, 16, 16, 16]);
        assert_eq!(cut(Cut::Rest, Operation::AllGather, 72, 8), [16, 16, 16, 16, 8]);
    }
}
