//! A set of small numbers: bit `i` says that number `i` is in it.
//!
//! Up to 192 numbers lie in the value itself, without memory of their own: that is what a rank sends
//! every cycle. Numbers beyond the stored words are not in the set, so sets of any widths compare.

const FEW: usize = 3;

#[derive(Clone, Debug)]
enum Words {
    Few([u64; FEW]),
    Many(Box<[u64]>),
}

/// A set of small numbers.
#[derive(Clone, Debug)]
pub struct Bits(Words);

impl Default for Bits {
    fn default() -> Self {
        Self(Words::Few([0; FEW]))
    }
}

impl PartialEq for Bits {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.words(), other.words());
        let shared = a.len().min(b.len());
        a[..shared] == b[..shared] && a[shared..].iter().chain(&b[shared..]).all(|word| *word == 0)
    }
}
impl Eq for Bits {}

impl Bits {
    /// The numbers below `count`.
    #[must_use]
    pub fn below(count: usize) -> Self {
        let mut bits = Self::default();
        let whole = count / 64;
        bits.grow(count.div_ceil(64));
        let words = bits.words_mut();
        words[..whole].fill(u64::MAX);
        if !count.is_multiple_of(64) {
            words[whole] = (1 << (count % 64)) - 1;
        }
        bits
    }

    fn words(&self) -> &[u64] {
        match &self.0 {
            Words::Few(words) => words,
            Words::Many(words) => words,
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match &mut self.0 {
            Words::Few(words) => words,
            Words::Many(words) => words,
        }
    }

    fn grow(&mut self, words: usize) {
        let old = self.words();
        if words > old.len() {
            let mut more = vec![0; words.next_power_of_two()];
            more[..old.len()].copy_from_slice(old);
            self.0 = Words::Many(more.into_boxed_slice());
        }
    }

    /// Puts a number in.
    pub fn insert(&mut self, number: usize) {
        self.grow(number / 64 + 1);
        self.words_mut()[number / 64] |= 1 << (number % 64);
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: usize) {
        if let Some(word) = self.words_mut().get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// Whether it is in.
    #[must_use]
    pub fn contains(&self, number: usize) -> bool {
        self.words().get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Whether none is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words().iter().all(|word| *word == 0)
    }

    /// How many are in.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words().iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Keeps what is in both.
    pub fn intersect(&mut self, other: &Self) {
        let other = other.words();
        for (place, word) in self.words_mut().iter_mut().enumerate() {
            *word &= other.get(place).copied().unwrap_or(0);
        }
    }

    /// Adds what is in the other.
    pub fn unite(&mut self, other: &Self) {
        let last = other.words().iter().rposition(|word| *word != 0);
        self.grow(last.map_or(0, |last| last + 1));
        for (word, more) in self.words_mut().iter_mut().zip(other.words()) {
            *word |= more;
        }
    }

    /// Takes out what is in the other.
    pub fn subtract(&mut self, other: &Self) {
        for (word, less) in self.words_mut().iter_mut().zip(other.words()) {
            *word &= !less;
        }
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().iter().enumerate().flat_map(|(place, word)| {
            let mut left = *word;
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
