//! The ledgers of all ranks of a job that live in one process.
//!
//! Ranks that have seen the same outcomes have the same ledger, so there is one for each place between the
//! rank that has seen the fewest and the one that has seen the most. One rank alone has one ledger, and
//! changes it in place; of many, the first to take a step copies, into the memory of a ledger that all have
//! left behind.

use std::collections::VecDeque;
use std::sync::Arc;

use super::broken::Breach;
use super::ledger::{Consensus, Launch, Ledger, Rules};

/// A ledger, how many ranks are at it, and what came next.
#[derive(Debug)]
struct At {
    ledger: Ledger,
    ranks: u32,
    next: Option<(Consensus, Option<Arc<Launch>>)>,
}

/// All of them, in order.
#[derive(Debug)]
pub(super) struct Ledgers {
    /// How many outcomes the first has seen.
    first: u64,
    ledgers: VecDeque<At>,
    spare: Option<Ledger>,
}

impl Ledgers {
    /// Of so many ranks, none of which has seen anything.
    pub(super) fn new(rules: Arc<Rules>, ranks: u32) -> Self {
        let first = At { ledger: Ledger::new(rules), ranks, next: None };
        Self { first: 0, ledgers: VecDeque::from([first]), spare: None }
    }

    /// The ledger of a rank that has seen so many outcomes.
    #[inline]
    pub(super) fn at(&self, seen: u64) -> &Ledger {
        &self.ledgers[(seen - self.first) as usize].ledger
    }

    /// A rank that has seen `seen` outcomes takes the next one in.
    #[inline]
    pub(super) fn step(
        &mut self,
        seen: &mut u64,
        outcome: &Consensus,
    ) -> Result<Option<Arc<Launch>>, Breach> {
        let place = (*seen - self.first) as usize;
        let at = &mut self.ledgers[place];
        let launch = match &at.next {
            Some((known, launch)) if known.is(outcome) => launch.clone(),
            Some(_) => return Err(Breach::Differs { event: *seen }),
            None if at.ranks == 1 => return Ok(self.step_alone(seen, outcome)),
            None => self.step_first(place, outcome),
        };
        self.follow(seen);
        Ok(launch)
    }

    /// What came next after so many outcomes, if a rank has taken it in: whether it launches, and what.
    #[inline]
    pub(super) fn next(&self, seen: u64) -> Option<Option<&Arc<Launch>>> {
        let at = &self.ledgers[(seen - self.first) as usize];
        at.next.as_ref().map(|(_, launch)| launch.as_ref())
    }

    /// A rank takes in what another has taken in at the same place.
    #[inline]
    pub(super) fn follow(&mut self, seen: &mut u64) {
        let place = (*seen - self.first) as usize;
        self.ledgers[place + 1].ranks += 1;
        self.ledgers[place].ranks -= 1;
        *seen += 1;
        if self.ledgers[place].ranks == 0 {
            self.forget();
        }
    }

    /// Nobody else needs the ledger as it was.
    fn step_alone(&mut self, seen: &mut u64, outcome: &Consensus) -> Option<Arc<Launch>> {
        let place = (*seen - self.first) as usize;
        if place > 0 {
            // Others are behind, and will come this way.
            let launch = self.step_first(place, outcome);
            self.ledgers[place].ranks -= 1;
            self.ledgers[place + 1].ranks += 1;
            *seen += 1;
            return launch;
        }
        let launch = self.ledgers[place].ledger.apply(outcome).map(Arc::new);
        self.first += 1;
        *seen += 1;
        launch
    }

    /// The first of many to take this step.
    #[cold]
    fn step_first(&mut self, place: usize, outcome: &Consensus) -> Option<Arc<Launch>> {
        let at = &mut self.ledgers[place];
        let mut ledger = match self.spare.take() {
            Some(mut spare) => {
                spare.copy(&at.ledger);
                spare
            }
            None => at.ledger.clone(),
        };
        let launch = ledger.apply(outcome).map(Arc::new);
        at.next = Some((outcome.clone(), launch.clone()));
        self.ledgers.push_back(At { ledger, ranks: 0, next: None });
        launch
    }

    /// Gives up what all ranks have left behind.
    #[inline]
    fn forget(&mut self) {
        while self.ledgers.len() > 1 && self.ledgers[0].ranks == 0 {
            let left = self.ledgers.pop_front();
            self.spare = left.map(|left| left.ledger).or(self.spare.take());
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Bits;
    use allrail_core::Bytes;

    fn rules() -> Arc<Rules> {
        let threshold = Bytes::new(0);
        Arc::new(Rules { capacity: 9, threshold, group_of: Vec::new(), group_sizes: Vec::new() })
    }

    fn outcome(number: u64) -> Consensus {
        Consensus { finished: vec![number], ..Consensus::default() }
    }

    #[test]
    fn there_are_as_many_as_places_between_the_first_and_the_last() {
        let mut all = Ledgers::new(rules(), 3);
        let mut seen = [0u64; 3];
        for number in 0..1_000 {
            for (rank, seen) in seen.iter_mut().enumerate() {
                // They lead in turn, by one, two or three events.
                let lead = (number + rank as u64) % 3 + 1;
                while *seen < number + lead {
                    let launch = all.step(seen, &outcome(*seen)).expect("alike");
                    assert_eq!(launch.expect("it says so").finished, [*seen - 1]);
                    assert_eq!(all.at(*seen).over().next(), *seen);
                }
            }
            let (least, most) = (seen.iter().min(), seen.iter().max());
            let apart = most.zip(least).map_or(0, |(most, least)| most - least);
            assert!(all.ledgers.len() as u64 <= apart + 1, "{} of {apart}", all.ledgers.len());
        }
    }

    #[test]
    fn one_alone_keeps_one() {
        let mut all = Ledgers::new(rules(), 1);
        let mut seen = 0;
        for number in 0..1_000 {
            all.step(&mut seen, &outcome(number)).expect("nobody differs");
            assert_eq!((all.ledgers.len(), all.spare.is_none()), (1, true));
        }
    }

    #[test]
    fn a_rank_that_sees_something_else_is_told_so() {
        let mut all = Ledgers::new(rules(), 2);
        let (mut one, mut other) = (0, 0);
        all.step(&mut one, &outcome(0)).expect("the first");
        let ready = Consensus { ready: Bits::below(3), ..Consensus::default() };
        assert_eq!(all.step(&mut other, &ready), Err(Breach::Differs { event: 0 }));
    }
}
