//! The steps of a chunk's stages on one rank: which sends may leave, what is still awaited.
//!
//! A step sends, and is over when it has received as many messages as it expects; the sends of the
//! next one leave then. Steps are counted through all stages of a chunk, so that a message of a peer
//! that is ahead says by its number where it belongs: it is counted until this rank gets there.
//!
//! Calls: [`StageRun::begin`] when the stage is chosen; the driver sends the current step and says
//! [`StageRun::sent`]; [`StageRun::arrived`] for every message, whenever it comes; and
//! [`StageRun::complete_step`] until it returns false.

use std::collections::VecDeque;

use crate::Broken;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct StageRun {
    /// Steps of the stages before this one.
    first: u64,
    /// Of the running stage.
    step: u32,
    running: bool,
    sent: bool,
    /// Messages for the current step and those after it.
    arrived: VecDeque<u32>,
}

impl StageRun {
    /// The next stage begins; its steps are counted from `first`.
    #[inline]
    pub fn begin(&mut self, first: u64) {
        // Stages that do not concern the rank are skipped: nobody sends to them.
        for _ in self.number()..first {
            self.arrived.pop_front();
        }
        self.first = first;
        (self.step, self.running, self.sent) = (0, true, false);
    }

    /// The current step of the running stage.
    #[must_use]
    pub fn step(&self) -> u32 {
        self.step
    }

    /// The current step, counted through all stages.
    #[must_use]
    #[inline]
    pub fn number(&self) -> u64 {
        self.first + u64::from(self.step)
    }

    /// How many messages of the current step have come.
    #[must_use]
    pub fn received(&self) -> u32 {
        self.arrived.front().copied().unwrap_or(0)
    }

    /// How many messages have come for the step that is so many after the current one.
    #[must_use]
    pub fn waiting(&self, after: u32) -> u32 {
        self.arrived.get(after as usize).copied().unwrap_or(0)
    }

    /// All sends of the current step have been handed over.
    #[inline]
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// A message of a step, counted through all stages, has come.
    ///
    /// # Errors
    /// [`Broken::Late`] if that step is over.
    #[inline]
    pub fn arrived(&mut self, number: u64) -> Result<(), Broken> {
        let over = self.number();
        let place = number.checked_sub(over).ok_or(Broken::Late { step: number, over })?;
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if self.arrived.len() <= place {
            self.arrived.resize(place + 1, 0);
        }
        self.arrived[place] += 1;
        Ok(())
    }

    /// Completes the current step if it has been sent and has received what it expects.
    #[inline]
    pub fn complete_step(&mut self, expected: u32) -> bool {
        if !self.running || !self.sent || self.received() < expected {
            return false;
        }
        self.arrived.pop_front();
        self.step += 1;
        self.sent = false;
        true
    }

    /// The stage's last step is complete.
    pub fn end(&mut self) {
        self.first += u64::from(self.step);
        (self.step, self.running) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_for_a_stage_behind_skipped_ones_is_kept() {
        let mut run = StageRun::default();
        run.arrived(3).expect("early");
        run.begin(3);
        run.sent();
        assert!(run.complete_step(1));
    }

    #[test]
    fn a_message_that_comes_early_is_counted_when_its_step_comes() {
        let mut run = StageRun::default();
        run.arrived(1).expect("early");
        run.begin(0);
        run.sent();
        assert!(!run.complete_step(1));
        run.arrived(0).expect("now");
        assert!(run.complete_step(1));
        assert!(!run.complete_step(1), "its sends have not left");
        run.sent();
        assert!(run.complete_step(1));
        run.end();
        assert_eq!(run.arrived(1), Err(Broken::Late { step: 1, over: 2 }));
    }
}
