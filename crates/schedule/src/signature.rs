//! What a tensor is, beside what is to be done with it: name, dtype, shape and strides. Ranks that meet in a
//! collective must have the same.
//!
//! A request carries a [`Fingerprint`] of it, 8 bytes, which is all that has to be compared. The signature
//! itself travels with requests that no cache knows yet, so that an error can say what differs.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::operation::hash64;

/// A tensor as its owner describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// Unique among the tensors of a rank.
    pub name: String,
    /// The element type, as the framework calls it, such as `float32`.
    pub dtype: String,
    /// Elements in each direction; empty for a scalar.
    pub shape: Vec<u64>,
    /// Elements from one to the next in each direction; empty for a contiguous tensor.
    pub strides: Vec<i64>,
}

/// Stands for a [`Signature`] where only equality counts; 0 where none was given.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Fingerprint(pub u64);

/// Which part of a signature differs between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Two tensors.
    Name,
    /// Two element types.
    Dtype,
    /// Two shapes.
    Shape,
    /// Two layouts in memory.
    Strides,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "name",
            Self::Dtype => "dtype",
            Self::Shape => "shape",
            Self::Strides => "strides",
        })
    }
}

impl Signature {
    /// What ranks compare. `any_length` leaves the first direction out, in which the parts of an all-gather
    /// may differ.
    #[must_use]
    pub fn fingerprint(&self, any_length: bool) -> Fingerprint {
        let first = usize::from(any_length).min(self.shape.len());
        let dims = self.shape.len().to_le_bytes();
        let shape: Vec<u8> = self.shape[first..].iter().flat_map(|n| n.to_le_bytes()).collect();
        let strides: Vec<u8> = self.strides.iter().flat_map(|n| n.to_le_bytes()).collect();
        let parts = [self.name.as_bytes(), self.dtype.as_bytes(), &dims, &shape, &strides];
        // 0 says that there is none.
        Fingerprint(hash64(&parts).max(1))
    }

    /// What differs, with both values.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<(Part, String, String)> {
        let mut found = Vec::new();
        if self.name != other.name {
            found.push((Part::Name, format!("`{}`", self.name), format!("`{}`", other.name)));
        }
        if self.dtype != other.dtype {
            found.push((Part::Dtype, self.dtype.clone(), other.dtype.clone()));
        }
        if self.shape != other.shape {
            found.push((Part::Shape, format!("{:?}", self.shape), format!("{:?}", other.shape)));
        }
        if self.strides != other.strides {
            let text = |strides: &[i64]| match strides {
                [] => "contiguous".to_owned(),
                some => format!("{some:?}"),
            };
            found.push((Part::Strides, text(&self.strides), text(&other.strides)));
        }
        found
    }
}

/// A signature that many hold.
pub type Signed = Arc<Signature>;

#[cfg(test)]
mod tests {
    use super::*;

    fn weight() -> Signature {
        Signature {
            name: "weight".to_owned(),
            dtype: "float32".to_owned(),
            shape: vec![4, 8],
            strides: vec![8, 1],
        }
    }

    #[test]
    fn every_part_tells_and_is_told() {
        type Change = fn(&mut Signature);
        let changes: [(Part, Change); 4] = [
            (Part::Name, |one| one.name.push('2')),
            (Part::Dtype, |one| one.dtype = "float16".to_owned()),
            (Part::Shape, |one| one.shape[1] = 9),
            (Part::Strides, |one| one.strides.clear()),
        ];
        for (part, change) in changes {
            let mut other = weight();
            change(&mut other);
            for any_length in [false, true] {
                assert_ne!(weight().fingerprint(any_length), other.fingerprint(any_length));
            }
            let parts: Vec<Part> = weight().differences(&other).iter().map(|one| one.0).collect();
            assert_eq!(parts, [part]);
        }
        assert_eq!(weight().differences(&weight()), []);
    }

    #[test]
    fn parts_of_an_all_gather_may_have_any_length() {
        let longer = Signature { shape: vec![5, 8], ..weight() };
        assert_eq!(weight().fingerprint(true), longer.fingerprint(true));
        assert_ne!(weight().fingerprint(false), longer.fingerprint(false));
        let flat = Signature { shape: vec![8], ..weight() };
        assert_ne!(weight().fingerprint(true), flat.fingerprint(true));
    }
}
