//! What a caller has asked for, where a call carries it out as something else: a gather is an all-gather of
//! which the others drop the result, a maximum an all-gather whose parts are combined, a type that cannot be
//! summed moves as bytes. Ranks compare this in the [`SignatureHash`](crate::SignatureHash), or a maximum on
//! one rank would meet a minimum on another.

use allrail_core::dtype;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// One of [`WORDS`]; another one, such as none, says nothing.
    pub word: &'a str,
    /// One of `average`, `product`, `min`, `max`, `and`, `or` and `xor`; another one says nothing.
    pub reduction: &'a str,
    /// The type of its elements; empty where it is the call's own.
    pub dtype: &'a str,
    /// How many elements each rank's part has, where they differ; else empty.
    pub sizes: &'a [u64],
}

/// What may be asked for. A new one comes last: ranks tell each other its place.
pub const WORDS: [&str; 8] = [
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "gather",
    "scatter",
    "barrier",
    "all_to_all with sizes",
    "uneven all_gather",
];

/// Of these, a rank has the whole, though they are carried out by parts.
pub(crate) const HAS_NO_PARTS: [&str; 2] = ["all_reduce", "reduce"];

/// Of these, people know no size: what travels is ours.
pub(crate) const HAS_NO_SIZE: [&str; 3] = ["barrier", "all_to_all with sizes", "uneven all_gather"];

/// By what elements may be combined, beside their sum. A new one comes last.
pub(crate) const REDUCTIONS: [&str; 7] = ["average", "product", "min", "max", "and", "or", "xor"];

/// The names of types that are told exactly.
pub fn dtypes() -> impl Iterator<Item = &'static str> {
    dtype::DTYPES.iter().map(|(name, _)| *name)
}

fn place(of: &str, list: &[&str]) -> u64 {
    list.iter().position(|one| *one == of).map_or(0, |place| place as u64 + 1)
}

fn at(place: u64, list: &'static [&'static str]) -> Option<&'static str> {
    list.get(usize::try_from(place).ok()?.checked_sub(1)?).copied()
}

pub(crate) fn word(place: u64) -> Option<&'static str> {
    at(place, &WORDS)
}

pub(crate) fn reduction(place: u64) -> Option<&'static str> {
    at(place, &REDUCTIONS)
}

impl Asked<'_> {
    pub(crate) fn word_place(&self) -> u64 {
        place(self.word, &WORDS)
    }

    pub(crate) fn reduction_place(&self) -> u64 {
        place(self.reduction, &REDUCTIONS)
    }

    /// How many elements of its type so many bytes are; bytes, where it is not known.
    #[must_use]
    pub fn elements(&self, bytes: u64) -> u64 {
        bytes / u64::from(dtype::width(self.dtype).unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_reductions_have_places_that_fit() {
        for list in [&WORDS[..], &REDUCTIONS[..]] {
            assert!(list.len() < 16, "four bits");
            for (number, one) in (1..).zip(list) {
                assert_eq!(place(one, list), number);
            }
        }
        assert_eq!(
            (place("", &WORDS), word(0), word(1), word(15)),
            (0, None, Some("all_reduce"), None)
        );
        let complex = Asked { dtype: "complex64", ..Asked::default() };
        assert_eq!((complex.elements(24), Asked::default().elements(24)), (3, 24));
    }
}
