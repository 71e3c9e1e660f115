//! How far work is that takes several runs, one after the other.
//!
//! A plan that is judged in a network model takes up to a dozen simulations before the one that was asked for. Each
//! of them begins at nothing, so what an observer hears is put on one scale: a run counts as much as another.

use std::ops::ControlFlow;

use crate::driver::Observer;

/// Runs, and who hears of all of them together.
pub(crate) struct Runs<'a> {
    observer: Observer<'a>,
    over: u64,
    expected: u64,
}

impl<'a> Runs<'a> {
    /// One run, unless more are expected later.
    pub(crate) fn new(observer: Observer<'a>) -> Self {
        Self { observer, over: 0, expected: 1 }
    }

    /// From now on there are `left` more, the one that begins now among them.
    pub(crate) fn expect(&mut self, left: u64) {
        self.expected = self.over + left.max(1);
    }

    /// How many there are still, the one that begins now among them.
    pub(crate) fn left(&self) -> u64 {
        self.expected - self.over
    }

    /// A run is over and another one begins.
    pub(crate) fn next(&mut self) {
        self.over += 1;
        self.expected = self.expected.max(self.over + 1);
    }

    /// A run has done `done` of `total`.
    pub(crate) fn observe(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        (self.observer)(self.over * total + done.min(total), self.expected * total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_different_lengths_are_on_one_scale_that_never_goes_back() {
        let mut heard: Vec<f64> = Vec::new();
        let observer = &mut |done: u64, total: u64| {
            heard.push(done as f64 / total as f64);
            ControlFlow::Continue(())
        };
        let mut runs = Runs::new(observer);
        runs.expect(3);
        for length in [10, 1000, 4] {
            for done in 0..=length {
                assert!(runs.observe(done, length).is_continue());
            }
            runs.next();
        }
        assert!(heard.is_sorted(), "{heard:?}");
        assert_eq!((heard[0], heard.last().copied()), (0.0, Some(1.0)));
    }
}
