//! The class `Memory`: memory of this host that something keeps where it is.
//!
//! It is made of an object, never of an address: a tensor of PyTorch, what speaks DLPack, or a buffer. So no
//! call from Python has a node read or write memory that is not there:
//!
//! | of | address and size | what keeps it |
//! |---|---|---|
//! | a tensor | DLPack's exchange table of its class, or a capsule before torch 2.10 | its storage: a tensor may be given another one meanwhile (`t.data = ...`, `set_`), and its memory stays |
//! | a capsule of DLPack | in it | the capsule's own deleter |
//! | a buffer | by the buffer protocol | the export: who has exported it does not move it |
//!
//! A storage can be resized in place, which frees its memory; whoever imports torch keeps that from happening
//! while a node has it (`allrail.torch.memory`), and asks [`in_flight`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyTuple, PyType};
use pyo3::{ffi, intern};

use crate::dlpack::{DlTensor, Exchange, Held, MAJOR, Place};

/// What torch's classes are asked with, once for all.
struct Torch {
    class: Py<PyType>,
    storage: Py<PyAny>,
    to_capsule: Py<PyAny>,
    exchange: Option<&'static Exchange>,
}

// SAFETY: the table is a constant of the library, which is never unloaded.
unsafe impl Send for Torch {}
// SAFETY: as above.
unsafe impl Sync for Torch {}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

impl Torch {
    fn get(py: Python<'_>) -> PyResult<&'static Self> {
        TORCH.get_or_try_init(py, || {
            let class = py.import("torch")?.getattr("Tensor")?.cast_into::<PyType>()?;
            let base = py.import("torch._C")?;
            let exchange = class.getattr("__dlpack_c_exchange_api__").ok();
            let exchange = exchange.and_then(|one| one.cast_into::<PyCapsule>().ok());
            let exchange = exchange.and_then(|one| {
                let table = one.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
                // SAFETY: a capsule of this name has this table, which lives as long as the process.
                Some(unsafe { table.cast::<Exchange>().as_ref() })
            });
            Ok(Self {
                // The method of the base, not one of a subclass.
                storage: class.getattr("untyped_storage")?.unbind(),
                class: class.unbind(),
                to_capsule: base.getattr("_to_dlpack")?.unbind(),
                exchange: exchange.filter(|one| one.version[0] == MAJOR && one.tensor_of.is_some()),
            })
        })
    }

    fn check(&self, py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<()> {
        let class = self.class.bind(py);
        // SAFETY: both are types, and the GIL is held.
        let is_one =
            unsafe { ffi::PyType_IsSubtype(tensor.get_type().as_type_ptr(), class.as_type_ptr()) };
        if is_one == 0 {
            let what = format!("a tensor of torch is wanted, not `{}`", tensor.get_type());
            return Err(PyTypeError::new_err(what));
        }
        Ok(())
    }

    /// Where a tensor's elements lie now.
    fn place_of(&self, py: Python<'_>, tensor: &Bound<'_, PyAny>) -> PyResult<Place> {
        if let Some(tensor_of) = self.exchange.and_then(|table| table.tensor_of) {
            let mut out = DlTensor::NONE;
            // SAFETY: the table is that of the class, and the object is of it, as `check` has seen.
            if unsafe { tensor_of(tensor.as_ptr(), &raw mut out) } != 0 {
                return Err(PyErr::take(py).unwrap_or_else(|| {
                    PyBufferError::new_err("its memory cannot be described by DLPack")
                }));
            }
            // SAFETY: it was filled in, for a tensor that is there.
            return unsafe { out.place() };
        }
        let capsule = self.to_capsule.bind(py).call1((tensor,))?;
        let held = Held::take(&capsule)?;
        // SAFETY: the capsule's tensor is held.
        unsafe { held.tensor().place() }
    }
}

/// What keeps memory where it is.
enum Keeps {
    Tensor {
        tensor: Py<PyAny>,
        /// Whatever storage the tensor is given, this one has the memory.
        _storage: Py<PyAny>,
    },
    Capsule {
        held: Held,
    },
    Buffer {
        _export: PyUntypedBuffer,
    },
}

/// See the module.
#[pyclass(frozen, module = "allrail._core")]
pub(crate) struct Memory {
    place: Place,
    keeps: Keeps,
    /// What else must live as long.
    _with: Option<Py<PyAny>>,
}

impl Memory {
    pub(crate) fn pointer(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.place.pointer)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.place.bytes
    }

    fn touches(&self, range: &Range<usize>) -> bool {
        let end = self.place.pointer.saturating_add(self.place.bytes);
        self.place.pointer < range.end && range.start < end
    }
}

#[pymethods]
impl Memory {
    #[staticmethod]
    fn of_tensor(tensor: Bound<'_, PyAny>) -> PyResult<Self> {
        let py = tensor.py();
        let torch = Torch::get(py)?;
        torch.check(py, &tensor)?;
        let place = torch.place_of(py, &tensor)?;
        let storage = torch.storage.bind(py).call1((&tensor,))?;
        let whole: usize = storage.call_method0(intern!(py, "nbytes"))?.extract()?;
        if place.bytes != whole && place.bytes > 0 {
            let start: usize = storage.call_method0(intern!(py, "data_ptr"))?.extract()?;
            let ends = |from: usize, bytes| from.checked_add(bytes);
            if ends(place.pointer, place.bytes) > ends(start, whole) {
                let what = "its storage is smaller than its elements: it was resized";
                return Err(PyBufferError::new_err(what));
            }
        }
        let keeps = Keeps::Tensor { tensor: tensor.unbind(), _storage: storage.unbind() };
        Ok(Self { place, keeps, _with: None })
    }

