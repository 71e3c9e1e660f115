//! A balanced dragonfly over a number of ends (Kim et al., ISCA'08): `a = 2p` switches a group, `p` ends
//! and `h = p` global cables at each, so `4p − 1` ports.
//!
//! ```text
//! p = (radix + 1) / 4    groups = ceil(ends / ap)    cables between two groups = floor(ah / (groups − 1))
//! ```
//!
//! Ends fill switch after switch. Slots of global cables lead to the other groups in turn, switch by
//! switch; what is left over stays unused. Within a group cables are copper, between groups optical.

use allrail_core::FieldError;

use super::{Inner, Network};
use crate::graph::{Builder, CableKind, NodeId, Wire};

/// See the module.
pub(super) struct Groups {
    /// Ends, and global cables, of a switch.
    p: u64,
    /// Switches of a group.
    a: u64,
    groups: u64,
}

impl Groups {
    pub(super) fn plan(ends: u64, radix: u32) -> Option<Self> {
        let p = (u64::from(radix) + 1) / 4;
        let a = (2 * p).min(ends.div_ceil(p));
        let groups = ends.div_ceil(a * p);
        (groups <= a * p + 1).then_some(Self { p, a, groups })
    }

    /// Cables between any two groups.
    fn between(&self) -> u64 {
        if self.groups < 2 { 0 } else { self.a * self.p / (self.groups - 1) }
    }

    /// The switch of `group` that has the `round`-th cable to `other`, among all.
    fn gateway(&self, group: u64, other: u64, round: u64) -> usize {
        let turn = (other + self.groups - group) % self.groups - 1;
        let slot = round * (self.groups - 1) + turn;
        (group * self.a + slot / self.p) as usize
    }
}

impl Network for Groups {
    fn switches(&self) -> u64 {
        self.a * self.groups
    }

    fn inner(&self) -> Inner {
        Inner {
            aoc: self.groups * self.groups.saturating_sub(1) / 2 * self.between(),
            dac: self.groups * (self.a * (self.a - 1) / 2),
        }
    }

    fn span(&self) -> u32 {
        if self.groups > 1 { 5 } else { 3 }
    }

    fn leaf_of(&self, end: u64) -> usize {
        (end / self.p) as usize
    }

    fn build(&self, to: &mut Builder, wire: Wire) -> Result<Vec<NodeId>, FieldError> {
        let switches: Vec<NodeId> = (0..self.switches()).map(|_| to.switch()).collect();
        for group in switches.chunks(self.a as usize) {
            for (at, &one) in group.iter().enumerate() {
                for &other in &group[..at] {
                    to.cable(other, one, CableKind::Dac, wire)?;
                }
            }
        }
        for group in 0..self.groups {
            for other in group + 1..self.groups {
                for round in 0..self.between() {
                    let ends = [(group, other), (other, group)];
                    let [one, two] = ends.map(|(a, b)| switches[self.gateway(a, b, round)]);
                    to.parallel(one, two, CableKind::Aoc, wire)?;
                }
            }
        }
        Ok(switches)
    }
}
