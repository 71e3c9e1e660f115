//! What a transport with one order does: the k-th launch of a rank on a dimension meets the k-th launch of
//! every rank of its line, whatever these are.

use std::collections::BTreeMap;

use super::Launch;

/// What was launched on every line, by whoever was first.
pub(crate) struct Matcher {
    /// Size and stride of each dimension.
    shape: Vec<(u32, u32)>,
    /// By port and the first rank of the line.
    lines: BTreeMap<(u32, u32), Vec<(u32, Launch)>>,
    pub(crate) mismatches: Vec<String>,
}

impl Matcher {
    pub(crate) fn new(sizes: &[u32]) -> Self {
        let mut stride = 1;
        let shape = sizes.iter().map(|size| {
            stride *= size;
            (*size, stride / size)
        });
        Self { shape: shape.collect(), lines: BTreeMap::new(), mismatches: Vec::new() }
    }

    /// A rank makes its launch number `count` on a port.
    pub(crate) fn launch(&mut self, rank: u32, port: u32, count: usize, launch: Launch) {
        let (size, stride) = self.shape[port as usize];
        let first = rank - rank / stride % size * stride;
        let line = self.lines.entry((port, first)).or_default();
        match line.get(count) {
            None => line.push((rank, launch)),
            Some((other, theirs)) if *theirs != launch => self.mismatches.push(format!(
                "launch {count} on port {port}: rank {rank} has {launch:?}, rank {other} {theirs:?}"
            )),
            Some(_) => {}
        }
    }
}
