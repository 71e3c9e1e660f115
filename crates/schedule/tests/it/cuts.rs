//! Bounds by cuts: by hand, and against all sets of nodes.

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};
use allrail_schedule::cuts::rooted::{broadcast, gather};
use allrail_schedule::cuts::shared::shared;
use allrail_schedule::cuts::{Network, Pair, lower};
use proptest::prelude::*;

fn pair(a: u32, b: u32, there: u64, back: u64) -> Pair {
    Pair { ends: [a, b], rates: [there, back], latency: Time::from_ns(100) }
}

/// Cables of 100 GB/s, both ways.
fn cables(nodes: usize, ends: &[[u32; 2]]) -> Network {
    let rate = 100_000_000_000;
    Network::new(nodes, ends.iter().map(|[a, b]| pair(*a, *b, rate, rate)))
}

/// Of 1 MB, in nanoseconds.
fn nanoseconds(network: &Network, operation: Operation, members: &[u32], sums: bool) -> u64 {
    let size = Bytes::new(1_000_000);
    lower(network, operation, members, size, sums).expect("they can meet").as_ps() / 1_000
}

/// Four NPUs on a switch: of 1 MB each takes in three quarters at 100 GB/s.
#[test]
fn on_one_switch_they_are_those_of_the_ring() {
    let star = cables(5, &[[0, 4], [1, 4], [2, 4], [3, 4]]);
    let of = |operation, sums| nanoseconds(&star, operation, &[0, 1, 2, 3], sums);
    assert_eq!(of(Operation::AllGather, false), 7_500);
    assert_eq!(of(Operation::ReduceScatter, false), 7_500);
    assert_eq!(of(Operation::AllToAll, false), 7_500);
    assert_eq!(of(Operation::AllReduce, false), 15_000);
    assert_eq!(of(Operation::AllReduce, true), 10_000, "the switch adds");
    assert_eq!(of(Operation::Broadcast, false), 10_000);
}

/// Two triangles and one cable between them: half of the buffer crosses it.
#[test]
fn a_bridge_bounds_what_crosses_it() {
    let ends = [[0, 1], [1, 2], [0, 2], [3, 4], [4, 5], [3, 5], [2, 3]];
    let bridged = cables(6, &ends);
    let of = |operation| nanoseconds(&bridged, operation, &[0, 1, 2, 3, 4, 5], false);
    assert_eq!(of(Operation::AllGather), 5_000);
    // Each way: the sum of one side's halves, or of all.
    assert_eq!(of(Operation::AllReduce), 10_000);
    // Nine pairs each way, a sixth of the buffer each; up to the lengths that are tried.
    assert!((14_500..=15_000).contains(&of(Operation::AllToAll)), "{}", of(Operation::AllToAll));
    assert_eq!(of(Operation::Broadcast), 10_000);
}

/// NPUs 0 and 2 exchange by way of 1 and of 3, which have nothing to do with it.
#[test]
fn those_who_take_no_part_pass_on() {
    let square = cables(4, &[[0, 1], [1, 2], [2, 3], [3, 0]]);
    assert_eq!(nanoseconds(&square, Operation::AllGather, &[0, 2], false), 2_500);
    assert_eq!(nanoseconds(&square, Operation::AllReduce, &[0, 2], false), 5_000);
}

#[test]
fn rates_that_differ_by_direction_bound_each_its_own() {
    let lopsided = Network::new(2, [pair(1, 0, 10_000_000_000, 1_000_000_000)]);
    assert_eq!(nanoseconds(&lopsided, Operation::AllGather, &[0, 1], false), 500_000);
    let root = |root| nanoseconds(&lopsided, Operation::Broadcast, &[root, 1 - root], false);
    assert_eq!((root(0), root(1)), (1_000_000, 100_000));
    // Three on a switch; NPU 0 sends fast, and receives slowly.
    let rates = [(0, 4, 1), (1, 4, 4), (2, 4, 4)];
    let star = Network::new(4, rates.map(|(npu, up, down)| pair(npu, 3, up, down)));
    let of = |network: &Network| gather(network, &[0, 1, 2]).map(|r| (r.members, r.capacity));
    assert_eq!(of(&star), Some((2, 1)));
    assert_eq!(of(&star.reversed()), Some((1, 1)), "its shard comes in slowly");
}

