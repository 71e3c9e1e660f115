//! The connections of a rank, and with whom it has them.

use std::collections::BTreeMap;

use crate::port::link::Link;

/// The connections of a rank.
pub(crate) struct Connected {
    pub(crate) control: BTreeMap<u32, Box<dyn Link>>,
    /// By dimension.
    pub(crate) data: Vec<BTreeMap<u32, Box<dyn Link>>>,
    /// What strangers did meanwhile.
    pub(crate) notes: Vec<String>,
}

/// The other ranks that differ from `rank` on dimension `d` only.
pub(crate) fn line(sizes: &[u32], rank: u32, d: usize) -> Vec<u32> {
    let stride: u32 = sizes[..d].iter().product();
    let first = rank - rank / stride % sizes[d] * stride;
    (0..sizes[d]).map(|i| first + i * stride).filter(|other| *other != rank).collect()
}
