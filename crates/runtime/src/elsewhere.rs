//! A node whose data others carry, such as process groups of torch: it agrees with the other ranks on one order
//! of launches over its control connections, and hands them out.

use std::time::Duration;

use allrail_schedule::Key;

use crate::shared::Me;
use crate::state::State;
use crate::{Launch, Node, RuntimeError};

impl Node {
    /// As [`submit`](Self::submit), or [`unused`](Self::unused), where others carry the data
    /// (`settings.elsewhere`): they find the tensor by its key.
    ///
    /// # Errors
    /// As [`submit`](Self::submit); where this node carries the data.
    pub fn announce(&self, key: Key, unused: bool) -> Result<u64, RuntimeError> {
        self.check_process()?;
        if !self.settings.elsewhere {
            let hint = "`submit`, or `elsewhere: true`";
            return Err(RuntimeError::setting(
                "elsewhere",
                false,
                "the data is carried here",
                hint,
            ));
        }
        self.shared.change(Me::Caller, |state| state.submit(key, None, unused))
    }

    /// What is to be launched next, in this order on every dimension; waits for the first. None if time is
    /// over.
    ///
    /// # Errors
    /// [`RuntimeError::Fault`] where the job is over, or the node is closed.
    pub fn next_launches(&self, timeout: Duration) -> Result<Vec<Launch>, RuntimeError> {
        self.check_process()?;
        let answer = |state: &mut State| {
            let launches = state.take_launches();
            match state.fault() {
                _ if !launches.is_empty() => Some(Ok(launches)),
                Some(fault) => Some(Err(fault.clone().into())),
                None => None,
            }
        };
        self.shared.wait(timeout, answer).unwrap_or_else(|| Ok(Vec::new()))
    }

    /// A launch is over on this rank.
    ///
    /// # Errors
    /// One that is not under way.
    pub fn finished(&self, launch: u64) -> Result<(), RuntimeError> {
        self.check_process()?;
        self.shared.change(Me::Caller, |state| state.launch_over(launch))
    }

    /// A launch cannot be carried on: all ranks end with an error that names its tensor.
    ///
    /// # Errors
    /// One that is not under way.
    pub fn failed(&self, launch: u64, why: &str) -> Result<(), RuntimeError> {
        self.check_process()?;
        self.shared.change(Me::Caller, |state| state.launch_failed(launch, why.to_owned()))
    }

    /// The tensor that this rank has to submit before an exchange of this one can go on, as the order of
    /// launches is frozen: who waits for this one first waits for ever.
    #[must_use]
    pub fn blocked(&self, key: Key) -> Option<String> {
        self.shared.look().blocked(key).map(str::to_owned)
    }
}
