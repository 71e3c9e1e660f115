//! The message table: which ranks of a span have asked for which tensor. Rank 0 keeps one over all
//! ranks; in `agreed` every node keeps one over its subtree, for requests that have no slot yet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};

use super::few::Few;
use super::ranks::Ranks;
use super::requests::{Asked, Asks, Completed, Trouble};

#[derive(Debug)]
struct Row {
    asked: Asked,
    seen: Vec<u64>,
    count: u32,
    order: u64,
    since: Time,
    warned: bool,
}

/// Requests of a span of ranks, until all of them have made it.
#[derive(Debug)]
pub(super) struct Table {
    span: Range<u32>,
    rows: BTreeMap<u32, Row>,
    joined: Vec<u64>,
    joined_count: u32,
    order: u64,
    /// Tensors that all ranks of the span have asked for.
    whole: Vec<u32>,
}

impl Table {
    /// An empty one.
    #[must_use]
    pub(super) fn new(span: Range<u32>) -> Self {
        Self {
            span,
            rows: BTreeMap::new(),
            joined: Vec::new(),
            joined_count: 0,
            order: 0,
            whole: Vec::new(),
        }
    }

    /// Adds a list.
    pub(super) fn add(&mut self, now: Time, asks: Asks) {
        self.joined_count += mark(&self.span, &mut self.joined, &asks.joined);
        for asked in asks.entries {
            let order = &mut self.order;
            let row = self.rows.entry(asked.request.tensor).or_insert_with(|| {
                *order += 1;
                // Who asked is in `seen`; here is one of them, to be named.
                let first = asked.ranks.lowest().unwrap_or(0);
                let ranks = Ranks::span(first..first + 1);
                let request = asked.request;
                let signature = asked.signature.clone();
                let asked =
                    Asked { request, ranks, sizes: Few::default(), trouble: None, signature };
                Row { asked, seen: Vec::new(), count: 0, order: *order, since: now, warned: false }
            });
            let before = row.count;
            row.count += mark(&self.span, &mut row.seen, &asked.ranks);
            if row.count as usize == self.span.len() && before < row.count {
                self.whole.push(asked.request.tensor);
            }
            row.asked.meet(asked);
        }
    }

    /// Whether every rank has joined.
    #[must_use]
    pub(super) fn all_joined(&self) -> bool {
        self.joined_count as usize == self.span.len()
    }

    /// All ranks are back.
    pub(super) fn rejoin(&mut self) {
        self.joined.clear();
        self.joined_count = 0;
    }

    /// Whether all of these have joined.
    #[must_use]
    pub(super) fn have_joined(&self, mut ranks: Range<u32>) -> bool {
        let bit = |place: u32| {
            let word = self.joined.get(place as usize / 64);
            word.is_some_and(|word| word >> (place % 64) & 1 == 1)
        };
        self.joined_count > 0 && ranks.all(|rank| bit(rank - self.span.start))
    }

    /// The ranks whose bit is `is`.
    fn ranks(&self, words: &[u64], is: bool) -> Ranks {
        let bit = |place: usize| words.get(place / 64).is_some_and(|w| w >> (place % 64) & 1 == 1);
        let mut spans: Vec<Range<u32>> = Vec::new();
        for rank in self.span.clone().filter(|rank| bit((rank - self.span.start) as usize) == is) {
            match spans.last_mut() {
                Some(last) if last.end == rank => last.end += 1,
                _ => spans.push(rank..rank + 1),
            }
        }
        Ranks::from_spans(spans)
    }

    fn is_whole(&self, row: &Row) -> bool {
        let words = row.seen.iter().zip(&self.joined);
        let count = words.map(|(seen, joined)| (seen | joined).count_ones() as usize);
        count.sum::<usize>() == self.span.len()
    }

    /// Takes out what every rank has asked for or will not, in the order of the first request.
    #[must_use]
    pub(super) fn take_whole(&mut self) -> Vec<Asked> {
        let mut tensors = std::mem::take(&mut self.whole);
        if self.joined_count > 0 {
            let whole = self.rows.iter().filter(|(_, row)| self.is_whole(row));
            tensors = whole.map(|(tensor, _)| *tensor).collect();
        }
        let mut taken: Vec<Row> =
            tensors.iter().filter_map(|tensor| self.rows.remove(tensor)).collect();
        taken.sort_unstable_by_key(|row| row.order);
        let span = self.span.clone();
        taken
            .into_iter()
            .map(|row| Asked { ranks: Ranks::span(span.clone()), ..row.asked })
            .collect()
    }

    /// The same as answers.
    #[must_use]
    pub(super) fn take_complete(&mut self) -> Vec<Arc<Completed>> {
        let whole = self.take_whole();
        whole.into_iter().map(|asked| Arc::new(self.complete(asked))).collect()
    }

    fn complete(&self, asked: Asked) -> Completed {
        let Asked { mut request, sizes, mut trouble, .. } = asked;
        let mut each = Vec::new();
        if request.operation == Operation::AllGather && trouble.is_none() {
            each = vec![Bytes::default(); self.span.len()];
            for (rank, bytes) in &*sizes {
                each[(rank - self.span.start) as usize] = *bytes;
            }
            request.bytes = each.first().copied().unwrap_or_default();
        }
        if request.operation == Operation::Broadcast && trouble.is_none() {
            let place = request.root.wrapping_sub(self.span.start) as usize;
            if self.joined.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1) {
                trouble = Some(Trouble::RootJoined { root: request.root });
            }
        }
        Completed { request, sizes: each, trouble }
    }

    /// Tensors that someone waits for, ascending.
    pub(super) fn tensors(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.keys().copied()
    }

    /// Who of the span has neither asked for a tensor nor joined.
    #[must_use]
    pub(super) fn missing(&self, tensor: u32) -> Vec<u32> {
        let mut words = self.rows.get(&tensor).map_or_else(Vec::new, |row| row.seen.clone());
        words.resize(self.span.len().div_ceil(64), 0);
        words.iter_mut().zip(&self.joined).for_each(|(word, joined)| *word |= joined);
        self.ranks(&words, false).spans().flatten().collect()
    }

    /// Tensors that have waited since `before` or longer and were not named yet. Names them.
    #[must_use]
    pub(super) fn stalled(&mut self, before: Time) -> Vec<u32> {
        let late = self.rows.iter_mut().filter(|(_, row)| row.since <= before && !row.warned);
        late.map(|(tensor, row)| {
            row.warned = true;
            *tensor
        })
        .collect()
    }

    /// When the tensor came that has waited longest.
    #[must_use]
    pub(super) fn oldest(&self) -> Option<(Time, u32)> {
        self.rows.iter().map(|(tensor, row)| (row.since, *tensor)).min()
    }

    /// When the tensor came that has waited longest and was not named yet.
    #[must_use]
    pub(super) fn oldest_unnamed(&self) -> Option<Time> {
        self.rows.values().filter(|row| !row.warned).map(|row| row.since).min()
    }
}

/// Sets the bits of `ranks` in `words`, and says how many were not set.
fn mark(span: &Range<u32>, words: &mut Vec<u64>, ranks: &Ranks) -> u32 {
    if ranks.is_empty() {
        return 0;
    }
    words.resize(span.len().div_ceil(64), 0);
    let mut added = 0;
    for rank in ranks.spans().flatten() {
        let place = (rank - span.start) as usize;
        let bit = 1u64 << (place % 64);
        added += u32::from(words[place / 64] & bit == 0);
        words[place / 64] |= bit;
    }
    added
}
