//! What no schedule can beat on any network: bounds by cuts.
//!
//! A network is nodes and capacities ([`Network`]); members take part in the collective, other NPUs and switches pass on what
//! they are given. Rates may differ by direction, and cables may be parallel. With `size` bytes in the whole buffer and `N`
//! members:
//!
//! | operation | bandwidth | exact? |
//! |---|---|---|
//! | all-gather | [`gather`]: the worst set of nodes, `members in it / N · size / bandwidth that leaves it` | yes: trees reach it |
//! | reduce-scatter | the same with all arcs turned round | yes |
//! | all-reduce | [`shared`](shared::shared): regions that all need the sum; `size / least cut` where switches add | no: a schedule may need longer |
//! | broadcast | `size / least cut between the root and a member` | yes |
//! | all-to-all | [`exchange`](exchange::exchange): lengths of arcs | up to the lengths that are tried |
//!
//! Beside it stands the latency of the shortest path between the two members that are farthest apart (from the root, in a
//! broadcast): data of every member, or its sum, has to come from one to the other. The bound is the larger of the two.
//!
//! All are made of flows to one member after the other, which look at its surroundings mostly: on a torus of 1,024 NPUs an
//! all-gather's take milliseconds. Regions are sought among 256 members at most, lengths among 64.
//!
//! What it ignores: that NPUs wait for each other within a tree, and headers of packets. Data that is coded (sums of different
//! elements in one byte) could beat the bounds of all-reduce and all-to-all; no algorithm here does so.

pub mod exchange;
mod flow;
mod nearest;
pub mod network;
pub mod rooted;
pub mod shared;

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};

pub(crate) use flow::{Flow, Supply};
pub use network::{Network, Pair};
pub use rooted::gather;

/// Of more members than this, latencies are those from the first one alone.
const MOST_PAIRS: usize = 1 << 8;
const PS_PER_S: u128 = 1_000_000_000_000;

/// Beneath every schedule of `operation` on `size` bytes among `members`, whose first is the root of a broadcast; `sums`
/// says whether switches add. `None` where nothing can be said: a member alone, or one that cannot be reached.
#[must_use]
pub fn lower(
    network: &Network,
    operation: Operation,
    members: &[u32],
    size: Bytes,
    sums: bool,
) -> Option<Time> {
    let bytes = u128::from(size.count());
    let count = members.len() as u128;
    // Of `over / under` of the buffer at one unit of the network's.
    let time = |over: u128, under: u128| {
        let picoseconds = bytes * over * PS_PER_S / (under * u128::from(network.unit()));
        Time::from_ps(u64::try_from(picoseconds).unwrap_or(u64::MAX))
    };
    let of_gather = |network: &Network| {
        let worst = rooted::gather(network, members)?;
        Some(time(worst.members, count * worst.capacity))
    };
    let bandwidth = match operation {
        Operation::AllGather => of_gather(network)?,
        Operation::ReduceScatter => of_gather(&network.reversed())?,
        Operation::Broadcast => time(1, rooted::broadcast(network, *members.first()?, members)?),
        Operation::AllReduce => {
            let root = *members.first()?;
            let from = rooted::broadcast(network, root, members)?;
            let to = rooted::broadcast(&network.reversed(), root, members)?;
            let cut = time(1, from.min(to));
            if sums {
                cut
            } else {
                let share = shared::shared(network, members)?;
                cut.max(time(2 * share.regions, share.entering))
            }
        }
        Operation::AllToAll => {
            let seconds = exchange::exchange(network, members)? * bytes as f64 / count as f64;
            Time::from_ps((seconds * PS_PER_S as f64) as u64)
        }
    };
    Some(bandwidth.max(farthest(network, operation, members)))
}

/// The latency of the shortest path between the two members that are farthest apart, or farthest from a root.
fn farthest(network: &Network, operation: Operation, members: &[u32]) -> Time {
    let all = operation != Operation::Broadcast && members.len() <= MOST_PAIRS;
    let roots = if all { members } else { &members[..1] };
    let latency = |arc| network.latency(arc).as_ps() as f64;
    let from = |root: &u32| {
        let tree = nearest::tree(network, *root, latency);
        members.iter().map(|member| tree.distance[*member as usize]).fold(0.0, f64::max)
    };
    Time::from_ps(roots.iter().map(from).fold(0.0, f64::max) as u64)
}
