//! The pieces of an operation: mostly one, and then nothing is allocated for it.

use std::ops::Deref;

use super::Piece;

/// A list of pieces, read as a slice.
#[derive(Clone)]
pub struct Pieces(Held);

#[derive(Clone)]
enum Held {
    One([Piece; 1]),
    Many(Vec<Piece>),
}

impl Deref for Pieces {
    type Target = [Piece];

    fn deref(&self) -> &[Piece] {
        match &self.0 {
            Held::One(piece) => piece,
            Held::Many(pieces) => pieces,
        }
    }
}

impl From<Piece> for Pieces {
    fn from(piece: Piece) -> Self {
        Self(Held::One([piece]))
    }
}

impl FromIterator<Piece> for Pieces {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Self {
        let mut pieces = pieces.into_iter();
        match (pieces.next(), pieces.next()) {
            (Some(only), None) => only.into(),
            (first, second) => {
                Self(Held::Many(first.into_iter().chain(second).chain(pieces).collect()))
            }
        }
    }
}

impl<'a> IntoIterator for &'a Pieces {
    type Item = &'a Piece;
    type IntoIter = std::slice::Iter<'a, Piece>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Pieces {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Pieces {}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
