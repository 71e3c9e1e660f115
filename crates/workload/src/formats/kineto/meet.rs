//! Who meets whom: the collectives of a group's ranks and the two ends of messages, across traces.
//!
//! The k-th collective of a rank in a group meets the k-th of the others. Where a profiler began or
//! ended later on one rank, the longer trace is cut to the part that fits the shortest; what is left over
//! has nobody to meet, and keeps its measured time. The k-th message from one rank to another meets the
//! k-th receive there, likewise. Ranks put different amounts into an uneven all-to-all: the largest counts.

use std::collections::BTreeMap;

use allrail_collective::Operation;

use super::trace::{Does, Trace};

const NOT_MET: &str = "collectives that another rank's trace lacks";
const NO_END: &str = "messages whose other end is in no trace";

/// Matches what the traces of all ranks say, or that of one that stands for all `world`. Returns how many
/// collectives were uneven.
pub(super) fn meet(traces: &mut [Trace], world: u32, alike: bool) -> u64 {
    messages(traces, world, alike);
    if alike { 0 } else { collectives(traces) }
}

fn collectives(traces: &mut [Trace]) -> u64 {
    // Of each group, per trace, the places of its collectives.
    let mut groups: BTreeMap<Vec<u32>, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (which, trace) in traces.iter().enumerate() {
        for (place, item) in trace.items.iter().enumerate() {
            if let Does::Collective(one) = &item.does {
                let found = groups.entry(one.ranks.clone()).or_default();
                found.entry(which).or_default().push(place);
            }
        }
    }
    let mut uneven = 0;
    for (ranks, found) in groups {
        let operations: BTreeMap<usize, Vec<Operation>> = found
            .iter()
            .map(|(which, places)| {
                let operation = |place: &usize| match &traces[*which].items[*place].does {
                    Does::Collective(one) => one.operation,
                    _ => Operation::AllReduce,
                };
                (*which, places.iter().map(operation).collect())
            })
            .collect();
        let absent = found.len() < ranks.len();
        let empty = Vec::new();
        let shortest = if absent {
            &empty
        } else {
            operations.values().min_by_key(|list| list.len()).unwrap_or(&empty)
        };
        let mut common = shortest.len();
        let mut from = BTreeMap::new();
        for (which, list) in &operations {
            let last = list.len() - shortest.len();
            let fits = |at: &usize| list[*at..].starts_with(shortest);
            let at = [0, last].into_iter().chain(0..=last).find(fits);
            if at.is_none() {
                let alike = list.iter().zip(shortest).take_while(|(a, b)| a == b).count();
                common = common.min(alike);
            }
            from.insert(*which, at);
        }
        // Where one of them fits nowhere, all are counted from the start.
        let fits = from.values().all(Option::is_some);
        for (which, places) in &found {
            let at = if fits { from[which].unwrap_or(0) } else { 0 };
            for (k, place) in places.iter().enumerate() {
                if k < at || k >= at + common {
                    let does = &mut traces[*which].items[*place].does;
                    if let Does::Collective(one) = does {
                        *does = Does::Measured(NOT_MET, one.purpose);
                    }
                }
            }
        }
        for k in 0..common {
            let met: Vec<(usize, usize)> = found
                .iter()
                .map(|(which, places)| {
                    let at = if fits { from[which].unwrap_or(0) } else { 0 };
                    (*which, places[at + k])
                })
                .collect();
            let sizes: Vec<u64> = met
                .iter()
                .filter_map(|(which, place)| match &traces[*which].items[*place].does {
                    Does::Collective(one) => Some(one.bytes),
                    _ => None,
                })
                .collect();
            let most = sizes.iter().max().copied().unwrap_or(0);
            uneven += u64::from(sizes.iter().any(|size| *size != most));
            for (which, place) in met {
                if let Does::Collective(one) = &mut traces[which].items[place].does {
                    one.bytes = most;
                }
            }
        }
    }
    uneven
}

/// Which message: (trace, item, message).
type Place = (usize, usize, usize);

fn messages(traces: &mut [Trace], world: u32, alike: bool) {
    // Of each way, its sends and its receives.
    let mut ways: BTreeMap<(u32, u32), [Vec<Place>; 2]> = BTreeMap::new();
    for (which, trace) in traces.iter().enumerate() {
        for (place, item) in trace.items.iter().enumerate() {
            let Does::Messages(list) = &item.does else { continue };
            for (number, one) in list.iter().enumerate() {
                let (mut from, mut to) =
                    if one.sends { (trace.rank, one.peer) } else { (one.peer, trace.rank) };
                if alike {
                    // One trace stands for all: a way is a distance.
                    (from, to) = (0, (to + world - from) % world);
                }
                let ends = ways.entry((from, to)).or_default();
                ends[usize::from(!one.sends)].push((which, place, number));
            }
        }
    }
    let mut lost: Vec<Place> = Vec::new();
    for [sends, receives] in ways.values() {
        let met = sends.len().min(receives.len());
        lost.extend(&sends[met..]);
        lost.extend(&receives[met..]);
        for (send, receive) in sends.iter().zip(receives) {
            let ends = [send, receive];
            let bytes = ends.iter().filter_map(|end| bytes(traces, end)).max().unwrap_or(0);
            for (which, place, number) in ends {
                if let Does::Messages(list) = &mut traces[*which].items[*place].does {
                    list[*number].bytes = bytes;
                }
            }
        }
    }
    lost.sort_unstable();
    for (which, place, number) in lost.into_iter().rev() {
        let does = &mut traces[which].items[place].does;
        if let Does::Messages(list) = does {
            let one = list.remove(number);
            if list.is_empty() {
                *does = Does::Measured(NO_END, one.purpose);
            }
        }
    }
}

fn bytes(traces: &[Trace], (which, place, number): &Place) -> Option<u64> {
    match &traces[*which].items[*place].does {
        Does::Messages(list) => Some(list[*number].bytes),
        _ => None,
    }
}
