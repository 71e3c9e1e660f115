//! The name of an operation, alike on every rank: what a message carries, what a finish refers to, what an
//! error names.
//!
//! Nothing that ranks number each for themselves is part of it. So two ranks that start the same operations
//! in different orders still mean the same one, and what is left of an earlier life of the job is told apart.
//!
//! | part | what it is | who makes it |
//! |---|---|---|
//! | `epoch` | how often the job was restarted | the rendezvous |
//! | `group` | the process group | the registration of groups |
//! | `key` | the tensor, by its registered name ([`Key::of`]); or the group's sequence number where the caller's API has no names | all alike |
//! | `generation` | how often the tensor was exchanged before, in this epoch | counted per key, at submission |
//! | `part` | which partition of the tensor | the tensor scheduler, from agreed events |
//!
//! ```
//! use allrail_schedule::operation::{Key, OperationName};
//! let weight = Key::of("layer1.weight");
//! let first = OperationName { key: weight, ..OperationName::default() };
//! assert_eq!(first.next_generation().generation, 1);
//! assert_ne!(weight, Key::of("layer1.bias"));
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What an operation is about: a tensor by its name, or the place of a call in its group.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Key(pub u64);

impl Key {
    /// Of a tensor: the first 8 bytes of its name's SHA-256. A registration refuses two names of one key.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(hash64(&[name.as_bytes()]))
    }

    /// Keys below this are those of calls. A registration refuses the name, one in 2^24, whose key is one.
    pub const CALLS: u64 = 1 << 40;

    /// Of the call number `count`, from 0, on a group whose caller gives no names: there the k-th call of
    /// every rank is the same operation. At most [`Self::CALLS`] of them have keys.
    #[must_use]
    pub fn call(count: u64) -> Self {
        Self(count)
    }

    /// Which call it is the key of, if it is one's.
    #[must_use]
    pub fn number_of_call(self) -> Option<u64> {
        (self.0 < Self::CALLS).then_some(self.0)
    }
}

/// The first 8 bytes of the SHA-256 of these, each after its length.
pub(crate) fn hash64(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest[..8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// An operation's name on every rank.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct OperationName {
    /// How often the job was restarted.
    pub epoch: u32,
    /// The process group.
    pub group: u32,
    /// The tensor, or the call.
    pub key: Key,
    /// Tells two exchanges of one tensor apart.
    pub generation: u64,
    /// Which partition.
    pub part: u32,
}

impl OperationName {
    /// The same tensor's next exchange, from its first part.
    #[must_use]
    pub fn next_generation(self) -> Self {
        // 2^64 exchanges of one tensor take longer than the clock of 2^64 ps runs.
        Self { generation: self.generation.wrapping_add(1), part: 0, ..self }
    }
}

impl fmt::Display for OperationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, group, key: Key(key), generation, part } = self;
        write!(f, "{epoch}/{group}/{key:016x}/{generation}/{part}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_name_and_nothing_else() {
        // Fixed: ranks of different builds must mean the same tensor.
        assert_eq!(Key::of("layer1.weight"), Key(0xd117_9601_fef6_ee6e));
        assert_ne!(hash64(&[b"ab", b"c"]), hash64(&[b"a", b"bc"]));
    }
}
