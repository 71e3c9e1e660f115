//! Who meets whom: the collectives of a group's ranks and the two ends of messages, across traces.
//!
//! The k-th collective of a rank in a group meets the k-th of the others. Where a profiler began or
//! ended later on one rank, the longer trace is cut to the part that fits the shortest; what is left over
//! has nobody to meet, and keeps its measured time. The k-th message from one rank to another meets the
//! k-th receive there, likewise. Where ranks put different amounts into a collective, the largest counts;
//! of an all-to-all, what its split lists make of it (`exchange`).

use std::collections::BTreeMap;

use allrail_collective::Operation;

use super::exchange::{self, Split};
use super::trace::{Collective, Does, Message, One, Trace};

const NOT_MET: &str = "collectives that another rank's trace lacks";
const NO_END: &str = "messages whose other end is in no trace";

/// What was found while ranks met.
#[derive(Clone, Debug, Default)]
pub(super) struct Met {
    /// All-to-alls whose ranks send different amounts to one another.
    pub(super) uneven: u64,
    /// Other collectives into which ranks put different amounts.
    pub(super) differ: u64,
    /// What nobody meets, of kernels that do more: it is left out. By why.
    pub(super) left: BTreeMap<&'static str, u64>,
}

/// Which communication: (trace, item, which of it).
type Place = (usize, usize, usize);

/// Matches what the traces of all ranks say, or that of one that stands for all `world_size`.
pub(super) fn meet(traces: &mut [Trace], world_size: u32, alike: bool) -> Met {
    let mut met = Met::default();
    let mut lost = messages(traces, world_size, alike);
    if alike {
        met.uneven = ones(traces).filter(|(_, one)| uneven(one)).count() as u64;
    } else {
        lost.extend(collectives(traces, &mut met));
    }
    remove(traces, lost, &mut met);
    met
}

fn uneven(one: &One) -> bool {
    matches!(one, One::Collective(one) if one.split == Split::Uneven)
}

/// All that is communicated, each with its place.
fn ones(traces: &[Trace]) -> impl Iterator<Item = (Place, &One)> {
    traces.iter().enumerate().flat_map(|(which, trace)| {
        trace.items.iter().enumerate().flat_map(move |(place, item)| {
            let list = match &item.does {
                Does::Communicates(list) => list.as_slice(),
                _ => &[],
            };
            list.iter().enumerate().map(move |(number, one)| ((which, place, number), one))
        })
    })
}

fn one<'a>(traces: &'a mut [Trace], (which, place, number): &Place) -> Option<&'a mut One> {
    match &mut traces[*which].items[*place].does {
        Does::Communicates(list) => list.get_mut(*number),
        _ => None,
    }
}

fn collective<'a>(traces: &'a mut [Trace], place: &Place) -> Option<&'a mut Collective> {
    match one(traces, place) {
        Some(One::Collective(one)) => Some(one),
        _ => None,
    }
}

fn message<'a>(traces: &'a mut [Trace], place: &Place) -> Option<&'a mut Message> {
    match one(traces, place) {
        Some(One::Message(one)) => Some(one),
        _ => None,
    }
}

/// Takes out what nobody meets; what is left of its kernel is nothing else, or keeps its measured time.
fn remove(traces: &mut [Trace], mut lost: Vec<(Place, &'static str)>, met: &mut Met) {
    lost.sort_unstable();
    for ((which, place, number), why) in lost.into_iter().rev() {
        let does = &mut traces[which].items[place].does;
        if let Does::Communicates(list) = does {
            let one = list.remove(number);
            if list.is_empty() {
                *does = Does::Measured(why, one.purpose());
            } else {
                *met.left.entry(why).or_default() += 1;
            }
        }
    }
}

/// The collectives of a group, by trace.
type ByTrace = BTreeMap<usize, Vec<(Place, Operation)>>;

/// Matches collectives; returns those that meet none.
fn collectives(traces: &mut [Trace], met: &mut Met) -> Vec<(Place, &'static str)> {
    let mut groups: BTreeMap<Vec<u32>, ByTrace> = BTreeMap::new();
    for (place, one) in ones(traces) {
        if let One::Collective(one) = one {
            let found = groups.entry(one.ranks.clone()).or_default();
            found.entry(place.0).or_default().push((place, one.operation));
        }
    }
    let mut lost = Vec::new();
    for (ranks, found) in groups {
        let operations: BTreeMap<usize, Vec<Operation>> = found
            .iter()
            .map(|(which, list)| (*which, list.iter().map(|(_, operation)| *operation).collect()))
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
        let at = |which: &usize| if fits { from[which].unwrap_or(0) } else { 0 };
        for (which, list) in &found {
            let meets = at(which)..at(which) + common;
            let others = list.iter().enumerate().filter(|(k, _)| !meets.contains(k));
            lost.extend(others.map(|(_, (place, _))| (*place, NOT_MET)));
        }
        for k in 0..common {
            let places: Vec<Place> =
                found.iter().map(|(which, list)| list[at(which) + k].0).collect();
            same_bytes(traces, &places, met);
        }
    }
    lost
}

/// Gives a collective of several ranks the bytes that it counts as.
fn same_bytes(traces: &mut [Trace], places: &[Place], met: &mut Met) {
    let each: Vec<Collective> =
        places.iter().filter_map(|place| collective(traces, place).cloned()).collect();
    let Some(first) = each.first() else { return };
    let exchanges = first.operation == Operation::AllToAll;
    let differ = each.iter().any(|one| one.bytes != first.bytes);
    let counts = |one: &Collective| match one.split {
        // Nobody says what of it stays.
        Split::Untold if exchanges && differ => exchange::bound(one.bytes, one.ranks.len()),
        _ => one.bytes,
    };
    let most = each.iter().map(counts).max().unwrap_or(0);
    if exchanges {
        let uneven = differ || each.iter().any(|one| one.split == Split::Uneven);
        met.uneven += u64::from(uneven);
    } else {
        met.differ += u64::from(differ);
    }
    for place in places {
        if let Some(one) = collective(traces, place) {
            one.bytes = most;
        }
    }
}

/// Matches messages; returns those of which the other end is nowhere.
fn messages(traces: &mut [Trace], world_size: u32, alike: bool) -> Vec<(Place, &'static str)> {
    // Of each way, its sends and its receives.
    let mut ways: BTreeMap<(u32, u32), [Vec<Place>; 2]> = BTreeMap::new();
    for (place, one) in ones(traces) {
        let One::Message(one) = one else { continue };
        let rank = traces[place.0].rank;
        let (mut from, mut to) = if one.sends { (rank, one.peer) } else { (one.peer, rank) };
        if alike {
            // One trace stands for all: a way is a distance.
            (from, to) = (0, (to + world_size - from) % world_size);
        }
        ways.entry((from, to)).or_default()[usize::from(!one.sends)].push(place);
    }
    let mut lost = Vec::new();
    for [sends, receives] in ways.values() {
        let met = sends.len().min(receives.len());
        lost.extend(sends[met..].iter().chain(&receives[met..]).map(|place| (*place, NO_END)));
        for ends in sends.iter().zip(receives) {
            let ends = [ends.0, ends.1];
            let bytes = |place| message(traces, place).map(|one| one.bytes);
            let most = ends.into_iter().filter_map(bytes).max().unwrap_or(0);
            for place in ends {
                if let Some(one) = message(traces, place) {
                    one.bytes = most;
                }
            }
        }
    }
    lost
}
