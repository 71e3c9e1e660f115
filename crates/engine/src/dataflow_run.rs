//! The messages of a chunk's stage on one rank, where each waits for its own blocks only: which may leave now.
//!
//! Calls: [`DataflowRun::begin`] when the stage is chosen: its sends may leave from then on;
//! [`DataflowRun::arrived`] for every message that comes, before or after; [`DataflowRun::left`] for every send that
//! was handed out, once its bytes have been read. Each appends the sends that may leave now, by number, and
//! [`DataflowRun::is_over`] says when all is done.

use allrail_collective::dataflow::{Does, RankMessages};

use crate::Broken;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct DataflowRun {
    /// For how many each message waits: those before it, and its own event.
    pending: Vec<u32>,
    left: u32,
    begun: bool,
}

impl DataflowRun {
    /// Nothing has happened.
    #[must_use]
    pub fn new(messages: &RankMessages) -> Self {
        let pending: Vec<u32> = messages.waits_for().iter().map(|before| before + 1).collect();
        let left = u32::try_from(pending.len()).expect("fewer than 2^32 messages");
        Self { pending, left, begun: false }
    }

    /// The stage was chosen.
    pub fn begin(&mut self, messages: &RankMessages, out: &mut Vec<u32>) {
        self.begun = true;
        for (number, message) in (0u32..).zip(messages.all()) {
            if matches!(message.does, Does::Sends(_)) {
                self.settle(messages, number, out);
            }
        }
    }

    /// A message has come.
    ///
    /// # Errors
    /// [`Broken::Unawaited`] if none of this number is awaited any more.
    pub fn arrived(
        &mut self,
        messages: &RankMessages,
        number: u32,
        out: &mut Vec<u32>,
    ) -> Result<(), Broken> {
        let message = messages.all().get(number as usize);
        let awaited = message.is_some_and(|one| matches!(one.does, Does::Receives(_)));
        if !awaited || self.pending[number as usize] == 0 {
            return Err(Broken::Unawaited { number });
        }
        self.settle(messages, number, out);
        Ok(())
    }

    /// The bytes of a send that was handed out have been read.
    pub fn left(&mut self, messages: &RankMessages, number: u32, out: &mut Vec<u32>) {
        self.done(messages, number, out);
    }

    /// Whether the stage was chosen and all its messages are done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.begun && self.left == 0
    }

    /// How many messages are not done, and how many there are.
    #[must_use]
    pub fn missing(&self) -> (u32, u32) {
        (self.left, u32::try_from(self.pending.len()).expect("fewer than 2^32 messages"))
    }

    /// One message less is waited for.
    fn settle(&mut self, messages: &RankMessages, number: u32, out: &mut Vec<u32>) {
        if self.is_combined(messages, number, out) {
            self.done(messages, number, out);
        }
    }

    /// Waits for one less: the message may leave then, or is combined, or waits on.
    fn is_combined(&mut self, messages: &RankMessages, number: u32, out: &mut Vec<u32>) -> bool {
        let pending = &mut self.pending[number as usize];
        *pending -= 1;
        if *pending > 0 {
            return false;
        }
        let receives = matches!(messages.all()[number as usize].does, Does::Receives(_));
        if !receives {
            out.push(number);
        }
        receives
    }

    fn done(&mut self, messages: &RankMessages, number: u32, out: &mut Vec<u32>) {
        let mut done = vec![number];
        while let Some(number) = done.pop() {
            self.left -= 1;
            for &next in messages.frees(number) {
                if self.is_combined(messages, next, out) {
                    done.push(next);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use allrail_collective::Program;
    use allrail_collective::dataflow::Dataflow;
    use allrail_collective::program::{Blocks, Combine};

    use super::*;

    #[test]
    fn what_has_come_early_leaves_when_the_stage_begins() {
        let mut program = Program::empty(3, 1, 2);
        let all = || Blocks::range(0..1);
        program.message(0, (0, all()), (1, all()), Combine::Replace);
        program.message(1, (1, all()), (2, all()), Combine::Replace);
        let Dataflow { ranks, .. } = Dataflow::of(&program);
        let messages = &ranks[1];
        let (mut run, mut out) = (DataflowRun::new(messages), Vec::new());
        run.arrived(messages, 0, &mut out).expect("awaited");
        assert_eq!(out, [0; 0]);
        assert_eq!(run.arrived(messages, 0, &mut out), Err(Broken::Unawaited { number: 0 }));
        assert_eq!(run.arrived(messages, 1, &mut out), Err(Broken::Unawaited { number: 1 }));
        run.begin(messages, &mut out);
        assert_eq!(out, [1]);
        assert!(!run.is_over());
        run.left(messages, 1, &mut out);
        assert!(run.is_over());
    }
}
