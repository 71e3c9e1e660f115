//! How a caller waits for what it has submitted.

use std::time::Duration;

use allrail_schedule::Key;

use crate::error::{FaultKind, RuntimeError};
use crate::node::Node;
use crate::record::What;
use crate::state::State;

impl Node {
    /// Waits until a call is over: whether it is.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_call(&self, number: u64, timeout: Duration) -> Result<bool, RuntimeError> {
        self.check_process()?;
        self.wait_for((Key::call(number), 0), timeout, |state| state.poll_call(number))
    }

    /// Waits until an exchange is over: whether it is.
    ///
    /// # Errors
    /// [`RuntimeError::Fault`] says why it never will be; nothing touches its memory any more then.
    pub fn wait(&self, key: Key, generation: u64, timeout: Duration) -> Result<bool, RuntimeError> {
        self.check_process()?;
        self.wait_for((key, generation), timeout, |state| state.poll(key, generation))
    }

    /// Waits until it is over, and records that it did.
    fn wait_for(
        &self,
        (key, generation): (Key, u64),
        timeout: Duration,
        poll: impl Fn(&State) -> Result<bool, RuntimeError>,
    ) -> Result<bool, RuntimeError> {
        // Who only looks does not wait.
        let mut began = false;
        let answer = |state: &mut State| match poll(state) {
            Ok(false) => {
                if !timeout.is_zero() && !std::mem::replace(&mut began, true) {
                    state.record(What::Waits { key, generation });
                }
                None
            }
            other => {
                if began {
                    state.record(What::Waited { key, generation });
                }
                Some(other)
            }
        };
        let waited = self.shared.wait(timeout, answer);
        if waited.is_none() && began {
            self.shared.look().record(What::Waited { key, generation });
        }
        waited.unwrap_or(Ok(false))
    }

    /// Whether an exchange is over.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn is_done(&self, key: Key, generation: u64) -> Result<bool, RuntimeError> {
        self.check_process()?;
        self.shared.look().poll(key, generation)
    }

    /// Tensors whose exchange is over since this was called last, each with how many were before it; waits
    /// for the first. None once the node is closed.
    ///
    /// # Errors
    /// [`RuntimeError::Fault`] where the job is over, once what was done before it is told.
    pub fn next_completions(&self, timeout: Duration) -> Result<Vec<(Key, u64)>, RuntimeError> {
        self.check_process()?;
        let answer = |state: &mut State| {
            let done = state.take_completions();
            match state.fault() {
                _ if !done.is_empty() => Some(Ok(done)),
                Some(fault) if fault.kind == FaultKind::Closed => Some(Ok(done)),
                Some(fault) if state.is_quiet() => Some(Err(fault.clone().into())),
                Some(_) | None => None,
            }
        };
        self.shared.wait(timeout, answer).unwrap_or_else(|| Ok(Vec::new()))
    }
}
