//! Where a rank stands in a tree over all ranks: its parent, its children, the ranks below it.
//!
//! The ranks below a node follow it without a gap, in as many equal parts as it has children: rank 0
//! is the root, and a subtree is a span of ranks. With a fan-out of all ranks the tree is a star.

use std::ops::Range;

/// A rank's place in a tree over `ranks` ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    rank: u32,
    parent: u32,
    end: u32,
    fan_out: u32,
}

impl Place {
    /// Of `rank` among `ranks`, where a node has up to `fan_out` children.
    #[must_use]
    pub fn new(rank: u32, ranks: u32, fan_out: u32) -> Self {
        let fan_out = fan_out.clamp(1, ranks.max(2) - 1);
        let mut place = Self { rank: 0, parent: 0, end: ranks, fan_out };
        while place.rank != rank {
            let Range { start, end } = place.part(place.part_of(rank));
            place = Self { rank: start, parent: place.rank, end, fan_out };
        }
        place
    }

    /// How many ranks are below, and into how many parts they fall.
    fn parts(&self) -> (u32, u32) {
        let below = self.end - self.rank - 1;
        (below, below.min(self.fan_out))
    }

    fn part(&self, part: u32) -> Range<u32> {
        let (below, parts) = self.parts();
        let cut = |part: u32| {
            let before = u64::from(below) * u64::from(part) / u64::from(parts.max(1));
            self.rank + 1 + before as u32
        };
        cut(part)..cut(part + 1)
    }

    /// The part that holds a rank below.
    fn part_of(&self, rank: u32) -> u32 {
        let (below, parts) = self.parts();
        // This one, or the next: parts differ by one at most.
        let offset = u64::from(rank - self.rank - 1);
        let mut part = (offset * u64::from(parts) / u64::from(below)) as u32;
        while self.part(part).end <= rank {
            part += 1;
        }
        part
    }

    /// The rank itself.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// To whom it reports; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<u32> {
        (self.rank != 0).then_some(self.parent)
    }

    /// How many report to it.
    #[must_use]
    pub fn children(&self) -> u32 {
        self.parts().1
    }

    /// The ranks below and including each child, first child first.
    pub fn below(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let (below, parts) = self.parts();
        // As `part` says, with one division for all.
        let (least, over) = (below / parts.max(1), below % parts.max(1));
        let (mut start, mut carry) = (self.rank + 1, 0u64);
        (0..parts).map(move |_| {
            carry += u64::from(over);
            let more = carry >= u64::from(parts);
            carry -= if more { u64::from(parts) } else { 0 };
            let part = start..start + least + u32::from(more);
            start = part.end;
            part
        })
    }

    /// The child whose subtree holds `rank`, counted from 0.
    #[must_use]
    pub fn child(&self, rank: u32) -> Option<usize> {
        (rank > self.rank && rank < self.end).then(|| self.part_of(rank) as usize)
    }

    /// If this rank is a child: which, counted from 0.
    #[inline]
    #[must_use]
    pub fn is_child(&self, rank: u32) -> Option<usize> {
        let child = self.child(rank)?;
        (self.part(child as u32).start == rank).then_some(child)
    }

    /// The ranks below and including a child, counted from 0.
    #[must_use]
    pub fn span_of(&self, child: u32) -> Range<u32> {
        self.part(child)
    }

    /// The ranks of its subtree, itself first.
    #[must_use]
    pub fn span(&self) -> Range<u32> {
        self.rank..self.end
    }

    /// How many levels are below it.
    #[must_use]
    pub fn height(&self) -> u32 {
        // The last part is never smaller than another.
        let (mut place, mut height) = (*self, 0);
        while place.children() > 0 {
            let Range { start, end } = place.part(place.children() - 1);
            place = Self { rank: start, end, ..place };
            height += 1;
        }
        height
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every rank is the child of exactly one other, and subtrees are spans.
        #[test]
        fn it_is_a_tree(ranks in 1u32..200, fan_out in 1u32..250) {
            let places: Vec<Place> =
                (0..ranks).map(|rank| Place::new(rank, ranks, fan_out)).collect();
            prop_assert_eq!(places[0].parent(), None);
            prop_assert_eq!(places[0].span(), 0..ranks);
            let mut parents = vec![None; ranks as usize];
            for place in &places {
                prop_assert!(place.children() <= fan_out);
                let mut next = place.rank() + 1;
                for (number, below) in place.below().enumerate() {
                    prop_assert_eq!(below.start, next);
                    prop_assert_eq!(places[below.start as usize].span(), below.clone());
                    prop_assert_eq!(place.child(below.end - 1), Some(number));
                    prop_assert_eq!(place.is_child(below.start), Some(number));
                    prop_assert_eq!(place.span_of(number as u32), below.clone());
                    if below.len() > 1 {
                        prop_assert_eq!(place.is_child(below.end - 1), None);
                    }
                    parents[below.start as usize] = Some(place.rank());
                    next = below.end;
                }
                prop_assert_eq!(next, place.span().end);
                let tallest = place.below().map(|b| places[b.start as usize].height() + 1).max();
                prop_assert_eq!(place.height(), tallest.unwrap_or(0));
            }
            let known: Vec<Option<u32>> = places.iter().map(Place::parent).collect();
            prop_assert_eq!(known, parents);
        }
    }
}
