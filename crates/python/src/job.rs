//! The job file: its schema, and a node's settings that follow from it.

use allrail_runtime::RuntimeError;
use allrail_runtime::job::{Here, Job};
use pyo3::prelude::*;

use crate::runtime::error;
use crate::to_json;

/// Both, from JSON.
fn read(job: &str, here: &str) -> Result<(Job, Here), RuntimeError> {
    Ok((Job::from_json(job)?, Here::from_json(here)?))
}

/// The JSON schema of the job file.
#[pyfunction]
fn job_schema() -> String {
    to_json(&Job::schema())
}

/// What must be alike on all ranks, by key.
#[pyfunction]
fn job_alike(job: &str, here: &str) -> PyResult<String> {
    let alike = read(job, here).and_then(|(job, here)| job.alike(&here));
    alike.map(|alike| to_json(&alike)).map_err(|e| error(&e))
}

/// The settings of a node.
#[pyfunction]
fn job_settings(py: Python<'_>, job: &str, here: &str) -> PyResult<String> {
    let settings = py.detach(|| read(job, here).and_then(|(job, here)| job.settings(here)));
    settings.map(|settings| to_json(&settings)).map_err(|e| error(&e))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(job_schema, module)?)?;
    module.add_function(wrap_pyfunction!(job_alike, module)?)?;
    module.add_function(wrap_pyfunction!(job_settings, module)?)
}
