//! A set of small numbers: bit `i` says that number `i` is in it.
//!
//! Up to 192 numbers lie in the value itself, without memory of their own: that is what a rank sends
//! every cycle. Numbers beyond the stored words are not in the set, so sets of any widths compare.

use allrail_schedule::registry::MOST_TENSORS;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const FEW: usize = 3;

/// A set of small numbers.
#[derive(Debug, Default)]
pub struct Bits {
    few: [u64; FEW],
    #[expect(
        clippy::box_collection,
        reason = "sets are many, and few have more: one pointer is less"
    )]
    more: Option<Box<Vec<u64>>>,
}

impl Clone for Bits {
    fn clone(&self) -> Self {
        Self { few: self.few, more: self.more.clone() }
    }

    /// In the memory that it has.
    #[inline]
    fn clone_from(&mut self, other: &Self) {
        self.few = other.few;
        if self.more.is_some() || other.more.is_some() {
            self.more.clone_from(&other.more);
        }
    }
}

impl PartialEq for Bits {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.more(), other.more());
        let word = |words: &[u64], place: usize| words.get(place).copied().unwrap_or(0);
        self.few == other.few
            && (0..a.len().max(b.len())).all(|place| word(a, place) == word(b, place))
    }
}
impl Eq for Bits {}

impl Bits {
    /// The numbers below `count`.
    #[must_use]
    pub fn below(count: usize) -> Self {
        let mut bits = Self::default();
        for place in 0..count.div_ceil(64) {
            let left = count - place * 64;
            *bits.word(place) = if left < 64 { (1 << left) - 1 } else { u64::MAX };
        }
        bits
    }

    /// The words beyond the first few.
    fn more(&self) -> &[u64] {
        self.more.as_ref().map_or(&[], |more| more)
    }

    fn each_word(&self) -> impl Iterator<Item = u64> + '_ {
        self.few.iter().chain(self.more()).copied()
    }

    /// How many words of 64 numbers it takes to write it down.
    #[must_use]
    pub fn words(&self) -> usize {
        let last = self.each_word().enumerate().filter(|(_, word)| *word != 0).last();
        last.map_or(0, |(place, _)| place + 1)
    }

    /// The highest number that is in.
    #[must_use]
    pub fn highest(&self) -> Option<usize> {
        let place = self.words().checked_sub(1)?;
        let word = self.each_word().nth(place)?;
        Some(place * 64 + 63 - word.leading_zeros() as usize)
    }

    /// Whether all of it is in the other.
    #[inline]
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        let few = self.few.iter().zip(&other.few).all(|(word, other)| word & !other == 0);
        let more = || {
            let theirs = other.more().iter().copied().chain(std::iter::repeat(0));
            self.more().iter().zip(theirs).all(|(word, other)| word & !other == 0)
        };
        few && (self.more.is_none() || more())
    }

    /// A word, which is made if there is none.
    #[inline]
    fn word(&mut self, place: usize) -> &mut u64 {
        if place < FEW { &mut self.few[place] } else { self.further_word(place - FEW) }
    }

    fn further_word(&mut self, place: usize) -> &mut u64 {
        let more = self.more.get_or_insert_default();
        if place >= more.len() {
            more.resize(place + 1, 0);
        }
        &mut more[place]
    }

    /// Puts a number in.
    #[inline]
    pub fn insert(&mut self, number: usize) {
        *self.word(number / 64) |= 1 << (number % 64);
    }

    /// Takes all numbers out.
    #[inline]
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: usize) {
        if self.contains(number) {
            *self.word(number / 64) &= !(1 << (number % 64));
        }
    }

    /// Whether it is in.
    #[inline]
    #[must_use]
    pub fn contains(&self, number: usize) -> bool {
        let place = number / 64;
        let word = if place < FEW { Some(&self.few[place]) } else { self.more().get(place - FEW) };
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Whether none is in.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.few == [0; FEW] && self.more().iter().all(|word| *word == 0)
    }

    /// How many are in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.each_word().map(|word| word.count_ones() as usize).sum()
    }

    /// Keeps what is in both.
    #[inline]
    pub fn intersect(&mut self, other: &Self) {
        self.few.iter_mut().zip(&other.few).for_each(|(word, other)| *word &= other);
        if let Some(more) = &mut self.more {
            more.truncate(other.more().len());
            more.iter_mut().zip(other.more()).for_each(|(word, other)| *word &= other);
        }
    }

    /// Adds what is in the other.
    #[inline]
    pub fn unite(&mut self, other: &Self) {
        self.few.iter_mut().zip(&other.few).for_each(|(word, other)| *word |= other);
        if other.more.is_some() {
            self.unite_more(other.more());
        }
    }

    fn unite_more(&mut self, other: &[u64]) {
        for (place, other) in other.iter().enumerate().filter(|(_, word)| **word != 0) {
            *self.further_word(place) |= other;
        }
    }

    /// Takes out what is in the other.
    #[inline]
    pub fn subtract(&mut self, other: &Self) {
        self.few.iter_mut().zip(&other.few).for_each(|(word, other)| *word &= !other);
        if let Some(more) = &mut self.more {
            more.iter_mut().zip(other.more()).for_each(|(word, other)| *word &= !other);
        }
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.each_word().enumerate().flat_map(|(place, word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let lowest = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(place * 64 + lowest)
            })
        })
    }
}