#[test]
fn a_small_buffer_takes_the_latency_of_the_longest_way() {
    let path = cables(4, &[[0, 1], [1, 2], [2, 3]]);
    let of = |operation, members: &[u32]| lower(&path, operation, members, Bytes::new(1), false);
    let all = [0, 1, 2, 3];
    assert_eq!(of(Operation::AllReduce, &all), Some(Time::from_ns(300)));
    assert_eq!(of(Operation::Broadcast, &all), Some(Time::from_ns(300)));
    assert_eq!(of(Operation::Broadcast, &[1, 0, 2, 3]), Some(Time::from_ns(200)), "from NPU 1");
    assert_eq!(of(Operation::AllGather, &[1, 3]), Some(Time::from_ns(200)));
}

#[test]
fn where_members_cannot_meet_nothing_is_said() {
    let parts = cables(4, &[[0, 1], [2, 3]]);
    for operation in Operation::ALL {
        let of = |members: &[u32]| lower(&parts, operation, members, Bytes::new(1), false);
        assert_eq!(of(&[0, 1, 2]), None, "{operation}");
        assert_eq!(of(&[0]), None, "{operation}");
        assert_eq!(of(&[]), None, "{operation}");
        assert!(of(&[2, 3]).is_some(), "{operation}");
    }
}

/// Nodes, of which the first are members, joined somehow and by a path in any case.
#[derive(Clone, Debug)]
struct Drawn {
    nodes: u32,
    members: u32,
    pairs: Vec<Pair>,
}

impl Drawn {
    fn network(&self) -> Network {
        Network::new(self.nodes as usize, self.pairs.iter().copied())
    }

    fn members(&self) -> Vec<u32> {
        (0..self.members).collect()
    }

    /// What leaves a set of nodes.
    fn leaving(&self, set: u32) -> u64 {
        let has = |node: u32| set >> node & 1 == 1;
        let of = |pair: &Pair| {
            let [a, b] = pair.ends.map(has);
            if a && !b {
                pair.rates[0]
            } else if b && !a {
                pair.rates[1]
            } else {
                0
            }
        };
        self.pairs.iter().map(of).sum()
    }

    fn everybody(&self) -> u32 {
        (1 << self.members) - 1
    }

    fn sets(&self) -> impl Iterator<Item = u32> {
        0..1 << self.nodes
    }

    /// The least that enters a region around exactly these members.
    fn around(&self, members: u32) -> u64 {
        let whole = (1 << self.nodes) - 1;
        let regions = self.sets().filter(|set| set & self.everybody() == members);
        regions.map(|set| self.leaving(whole & !set)).min().expect("the members alone")
    }
}

