//! Which partition and credit hold for which generation: a function of the generation alone, so that
//! ranks cut a tensor alike whatever the order in which they come to it.

use allrail_schedule::tensor::Tuning;

/// Changes by the generation from which on they hold.
#[derive(Debug)]
pub(super) struct Tunings {
    /// Before all of them.
    first: Tuning,
    /// Ascending; each complete.
    changes: Vec<(u64, Tuning)>,
    /// What the scheduler knows.
    current: Tuning,
}

/// More changes than this are not kept waiting.
pub(super) const MOST_CHANGES: usize = 64;

impl Tunings {
    pub(super) fn new(first: Tuning) -> Self {
        Self { first, changes: Vec::new(), current: first }
    }

    /// How many changes wait for some tensor.
    pub(super) fn waiting(&self) -> usize {
        self.changes.len()
    }

    /// From generation `at` on, in place of what was said of it before.
    pub(super) fn change(&mut self, at: u64, tuning: Tuning) {
        let before = self.at(at);
        let tuning = Tuning {
            partition: tuning.partition.or(before.partition),
            credit: tuning.credit.or(before.credit),
        };
        self.changes.retain(|(other, _)| *other < at);
        self.changes.push((at, tuning));
    }

    /// No tensor will be of a generation before this one again.
    pub(super) fn forget_before(&mut self, generation: u64) {
        let old = self.changes.partition_point(|(at, _)| *at <= generation);
        if let Some((_, tuning)) = self.changes.drain(..old).next_back() {
            self.first = tuning;
        }
    }

    /// The first change from this generation on.
    pub(super) fn next_from(&self, generation: u64) -> Option<u64> {
        self.changes.iter().map(|(at, _)| *at).find(|at| *at >= generation)
    }

    fn at(&self, generation: u64) -> Tuning {
        let before = self.changes.partition_point(|(at, _)| *at <= generation);
        before.checked_sub(1).map_or(self.first, |last| self.changes[last].1)
    }

    /// What the scheduler has to be told before a tensor of this generation, if anything.
    pub(super) fn before(&mut self, generation: u64) -> Option<Tuning> {
        let wanted = self.at(generation);
        (wanted != self.current).then(|| {
            self.current = wanted;
            wanted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_core::Bytes;

    #[test]
    fn a_generation_has_one_tuning_whatever_the_order() {
        let cut = |bytes| Tuning { partition: Some(Bytes::new(bytes)), credit: None };
        let mut tunings = Tunings::new(cut(100));
        tunings.change(5, cut(50));
        tunings.change(9, Tuning { credit: Some(Bytes::new(7)), partition: None });
        assert_eq!(tunings.before(4), None);
        assert_eq!(tunings.before(5), Some(cut(50)));
        assert_eq!(tunings.before(4), Some(cut(100)), "a tensor that is behind");
        let both = Tuning { credit: Some(Bytes::new(7)), ..cut(50) };
        assert_eq!(tunings.before(11), Some(both));
        tunings.forget_before(9);
        assert_eq!((tunings.waiting(), tunings.before(9)), (0, None));
    }
}
