//! Chunk schedulers written in Python: a name, a few facts and a function.
//!
//! `allrail.simulation.plugins` registers them here and runs them: in a thread of its own, within a time limit,
//! its answer read and checked. A simulation takes a snapshot of the registry, [`Calls`], and asks
//! a plugin as any other scheduler. No lock is held while Python runs.
//!
//! A planner may be asked in the middle of a run, where nothing may fail any more. So a plugin's
//! failure (its exception, its time limit, Ctrl-C) is kept in [`Calls`], the run goes on with the
//! baseline's stages until its observer breaks it off, and its result is thrown away: whoever began
//! it raises the failure instead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use allrail_collective::plan::check_stages;
use allrail_collective::{CollectiveError, Operation, Stage, StageModel};
use allrail_core::{Bytes, DimensionId, Time, counted, either};
use allrail_schedule::chunk::{ALL, Plugins, Problem};
use allrail_schedule::evaluate::Work;
use allrail_schedule::tensor::{TensorPlugins, TensorPolicy};
use allrail_schedule::{ActiveChunks, ChunkScheduler, Order, ScheduleError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::registry::{Named, Registry};
use crate::tensor_plugin;

/// A function that was registered.
struct Registered {
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

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is kept under a lock here can be left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    let calls = Calls::new();
    let plugins = calls.schedulers();
    let plugins = plugins.iter().map(|scheduler| row(scheduler));
    Value::from_iter(ALL.iter().map(|scheduler| row(*scheduler)).chain(plugins)).to_string()
}

/// The plugins of one simulation, and what went wrong in them.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<State>);

#[derive(Default)]
struct State {
    registered: Vec<Arc<Registered>>,
    /// Tensor schedulers.
    tensors: Vec<Arc<tensor_plugin::Registered>>,
    /// Of all simulations that were begun together.
    stopped: Arc<AtomicBool>,
    failed: AtomicBool,
    failure: Mutex<Option<PyErr>>,
}

impl Calls {
    /// Those that are registered now.
    pub(crate) fn new() -> Self {
        let registered = REGISTRY.all();
        let tensors = tensor_plugin::registered();
        Self(Arc::new(State { registered, tensors, ..State::default() }))
    }

    /// The same for another simulation, which is stopped with this one but fails alone.
    pub(crate) fn another(&self) -> Self {
        let State { registered, tensors, stopped, .. } = &*self.0;
        let (registered, tensors) = (registered.clone(), tensors.clone());
        let stopped = Arc::clone(stopped);
        Self(Arc::new(State { registered, tensors, stopped, ..State::default() }))
    }

    fn schedulers(&self) -> Vec<Plugin> {
        let one =
            |which: &Arc<Registered>| Plugin { which: Arc::clone(which), calls: self.clone() };
        self.0.registered.iter().map(one).collect()
    }

    /// For a scenario's schedule.
    pub(crate) fn plugins(&self) -> Plugins {
        let each = self.schedulers().into_iter();
        Plugins::new(each.map(|plugin| Arc::new(plugin) as Arc<dyn ChunkScheduler>).collect())
    }

    /// For a scenario's tensor scheduler.
    pub(crate) fn tensor_plugins(&self) -> TensorPlugins {
        let one = |which: &Arc<tensor_plugin::Registered>| {
            let plugin = tensor_plugin::Plugin::new(Arc::clone(which), self.clone());
            Arc::new(plugin) as Arc<dyn TensorPolicy>
        };
        TensorPlugins::new(self.0.tensors.iter().map(one).collect())
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

/// A registered function as a chunk scheduler.
struct Plugin {
    which: Arc<Registered>,
    calls: Calls,
}

impl Plugin {
    fn ask(&self, py: Python<'_>, problem: &Problem<'_>) -> PyResult<Vec<Vec<Stage>>> {
        let asked = Py::new(py, PolicyProblem::new(problem))?;
        let stopped = Py::new(py, Stopped(self.calls.clone()))?;
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
        if !self.calls.failed() {
            match Python::attach(|py| self.ask(py, problem)) {
                Ok(stages) => return Ok(stages),
                Err(error) => self.calls.fail(error),
            }
        }
        ALL[0].schedule(problem)
    }
}

/// Whether the function's answer is no longer wanted.
#[pyclass(frozen, module = "allrail._core")]
pub(crate) struct Stopped(pub(crate) Calls);

#[pymethods]
impl Stopped {
    fn __call__(&self) -> bool {
        self.0.failed()
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

pub(crate) fn micros(time: Time) -> f64 {
    time.as_ps() as f64 / 1e6
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