fn any_network(most: u32) -> impl Strategy<Value = Drawn> {
    (3..=most).prop_flat_map(|nodes| {
        let path = prop::collection::vec([1u64..=6, 1u64..=6], nodes as usize - 1);
        let more = prop::collection::vec((0..nodes, 0..nodes, [0u64..=6, 0u64..=6]), 0..14);
        let order = Just((0..nodes).collect::<Vec<u32>>()).prop_shuffle();
        (2..=nodes, path, more, order).prop_map(move |(members, path, more, order)| {
            let path = path.iter().zip(order.windows(2)).map(|(r, w)| pair(w[0], w[1], r[0], r[1]));
            let more = more.iter().filter(|(a, b, _)| a != b);
            let more = more.map(|(a, b, rates)| pair(*a, *b, rates[0], rates[1]));
            Drawn { nodes, members, pairs: path.chain(more).collect() }
        })
    })
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn no_set_of_nodes_bounds_an_all_gather_more(drawn in any_network(10)) {
        let (network, everybody) = (drawn.network(), drawn.everybody());
        let found = gather(&network, &drawn.members()).expect("a path joins them");
        let ratio = |set: u32| {
            let bandwidth = u128::from(drawn.leaving(set));
            (u128::from((set & everybody).count_ones()) * found.capacity * u128::from(network.unit()))
                .cmp(&(found.members * bandwidth))
        };
        let cuts = drawn.sets().filter(|set| set & everybody != everybody && set & everybody != 0);
        let most = cuts.map(ratio).max().expect("two members");
        prop_assert_eq!(most, std::cmp::Ordering::Equal, "{:?}", found);
    }

    #[test]
    fn no_cut_bounds_a_broadcast_more(drawn in any_network(10)) {
        let (network, everybody) = (drawn.network(), drawn.everybody());
        let cuts = drawn.sets().filter(|set| set & 1 == 1 && set & everybody != everybody);
        let least = cuts.map(|set| drawn.leaving(set)).min().expect("two members");
        let found = broadcast(&network, 0, &drawn.members()).expect("a path joins them");
        prop_assert_eq!(found * u128::from(network.unit()), u128::from(least));
    }

    #[test]
    fn no_regions_bound_an_all_reduce_more(drawn in any_network(7)) {
        let (network, everybody) = (drawn.network(), drawn.everybody());
        let found = shared(&network, &drawn.members()).expect("a path joins them");
        let around: Vec<u64> = (0..=everybody).map(|members| drawn.around(members)).collect();
        // `least[k][members]`: the least that enters `k` regions around some of the members.
        let mut least = vec![vec![None::<u64>; everybody as usize + 1]; drawn.members as usize + 1];
        least[0].fill(Some(0));
        for k in 1..least.len() {
            for members in 1..=everybody {
                let one = (1..=members).filter(|one| one & !members == 0);
                least[k][members as usize] = one
                    .filter_map(|one| {
                        let rest = least[k - 1][(members & !one) as usize]?;
                        Some(rest + around[one as usize])
                    })
                    .min();
            }
        }
        let share = (2..least.len()).filter_map(|k| {
            let entering = least[k][everybody as usize]?;
            Some(entering as f64 / (k - 1) as f64)
        });
        let best = share.fold(f64::INFINITY, f64::min);
        let found = (found.entering * u128::from(network.unit())) as f64 / found.regions as f64;
        prop_assert!((found / best - 1.0).abs() < 1e-12, "{found} {best}");
    }

    #[test]
    fn one_more_cable_never_raises_a_bound(
        drawn in any_network(9), ends in (0u32..9, 0u32..9), rates in [0u64..9, 0u64..9],
    ) {
        let ends = [ends.0 % drawn.nodes, ends.1 % drawn.nodes];
        prop_assume!(ends[0] != ends[1]);
        let mut more = drawn.clone();
        more.pairs.push(Pair { ends, rates, latency: Time::from_ns(100) });
        let size = Bytes::new(1_000_000);
        for operation in Operation::ALL {
            // Lengths that are tried for all-to-all are others on another network.
            let exact = operation != Operation::AllToAll;
            let of = |drawn: &Drawn| {
                lower(&drawn.network(), operation, &drawn.members(), size, false).expect("joined")
            };
            prop_assert!(!exact || of(&more) <= of(&drawn), "{}", operation);
        }
    }

    #[test]
    fn what_nodes_are_called_changes_nothing(
        drawn in any_network(9), names in Just((0u32..9).collect::<Vec<u32>>()).prop_shuffle(),
    ) {
        let name = |node: u32| names[node as usize];
        let pairs = drawn.pairs.iter().rev().map(|p| Pair { ends: p.ends.map(name), ..*p });
        let renamed = Network::new(9, pairs);
        let members: Vec<u32> = drawn.members().into_iter().map(name).collect();
        let size = Bytes::new(1_000_000);
        for operation in Operation::ALL {
            let before = lower(&drawn.network(), operation, &drawn.members(), size, false);
            let after = lower(&renamed, operation, &members, size, false);
            if operation == Operation::AllToAll {
                let ratio = after.expect("joined").ratio(before.expect("joined"));
                prop_assert!((0.85..1.18).contains(&ratio), "{}", ratio);
            } else {
                prop_assert_eq!(before, after, "{}", operation);
            }
        }
    }
}
