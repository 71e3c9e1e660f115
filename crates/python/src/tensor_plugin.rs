//! Tensor schedulers written in Python: a name, a few facts and a function.
//!
//! `allrail.simulation.plugins` registers and runs them as it does chunk schedulers (see [`crate::plugin`]): in a thread
//! of its own, within a time limit, its answer read and checked there. The function is given the tasks of a
//! step and returns their order and partitions; one that chooses as it goes is asked at every event after. Its
//! failure is kept in [`Failures`]; the run goes on by urgency until its observer breaks it off, and its result is
//! thrown away.

use std::sync::Arc;

use allrail_core::{Bytes, FieldError, Time, counted};
use allrail_schedule::ScheduleError;
use allrail_schedule::tensor::{
    Choice, Chooser, CommTask, Cut, Exchange, Leg, MAX_PARTITIONS, Offer, Outlook, Planned,
    StepFacts, Tensor, TensorParameters, TensorPolicy, TensorScheduler,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::failures::{Failures, Stopped, micros};
use crate::registry::{Named, Registry};

/// A function that was registered.
pub(crate) struct Registered {
    name: String,
    about: String,
    version: u32,
    crosses_barrier: bool,
    /// Where a scenario says nothing else.
    partition: Bytes,
    credit: Bytes,
    /// `run(tasks, partition, credit, stopped)`: see [`Answer`].
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

/// Registers a tensor scheduler, in place of one of the same name.
#[pyfunction]
fn register_tensor_policy(
    name: String,
    about: String,
    version: u32,
    crosses_barrier: bool,
    partition: u64,
    credit: u64,
    run: Py<PyAny>,
) {
    let (partition, credit) = (Bytes::new(partition.max(1)), Bytes::new(credit.max(1)));
    REGISTRY.register(Registered { name, about, version, crosses_barrier, partition, credit, run });
}

/// Forgets a tensor scheduler that was registered.
#[pyfunction]
fn forget_tensor_policy(name: &str) {
    REGISTRY.forget(name);
}

/// What a function is told of a tensor: name, bytes, place, and µs when it is ready, when it is needed and for
/// which it travels alone.
type Task = (String, u64, u32, f64, f64, f64);

/// What it answers: the tensors, the most urgent first; the sizes of each tensor's partitions, one where all are
/// alike; and, of one that chooses as it goes, who is asked.
type Answer = (Vec<u32>, Vec<Vec<u64>>, Option<Py<PyAny>>);

/// A registered function as a tensor scheduler.
pub(crate) struct Plugin {
    which: Arc<Registered>,
    failures: Failures,
}

impl Plugin {
    pub(crate) fn new(which: Arc<Registered>, failures: Failures) -> Self {
        Self { which, failures }
    }

    /// What stands for a failure that is told elsewhere.
    fn failed(&self) -> ScheduleError {
        ScheduleError::Field(FieldError::new(
            "schedule.tensor.policy",
            self.which.name.clone(),
            "its function failed",
            "see its own error",
        ))
    }

    fn ask(
        &self,
        py: Python<'_>,
        parameters: &TensorParameters,
        tensors: &[Tensor],
        facts: &StepFacts,
    ) -> PyResult<Planned> {
        let tasks: Vec<Task> = tensors
            .iter()
            .zip(&facts.tensors)
            .map(|(tensor, known)| {
                let times = (micros(known.ready), micros(known.needed), micros(known.alone));
                let (bytes, place) = (tensor.bytes.count(), tensor.place);
                (known.name.clone(), bytes, place, times.0, times.1, times.2)
            })
            .collect();
        let partition = parameters.partition.unwrap_or(self.which.partition).count();
        let credit = parameters.credit.unwrap_or(self.which.credit);
        let stopped = Py::new(py, Stopped(self.failures.clone()))?;
        let answer = self.which.run.call1(py, (tasks, partition, credit.count(), stopped))?;
        let (order, sizes, chooser): Answer = answer.extract(py)?;
        let tasks = planned(&order, &sizes, tensors).map_err(PyValueError::new_err)?;
        let chooser = chooser.map(|ask| {
            Box::new(Asked { ask, failures: self.failures.clone() }) as Box<dyn Chooser>
        });
        Ok(Planned { tasks, credit, chooser })
    }
}

/// Tasks in an order, cut so. What Python has checked is checked again: nothing here may panic.
fn planned(order: &[u32], sizes: &[Vec<u64>], tensors: &[Tensor]) -> Result<Vec<CommTask>, String> {
    let mut ranked = tensors.to_vec();
    let mut seen = vec![false; tensors.len()];
    for (place, tensor) in (0..).zip(order) {
        let seen = seen.get_mut(*tensor as usize).ok_or("there is no such task")?;
        if std::mem::replace(seen, true) {
            return Err("a task stands twice in the order".to_owned());
        }
        ranked[*tensor as usize].place = place;
    }
    if seen.contains(&false) || sizes.len() != tensors.len() {
        return Err("a task is not in the order".to_owned());
    }
    let task = |((index, tensor), sizes): ((u32, &Tensor), &Vec<u64>)| {
        let cut = match sizes[..] {
            [0] => return Err("a partition is empty".to_owned()),
            [size] => Cut::Size(Bytes::new(size)),
            _ if sizes.iter().try_fold(0u64, |sum, one| sum.checked_add(*one))
                != Some(tensor.bytes.count())
                || sizes.contains(&0) =>
            {
                return Err("partitions are not the whole tensor".to_owned());
            }
            _ => Cut::Sizes(sizes.iter().copied().map(Bytes::new).collect()),
        };
        match cut.count(tensor.bytes) {
            count if count > MAX_PARTITIONS => {
                Err(format!("a task has {count}", count = counted(count, "partition")))
            }
            _ => Ok(CommTask::new(index, tensor, cut)),
        }
    };
    (0..).zip(&ranked).zip(sizes).map(task).collect()
}

fn word(leg: Leg) -> &'static str {
    match leg {
        Leg::Whole => "all_reduce",
        Leg::Push => "push",
        Leg::Pull => "pull",
    }
}

impl TensorPolicy for Plugin {
    fn tag(&self) -> &str {
        &self.which.name
    }

    fn about(&self) -> &str {
        &self.which.about
    }

    fn version(&self) -> u32 {
        self.which.version
    }

    fn crosses_barrier(&self) -> bool {
        self.which.crosses_barrier
    }

    fn ranks_in_the_network(&self) -> bool {
        true
    }

    fn partition(&self, parameters: &TensorParameters) -> Option<Bytes> {
        Some(parameters.partition.unwrap_or(self.which.partition))
    }

    fn credit(&self, parameters: &TensorParameters) -> Option<Bytes> {
        Some(parameters.credit.unwrap_or(self.which.credit))
    }

    fn reads(&self) -> &'static [&'static str] {
        &["partition", "credit"]
    }

    fn scheduler(
        &self,
        parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        let facts = StepFacts::chain(tensors.iter().map(|tensor| tensor.place), Time::ZERO);
        let planned = self.in_step(parameters, exchange, tensors, &facts)?;
        planned.map(|planned| planned.scheduler(exchange)).ok_or_else(|| self.failed())
    }

    fn outlook(&self) -> Outlook {
        Outlook::Tensors
    }

    fn in_step(
        &self,
        parameters: &TensorParameters,
        _: Exchange,
        tensors: &[Tensor],
        facts: &StepFacts,
    ) -> Result<Option<Planned>, ScheduleError> {
        if self.failures.failed() {
            return Err(self.failed());
        }
        let asked = Python::attach(|py| self.ask(py, parameters, tensors, facts));
        asked.map(Some).map_err(|error| {
            self.failures.fail(error);
            self.failed()
        })
    }
}

