//! A set of ranks, as spans: a subtree is one span, so what it says together names it in 8 bytes.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::few::Few;

/// A set of ranks as spans, ascending; a span costs no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct Ranks {
    first: Range<u32>,
    rest: Few<Range<u32>>,
}

impl Ranks {
    /// The ranks of a span.
    #[must_use]
    pub fn span(span: Range<u32>) -> Self {
        Self { first: span, rest: Few::default() }
    }

    /// From spans that ascend and do not touch.
    #[must_use]
    pub fn from_spans(spans: Vec<Range<u32>>) -> Self {
        let mut spans = spans.into_iter();
        Self { first: spans.next().unwrap_or_default(), rest: spans.collect() }
    }

    /// The spans, ascending, none empty.
    pub fn spans(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        std::iter::once(&self.first).chain(&*self.rest).filter(|span| !span.is_empty()).cloned()
    }

    /// The lowest of them.
    #[must_use]
    pub fn lowest(&self) -> Option<u32> {
        self.spans().next().map(|span| span.start)
    }

    /// Whether all are in a span.
    #[must_use]
    pub fn are_within(&self, span: &Range<u32>) -> bool {
        self.spans().all(|one| span.start <= one.start && one.end <= span.end)
    }

    /// Whether none is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lowest().is_none()
    }

    /// Adds others.
    pub fn unite(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        let mut spans: Vec<Range<u32>> = self.spans().chain(other.spans()).collect();
        spans.sort_by_key(|span| span.start);
        let mut merged: Vec<Range<u32>> = Vec::with_capacity(1);
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        *self = Self::from_spans(merged);
    }
}

impl From<Ranks> for Vec<(u32, u32)> {
    fn from(ranks: Ranks) -> Self {
        ranks.spans().map(|span| (span.start, span.end)).collect()
    }
}

impl TryFrom<Vec<(u32, u32)>> for Ranks {
    type Error = &'static str;

    fn try_from(spans: Vec<(u32, u32)>) -> Result<Self, Self::Error> {
        let spans: Vec<Range<u32>> = spans.into_iter().map(|(start, end)| start..end).collect();
        let apart = spans.windows(2).all(|pair| pair[0].end < pair[1].start);
        if !apart || spans.iter().any(Range::is_empty) {
            return Err("spans of ranks ascend, and none is empty or touches another");
        }
        Ok(Self::from_spans(spans))
    }
}
