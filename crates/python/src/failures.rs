//! What went wrong in the plugins of one simulation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use allrail_core::Time;
use pyo3::prelude::*;

use crate::registry::lock;

/// The first failure of a simulation's plugins, and whether it was stopped.
#[derive(Clone, Default)]
pub(crate) struct Failures(Arc<State>);

#[derive(Default)]
struct State {
    /// Of all simulations that were begun together.
    stopped: Arc<AtomicBool>,
    failed: AtomicBool,
    failure: Mutex<Option<PyErr>>,
}

impl Failures {
    /// Those of another simulation, which is stopped with this one but fails alone.
    pub(crate) fn another(&self) -> Self {
        let stopped = Arc::clone(&self.0.stopped);
        Self(Arc::new(State { stopped, ..State::default() }))
    }

    /// Whether no result can come of it any more.
    pub(crate) fn failed(&self) -> bool {
        self.0.failed.load(Ordering::Relaxed) || self.0.stopped.load(Ordering::Relaxed)
    }

    /// Ends all simulations that were begun together; what is being asked now returns soon.
    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    /// The first failure, if there was one.
    pub(crate) fn failure(&self) -> Option<PyErr> {
        lock(&self.0.failure).take()
    }

    pub(crate) fn fail(&self, error: PyErr) {
        lock(&self.0.failure).get_or_insert(error);
        self.0.failed.store(true, Ordering::Relaxed);
    }
}

/// Whether the function's answer is no longer wanted.
#[pyclass(frozen, module = "allrail._core")]
pub(crate) struct Stopped(pub(crate) Failures);

#[pymethods]
impl Stopped {
    fn __call__(&self) -> bool {
        self.0.failed()
    }
}

pub(crate) fn micros(time: Time) -> f64 {
    time.as_ps() as f64 / 1e6
}
