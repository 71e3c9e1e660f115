//! Chunk schedulers written in Python: a name, a few facts and a function.
//!
//! `allrail.simulation.plugins` registers them here and runs them: in a thread of its own, within a time limit,
//! its answer read and checked. A simulation takes a snapshot of the registry, [`crate::calls`], and asks
//! a plugin as any other scheduler. No lock is held while Python runs.
//!
//! A planner may be asked in the middle of a run, where nothing may fail any more. So a plugin's
//! failure (its exception, its time limit, Ctrl-C) is kept in [`Failures`], the run goes on with the
//! baseline's stages until its observer breaks it off, and its result is thrown away: whoever began
//! it raises the failure instead.

use std::sync::Arc;

use allrail_collective::plan::check_stages;
use allrail_collective::{CollectiveError, Operation, Stage, StageModel};
use allrail_core::{Bytes, DimensionId, counted, either};
use allrail_schedule::chunk::{ALL, Problem};
use allrail_schedule::evaluate::Work;
use allrail_schedule::{ActiveChunks, ChunkScheduler, Order, ScheduleError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::failures::{Failures, Stopped, micros};
use crate::registry::{Named, Registry};

/// A function that was registered.
pub(crate) struct Registered {
    name: String,
    about: String,
    version: u32,
    order: Order,
    /// `run(problem, stopped)`: the stages of every chunk.
    run: Py<PyAny>,
}

impl Named for Registered {
    fn name(&self) -> &str {
        &self.name
    }
}

static REGISTRY: Registry<Registered> = Registry::new();

/// Those that are registered now.
pub(crate) fn registered() -> Vec<Arc<Registered>> {
    REGISTRY.all()
}

/// Registers a chunk scheduler, in place of one of the same name.
#[pyfunction]
fn register_policy(
    name: String,
    about: String,
    version: u32,
    order: &str,
    run: Py<PyAny>,
) -> PyResult<()> {
    let order: Order = serde_json::from_value(json!(order))
        .map_err(|_| PyValueError::new_err(format!("`{order}` is not an order")))?;
    REGISTRY.register(Registered { name, about, version, order, run });
    Ok(())
}

/// Forgets a chunk scheduler that was registered.
#[pyfunction]
fn forget_policy(name: &str) {
    REGISTRY.forget(name);
}

/// The chunk schedulers: name, about, version, the order that suits it, whether planning is expensive.
#[pyfunction]
fn policies() -> String {
    let row = |scheduler: &dyn ChunkScheduler| {
        json!({
            "name": scheduler.tag(),
            "formerly": scheduler.formerly(),
            "about": scheduler.about(),
            "version": scheduler.version(),
            "default_order": scheduler.default_order(),
            "expensive": scheduler.is_expensive(),
        })
    };
    let failures = Failures::default();
    let plugins = registered().into_iter().map(|which| Plugin::new(which, failures.clone()));
    let plugins = plugins.map(|scheduler| row(&scheduler));
    Value::from_iter(ALL.iter().map(|scheduler| row(*scheduler)).chain(plugins)).to_string()
}

/// A registered function as a chunk scheduler.
pub(crate) struct Plugin {
    which: Arc<Registered>,
    failures: Failures,
}

impl Plugin {
    pub(crate) fn new(which: Arc<Registered>, failures: Failures) -> Self {
        Self { which, failures }
    }

    fn ask(&self, py: Python<'_>, problem: &Problem<'_>) -> PyResult<Vec<Vec<Stage>>> {
        let asked = Py::new(py, PolicyProblem::new(problem))?;
        let stopped = Py::new(py, Stopped(self.failures.clone()))?;
        let answer = self.which.run.call1(py, (asked.clone_ref(py), stopped))?;
        let answer: Vec<Vec<(String, u32)>> = answer.extract(py)?;
        asked.get().read(&answer).map_err(PyValueError::new_err)
    }
}

impl ChunkScheduler for Plugin {
    fn tag(&self) -> &str {
        &self.which.name
    }

    fn about(&self) -> &str {
        &self.which.about
    }

    fn version(&self) -> u32 {
        self.which.version
    }

    fn default_order(&self) -> Order {
        self.which.order
    }

    fn schedule(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Stage>>, ScheduleError> {
        if !self.failures.failed() {
            match Python::attach(|py| self.ask(py, problem)) {
                Ok(stages) => return Ok(stages),
                Err(error) => self.failures.fail(error),
            }
        }
        ALL[0].schedule(problem)
    }
}

/// How many stages a dimension runs at once, as Python has it.
#[derive(IntoPyObject)]
enum Limit {
    AtMost(u32),
    Fill(&'static str),
}

/// What a chunk scheduler knows of a collective. `allrail.simulation.plugins.Problem` is what its author sees.
#[pyclass(frozen, module = "allrail._core")]
struct PolicyProblem {
    model: StageModel,
    operation: Operation,
    dimensions: Vec<DimensionId>,
    bytes: Vec<Bytes>,
    order: Order,
    active_chunks: Option<ActiveChunks>,
    #[pyo3(get)]
    seed: u64,
}

fn check_error(error: CollectiveError) -> String {
    match error {
        CollectiveError::Plan(why) => why,
        other => other.to_string(),
    }
}

impl PolicyProblem {
    fn new(problem: &Problem<'_>) -> Self {
        Self {
            model: problem.model.clone(),
            operation: problem.operation,
            dimensions: problem.dimensions.to_vec(),
            bytes: problem.chunks.to_vec(),
            order: problem.order,
            active_chunks: problem.active_chunks,
            seed: problem.seed,
        }
    }

    /// The stages that the model knows: of an all-reduce its two halves.
    fn stages(&self, stages: &[(String, u32)]) -> Result<Vec<Stage>, String> {
        let parts = match self.operation {
            Operation::AllReduce => vec![Operation::ReduceScatter, Operation::AllGather],
            whole => vec![whole],
        };
        let one = |(name, dimension): &(String, u32)| {
            let named = parts.iter().copied().find(|part| part.to_string() == *name);
            let operation = named.ok_or_else(|| {
                let known: Vec<String> = parts.iter().map(|part| format!("`{part}`")).collect();
                let known = known.join(" and ");
                format!("`{name}` is no stage of `{}`: there is {known}", self.operation)
            })?;
            let dimension = DimensionId(*dimension);
            if !self.dimensions.contains(&dimension) {
                let known: Vec<String> = self.dimensions.iter().map(|d| d.0.to_string()).collect();
                let known = known.join(", ");
                return Err(format!("the collective spans no dimension {}: {known}", dimension.0));
            }
            Ok(Stage { operation, dimension })
        };
        stages.iter().map(one).collect()
    }

    fn read(&self, answer: &[Vec<(String, u32)>]) -> Result<Vec<Vec<Stage>>, String> {
        if answer.len() != self.bytes.len() {
            let (chunks, lists) = (self.bytes.len(), answer.len());
            return Err(format!(
                "there {are} {chunks} and stages for {lists}",
                chunks = counted(chunks, "chunk"),
                are = either(&chunks, "is", "are")
            ));
        }
        let read = |(chunk, stages): (usize, &Vec<(String, u32)>)| {
            let stages = self.stages(stages);
            let stages = stages.map_err(|why| format!("chunk {chunk}: {why}"))?;
            let checked = check_stages(chunk, &stages, self.operation, &self.dimensions);
            checked.map_err(check_error)?;
            Ok(stages)
        };
        answer.iter().enumerate().map(read).collect()
    }
}

#[pymethods]
impl PolicyProblem {
    #[getter]
    fn operation(&self) -> &'static str {
        self.operation.tag()
    }

    #[getter]
    fn dimensions(&self) -> Vec<u32> {
        self.dimensions.iter().map(|dimension| dimension.0).collect()
    }

    #[getter]
    fn sizes(&self) -> Vec<u64> {
        self.dimensions.iter().map(|dimension| self.model.size(*dimension)).collect()
    }

    #[getter]
    fn chunks(&self) -> Vec<u64> {
        self.bytes.iter().map(|bytes| bytes.count()).collect()
    }

    /// A number, `fill`, or none.
    #[getter]
    fn active_chunks(&self) -> Option<Limit> {
        self.active_chunks.map(|limit| match limit {
            ActiveChunks::AtMost(most) => Limit::AtMost(most),
            ActiveChunks::Fill(_) => Limit::Fill("fill"),
        })
    }

    #[getter]
    fn order(&self) -> &'static str {
        self.order.tag()
    }

    /// How long each of a chunk's stages keeps its dimension busy, and how long after that it ends; µs.
    #[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
    fn times(&self, chunk: u64, stages: Vec<(String, u32)>) -> PyResult<Vec<(f64, f64)>> {
        let stages = self.stages(&stages).map_err(PyValueError::new_err)?;
        let work = Work::new(&self.model, [(Bytes::new(chunk), stages.as_slice())]);
        let work = work
            .map_err(|error| PyValueError::new_err(error.to_string()))?
            .side_by_side(self.active_chunks);
        let times = work.chunk(0).iter().map(|task| (micros(task.occupancy), micros(task.latency)));
        Ok(times.collect())
    }

    /// Refuses an answer that is no schedule.
    #[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
    fn check(&self, answer: Vec<Vec<(String, u32)>>) -> PyResult<()> {
        self.read(&answer).map(drop).map_err(PyValueError::new_err)
    }
}

/// Adds all of them to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PolicyProblem>()?;
    module.add_function(wrap_pyfunction!(register_policy, module)?)?;
    module.add_function(wrap_pyfunction!(forget_policy, module)?)?;
    module.add_function(wrap_pyfunction!(policies, module)?)
}
