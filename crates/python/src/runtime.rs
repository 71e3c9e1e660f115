//! The class `Node`: one rank of one process group, over the native transport.
//!
//! Waiting never holds the GIL, and looks for signals ten times a second. Tensors come as
//! [`Memory`], which is kept until their exchange is over, or the node is closed.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allrail_collective::Operation;
use allrail_core::{FieldError, counted};
use allrail_engine::{Asked, Dtype};
use allrail_runtime::{
    CallOf, Launch as RustLaunch, Node as RustNode, Registered, RuntimeError, Settings,
};
use allrail_schedule::{Key, OperationName};
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use serde_json::json;

use crate::memory::{Kept, Memory};
use crate::{raise, to_json};

create_exception!(
    _core,
    RuntimeFault,
    PyRuntimeError,
    "The end of a job; `args[0]` is JSON with `kind`, `rank`, `tensor`, `what` and `hint`."
);

/// What a caller has asked for: word, reduction, dtype and sizes, as [`Asked`] has them.
type AskedFor = (PyBackedStr, PyBackedStr, PyBackedStr, Vec<u64>);

/// How often signals are looked for.
const SLICE: Duration = Duration::from_millis(100);

pub(crate) fn error(error: &RuntimeError) -> PyErr {
    let hint = error.hint().unwrap_or_default().to_owned();
    let input = |value: String| raise(FieldError::new("node", value, error.to_string(), &hint));
    let (kind, rank, tensor) = match error {
        RuntimeError::Setting(error) => return raise(error.clone()),
        RuntimeError::Engine(broken) => {
            return input(broken.to_string());
        }
        RuntimeError::OutOfTurn { call, .. } => {
            return input((*call).to_owned());
        }
        RuntimeError::Fault(fault) => (json!(fault.kind), fault.rank, fault.tensor.clone()),
        RuntimeError::Connect { rank, .. } => (json!("connect"), *rank, None),
        RuntimeError::System { .. } | RuntimeError::Interrupted => (json!("system"), None, None),
    };
    let what = error.to_string();
    RuntimeFault::new_err(to_json(
        &json!({"kind": kind, "rank": rank, "tensor": tensor, "what": what, "hint": hint}),
    ))
}

fn unknown(field: &str, value: &str, known: impl IntoIterator<Item: ToString>) -> PyErr {
    let known: Vec<String> = known.into_iter().map(|one| one.to_string()).collect();
    let hint = format!("one of {}", known.join(", "));
    raise(FieldError::new(field, value, "it is not known", hint))
}

/// Asks in slices until there is an answer, or time is over.
fn in_slices<T: Send>(
    py: Python<'_>,
    timeout: f64,
    ask: impl Fn(Duration) -> Result<Option<T>, RuntimeError> + Sync,
) -> PyResult<Option<T>> {
    let timeout = Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
    let end = Instant::now().checked_add(timeout);
    loop {
        let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()));
        if let Some(answer) = py.detach(|| ask(left.min(SLICE))).map_err(|e| error(&e))? {
            return Ok(Some(answer));
        }
        py.check_signals()?;
        if left.is_zero() {
            return Ok(None);
        }
    }
}

/// The node goes before what it may touch.
#[pyclass(frozen, module = "allrail._core")]
struct Node(RustNode, Arc<Kept>);

impl Node {
    /// Submits a registered tensor, of the size that it was registered with.
    fn submit_any(&self, memory: &Bound<'_, Memory>, key: u64, unused: bool) -> PyResult<u64> {
        let (elements, width) = self.0.registered(Key(key)).map_err(|e| error(&e))?;
        let wanted = elements.saturating_mul(width);
        let found = memory.get().bytes();
        if found as u64 != wanted {
            let why = format!(
                "the tensor was registered with {wanted}",
                wanted = counted(wanted, "byte")
            );
            let hint = "register each tensor with the shape and type that is submitted";
            return Err(raise(FieldError::new("memory", counted(found, "byte"), why, hint)));
        }
        let (node, at) = (&self.0, memory.get());
        let submitted = memory.py().detach(|| {
            let (pointer, key) = (at.pointer(), Key(key));
            // SAFETY: there are as many bytes as were registered; the memory is kept below, until the exchange
            // is over or the node is closed. That nobody else touches it is the caller's part: who does, has
            // other elements exchanged.
            unsafe {
                match unused {
                    false => node.submit(key, pointer, elements),
                    true => node.unused(key, pointer, elements),
                }
            }
        });
        let generation = submitted.map_err(|e| error(&e))?;
        self.1.keep((key, generation), memory);
        Ok(generation)
    }

