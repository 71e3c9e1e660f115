//! What an operation is, in 8 bytes: every frame of a tagged transport carries it, so that a rank that takes an
//! operation for another is found by the first frame that it sends or gets.
//!
//! | bits | what | told exactly |
//! |---|---|---|
//! | 0–3 | the kind of operation, from 1; 0 for *not said* | yes |
//! | 4–15 | the root of a broadcast | below 4,096 ranks |
//! | 16–31 | a hash of the dtype | no |
//! | 32–63 | a hash of shape and strides; of tensors, of which elements of which too | no |
//!
//! So two of them say *what* differs, where a plain hash would only say that something does. The hash guards
//! against mistakes, not against malice. It is fixed: ranks of different builds must find the same.

use std::fmt;

use allrail_collective::Operation;
use allrail_schedule::Key;

/// See the module; 0 says nothing, and is that of operations whose driver compares nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignatureHash(pub u64);

const KIND: u32 = 4;
const ROOT: u32 = 12;
const DTYPE: u32 = 16;
const ELEMENTS: u32 = KIND + ROOT + DTYPE;

/// One step of a hash (the finalizer of `SplitMix64`).
fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
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
        let dtype = dtype.bytes().fold(dtype.len() as u64, |hash, byte| mix(hash, byte.into()));
        let dtype = dtype >> (64 - DTYPE);
        let shape = shape.iter().fold(mix(0, shape.len() as u64), |hash, side| mix(hash, *side));
        let shape = strides.iter().fold(shape, |hash, stride| mix(hash, *stride as u64));
        let low = kind | root << KIND | dtype << (KIND + ROOT);
        Self(low | shape >> ELEMENTS << ELEMENTS)
    }

    /// Of elements of a tensor, after others of its buffer: whose they are, and which.
    #[must_use]
    pub fn and(self, of: Self, key: Key, from: u64, to: u64) -> Self {
        let hash = [of.0, key.0, from, to].iter().fold(self.0, |hash, word| mix(hash, *word));
        let low = of.0 & ((1 << ELEMENTS) - 1);
        Self(low | hash >> ELEMENTS << ELEMENTS)
    }

    fn part(self, at: u32, bits: u32) -> u64 {
        self.0 >> at & ((1 << bits) - 1)
    }

    fn kind(self) -> Option<Operation> {
        let place = usize::try_from(self.part(0, KIND)).ok()?.checked_sub(1)?;
        Operation::ALL.get(place).copied()
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

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { theirs, ours } = *self;
        let kind = |one: SignatureHash| {
            one.kind().map_or_else(|| "nothing known".to_owned(), |kind| kind.to_string())
        };
        let mut parts = Vec::new();
        if theirs.part(0, KIND) != ours.part(0, KIND) {
            let text = format!("kind differs: {} there, {} here", kind(theirs), kind(ours));
            parts.push(text);
        }
        let roots = [theirs, ours].map(|one| one.part(KIND, ROOT));
        if roots[0] != roots[1] {
            parts.push(format!("root differs: {} there, {} here", roots[0], roots[1]));
        }
        if theirs.part(KIND + ROOT, DTYPE) != ours.part(KIND + ROOT, DTYPE) {
            parts.push("dtype differs".to_owned());
        }
        if theirs.part(ELEMENTS, 32) != ours.part(ELEMENTS, 32) {
            parts.push("shape differs, or which elements these are".to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_part_tells_by_itself() {
        let (reduce, cast) = (Operation::AllReduce, Operation::Broadcast);
        let one = SignatureHash::new(reduce, 0, "float32", &[4, 8], &[]);
        assert_eq!(one, SignatureHash(one.0), "fixed");
        let others = [
            (SignatureHash::new(cast, 0, "float32", &[4, 8], &[]), "kind"),
            (SignatureHash::new(reduce, 7, "float32", &[4, 8], &[]), "root"),
            (SignatureHash::new(reduce, 0, "bfloat16", &[4, 8], &[]), "dtype"),
            (SignatureHash::new(reduce, 0, "float32", &[8, 4], &[]), "shape"),
            (SignatureHash::new(reduce, 0, "float32", &[4, 8], &[1, 4]), "shape"),
            (one.and(one, Key(1 << 50), 0, 32), "shape"),
        ];
        for (theirs, part) in others {
            let text = Differs { theirs, ours: one }.to_string();
            assert!(text.starts_with(part) && !text.contains(';'), "{part}: {text}");
        }
        let both = SignatureHash::new(cast, 0, "int8", &[4, 8], &[]);
        let text = Differs { theirs: both, ours: one }.to_string();
        assert_eq!(text, "kind differs: broadcast there, all_reduce here; dtype differs");
    }

    /// Ranks of different builds must find the same, and frameworks' types must be told apart.
    #[test]
    fn the_form_stays_and_types_have_hashes_of_their_own() {
        let of = |dtype| SignatureHash::new(Operation::AllReduce, 0, dtype, &[2], &[]);
        assert_eq!(of("float32").0, FIXED, "{:#x}", of("float32").0);
        let types = [
            "bool",
            "uint8",
            "int8",
            "int16",
            "uint16",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "complex64",
            "complex128",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e5m2",
            "float8_e5m2fnuz",
        ];
        let hashes: BTreeSet<u64> = types.iter().map(|dtype| of(dtype).0).collect();
        assert_eq!(hashes.len(), types.len());
    }

    const FIXED: u64 = 0xbcd9_dbb4_b90d_0001;
}