/// A function that says what starts.
struct Asked {
    /// `ask.choose(leg, now, in_flight, offers, stopped)` and `ask.stalled(tensors)`.
    ask: Py<PyAny>,
    failures: Failures,
}

impl Asked {
    fn choose_in(&self, py: Python<'_>, choice: &Choice<'_>) -> PyResult<Option<u32>> {
        let offers: Vec<(u32, u64, u64)> = choice
            .offers
            .iter()
            .map(|offer| (offer.tensor, offer.partitions, offer.bytes.count()))
            .collect();
        let stopped = Py::new(py, Stopped(self.failures.clone()))?;
        let told =
            (word(choice.leg), micros(choice.now), choice.in_flight.count(), offers, stopped);
        self.ask.call_method1(py, "choose", told)?.extract(py)
    }
}

impl Chooser for Asked {
    fn choose(&mut self, choice: &Choice<'_>) -> Option<u32> {
        if !self.failures.failed() {
            match Python::attach(|py| self.choose_in(py, choice)) {
                Ok(chosen) => return chosen,
                Err(error) => self.failures.fail(error),
            }
        }
        choice.offers.first().map(|offer: &Offer| offer.tensor)
    }

    fn stalled(&mut self, tensors: &[u32]) {
        if self.failures.failed() {
            return;
        }
        let told = Python::attach(|py| self.ask.call_method1(py, "stalled", (tensors.to_vec(),)));
        if let Err(error) = told {
            self.failures.fail(error);
        }
    }
}

/// Adds all of them to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(register_tensor_policy, module)?)?;
    module.add_function(wrap_pyfunction!(forget_tensor_policy, module)?)
}
