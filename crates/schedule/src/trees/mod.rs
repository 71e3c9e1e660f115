//! Spanning trees that carry an all-gather as fast as any schedule can.
//!
//! Every member `r` sends its `1/N` of the result over trees that are rooted at it and span all members; of `copies` equal
//! parts of that share a tree carries `multiplicity`. Together the trees load no link with more than it carries in the
//! least time by cuts ([`crate::cuts::gather`]): the bound is reached.
//!
//! 1. With the worst ratio `p / q` of members to capacity, `q` trees from each member and `p` for each unit of capacity
//!    are the same as `copies` trees and whole capacities once both are divided by what divides them all.
//! 2. [`split`]: switches, and NPUs that only relay, are taken out one after the other. What enters one and what leaves it become
//!    links from neighbour to neighbour, so that no member receives less (Bang-Jensen, Frank and Jackson 1995).
//! 3. [`pack`]: trees are grown edge by edge, so many at once as leave enough for the rest (Edmonds 1973; Bérczi and Frank
//!    2010). All multiplicities are whole.
//!
//! As in ForestColl (Zhao et al. 2024). The sums are exact. With `n` nodes of degree `d`, splitting takes at most `d²` tries
//! for each node, each of `N` flows that go no farther than they have to; packing a flow for each of the `N − 1` edges of a tree, and
//! of a root's several trees for each. On one core 16 NPUs of a torus less a cable take 4 ms, 128 take 0.9 s; a thousand take minutes, as
//! each flow sets its network up anew.
//!
//! What it ignores: latency and depth, but that a tree grows from its earliest node. What enters a node that is taken out must be
//! what leaves it, as where both directions of a cable are equally fast. Copies that a switch could make are not used: no
//! more than the bound can be reached with them.

mod logical;
mod pack;
mod split;

use std::error::Error;
use std::fmt;

use crate::cuts::{Network, gather};
use logical::Logical;

/// Trees of one shape, from one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The member whose data it carries.
    pub root: u32,
    /// Of the root's [`Forest::copies`], how many.
    pub multiplicity: u128,
    /// From a member that has the data to one that has not, in the order in which they can be sent.
    pub edges: Vec<Edge>,
}

/// One step of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// A member that has the data.
    pub from: u32,
    /// The member that gets it.
    pub to: u32,
    /// The arcs of the network between them, past nodes that pass on, and how many of the copies take them.
    pub paths: Vec<Path>,
}

/// Arcs of a network, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// How many copies take it.
    pub multiplicity: u128,
    /// Its arcs.
    pub arcs: Vec<u32>,
}

/// Trees of all roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forest {
    /// Into how many equal parts each member's share is divided.
    pub copies: u128,
    /// How many parts an arc carries for each unit of its capacity: at most `numerator / denominator` times as many.
    pub per_unit: [u128; 2],
    /// The trees, root by root.
    pub trees: Vec<Tree>,
}

/// Why there are no trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTrees {
    /// A member has no other, or cannot be reached.
    Apart,
    /// What enters a node that only passes on is not what it can send on.
    Lopsided(u32),
}

impl fmt::Display for NoTrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Apart => f.write_str("members cannot reach each other"),
            Self::Lopsided(node) => {
                write!(f, "node {node} receives at another rate than it sends, and only passes on")
            }
        }
    }
}

impl Error for NoTrees {}

/// The trees of an all-gather among `members`, at the bound. Of a reduce-scatter: those of the
/// [reversed](Network::reversed) network, from their leaves to their roots.
///
/// # Errors
/// There are none: see [`NoTrees`].
pub fn forest(network: &Network, members: &[u32]) -> Result<Forest, NoTrees> {
    let worst = gather(network, members).ok_or(NoTrees::Apart)?;
    let (mut copies, mut scale) = (worst.capacity, worst.members);
    let all = (0..network.arcs()).map(|arc| network.capacity(arc) * scale).fold(copies, gcd);
    copies /= all;
    let common = gcd(scale, all);
    scale /= common;
    let per_unit = [scale, all / common];
    let mut logical = Logical::of(network, per_unit);
    split::out(&mut logical, members, copies)?;
    let trees = pack::all(&mut logical, members, copies);
    Ok(Forest { copies, per_unit, trees })
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
