//! The tensors of a group of ranks, numbered alike on all of them: by the order of their names.
//!
//! A framework meets its tensors in another order on every rank, so the order of meeting numbers nothing.
//! Each rank registers what it has, once, and the numbers follow from the names alone. If the lists differ,
//! so do the [digests](Registry::digest), which ranks compare before they begin; and if nobody compared, a
//! number that means two tensors ends in a mismatch that gives both names.
//!
//! ```
//! use allrail_schedule::registry::Registry;
//! use allrail_schedule::signature::Signature;
//! let named = |name: &str| Signature { name: name.to_owned(), ..Signature::default() };
//! let one = Registry::new(vec![named("weight"), named("bias")]).unwrap();
//! let other = Registry::new(vec![named("bias"), named("weight")]).unwrap();
//! assert_eq!(one.number("weight"), Some(1));
//! assert_eq!(one.digest(), other.digest());
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_core::FieldError;

use crate::error::ScheduleError;
use crate::operation::{Key, hash64};
use crate::signature::{Signature, Signed};

/// Tensors by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// By name.
    tensors: Vec<Signed>,
    number_of: BTreeMap<Key, u32>,
}

/// More than any model has, and few enough that a set of them is small.
pub const MOST_TENSORS: usize = 1 << 20;

fn wrong(value: String, why: String, hint: &str) -> ScheduleError {
    ScheduleError::Field(FieldError::new("tensors", value, why, hint))
}

impl Registry {
    /// Of these tensors, given in any order.
    ///
    /// # Errors
    /// Two tensors of one name, or of one key; more than [`MOST_TENSORS`].
    pub fn new(mut tensors: Vec<Signature>) -> Result<Self, ScheduleError> {
        if tensors.len() > MOST_TENSORS {
            let why = format!("a group has at most {MOST_TENSORS}");
            let hint = "pack small tensors together";
            return Err(wrong(format!("{} of them", tensors.len()), why, hint));
        }
        tensors.sort_unstable();
        let mut number_of = BTreeMap::new();
        for (number, tensor) in (0u32..).zip(&tensors) {
            if Key::of(&tensor.name).number_of_call().is_some() {
                let why = "its key is that of a call without a name".to_owned();
                return Err(wrong(tensor.name.clone(), why, "give it another name"));
            }
            let Some(other) = number_of.insert(Key::of(&tensor.name), number) else { continue };
            let other = &tensors[other as usize].name;
            let why = if *other == tensor.name {
                "two tensors have this name".to_owned()
            } else {
                format!("its key is that of `{other}`")
            };
            return Err(wrong(tensor.name.clone(), why, "give it another name"));
        }
        let tensors = tensors.into_iter().map(Arc::new).collect();
        Ok(Self { tensors, number_of })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The number of a tensor, by its name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.of_key(Key::of(name))
    }

    /// The number of a tensor, by its key.
    #[must_use]
    pub fn of_key(&self, key: Key) -> Option<u32> {
        self.number_of.get(&key).copied()
    }

    /// What a number stands for.
    #[must_use]
    pub fn signature(&self, number: u32) -> Option<&Signed> {
        self.tensors.get(number as usize)
    }

    /// The key of a number.
    #[must_use]
    pub fn key(&self, number: u32) -> Option<Key> {
        self.signature(number).map(|tensor| Key::of(&tensor.name))
    }

    /// A tensor is no longer what it was: from now on it has this shape, strides and dtype.
    ///
    /// # Errors
    /// A name that was not registered.
    pub fn change(&mut self, tensor: Signature) -> Result<u32, ScheduleError> {
        let Some(number) = self.number(&tensor.name) else {
            let why = "no tensor of this name was registered".to_owned();
            return Err(wrong(tensor.name, why, "register all tensors before the first step"));
        };
        self.tensors[number as usize] = Arc::new(tensor);
        Ok(number)
    }

    /// Alike on ranks that number the same names: what they compare before they begin.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let names: Vec<&[u8]> = self.tensors.iter().map(|one| one.name.as_bytes()).collect();
        hash64(&names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Signature {
        Signature { name: name.to_owned(), ..Signature::default() }
    }

    #[test]
    fn numbers_follow_from_names_alone() {
        let names = ["c", "a", "d", "b"];
        let one = Registry::new(names.map(named).to_vec()).expect("they differ");
        for turn in 0..names.len() {
            let mut turned = names;
            turned.rotate_left(turn);
            let other = Registry::new(turned.map(named).to_vec()).expect("they differ");
            assert_eq!(one, other);
        }
        assert_eq!(
            ["a", "b", "c", "d", "e"].map(|n| one.number(n)).map(|n| n.unwrap_or(9)),
            [0, 1, 2, 3, 9]
        );
        let key = one.key(2).expect("it is there");
        assert_eq!((key, one.of_key(key)), (Key::of("c"), Some(2)));
        let fewer = Registry::new(vec![named("a"), named("b")]).expect("they differ");
        assert_ne!(one.digest(), fewer.digest());
    }

    #[test]
    fn a_name_is_registered_once() {
        let error = Registry::new(vec![named("a"), named("b"), named("a")]).expect_err("a twice");
        assert!(error.to_string().contains("`a`: two tensors have this name"), "{error}");
    }

    #[test]
    fn a_tensor_may_change_but_not_its_name() {
        let mut one = Registry::new(vec![named("a"), named("b")]).expect("they differ");
        let digest = one.digest();
        let changed = Signature { shape: vec![3], ..named("b") };
        assert_eq!(one.change(changed.clone()), Ok(1));
        assert_eq!(one.signature(1).map(|one| &**one), Some(&changed));
        assert_eq!(one.digest(), digest);
        assert!(one.change(named("z")).is_err());
    }
}