    #[staticmethod]
    #[pyo3(signature = (capsule, keeps=None))]
    fn of_dlpack(capsule: &Bound<'_, PyAny>, keeps: Option<Py<PyAny>>) -> PyResult<Self> {
        let held = Held::take(capsule)?;
        // SAFETY: it is held.
        let place = unsafe { held.tensor().place()? };
        Ok(Self { place, keeps: Keeps::Capsule { held }, _with: keeps })
    }

    #[staticmethod]
    #[pyo3(signature = (buffer, keeps=None))]
    fn of_buffer(buffer: &Bound<'_, PyAny>, keeps: Option<Py<PyAny>>) -> PyResult<Self> {
        let export = PyUntypedBuffer::get(buffer)?;
        if export.readonly() || !export.is_c_contiguous() {
            return Err(PyBufferError::new_err("a buffer that is contiguous, and writable"));
        }
        let (pointer, bytes) = (export.buf_ptr().addr(), export.len_bytes());
        let place = Place { pointer, bytes, dtype: (u8::MAX, 0), in_rows: true };
        Ok(Self { place, keeps: Keeps::Buffer { _export: export }, _with: keeps })
    }

    #[getter(pointer)]
    fn address(&self) -> usize {
        self.place.pointer
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.place.bytes
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tuple = |sides: &[i64]| Ok(PyTuple::new(py, sides)?.into_any());
        match &self.keeps {
            Keeps::Tensor { tensor, .. } => tensor.bind(py).getattr("shape"),
            // SAFETY: it is held.
            Keeps::Capsule { held } => tuple(unsafe { held.tensor().sides(held.tensor().shape) }),
            Keeps::Buffer { .. } => tuple(&[i64::try_from(self.place.bytes)?]),
        }
    }

    #[getter]
    fn dtype(&self) -> Option<String> {
        let kinds = ["int", "uint", "float", "opaque", "bfloat", "complex", "bool"];
        let (code, bits) = self.place.dtype;
        let kind = kinds.get(usize::from(code))?;
        Some(if *kind == "bool" { (*kind).to_owned() } else { format!("{kind}{bits}") })
    }

    #[getter]
    fn in_rows(&self) -> bool {
        self.place.in_rows
    }

    #[getter]
    fn read_only(&self) -> Option<bool> {
        match &self.keeps {
            Keeps::Capsule { held } => held.is_read_only(),
            Keeps::Tensor { .. } | Keeps::Buffer { .. } => Some(false),
        }
    }

    /// Whether the tensor that it was made of still has this memory.
    fn is_current(&self, py: Python<'_>) -> bool {
        let Keeps::Tensor { tensor, .. } = &self.keeps else { return true };
        let now = Torch::get(py).and_then(|torch| torch.place_of(py, tensor.bind(py)));
        now.is_ok_and(|now| now.pointer == self.place.pointer && now.bytes == self.place.bytes)
    }
}

/// What a node has of callers, by key and generation: kept until it is over, or the node is closed.
#[derive(Default)]
pub(crate) struct Kept(Mutex<BTreeMap<(u64, u64), Py<Memory>>>);

/// Those of all nodes of this process.
static NODES: Mutex<Vec<Weak<Kept>>> = Mutex::new(Vec::new());

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    pub(crate) fn new() -> Arc<Self> {
        let new = Arc::new(Self::default());
        let mut nodes = lock(&NODES);
        nodes.retain(|one| one.strong_count() > 0);
        nodes.push(Arc::downgrade(&new));
        new
    }

    pub(crate) fn keep(&self, of: (u64, u64), memory: &Bound<'_, Memory>) {
        let before = lock(&self.0).insert(of, memory.clone().unbind());
        drop(before);
    }

    /// No lock is held while memory is let go of: that may run code of Python's.
    pub(crate) fn release(&self, of: (u64, u64)) {
        let before = lock(&self.0).remove(&of);
        drop(before);
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *lock(&self.0));
        drop(all);
    }
}

/// Whether a node has any of so many bytes at an address: for whoever is about to free them.
#[pyfunction]
fn in_flight(pointer: usize, nbytes: usize) -> bool {
    let range = pointer..pointer.saturating_add(nbytes);
    let nodes: Vec<Arc<Kept>> = lock(&NODES).iter().filter_map(Weak::upgrade).collect();
    nodes.iter().any(|one| lock(&one.0).values().any(|memory| memory.get().touches(&range)))
}

/// A hash (CRC-64/NVME) of each memory's bytes.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "it is made of a list of Python's")]
fn hashes_of(py: Python<'_>, memories: Vec<Py<Memory>>) -> Vec<u64> {
    let places: Vec<(usize, usize)> =
        memories.iter().map(|one| (one.get().place.pointer, one.get().place.bytes)).collect();
    py.detach(|| {
        let hash = |(pointer, bytes): &(usize, usize)| {
            if *bytes == 0 {
                return 0;
            }
            let at = std::ptr::with_exposed_provenance::<u8>(*pointer);
            // SAFETY: the memories are held by the caller's list. Who writes there meanwhile gets the hash of
            // something in between.
            allrail_runtime::checksum::crc64(unsafe { std::slice::from_raw_parts(at, *bytes) })
        };
        places.iter().map(hash).collect()
    })
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Memory>()?;
    module.add_function(wrap_pyfunction!(in_flight, module)?)?;
    module.add_function(wrap_pyfunction!(hashes_of, module)?)
}
