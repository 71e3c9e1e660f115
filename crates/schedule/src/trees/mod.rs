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
//! As in ForestColl (Zhao et al. 2024). The sums are exact.
//!
//! Both ask whether too little leads into any set of nodes, which is a flow to each member. They ask seldom: once after
//! a node is out, and once after a tree has grown. Until then steps are taken against the [`sets`] that earlier flows have
//! found. So there are about as many rounds of flows as trees, nodes and sets that were found together, and a round looks
//! at most members over a few arcs: who has been found to get enough may give the others all they like. On one core
//! (`examples/tree_speed.rs`) 16 NPUs take 1 ms, 128 take 30 ms, 1,024 take 3 s on a torus less a cable and up to 20 s on others.
//!
//! What it ignores: latency and depth, but that a tree grows from its earliest node. What enters a node that is taken out must be
//! what leaves it, as where both directions of a cable are equally fast. Copies that a switch could make are not used: no
//! more than the bound can be reached with them.

mod carried;
mod logical;
mod pack;
mod program;
mod sets;
mod split;

pub use carried::{Edge, Forest, NoTrees, Path, Tree};

use crate::cuts::{Network, gather};
use logical::Logical;
pub use program::program;

/// More copies of a member's data than this are not made: so many come near enough.
const COPIES: u128 = 64;
/// Of a search for how many trees a unit of capacity is given: one in so many is left over at most.
const EXACT: u128 = 1 << 14;

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
    let mut per_unit = [scale, all / common];
    if copies > COPIES {
        let [needed, there] = [worst.members * COPIES, worst.capacity];
        (per_unit, copies) = (nearly(network, members, [needed, there]), COPIES);
    }
    let mut logical = Logical::of(network, per_unit);
    split::out(&mut logical, members, copies)?;
    let trees = pack::all(&mut logical, members, copies);
    Ok(Forest { copies, per_unit, trees })
}

/// How much of each unit of capacity [`COPIES`] of each member need, where links carry whole trees: a little more than
/// by cuts, `needed / there`.
fn nearly(network: &Network, members: &[u32], [needed, there]: [u128; 2]) -> [u128; 2] {
    let denominator = EXACT * there;
    let enough = |numerator: u128| {
        let links = (0..network.arcs()).map(|arc| {
            let trees = network.capacity(arc) * numerator / denominator;
            ([network.tail(arc), network.head(arc)], trees)
        });
        let whole = Network::of_capacities(network.nodes(), links);
        let found = gather(&whole, members);
        found.is_some_and(|found| found.members * COPIES <= found.capacity)
    };
    // Twice as much is enough, as each link then carries as much in whole trees, unless it is slow beside the others.
    let (mut too_few, mut many) = (needed * EXACT, 2 * needed * EXACT);
    while !enough(many) {
        (too_few, many) = (many, 2 * many);
    }
    let small = needed;
    while many - too_few > small {
        let middle = too_few.midpoint(many);
        if enough(middle) { many = middle } else { too_few = middle }
    }
    [many, denominator]
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
