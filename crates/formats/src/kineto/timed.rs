//! What a trace measured: how long it took, and each of its collectives. A simulation of the same trace is held
//! against it by `allrail verify`.
//!
//! A rank's kernel of NCCL waits for the rank that comes last, and that one's does not: of the ranks that are
//! there, the shortest is the collective's own time, whatever their clocks say. In one trace for all, waiting is
//! in it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::trace::{Does, Item, One, Trace};

/// Of all ranks that there are traces of.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Timed {
    /// Microseconds from a rank's first event to the end of its last, of the rank that took longest.
    pub span_us: f64,
    /// Of that, communication beside which that rank did nothing else.
    pub exposed_us: f64,
    /// Whether one trace stands for all ranks.
    pub alike: bool,
    /// The steps of the profiler that every trace has.
    pub steps: Vec<u32>,
    /// In the order of each group.
    pub collectives: Vec<Measured>,
}

/// A collective, as it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// `all_reduce` and its like.
    pub operation: String,
    /// As the simulator counts them.
    pub bytes: u64,
    /// How many it is among.
    pub ranks: usize,
    /// On the rank that was quickest.
    pub us: f64,
}

pub(super) fn timed(traces: &[Trace], alike: bool, steps: Vec<u32>) -> Timed {
    let spans = traces.iter().map(|trace| (span(&trace.items), exposed(&trace.items)));
    let (span_us, exposed_us) = spans.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    // The k-th collective of a group's ranks is one, as `meet` has seen to.
    let mut groups: BTreeMap<&[u32], Vec<Measured>> = BTreeMap::new();
    for trace in traces {
        let mut places: BTreeMap<&[u32], usize> = BTreeMap::new();
        for item in &trace.items {
            let Does::Communicates(list) = &item.does else { continue };
            // Of a kernel that does several things, none has a time of its own.
            let us = if list.len() == 1 { item.end - item.start } else { f64::INFINITY };
            for one in list {
                let One::Collective(one) = one else { continue };
                let place = places.entry(&one.ranks).or_default();
                let found = groups.entry(&one.ranks).or_default();
                match found.get_mut(*place) {
                    Some(met) => met.us = met.us.min(us),
                    None => found.push(Measured {
                        operation: one.operation.to_string(),
                        bytes: one.bytes,
                        ranks: one.ranks.len(),
                        us,
                    }),
                }
                *place += 1;
            }
        }
    }
    let of_one = |met: &Measured| met.us.is_finite();
    let collectives = groups.into_values().flatten().filter(of_one).collect();
    Timed { span_us, exposed_us, alike, steps, collectives }
}

fn span(items: &[Item]) -> f64 {
    let first = items.iter().map(|item| item.start).fold(f64::INFINITY, f64::min);
    let last = items.iter().map(|item| item.end).fold(f64::NEG_INFINITY, f64::max);
    (last - first).max(0.0)
}

/// Communication beside which nothing is computed.
fn exposed(items: &[Item]) -> f64 {
    let computes = |item: &&Item| matches!(item.does, Does::Compute);
    union(items.iter()) - union(items.iter().filter(computes)) - union_of_copies_alone(items)
}

/// Copies beside which there is neither computing nor communication.
fn union_of_copies_alone(items: &[Item]) -> f64 {
    let others = |item: &&Item| !matches!(item.does, Does::Copy);
    union(items.iter()) - union(items.iter().filter(others))
}

/// How long any of them ran.
fn union<'a>(items: impl Iterator<Item = &'a Item>) -> f64 {
    let mut spans: Vec<(f64, f64)> = items.map(|item| (item.start, item.end)).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut until) = (0.0, f64::NEG_INFINITY);
    for (start, end) in spans {
        sum += (end - start.max(until)).max(0.0);
        until = until.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use allrail_collective::Operation;

    use super::super::exchange::Split;
    use super::super::trace::Collective;
    use super::*;
    use allrail_workload::graph::Purpose;

    fn item(start: f64, end: f64, does: Does) -> Item {
        Item { name: String::new(), stream: 0, start, end, does }
    }

    fn reduces() -> Does {
        Does::Communicates(vec![One::Collective(Collective {
            operation: Operation::AllReduce,
            bytes: 8,
            split: Split::Even,
            ranks: vec![0, 1],
            label: String::new(),
            purpose: Purpose::Data,
        })])
    }

    #[test]
    fn the_rank_that_comes_last_says_how_long_a_collective_takes() {
        let of = |rank, items| Trace { rank, items, groupless: 0 };
        let first = of(0, vec![item(0.0, 10.0, Does::Compute), item(10.0, 40.0, reduces())]);
        let last = of(1, vec![item(5.0, 35.0, Does::Compute), item(35.0, 45.0, reduces())]);
        let found = timed(&[first, last], false, vec![]);
        let [one] = &found.collectives[..] else { panic!("one collective") };
        assert!((one.us - 10.0).abs() < 1e-9);
        assert_eq!((one.operation.as_str(), one.bytes, one.ranks), ("all_reduce", 8, 2));
        assert!((found.span_us - 40.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_computed_or_copied_beside_is_not_exposed() {
        let items = [
            item(0.0, 10.0, Does::Compute),
            item(8.0, 30.0, reduces()),
            item(15.0, 20.0, Does::Compute),
            item(28.0, 35.0, Does::Copy),
        ];
        // From 10 to 15 and from 20 to 30: a copy computes nothing.
        assert!((exposed(&items) - 15.0).abs() < 1e-9, "{}", exposed(&items));
    }
}
