//! How launches reach whoever carries the data, and how this node hears of their end.

use allrail_collective::StageRef;
use allrail_engine::engine::Event;
use allrail_engine::{Broken, CollectiveId, Run};
use allrail_schedule::{Key, OperationName};

use super::State;
use super::elsewhere::Elsewhere;
use crate::error::RuntimeError;
use crate::tensor::Launch;

impl State {
    /// A stage is launched: whoever carries it takes it from here.
    pub(super) fn hand_over(&mut self, run: &Run, operation: OperationName) {
        let Some(elsewhere) = &mut self.elsewhere else { return };
        let slices = self.engine.slices(run.collective).unwrap_or_default();
        if elsewhere.hand_over(run, operation, slices).is_some() {
            self.wakes.waiters = true;
            self.tell_or_note(Event::PortFree { port: run.port });
        }
    }

    /// What was launched since this was asked last.
    pub(crate) fn take_launches(&mut self) -> Vec<Launch> {
        self.elsewhere.as_mut().map_or_else(Vec::new, Elsewhere::take_launches)
    }

    fn take_running(
        &mut self,
        number: u64,
    ) -> Result<(CollectiveId, StageRef, OperationName), RuntimeError> {
        let running = self.elsewhere.as_mut().and_then(|one| one.take_running(number));
        running.ok_or_else(|| {
            let hint = "say of every launch of `next_launches` once that it is over";
            RuntimeError::setting("launch", number, "it is not under way", hint)
        })
    }

    /// A launch is over on this rank.
    pub(crate) fn launch_over(&mut self, number: u64) -> Result<(), RuntimeError> {
        let (id, at, _) = self.take_running(number)?;
        match self.tell(Event::StageOver { id, at }) {
            // The end came first.
            Ok(()) | Err(Broken::Stopped) => Ok(()),
            Err(broken) => Err(broken.into()),
        }
    }

    /// A launch cannot be carried on: the job is over.
    pub(crate) fn launch_failed(&mut self, number: u64, why: String) -> Result<(), RuntimeError> {
        let (_, _, operation) = self.take_running(number)?;
        match self.tell(Event::Failed { operation, why }) {
            Ok(()) | Err(Broken::Stopped) => Ok(()),
            Err(broken) => Err(broken.into()),
        }
    }

    /// The tensor that this rank has to submit before this one can go on, where their order is frozen.
    pub(crate) fn blocked(&self, key: Key) -> Option<&str> {
        let other = self.engine.blocked(key)?;
        self.tensors.name(other)
    }
}
