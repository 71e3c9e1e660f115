//! A list that is nearly always empty, as one pointer: what ranks ask for is many, and few of it has one.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A list that is nearly always empty; written down as any list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Few<T>(
    #[expect(clippy::box_collection, reason = "one pointer is what it is for")] Option<Box<Vec<T>>>,
);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(list: Vec<T>) -> Self {
        Self((!list.is_empty()).then(|| Box::new(list)))
    }
}

impl<T> From<Few<T>> for Vec<T> {
    fn from(list: Few<T>) -> Self {
        list.0.map_or_else(Self::new, |list| *list)
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> Self {
        list.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T> Few<T> {
    /// Adds others at the end.
    pub fn append(&mut self, others: Self) {
        match (&mut self.0, others.0) {
            (Some(list), Some(others)) => list.extend(*others),
            (none, others @ Some(_)) => *none = others,
            (_, None) => {}
        }
    }
}

impl<T: Serialize> Serialize for Few<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

impl<'d, T: Deserialize<'d>> Deserialize<'d> for Few<T> {
    fn deserialize<D: Deserializer<'d>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list_and_nothing_is_one_thing() {
        let mut list = Few::<u32>::from(Vec::new());
        assert_eq!((list == Few::default(), list.len()), (true, 0));
        list.append(Few::from_iter([1, 2]));
        list.append(Few::default());
        list.append(Few::from(vec![3]));
        assert_eq!(*list, [1, 2, 3]);
        assert_eq!(Vec::from(list), [1, 2, 3]);
        assert_eq!(size_of::<Few<u64>>(), size_of::<usize>());
    }
}
