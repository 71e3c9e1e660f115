//! A question under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_core::Time;

/// A question under way: on rank 0, who lacks these tensors? elsewhere, does the parent live?
#[derive(Debug)]
pub(super) struct Search {
    pub(super) tensors: Arc<[u32]>,
    /// Whom someone asked, and whether the answer is here; it may come before the word of the asking.
    pub(super) asked: BTreeMap<u32, bool>,
    pub(super) missing: Vec<(u32, u32)>,
    pub(super) until: Time,
}
