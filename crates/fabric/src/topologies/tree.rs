//! A tree of switches over a number of ends: what fat trees and `HammingMesh`'s rows are made of.
//!
//! Ends that fit one switch get one. Otherwise each leaf has `down = floor(radix / (2 − taper))`
//! ports for ends and `up = radix − down` to the level above (`HammingMesh`, SC'22, Appendix: 42/22
//! for half, 51/13 for three quarters of 64 ports left out). Only leaves taper:
//!
//! ```text
//! leaves = ceil(ends / down)
//! two levels:   spines = ceil(leaves · up / radix)
//! three levels: middle = ceil(leaves · up / (radix / 2)), top = ceil(leaves · up / radix)
//! ```
//!
//! Wiring, which the paper leaves open: with two levels a leaf's uplinks go round the spines; with
//! three, `radix / 2` leaves form a pod whose leaves each join all of its middle switches, and the
//! uplinks of all middle switches, in order, go round the top.

use allrail_core::FieldError;

use crate::graph::{Builder, CableKind, NodeId, Wire};

/// A tree, planned but not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) ends: u64,
    pub(crate) levels: u32,
    pub(crate) leaves: u64,
    pub(crate) down: u64,
    pub(crate) up: u64,
    radix: u64,
}

impl Tree {
    /// The tree of `levels` levels over `ends` ends, or one switch if they fit; `None` if they do
    /// not fit `levels` levels either.
    pub(crate) fn of_levels(ends: u64, radix: u32, taper: f64, levels: u32) -> Option<Self> {
        let radix = u64::from(radix);
        if ends <= radix {
            return Some(Self { ends, levels: 1, leaves: 1, down: ends, up: 0, radix });
        }
        let down = (radix as f64 / (2.0 - taper) + 1e-9).floor() as u64;
        let leaves = ends.div_ceil(down);
        let most = match levels {
            2 => radix,
            3 => radix * (radix / 2),
            _ => return None,
        };
        (leaves <= most).then_some(Self { ends, levels, leaves, down, up: radix - down, radix })
    }

    /// The tree of the fewest levels, three at most.
    pub(crate) fn lowest(ends: u64, radix: u32, taper: f64) -> Option<Self> {
        (1..=3).find_map(|levels| Self::of_levels(ends, radix, taper, levels))
    }

    fn uplinks(&self) -> u64 {
        self.leaves * self.up
    }

    /// How many switches it has.
    pub(crate) fn switches(&self) -> u64 {
        let (uplinks, radix) = (self.uplinks(), self.radix);
        self.leaves
            + match self.levels {
                1 => 0,
                2 => uplinks.div_ceil(radix),
                _ => uplinks.div_ceil(radix / 2) + uplinks.div_ceil(radix),
            }
    }

    /// How many cables run between its switches.
    pub(crate) fn inner_cables(&self) -> u64 {
        self.uplinks() * u64::from(self.levels - 1)
    }

    /// Cables between the two ends that are farthest apart, as the paper's T(q).
    pub(crate) fn span(&self) -> u32 {
        2 * self.levels
    }

    /// The largest flow from the first half of the ends to the second, in cables, with nothing lost
    /// above the leaves. A leaf passes its near ends up (at most `up` of them, or as many as it has)
    /// or keeps them; the levels above stand on whichever side is cheaper.
    pub(crate) fn half_cut(&self) -> u64 {
        let half = self.ends / 2;
        if self.levels == 1 {
            return half;
        }
        let (mut above_far, mut above_near) = (0, 0);
        for leaf in 0..self.leaves {
            let (from, to) = (leaf * self.down, ((leaf + 1) * self.down).min(self.ends));
            let near = half.clamp(from, to) - from;
            let far = to - from - near;
            above_far += near.min(self.up + far);
            above_near += far.min(self.up + near);
        }
        above_far.min(above_near)
    }

    /// Adds its switches and the cables between them; returns the leaves.
    pub(crate) fn build(&self, to: &mut Builder, wire: Wire) -> Result<Vec<NodeId>, FieldError> {
        let leaves: Vec<NodeId> = (0..self.leaves).map(|_| to.switch()).collect();
        match self.levels {
            1 => {}
            2 => {
                let spines = self.uplinks().div_ceil(self.radix);
                let spines: Vec<NodeId> = (0..spines).map(|_| to.switch()).collect();
                round(to, &leaves, &vec![self.up; leaves.len()], &spines, wire)?;
            }
            _ => self.build_pods(to, &leaves, wire)?,
        }
        Ok(leaves)
    }

    /// Whether two levels can be wired alike: every leaf with as many cables to each spine.
    pub(crate) fn is_even(&self) -> bool {
        self.levels != 2 || self.up.is_multiple_of(self.uplinks().div_ceil(self.radix))
    }

    /// Two levels with one cable from each leaf to each of `up` spines; returns the leaves.
    pub(crate) fn build_evenly(
        &self,
        to: &mut Builder,
        wire: Wire,
    ) -> Result<Vec<NodeId>, FieldError> {
        let leaves: Vec<NodeId> = (0..self.leaves).map(|_| to.switch()).collect();
        let spines: Vec<NodeId> = (0..self.up).map(|_| to.switch()).collect();
        round(to, &leaves, &vec![self.up; leaves.len()], &spines, wire)?;
        Ok(leaves)
    }

    fn build_pods(
        &self,
        to: &mut Builder,
        leaves: &[NodeId],
        wire: Wire,
    ) -> Result<(), FieldError> {
        let half = self.radix / 2;
        let (mut middle, mut uplinks) = (Vec::new(), Vec::new());
        for pod in leaves.chunks(half as usize) {
            let used = pod.len() as u64 * self.up;
            let count = used.div_ceil(half);
            let switches: Vec<NodeId> = (0..count).map(|_| to.switch()).collect();
            round(to, pod, &vec![self.up; pod.len()], &switches, wire)?;
            uplinks.extend((0..count).map(|i| used / count + u64::from(i < used % count)));
            middle.extend(switches);
        }
        let top: Vec<NodeId> =
            (0..self.uplinks().div_ceil(self.radix)).map(|_| to.switch()).collect();
        round(to, &middle, &uplinks, &top, wire)
    }

    /// The leaf that holds the end `end`.
    pub(crate) fn leaf_of(&self, end: u64) -> usize {
        (end / self.down) as usize
    }
}

/// Joins the uplinks of all `lower` switches, in order, to the `upper` switches in turn.
fn round(
    to: &mut Builder,
    lower: &[NodeId],
    uplinks: &[u64],
    upper: &[NodeId],
    wire: Wire,
) -> Result<(), FieldError> {
    let mut turn = upper.iter().cycle();
    for (&low, &count) in lower.iter().zip(uplinks) {
        for _ in 0..count {
            let &high = turn.next().expect("a level has a switch");
            to.parallel(low, high, CableKind::Aoc, wire)?;
        }
    }
    Ok(())
}
