//! What an operation is, in 8 bytes: every frame of a tagged transport carries it, so that a rank that takes an
//! operation for another is found by the first frame that it sends or gets.
//!
//! | bits | what | told exactly |
//! |---|---|---|
//! | 0–3 | the kind of operation, from 1; 0 for *not said* | yes |
//! | 4–15 | the root | below 4,096 ranks |
//! | 16–22 | the dtype | where frameworks know it ([`dtypes`](crate::asked::dtypes)) |
//! | 23–26 | what the caller asked for, where that is not the kind itself ([`Asked`]) | yes |
//! | 27–30 | by what the caller combines elements, where that is no sum | yes |
//! | 31 | whether the rest is a number of elements | yes |
//! | 32–63 | the number of elements; or a hash of shape and strides, of tensors of which elements of which too | the number |
//!
//! So two of them say *what* differs, where a plain hash would only say that something does. The hash guards
//! against mistakes, not against malice. It is fixed: ranks of different builds must find the same.

use std::fmt;

use allrail_collective::Operation;
use allrail_core::counted;
use allrail_schedule::Key;

use crate::asked::{self, Asked};

/// See the module; 0 says nothing, and is that of operations whose driver compares nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignatureHash(pub u64);

const KIND: u32 = 4;
const ROOT: u32 = 12;
const DTYPE: u32 = 7;
const ASKED: u32 = 4;
const AT_DTYPE: u32 = KIND + ROOT;
const AT_WORD: u32 = AT_DTYPE + DTYPE;
const AT_REDUCTION: u32 = AT_WORD + ASKED;
const AT_EXACT: u32 = AT_REDUCTION + ASKED;
const ELEMENTS: u32 = AT_EXACT + 1;

/// One step of a hash (the finalizer of `SplitMix64`).
fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A type by its place in the list, from 1; others by a hash above all places.
fn code(dtype: &str) -> u64 {
    const OTHERS: u64 = 1 << (DTYPE - 1);
    let place = asked::dtypes().position(|known| known == dtype);
    place.map_or_else(
        || {
            let hash = dtype.bytes().fold(dtype.len() as u64, |hash, byte| mix(hash, byte.into()));
            OTHERS | hash >> (64 - (DTYPE - 1))
        },
        |place| place as u64 + 1,
    )
}

impl SignatureHash {
    /// Of a whole buffer: `root` counts places of the group, and is 0 but for a broadcast.
    #[must_use]
    pub fn new(
        operation: Operation,
        root: u32,
        dtype: &str,
        shape: &[u64],
        strides: &[i64],
    ) -> Self {
        let kind = Operation::ALL.iter().position(|one| *one == operation).unwrap_or(0) as u64 + 1;
        let root = u64::from(root) & ((1 << ROOT) - 1);
        let low = kind | root << KIND | code(dtype) << AT_DTYPE;
        let high = match (shape, strides) {
            ([elements], []) if *elements < 1 << (64 - ELEMENTS) => {
                1 << AT_EXACT | elements << ELEMENTS
            }
            _ => {
                let hash =
                    shape.iter().fold(mix(0, shape.len() as u64), |hash, side| mix(hash, *side));
                let hash = strides.iter().fold(hash, |hash, stride| mix(hash, *stride as u64));
                hash >> ELEMENTS << ELEMENTS
            }
        };
        Self(low | high)
    }

    /// Of a call that carries out what its caller has asked for.
    #[must_use]
    pub fn of_asked(operation: Operation, root: u32, asked: &Asked<'_>, shape: &[u64]) -> Self {
        let Self(bits) = Self::new(operation, root, asked.dtype, shape, &[]);
        let word = asked.word_place() << AT_WORD;
        Self(bits | word | asked.reduction_place() << AT_REDUCTION)
    }

    /// Of elements of a tensor, after others of its buffer: whose they are, and which.
    #[must_use]
    pub fn and(self, of: Self, key: Key, from: u64, to: u64) -> Self {
        let hash = [of.0, key.0, from, to].iter().fold(self.0, |hash, word| mix(hash, *word));
        let low = of.0 & ((1 << AT_EXACT) - 1);
        Self(low | hash >> ELEMENTS << ELEMENTS)
    }

    fn part(self, at: u32, bits: u32) -> u64 {
        self.0 >> at & ((1 << bits) - 1)
    }

    fn kind(self) -> Option<Operation> {
        let place = usize::try_from(self.part(0, KIND)).ok()?.checked_sub(1)?;
        Operation::ALL.get(place).copied()
    }

    /// For people: `gather of 4 elements of float32 per rank to rank 2`. It counts places of the group.
    #[must_use]
    pub fn told(self, ranks: u32) -> String {
        let Some(kind) = self.kind() else { return "nothing known".to_owned() };
        let word = asked::word(self.part(AT_WORD, ASKED));
        let mut text = word.map_or_else(|| kind.to_string(), str::to_owned);
        if let Some(reduction) = asked::reduction(self.part(AT_REDUCTION, ASKED)) {
            text = format!("{text} ({reduction})");
        }
        if word.is_some_and(|word| asked::HAS_NO_SIZE.contains(&word)) {
            return text;
        }
        let by_rank =
            matches!(kind, Operation::AllGather | Operation::ReduceScatter | Operation::AllToAll)
                || word == Some("scatter");
        let said = word.is_some_and(|word| asked::HAS_NO_PARTS.contains(&word));
        let (of, each) = match u64::from(ranks) {
            ranks if by_rank && ranks > 0 => (ranks, if said { "" } else { " per rank" }),
            _ => (1, ""),
        };
        text += &match self.part(AT_EXACT, 1) {
            1 => {
                let count = self.part(ELEMENTS, 64 - ELEMENTS) / of;
                format!(" of {}", counted(count, "element"))
            }
            _ => format!(" of elements with layout {:08x}", self.part(ELEMENTS, 64 - ELEMENTS)),
        };
        let dtype = usize::try_from(self.part(AT_DTYPE, DTYPE)).unwrap_or(0);
        let dtype = dtype.checked_sub(1).and_then(|place| asked::dtypes().nth(place));
        let dtype =
            dtype.map_or_else(|| format!("type {:02x}", self.part(AT_DTYPE, DTYPE)), str::to_owned);
        text += &format!(" of {dtype}{each}");
        let root = self.part(KIND, ROOT);
        match (kind, word) {
            (Operation::Broadcast, _) => text += &format!(" from rank {root}"),
            (_, Some("reduce" | "gather")) => text += &format!(" to rank {root}"),
            _ => {}
        }
        text
    }
}