impl FromIterator<usize> for Bits {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let mut bits = Self::default();
        numbers.into_iter().for_each(|number| bits.insert(number));
        bits
    }
}

impl Serialize for Bits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let words: Vec<u64> = self.each_word().take(self.words()).collect();
        to.collect_seq(words)
    }
}

impl<'d> Deserialize<'d> for Bits {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        struct Words;

        impl<'d> Visitor<'d> for Words {
            type Value = Bits;

            fn expecting(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                to.write_str("words of 64 bits, the last not 0")
            }

            fn visit_seq<A: SeqAccess<'d>>(self, mut from: A) -> Result<Bits, A::Error> {
                let (mut bits, mut place, mut last) = (Bits::default(), 0, 1);
                while let Some(word) = from.next_element::<u64>()? {
                    if place == MOST_TENSORS / 64 {
                        return Err(A::Error::custom("a set of more numbers than there may be"));
                    }
                    // Nothing is kept for zeros: they may stand for words that are not there.
                    if word != 0 {
                        *bits.word(place) = word;
                    }
                    (place, last) = (place + 1, word);
                }
                if last == 0 {
                    return Err(A::Error::custom("a set ends with a word of zeros"));
                }
                Ok(bits)
            }
        }

        from.deserialize_seq(Words)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn bits(numbers: &BTreeSet<usize>) -> Bits {
        numbers.iter().copied().collect()
    }

    proptest! {
        /// The oracle: a set of numbers.
        #[test]
        fn it_is_a_set(
            a in prop::collection::btree_set(0usize..500, 0..30),
            b in prop::collection::btree_set(0usize..500, 0..30),
            count in 0usize..300,
        ) {
            let listed = |bits: &Bits| bits.iter().collect::<BTreeSet<_>>();
            let (x, y) = (bits(&a), bits(&b));
            prop_assert_eq!(listed(&x), a.clone());
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x == y, a == b);
            let both = |f: fn(&mut Bits, &Bits)| { let mut z = x.clone(); f(&mut z, &y); z };
            prop_assert_eq!(listed(&both(Bits::intersect)), &a & &b);
            prop_assert_eq!(listed(&both(Bits::unite)), &a | &b);
            prop_assert_eq!(listed(&both(Bits::subtract)), &a - &b);
            let mut less = x.clone();
            b.iter().for_each(|number| less.remove(*number));
            prop_assert_eq!(&less, &bits(&(&a - &b)));
            prop_assert!((0..600).all(|number| x.contains(number) == a.contains(&number)));
            prop_assert_eq!(x.highest(), a.last().copied());
            prop_assert_eq!(x.is_within(&y), a.is_subset(&b));
            prop_assert_eq!(Bits::below(count), (0..count).collect::<Bits>());
        }
    }
}
