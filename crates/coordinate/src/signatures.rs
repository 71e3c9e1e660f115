//! What a rank's tensors are: as they were registered, but for those that have changed since.

use std::collections::BTreeMap;

use allrail_schedule::signature::Signed;

use super::fleet::Shared;

/// Of one rank: those that have changed.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    changed: BTreeMap<u32, Signed>,
}

impl Signatures {
    pub(super) fn change(&mut self, tensor: u32, signature: Signed) {
        self.changed.insert(tensor, signature);
    }

    pub(super) fn of(&self, tensor: u32, shared: &Shared) -> Option<Signed> {
        self.changed.get(&tensor).cloned().or_else(|| shared.signature(tensor))
    }
}
