//! Slim Fly (Besta and Hoefler, SC'14) over a number of ends: the graphs of McKay, Miller and Širáň, in
//! which any two switches are at most two cables apart.
//!
//! For an odd prime `q = 4w + δ`, `δ = ±1`, there are `2q²` switches `(s, x, y)` with `(3q − δ)/2` cables
//! each. With a primitive root of `q` and its even and odd powers in the sets `X` and `X'`:
//!
//! ```text
//! (0, x, y) – (0, x, y')  if y − y' in X        (0, x, y) – (1, m, c)  if y = mx + c
//! (1, m, c) – (1, m, c')  if c − c' in X'
//! ```
//!
//! The smallest `q` is taken whose switches have room for the ends, with half as many ends at a switch as
//! cables to others, rounded up: so the network is not short for uniform traffic. Powers of primes are
//! left out. All cables are optical.

use allrail_core::FieldError;

use super::{Inner, Network};
use crate::graph::{Builder, CableKind, NodeId, Wire};

/// See the module.
pub(super) struct SlimFly {
    q: u64,
    /// Ends of a switch.
    p: u64,
}

impl SlimFly {
    pub(super) fn plan(ends: u64, radix: u32) -> Option<Self> {
        let fits = |q: &u64| degree(*q) + degree(*q).div_ceil(2) <= u64::from(radix);
        let q = (3..)
            .step_by(2)
            .take_while(fits)
            .find(|&q| is_prime(q) && 2 * q * q * degree(q).div_ceil(2) >= ends)?;
        // As few at a switch as hold them all.
        Some(Self { q, p: ends.div_ceil(2 * q * q) })
    }

    /// The sets X and X'.
    fn sets(&self) -> [Vec<u64>; 2] {
        let q = self.q;
        let root = primitive_root(q);
        let power = |exponent: u64| (0..exponent).fold(1, |product, _| product * root % q);
        let every_second = |from: u64, to: u64| (from..=to).step_by(2).map(power);
        if q % 4 == 1 {
            return [every_second(0, q - 3).collect(), every_second(1, q - 2).collect()];
        }
        let w = q.div_ceil(4);
        [
            every_second(0, 2 * w - 2).chain(every_second(2 * w - 1, 4 * w - 3)).collect(),
            every_second(1, 2 * w - 1).chain(every_second(2 * w, 4 * w - 2)).collect(),
        ]
    }
}

/// Cables of a switch to others.
fn degree(q: u64) -> u64 {
    if q % 4 == 1 { 3 * q / 2 } else { (3 * q).div_ceil(2) }
}

fn is_prime(q: u64) -> bool {
    q > 1 && (2..).take_while(|d| d * d <= q).all(|d| !q.is_multiple_of(d))
}

/// The least number whose powers are all numbers below `q`, a prime.
fn primitive_root(q: u64) -> u64 {
    let order = |root: u64| {
        let mut power = root % q;
        let mut order = 1;
        while power != 1 {
            power = power * root % q;
            order += 1;
        }
        order
    };
    (2..q).find(|&root| order(root) == q - 1).expect("an odd prime has a primitive root")
}

impl Network for SlimFly {
    fn switches(&self) -> u64 {
        2 * self.q * self.q
    }

    fn inner(&self) -> Inner {
        Inner { aoc: self.switches() * degree(self.q) / 2, dac: 0 }
    }

    fn span(&self) -> u32 {
        4
    }

    fn leaf_of(&self, end: u64) -> usize {
        (end / self.p) as usize
    }

    fn build(&self, to: &mut Builder, wire: Wire) -> Result<Vec<NodeId>, FieldError> {
        let q = self.q;
        let switches: Vec<NodeId> = (0..self.switches()).map(|_| to.switch()).collect();
        let at =
            |side: u64, line: u64, place: u64| switches[((side * q + line) * q + place) as usize];
        for (side, set) in (0u64..).zip(self.sets()) {
            for line in 0..q {
                for place in 0..q {
                    for other in (place + 1..q).filter(|other| set.contains(&(other - place))) {
                        to.cable(
                            at(side, line, place),
                            at(side, line, other),
                            CableKind::Aoc,
                            wire,
                        )?;
                    }
                }
            }
        }
        for (x, m, c) in
            (0..q).flat_map(|x| (0..q).flat_map(move |m| (0..q).map(move |c| (x, m, c))))
        {
            to.cable(at(0, x, (m * x + c) % q), at(1, m, c), CableKind::Aoc, wire)?;
        }
        Ok(switches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::measure;

    /// All switches have as many cables, and any two are two apart at most, as the construction says.
    #[test]
    fn switches_are_two_cables_apart() {
        for q in [3u64, 5, 7, 11, 13] {
            let network = SlimFly { q, p: 1 };
            let mut builder = Builder::new(network.switches() as u32);
            let leaves = network.build(&mut builder, Wire::cable()).expect("switches");
            for (npu, &leaf) in (0..).zip(&leaves) {
                builder.cable(NodeId(npu), leaf, CableKind::Dac, Wire::cable()).expect("an end");
            }
            let graph = builder.build().expect("it is connected");
            assert_eq!(measure::diameter(&graph), network.span(), "q = {q}");
            let cables = graph.cables().len() as u64 - network.switches();
            assert_eq!(Inner { aoc: cables, dac: 0 }, network.inner());
            for &leaf in &leaves {
                assert_eq!(graph.neighbours(leaf).len() as u64, degree(q) + 1);
            }
        }
    }

    #[test]
    fn the_smallest_that_holds_the_ends_is_taken() {
        let planned = |ends, radix| SlimFly::plan(ends, radix).map(|one| (one.q, one.p));
        assert_eq!(planned(54, 8), Some((3, 3)));
        assert_eq!(planned(55, 64), Some((5, 2)));
        assert_eq!(planned(55, 8), None, "7 cables and 4 ends are 11 ports");
        // 9 is no prime.
        assert_eq!(planned(2 * 49 * 6 + 1, 64).map(|(q, _)| q), Some(11));
    }
}
