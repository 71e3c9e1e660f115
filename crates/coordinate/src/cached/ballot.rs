//! The votes of a cycle at one rank: its own and its children's, combined as they come.

use crate::fleet::Papers;
use crate::messages::Vote;
use crate::place::Place;

/// Of one rank.
pub(super) struct Ballot {
    place: Place,
    /// Of a rank with children; others' votes go on as they are.
    urn: Option<Box<Urn>>,
}

#[derive(Default)]
struct Urn {
    children: Box<[u32]>,
    combined: Option<Box<Vote>>,
    /// Votes that are here, own included.
    arrived: u32,
    /// Children whose votes are here.
    heard: Vec<u32>,
}

impl Ballot {
    pub(super) fn new(place: Place) -> Self {
        let urn = || {
            Box::new(Urn { children: place.below().map(|b| b.start).collect(), ..Urn::default() })
        };
        Self { place, urn: (place.children() > 0).then(urn) }
    }

    /// The tree on which votes travel.
    #[inline]
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Whether nobody else votes here.
    #[inline]
    pub(super) fn is_leaf(&self) -> bool {
        self.urn.is_none()
    }

    /// Whether a rank votes here, and its vote of this cycle is not here.
    #[inline]
    pub(super) fn awaits(&self, rank: u32) -> bool {
        let awaits = |urn: &Urn| urn.children.contains(&rank) && !urn.heard.contains(&rank);
        self.urn.as_deref().is_some_and(awaits)
    }

    /// Adds the rank's own vote, or a child's. If it was the last of this cycle: all of them, combined.
    #[inline]
    pub(super) fn add(
        &mut self,
        from: Option<u32>,
        vote: Box<Vote>,
        papers: &mut Papers,
    ) -> Option<Box<Vote>> {
        let Some(urn) = &mut self.urn else { return Some(vote) };
        if let Some(from) = from {
            urn.heard.push(from);
        }
        match &mut urn.combined {
            Some(combined) => {
                combined.combine(&vote);
                papers.keep(vote);
            }
            none => *none = Some(vote),
        }
        urn.arrived += 1;
        if urn.arrived <= self.place.children() {
            return None;
        }
        urn.arrived = 0;
        urn.heard.clear();
        urn.combined.take()
    }

    /// The children whose votes are not here.
    pub(super) fn silent(&self) -> Vec<u32> {
        let mut heard = self.urn.as_ref().map_or(Vec::new(), |urn| urn.heard.clone());
        heard.sort_unstable();
        let children = self.place.below().map(|span| span.start);
        children.filter(|child| heard.binary_search(child).is_err()).collect()
    }
}
