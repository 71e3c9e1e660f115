//! A set of small numbers: bit `i` says that number `i` is in it.
//!
//! Up to 192 numbers lie in the value itself, without memory of their own: that is what a rank sends
//! every cycle. Numbers beyond the stored words are not in the set, so sets of any widths compare.

const FEW: usize = 3;

/// A set of small numbers.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    few: [u64; FEW],
    #[expect(
        clippy::box_collection,
        reason = "sets are many, and few have more: one pointer is less"
    )]
    more: Option<Box<Vec<u64>>>,
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

    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.few.iter().chain(self.more()).copied()
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
        self.words().map(|word| word.count_ones() as usize).sum()
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
        self.words().enumerate().flat_map(|(place, word)| {
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
            prop_assert_eq!(Bits::below(count), (0..count).collect::<Bits>());
        }
    }
}