    /// What was over, or never will be, is not kept any more.
    fn released(
        &self,
        py: Python<'_>,
        of: (u64, u64),
        waited: PyResult<Option<()>>,
    ) -> PyResult<bool> {
        let over = match &waited {
            Ok(answer) => answer.is_some(),
            // A signal, such as Ctrl-C, ends the wait and not the exchange.
            Err(raised) => raised.is_instance_of::<RuntimeFault>(py),
        };
        if over {
            self.1.release(of);
        }
        Ok(waited?.is_some())
    }
}

#[pymethods]
impl Node {
    #[new]
    fn new(py: Python<'_>, settings: &str) -> PyResult<Self> {
        let bound = py.detach(|| RustNode::bind(Settings::from_json(settings)?));
        bound.map(|node| Self(node, Kept::new())).map_err(|e| error(&e))
    }

    fn addresses(&self) -> Vec<String> {
        self.0.addresses().to_vec()
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is made of a list of Python's")]
    fn connect(&self, py: Python<'_>, addresses: Vec<Vec<String>>) -> PyResult<()> {
        let mut raised = None;
        let connected = py.detach(|| {
            #[expect(
                clippy::redundant_closure_for_method_calls,
                reason = "the method is for one lifetime, the closure for any"
            )]
            let mut goes_on = || match Python::attach(|py| py.check_signals()) {
                Ok(()) => true,
                Err(error) => {
                    raised = Some(error);
                    false
                }
            };
            self.0.connect(&addresses, &mut goes_on)
        });
        match (raised, connected) {
            (Some(raised), _) => Err(raised),
            (None, connected) => connected.map_err(|e| error(&e)),
        }
    }

    #[pyo3(signature = (name, dtype, shape, strides, place, group=None))]
    fn register(
        &self,
        name: String,
        dtype: String,
        shape: Vec<u64>,
        strides: Vec<i64>,
        place: u32,
        group: Option<u32>,
    ) -> PyResult<u64> {
        let tensor = Registered { name, dtype, shape, strides, place, group };
        self.0.register(tensor).map(|key| key.0).map_err(|e| error(&e))
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.start()).map_err(|e| error(&e))
    }

    fn submit(&self, key: u64, memory: &Bound<'_, Memory>) -> PyResult<u64> {
        self.submit_any(memory, key, false)
    }

    fn unused(&self, key: u64, memory: &Bound<'_, Memory>) -> PyResult<u64> {
        self.submit_any(memory, key, true)
    }

    fn wait(&self, py: Python<'_>, key: u64, generation: u64, timeout: f64) -> PyResult<bool> {
        let ask = |left| Ok(self.0.wait(Key(key), generation, left)?.then_some(()));
        self.released(py, (key, generation), in_slices(py, timeout, ask))
    }

    #[pyo3(signature = (kind, memory, dtype, *, priority=0, root=0, name=None, asked=None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's, by name")]
    #[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
    fn call(
        &self,
        py: Python<'_>,
        kind: &str,
        memory: &Bound<'_, Memory>,
        dtype: &str,
        priority: i64,
        root: u32,
        name: Option<&str>,
        asked: Option<AskedFor>,
    ) -> PyResult<u64> {
        let operation = Operation::ALL.into_iter().find(|one| one.to_string() == kind);
        let operation = operation.ok_or_else(|| unknown("kind", kind, Operation::ALL))?;
        let dtype_named = Dtype::named(dtype);
        let names = Dtype::ALL.map(Dtype::name);
        let dtype = dtype_named.ok_or_else(|| unknown("dtype", dtype, names))?;
        let asked =
            asked.as_ref().map_or_else(Asked::default, |(word, reduction, dtype, sizes)| Asked {
                word,
                reduction,
                dtype,
                sizes,
            });
        let call = CallOf { operation, root, dtype, priority, name, asked };
        let (at, width) = (memory.get(), u64::from(call.dtype.width()));
        let elements = at.bytes() as u64 / width;
        // SAFETY: these elements lie in the memory, which is kept below; else as for a registered tensor.
        let called = py.detach(|| unsafe { self.0.call(&call, at.pointer(), elements) });
        let ticket = called.map_err(|e| error(&e))?;
        self.1.keep((ticket, 0), memory);
        Ok(ticket)
    }

    fn wait_call(&self, py: Python<'_>, ticket: u64, timeout: f64) -> PyResult<bool> {
        let ask = |left| Ok(self.0.wait_call(ticket, left)?.then_some(()));
        self.released(py, (ticket, 0), in_slices(py, timeout, ask))
    }

    fn is_done(&self, key: u64, generation: u64) -> PyResult<bool> {
        self.0.is_done(Key(key), generation).map_err(|e| error(&e))
    }

    fn next_completions(&self, py: Python<'_>, timeout: f64) -> PyResult<Vec<(u64, u64)>> {
        let ask = |left| {
            let done = self.0.next_completions(left)?;
            Ok((!done.is_empty() || self.0.fault().is_some()).then_some(done))
        };
        let done = in_slices(py, timeout, ask)?.unwrap_or_default();
        let done = done.into_iter().map(|(key, generation)| (key.0, generation));
        Ok(done.inspect(|of| self.1.release(*of)).collect())
    }

    fn announce(&self, py: Python<'_>, key: u64, unused: bool) -> PyResult<u64> {
        py.detach(|| self.0.announce(Key(key), unused)).map_err(|e| error(&e))
    }

    fn next_launches(&self, py: Python<'_>, timeout: f64) -> PyResult<Vec<Launch>> {
        let ask = |left| {
            let launches = self.0.next_launches(left)?;
            Ok((!launches.is_empty()).then_some(launches))
        };
        let launches = in_slices(py, timeout, ask)?.unwrap_or_default();
        Ok(launches.iter().map(Launch::from).collect())
    }

    fn finished(&self, py: Python<'_>, launch: u64) -> PyResult<()> {
        py.detach(|| self.0.finished(launch)).map_err(|e| error(&e))
    }

    fn failed(&self, py: Python<'_>, launch: u64, why: &str) -> PyResult<()> {
        py.detach(|| self.0.failed(launch, why)).map_err(|e| error(&e))
    }

    fn blocked(&self, key: u64) -> Option<String> {
        self.0.blocked(Key(key))
    }

    fn report(&self, py: Python<'_>) -> String {
        to_json(&py.detach(|| self.0.report()))
    }

    fn timeline(&self, py: Python<'_>) -> String {
        to_json(&py.detach(|| self.0.timeline()))
    }

    fn take_warnings(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.0.take_warnings()).iter().map(ToString::to_string).collect()
    }

    fn abandon(&self) {
        self.0.abandon();
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.0.close());
        self.1.clear();
    }
}

/// A launch for a group of ranks that is not this node's.
#[pyclass(frozen, get_all, module = "allrail._core")]
struct Launch {
    number: u64,
    /// Alike for all stages of one chunk: key, generation, part, chunk.
    of: (u64, u64, u32, u32),
    stage: u32,
    stages: u32,
    dimension: u32,
    kind: String,
    slices: Vec<(u64, u64, u64)>,
    start: u64,
    end: u64,
}

impl From<&RustLaunch> for Launch {
    fn from(one: &RustLaunch) -> Self {
        let OperationName { key, generation, part, .. } = one.operation;
        let slice = |(key, range): &(Key, Range<u64>)| (key.0, range.start, range.end);
        Self {
            number: one.number,
            of: (key.0, generation, part, one.chunk),
            stage: one.stage.0,
            stages: one.stage.1,
            dimension: one.dimension,
            kind: one.kind.to_string(),
            slices: one.slices.iter().map(slice).collect(),
            start: one.elements.start,
            end: one.elements.end,
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("RuntimeFault", module.py().get_type::<RuntimeFault>())?;
    module.add_class::<Launch>()?;
    module.add_class::<Node>()
}
