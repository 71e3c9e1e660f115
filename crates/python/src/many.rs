//! Many scenarios at once, on several threads, with Ctrl-C and progress.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allrail_simulate::SimulateError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;
use serde_json::json;

use crate::plugin::Calls;
use crate::{Watch, to_json};

/// Told how far a simulation is; it breaks off where someone wants it to end.
pub(crate) type Look<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Runs `one` on every scenario, `threads` at a time (all cores where `None`); the results are in
/// the same order, a mistake as `{"error": ...}` in its place. A plugin's exception names its `index`.
pub(crate) fn many(
    py: Python<'_>,
    scenarios: &[String],
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
    one: impl Fn(&str, &Calls, Look<'_>) -> Result<String, SimulateError> + Sync,
) -> PyResult<Vec<String>> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0))
        .build()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let calls = Calls::new();
    let mut watch = Watch::with_plugins(progress, &calls);
    let done = AtomicU64::new(0);
    let run = |text: &String| {
        let own = calls.another();
        let look = &mut |_, _| match own.failed() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        // What nobody waits for any more is not begun.
        let result = match own.failed() {
            true => Err(SimulateError::Interrupted),
            false => one(text, &own, look),
        };
        done.fetch_add(1, Ordering::Relaxed);
        (result, own.failure())
    };
    // Only this thread hears of Ctrl-C, so the others work while it looks.
    let total = scenarios.len() as u64;
    let results: Vec<(Result<String, SimulateError>, Option<PyErr>)> = py.detach(|| {
        std::thread::scope(|scope| {
            let looker = std::thread::current();
            let work = scope.spawn(move || {
                let results = pool.install(|| scenarios.par_iter().map(run).collect());
                looker.unpark();
                results
            });
            while !work.is_finished() {
                if watch.observe(done.load(Ordering::Relaxed), total).is_break() {
                    calls.stop();
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(10));
            }
            work.join().expect("a simulation does not panic")
        })
    });
    if watch.raised.is_some() || watch.observe(total, total).is_break() {
        return Err(watch.error(&SimulateError::Interrupted));
    }
    let explained = (0usize..).zip(results).map(|(index, (outcome, failure))| {
        if let Some(failure) = failure {
            failure.value(py).setattr("index", index)?;
            return Err(failure);
        }
        Ok(outcome.unwrap_or_else(|error| to_json(&json!({ "error": error.report() }))))
    });
    explained.collect()
}
