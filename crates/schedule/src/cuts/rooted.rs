//! Cuts between one source and members: what bounds an all-gather, a reduce-scatter and a broadcast.
//!
//! Every member has its `1/N` of an all-gather's result and needs all of it. A set `S` of nodes that leaves a member
//! out has to let `|members in S| / N` of the result out, so with `B(S)` the bandwidth that leaves it
//!
//! ```text
//! T ≥ size / N · max over S of |members in S| / B(S)
//! ```
//!
//! and trees exist that reach it (Edmonds 1973; with switches Bang-Jensen, Frank and Jackson 1995; Zhao et al.,
//! ForestColl, 2024). A reduce-scatter is the same with all arcs turned round.
//!
//! The largest ratio is found exactly, by Newton's method (Dinkelbach): with arcs `ratio` times as wide and 1 from a
//! source to each member, every member receives `N` unless a set has a larger ratio, which becomes the new one. A
//! member that receives `N` does so at every larger ratio. No set with a larger ratio leaves it out then, so the source
//! may give it all it likes, and the next member, one of its neighbours, is asked over a few arcs. So there are as many flows
//! as members and improvements together, each of them local.

use super::flow::{Flow, Supply};
use super::network::Network;

/// A bottleneck: members over the bandwidth that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// How many members' data.
    pub members: u128,
    /// Over what, in the network's units.
    pub capacity: u128,
}

impl Ratio {
    fn exceeds(self, other: Self) -> bool {
        self.members * other.capacity > other.members * self.capacity
    }
}

/// The largest ratio of an all-gather among `members`; `None` where one cannot be reached, or has no other.
#[must_use]
pub fn gather(network: &Network, members: &[u32]) -> Option<Ratio> {
    let mut marks = Marks::new(network, members);
    let count = marks.count;
    let all_but =
        |member: &u32| Ratio { members: count - 1, capacity: network.entering_one(*member) };
    let mut worst = members.iter().map(all_but).reduce(|a, b| if b.exceeds(a) { b } else { a })?;
    if count < 2 || worst.capacity == 0 {
        return None;
    }
    let mut flow = Flow::new(network, vec![Supply::Limited(0); network.nodes()]);
    let order = network.nearest_first(members);
    let rescale = |flow: &mut Flow<'_>, ratio: Ratio, waiting: &[u32]| {
        flow.rescale(ratio.members);
        waiting.iter().for_each(|member| flow.give(*member, Supply::Limited(ratio.capacity)));
    };
    rescale(&mut flow, worst, &order);
    for (place, &sink) in order.iter().enumerate() {
        let enough = |ratio: Ratio| ratio.capacity * count;
        while flow.reach(sink, enough(worst)) < enough(worst) {
            let cut = marks.cut(flow.cut_off());
            assert!(cut.exceeds(worst), "a cut that keeps data out has a larger ratio");
            if cut.capacity == 0 {
                return None;
            }
            worst = cut;
            rescale(&mut flow, worst, &order[place..]);
        }
        flow.give(sink, Supply::Unlimited);
    }
    Some(worst)
}

/// The least bandwidth, in units, between `root` and any of `members`; `None` where one cannot be reached, or there is no
/// other.
#[must_use]
pub fn broadcast(network: &Network, root: u32, members: &[u32]) -> Option<u128> {
    let order = network.nearest_first(&[&[root], members].concat());
    let others = order.iter().copied().filter(|member| *member != root);
    let mut least = others.clone().map(|member| network.entering_one(member)).min()?;
    let mut flow = Flow::new(network, vec![Supply::Limited(0); network.nodes()]);
    flow.give(root, Supply::Unlimited);
    for sink in others {
        least = flow.reach(sink, least);
        flow.give(sink, Supply::Unlimited);
    }
    (least > 0).then_some(least)
}

/// Sets of nodes, marked.
struct Marks<'n> {
    network: &'n Network,
    is_member: Vec<bool>,
    count: u128,
}

impl<'n> Marks<'n> {
    fn new(network: &'n Network, members: &[u32]) -> Self {
        let mut is_member = vec![false; network.nodes()];
        members.iter().for_each(|member| is_member[*member as usize] = true);
        Self { network, is_member, count: members.len() as u128 }
    }

    /// Of all nodes but these.
    fn cut(&mut self, without: &[u32]) -> Ratio {
        let mut inside = vec![false; self.network.nodes()];
        without.iter().for_each(|node| inside[*node as usize] = true);
        let out = without.iter().filter(|node| self.is_member[**node as usize]).count();
        Ratio { members: self.count - out as u128, capacity: self.network.entering(&inside) }
    }
}
