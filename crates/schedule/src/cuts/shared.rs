//! Parts of a network that all need a sum: what bounds an all-reduce.
//!
//! Take disjoint groups of members, each with a region of nodes around it, `k` in all. Before the first region knows the sum of
//! an element, every other one's part of it has come to a region by an arrival of its own: `k − 1` arrivals. After it
//! every other region still waits for one that completes it: `k − 1` more. So with `B(P)` the bandwidth that enters a region
//!
//! ```text
//! T ≥ 2 · size · (k − 1) / Σ B(P_i)
//! ```
//!
//! whatever the schedule, so long as only members add, and what passes is copied at most. On one switch these are the
//! `2(k − 1)/k` of the ring (Patarasuk and Yuan 2009). It is no sum of a reduce-scatter's and an all-gather's bounds: those hold
//! for shards of one size, and the halves share links.
//!
//! The best regions are found exactly. `Σ B(P_i)/(k − 1)` is at least `K` for all of them if and only if roots can be given
//! weights of sum `K` from which every member receives `K` (Frank 1978). Weights that are lowered one member after the other are as
//! low in sum as can be, as what they have to satisfy is intersecting supermodular; where their sum is above `K`, the tight sets
//! are better regions, and Newton's method goes on from there.

use super::flow::{Flow, Supply};
use super::network::Network;

/// Among more members than this each is a region of its own, and no others are sought.
pub const MOST_REFINED: usize = 1 << 8;

/// The least `Σ B(P_i) / (k − 1)`: a sum in the network's units, and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// What enters all regions, in the network's units.
    pub entering: u128,
    /// Regions, less one.
    pub regions: u128,
}

/// The regions that bound an all-reduce among `members` most; `None` where one has no other or cannot be reached.
#[must_use]
pub fn shared(network: &Network, members: &[u32]) -> Option<Share> {
    let entering = members.iter().map(|member| network.entering_one(*member)).sum();
    let mut share = Share { entering, regions: (members.len() as u128).checked_sub(1)? };
    if share.regions == 0 {
        return None;
    }
    if members.len() > MOST_REFINED {
        return (entering > 0).then_some(share);
    }
    let order = network.nearest_first(members);
    let mut is_member = vec![false; network.nodes()];
    members.iter().for_each(|member| is_member[*member as usize] = true);
    while share.entering > 0 {
        let regions = tight_regions(network, &order, &is_member, share);
        let Some(regions) = regions else { return Some(share) };
        let better = Share {
            entering: regions.iter().map(|region| network.entering(region)).sum(),
            regions: (regions.len() as u128).checked_sub(1).expect("several are over-full"),
        };
        assert!(
            better.entering * share.regions < share.entering * better.regions,
            "tight regions of weights that are too large share less"
        );
        share = better;
    }
    None
}

/// Where weights of the share's sum do not let every member receive it: the regions that keep them from it.
fn tight_regions(
    network: &Network,
    order: &[u32],
    is_member: &[bool],
    share: Share,
) -> Option<Vec<Vec<bool>>> {
    let most = share.entering;
    let mut flow = Flow::new(network, vec![Supply::Limited(0); network.nodes()]);
    flow.rescale(share.regions);
    order.iter().for_each(|member| flow.give(*member, Supply::Limited(most)));
    let mut sum = 0;
    let mut regions: Vec<Vec<bool>> = Vec::new();
    for &root in order {
        let got = flow.reach(root, 2 * most);
        let weight = 2 * most - got;
        if weight > 0 {
            let mut region = vec![false; network.nodes()];
            flow.cut_off().iter().for_each(|node| region[*node as usize] = true);
            let meets = |other: &Vec<bool>| {
                (0..region.len()).any(|node| is_member[node] && region[node] && other[node])
            };
            let (met, apart) = regions.into_iter().partition(meets);
            regions = apart;
            for other in &met as &Vec<Vec<bool>> {
                region.iter_mut().zip(other).for_each(|(inside, other)| *inside |= other);
            }
            regions.push(region);
        }
        flow.give(root, Supply::Limited(weight));
        sum += weight;
    }
    (sum > most).then_some(regions)
}
