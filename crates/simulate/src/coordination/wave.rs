//! What a cycle that runs as a wave keeps: who is below whom, and what is under way.

use std::ops::Range;

use allrail_coordinate::messages::Vote;
use allrail_coordinate::{Payload, Waves};
use allrail_core::Time;

use super::entry::Entry;

/// Who is below whom, as lists.
pub(super) struct Tree {
    pub(super) parents: Vec<u32>,
    pub(super) children: Vec<u32>,
    /// Where each rank's children begin in that list, and its end.
    pub(super) first: Vec<u32>,
    /// Children of a rank at most, and levels.
    pub(super) most: u64,
    pub(super) levels: u64,
}

impl Tree {
    fn new(ranks: u32, waves: &dyn Waves) -> Self {
        let (mut parents, mut children, mut first) = (Vec::new(), Vec::new(), vec![0]);
        let (mut most, mut depths) = (0, vec![1u64; ranks as usize]);
        for rank in 0..ranks {
            let place = waves.place(rank);
            let parent = place.parent();
            parents.push(parent.unwrap_or(rank));
            if let Some(parent) = parent {
                depths[rank as usize] = depths[parent as usize] + 1;
            }
            children.extend(place.below().map(|span| span.start));
            most = most.max(u64::from(place.children()));
            first.push(children.len() as u32);
        }
        Self { parents, children, first, most, levels: depths.into_iter().max().unwrap_or(1) }
    }

    /// The places of a rank's children.
    #[inline]
    pub(super) fn below(&self, rank: u32) -> Range<usize> {
        self.first[rank as usize] as usize..self.first[rank as usize + 1] as usize
    }
}

/// What a wave has under way.
#[derive(Default)]
pub(super) struct Wave {
    /// Whether what ranks do is part of a wave, and not of the calendar.
    pub(super) is_on: bool,
    /// Of a policy whose cycles can be waves.
    pub(super) tree: Option<Tree>,
    /// The vote of the rank whose turn it is.
    pub(super) own: Vote,
    /// The votes below ranks that have not spoken yet, combined; the next to speak is the last.
    pub(super) urns: Vec<(u32, Vote)>,
    /// Votes that were counted: the places of the next ones.
    pub(super) spare: Vec<Vote>,
    /// When votes arrive at ranks that have not spoken yet; those at the next to speak are the last.
    pub(super) arrivals: Vec<Time>,
    /// What goes down to all.
    pub(super) verdict: Option<Payload>,
    /// When that arrives at each rank, if it is on its way there.
    pub(super) arrives: Vec<Time>,
    /// The earliest of those, if the wave waits for it.
    pub(super) falls: Option<Time>,
    /// When the last arrived so far, and when the last will have at the latest.
    pub(super) end: Time,
    pub(super) latest: Time,
    /// How many notices there were before.
    pub(super) notices: usize,
    /// What ranks have sent else.
    pub(super) others: Vec<(Time, Entry)>,
}

impl Wave {
    pub(super) fn new(ranks: u32, waves: Option<&mut dyn Waves>) -> Self {
        let tree = waves.map(|waves| Tree::new(ranks, waves));
        let arrives = if tree.is_some() { vec![Time::MAX; ranks as usize] } else { Vec::new() };
        Self { tree, arrives, ..Self::default() }
    }

    /// Something else than a vote or the end of the cycle is on its way.
    pub(super) fn push(&mut self, at: Time, entry: Entry) {
        self.others.push((at, entry));
    }

    /// The verdict is on its way to a rank.
    #[inline]
    pub(super) fn fall(&mut self, to: u32, at: Time) {
        self.arrives[to as usize] = at;
    }

    /// Adds `own` to the votes of the ranks below one.
    #[inline]
    pub(super) fn count(&mut self, parent: u32) {
        match self.urns.last_mut() {
            Some((of, votes)) if *of == parent => votes.combine(&self.own),
            _ => {
                let place = self.spare.pop().unwrap_or_default();
                self.urns.push((parent, std::mem::replace(&mut self.own, place)));
            }
        }
    }

    /// Adds the votes below the next rank to `own`.
    #[inline]
    pub(super) fn gather(&mut self) {
        if let Some((_, votes)) = self.urns.pop() {
            self.own.combine(&votes);
            self.spare.push(votes);
        }
    }
}
