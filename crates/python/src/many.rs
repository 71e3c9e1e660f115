//! Many scenarios at once, on several threads, with Ctrl-C and progress.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use allrail_simulate::SimulateError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;
use serde_json::json;

use crate::calls::Calls;
use crate::{Watch, to_json};

/// Told how far a simulation is; it breaks off where someone wants it to end.
pub(crate) type Look<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// All of a scenario, in the parts that its share is counted in.
const WHOLE: u32 = 1 << 16;

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
    // How far each is: a long one is heard of on its way.
    let shares: &Vec<AtomicU32> = &scenarios.iter().map(|_| AtomicU32::new(0)).collect();
    let run = |(text, share): (&String, &AtomicU32)| {
        let own = calls.another();
        let look = &mut |done: u64, total: u64| {
            let part = done as f64 / total.max(1) as f64;
            share.fetch_max((part.min(1.0) * f64::from(WHOLE)) as u32, Ordering::Relaxed);
            match own.failures.failed() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        // What nobody waits for any more is not begun.
        let result = match own.failures.failed() {
            true => Err(SimulateError::Interrupted),
            false => one(text, &own, look),
        };
        share.store(WHOLE, Ordering::Relaxed);
        (result, own.failures.failure())
    };
    // Only this thread hears of Ctrl-C, so the others work while it looks.
    let total = scenarios.len() as u64;
    let done = || {
        let parts =
            shares.iter().map(|share| u64::from(share.load(Ordering::Relaxed))).sum::<u64>();
        parts as f64 / f64::from(WHOLE)
    };
    let results: Vec<(Result<String, SimulateError>, Option<PyErr>)> = py.detach(|| {
        std::thread::scope(|scope| {
            let looker = std::thread::current();
            let work = scope.spawn(move || {
                let results = pool.install(|| scenarios.par_iter().zip(shares).map(run).collect());
                looker.unpark();
                results
            });
            while !work.is_finished() {
                if calls.failures.failed() || watch.look((done(), total)).is_break() {
                    calls.failures.stop();
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(10));
            }
            work.join().expect("a simulation does not panic")
        })
    });
    if watch.raised.is_some() || calls.failures.failed() || watch.look((total, total)).is_break() {
        return Err(watch.error(SimulateError::Interrupted));
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
