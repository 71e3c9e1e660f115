//! Jobs on boards, for Python.

use std::ops::ControlFlow;

use allrail_jobs::placement::{Fold, run_queue};
use allrail_jobs::running;
use allrail_simulate::SimulateError;
use pyo3::prelude::*;
use serde_json::Value;

use crate::{Watch, parsed, raise, to_json};

type Work =
    fn(Value, &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Option<Value>, SimulateError>;

fn run(py: Python<'_>, request: &str, progress: Option<Py<PyAny>>, work: Work) -> PyResult<String> {
    let mut watch = Watch::new(progress);
    let told = py.detach(|| {
        let told = work(parsed(request)?, &mut |done, total| watch.observe(done, total))?;
        told.map(|told| told.to_string()).ok_or(SimulateError::Interrupted)
    });
    watch.end(told)
}

/// Places mixes of jobs on a fabric's boards; with `run`, runs the first one's at once.
#[pyfunction]
#[pyo3(signature = (request, progress=None))]
fn place(py: Python<'_>, request: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
    run(py, request, progress, running::place)
}

/// Runs jobs that arrive and leave on a fabric's boards.
#[pyfunction]
#[pyo3(signature = (request, progress=None))]
fn place_queue(py: Python<'_>, request: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
    run(py, request, progress, |request, observe| Ok(run_queue(request, observe)?))
}

/// Folds a job of three dimensions onto boards.
#[pyfunction]
fn fold_job(shape: [u32; 3], board: [u32; 2]) -> PyResult<String> {
    Fold::new(shape, board).map(|fold| to_json(&fold)).map_err(raise)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(place, module)?)?;
    module.add_function(wrap_pyfunction!(place_queue, module)?)?;
    module.add_function(wrap_pyfunction!(fold_job, module)?)
}
