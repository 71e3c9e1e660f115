//! Python while a run is under way: it handles Ctrl-C, hears of progress, and its first exception ends the run.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use allrail_simulate::SimulateError;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::calls::Calls;
use crate::raise;

/// Lets Python handle Ctrl-C and reports progress; keeps the first exception.
#[derive(Default)]
pub(crate) struct Watch {
    progress: Option<Py<PyAny>>,
    pub(crate) raised: Option<PyErr>,
    calls: Calls,
    /// What was last told of: how much was done, and how much there is.
    told: (u64, u64),
    /// When that was.
    looked: Option<Instant>,
}

/// How long Python is left alone between two looks at it: taking its lock costs microseconds.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

impl Watch {
    pub(crate) fn new(progress: Option<Py<PyAny>>) -> Self {
        Self { progress, ..Self::default() }
    }

    /// Whatever fails in plugins ends the run.
    pub(crate) fn with_plugins(progress: Option<Py<PyAny>>, calls: &Calls) -> Self {
        Self { calls: calls.clone(), ..Self::new(progress) }
    }

    pub(crate) fn observe(&mut self, done: u64, total: u64) -> ControlFlow<()> {
        if self.raised.is_some() || self.calls.failures.failed() {
            return ControlFlow::Break(());
        }
        if self.looked.is_some_and(|looked| looked.elapsed() < BETWEEN_LOOKS) {
            return ControlFlow::Continue(());
        }
        self.told = (done, total);
        self.look((done, total))
    }

    /// The same without a pause, and with numbers of any kind.
    pub(crate) fn look(&mut self, far: impl for<'py> PyCallArgs<'py>) -> ControlFlow<()> {
        let outcome = Python::attach(|py| {
            py.check_signals()?;
            if let Some(progress) = &self.progress {
                progress.call1(py, far)?;
            }
            Ok(())
        });
        self.looked = Some(Instant::now());
        match outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.raised = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    pub(crate) fn error(self, error: SimulateError) -> PyErr {
        self.raised.or_else(|| self.calls.failures.failure()).unwrap_or_else(|| raise(error))
    }

    /// What a run comes to: a failure of its plugins voids its result. Whoever watches a run that is over
    /// hears that all is done, however short it was.
    pub(crate) fn end<T>(mut self, result: Result<T, SimulateError>) -> PyResult<T> {
        match (self.calls.failures.failure(), result) {
            (Some(failure), _) => Err(failure),
            (None, Ok(result)) => {
                let (done, total) = self.told;
                if self.raised.is_some()
                    || (total == 0 || done != total)
                        && self.look((total.max(1), total.max(1))).is_break()
                {
                    return Err(self.error(SimulateError::Interrupted));
                }
                Ok(result)
            }
            (None, Err(error)) => Err(self.error(error)),
        }
    }
}