/// How the operation of a frame differs from that of the rank that it has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs {
    /// The frame's.
    pub theirs: SignatureHash,
    /// The rank's.
    pub ours: SignatureHash,
}

impl Differs {
    /// For people, in the same words on both sides: what the two ranks of a group of `ranks` call.
    #[must_use]
    pub fn told(&self, from: u32, by: u32, ranks: u32) -> String {
        let mut both = [(from, self.theirs), (by, self.ours)];
        both.sort_by_key(|(rank, _)| *rank);
        let [one, other] =
            both.map(|(rank, what)| format!("rank {rank} calls {}", what.told(ranks)));
        format!("{one}, and {other}")
    }
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} there, {} here", self.theirs.told(1), self.ours.told(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_part_tells_by_itself() {
        let (reduce, cast) = (Operation::AllReduce, Operation::Broadcast);
        let one = SignatureHash::new(reduce, 0, "float32", &[32], &[]);
        assert_eq!(one.told(4), "all_reduce of 32 elements of float32");
        let asked = |word, reduction| Asked { word, reduction, dtype: "float32", sizes: &[] };
        let others = [
            (
                SignatureHash::new(cast, 7, "float32", &[32], &[]),
                "broadcast of 32 elements of float32 from rank 7",
            ),
            (
                SignatureHash::new(reduce, 0, "bfloat16", &[32], &[]),
                "all_reduce of 32 elements of bfloat16",
            ),
            (
                SignatureHash::new(reduce, 0, "float32", &[1], &[]),
                "all_reduce of 1 element of float32",
            ),
            (
                SignatureHash::new(reduce, 0, "float32", &[0], &[]),
                "all_reduce of 0 elements of float32",
            ),
            (
                SignatureHash::new(Operation::AllGather, 0, "bool", &[32], &[]),
                "all_gather of 8 elements of bool per rank",
            ),
            (
                SignatureHash::of_asked(
                    Operation::AllGather,
                    0,
                    &asked("all_reduce", "max"),
                    &[32],
                ),
                "all_reduce (max) of 8 elements of float32",
            ),
            (
                SignatureHash::of_asked(reduce, 2, &asked("reduce", "average"), &[32]),
                "reduce (average) of 32 elements of float32 to rank 2",
            ),
            (
                SignatureHash::of_asked(cast, 1, &asked("scatter", ""), &[32]),
                "scatter of 8 elements of float32 per rank from rank 1",
            ),
        ];
        for (theirs, text) in others {
            assert_eq!(theirs.told(4), text);
            assert_ne!(theirs, one);
        }
        let hashed = [
            SignatureHash::new(reduce, 0, "float32", &[4, 8], &[]),
            SignatureHash::new(reduce, 0, "float32", &[8, 4], &[]),
            SignatureHash::new(reduce, 0, "float32", &[4, 8], &[1, 4]),
            SignatureHash::new(reduce, 0, "float32", &[1 << 32], &[]),
            one.and(one, Key(1 << 50), 0, 32),
            one.and(one, Key(1 << 50), 0, 31),
        ];
        assert_eq!(BTreeSet::from(hashed).len(), hashed.len());
        for one in hashed {
            let text = one.told(4);
            assert!(text.starts_with("all_reduce of elements with layout "), "{text}");
            assert!(text.ends_with(" of float32"), "{text}");
        }
        assert_eq!(SignatureHash::default().told(4), "nothing known");
    }

    #[test]
    fn both_sides_say_it_in_the_same_words() {
        let [one, other] =
            [12, 18].map(|n| SignatureHash::new(Operation::AllGather, 0, "int8", &[n], &[]));
        let here = Differs { theirs: one, ours: other }.told(2, 0, 3);
        assert_eq!(here, Differs { theirs: other, ours: one }.told(0, 2, 3));
        let text = "rank 0 calls all_gather of 6 elements of int8 per rank, and rank 2 calls all_gather of 4 elements \
                    of int8 per rank";
        assert_eq!(here, text);
    }

    /// Ranks of different builds must find the same, and frameworks' types must be told apart.
    #[test]
    fn the_form_stays_and_types_have_codes_of_their_own() {
        let of = |dtype| SignatureHash::new(Operation::AllReduce, 0, dtype, &[2], &[]);
        assert_eq!(of("float32").0, FIXED, "{:#x}", of("float32").0);
        let hashes: BTreeSet<u64> = asked::dtypes().map(|dtype| of(dtype).0).collect();
        assert_eq!(hashes.len(), asked::dtypes().count());
        assert!(asked::dtypes().count() < 1 << (DTYPE - 1));
        let strange = of("posit16");
        assert!(!hashes.contains(&strange.0) && strange.told(1).contains("of type "));
    }

    const FIXED: u64 = 0x0000_0002_800c_0001;
}
