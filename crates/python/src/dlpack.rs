//! DLPack: a tensor of any library as `dlpack.h` has it, and where its elements lie.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Types of devices whose memory the host reads: its own, and what is pinned for a GPU.
const HOST: [i32; 3] = [1, 3, 11];
const READ_ONLY: u64 = 1;
/// The major version of DLPack whose structures are read here.
pub(crate) const MAJOR: u32 = 1;
const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

/// `DLTensor` of `dlpack.h`.
#[repr(C)]
pub(crate) struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    pub(crate) shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
pub(crate) struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
pub(crate) struct Versioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: DlTensor,
}

/// `DLPackExchangeAPI`, as far as it is called.
#[repr(C)]
pub(crate) struct Exchange {
    pub(crate) version: [u32; 2],
    before: *const c_void,
    allocator: *const c_void,
    managed_of: *const c_void,
    object_of: *const c_void,
    pub(crate) tensor_of: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut DlTensor) -> i32>,
}

/// Contiguous memory of the host, and the type of what lies there as DLPack has it: code, bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pointer: usize,
    pub(crate) bytes: usize,
    pub(crate) dtype: (u8, u8),
    /// Whether elements lie in the order of rows.
    pub(crate) in_rows: bool,
}

impl DlTensor {
    pub(crate) const NONE: Self = Self {
        data: std::ptr::null_mut(),
        device_type: 0,
        device_id: 0,
        ndim: 0,
        code: 0,
        bits: 0,
        lanes: 0,
        shape: std::ptr::null(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };

    /// # Safety
    /// Its shape, or its strides, are there, as many as it says; they stay as long as it is looked at.
    pub(crate) unsafe fn sides(&self, at: *const i64) -> &[i64] {
        match usize::try_from(self.ndim) {
            // SAFETY: as the caller promises.
            Ok(count) if count > 0 && !at.is_null() => unsafe {
                std::slice::from_raw_parts(at, count)
            },
            _ => &[],
        }
    }

    /// # Safety
    /// Its shape and strides are there, as many as it says.
    pub(crate) unsafe fn place(&self) -> PyResult<Place> {
        let refuse = |why: &str| Err(PyBufferError::new_err(why.to_owned()));
        if !HOST.contains(&self.device_type) {
            return refuse("it is not in the memory of the host");
        }
        // SAFETY: as the caller promises.
        let (shape, strides) = unsafe { (self.sides(self.shape), self.sides(self.strides)) };
        let in_rows = is_in_rows(shape, strides);
        if !in_rows && !is_dense(shape, strides) {
            return refuse("its elements do not fill one stretch of memory");
        }
        let bits = usize::from(self.bits) * usize::from(self.lanes);
        let side = |side: &i64| usize::try_from(*side).unwrap_or(0);
        let bytes = shape.iter().map(side).try_fold(bits / 8, usize::checked_mul);
        let Some(bytes) = bytes.filter(|_| bits % 8 == 0) else {
            return refuse("its elements have no whole number of bytes");
        };
        let offset = usize::try_from(self.byte_offset).unwrap_or(usize::MAX);
        let pointer = self.data.addr().wrapping_add(offset);
        if bytes > 0 && self.data.is_null() {
            return refuse("its memory was freed, such as by `untyped_storage().resize_(0)`");
        }
        let code = if self.lanes == 1 { self.code } else { u8::MAX };
        Ok(Place { pointer, bytes, dtype: (code, self.bits), in_rows })
    }
}

/// Whether elements lie one after the other in the order of rows; no strides mean that they do.
fn is_in_rows(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1i64;
    shape.contains(&0)
        || shape.iter().zip(strides).rev().all(|(side, stride)| {
            let fits = *side == 1 || *stride == step;
            step = step.wrapping_mul(*side);
            fits
        })
}

/// Whether they fill one stretch of memory in another order.
fn is_dense(shape: &[i64], strides: &[i64]) -> bool {
    let counts: Vec<u64> = shape.iter().map(|side| u64::try_from(*side).unwrap_or(0)).collect();
    allrail_runtime::is_dense(&counts, strides)
}

/// What a capsule held: freed by the deleter that came with it.
pub(crate) enum Held {
    Managed(NonNull<Managed>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: DLPack lets a tensor be deleted by any thread.
unsafe impl Send for Held {}
// SAFETY: it is only looked at.
unsafe impl Sync for Held {}

impl Held {
    /// Takes what is in a capsule, which nobody else can take after.
    pub(crate) fn take(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Ok(capsule) = capsule.cast::<PyCapsule>() else {
            return Err(PyTypeError::new_err("`__dlpack__` has given no capsule"));
        };
        let rename = |to: &'static CStr| {
            // SAFETY: it is a capsule, the GIL is held, and the name is static.
            unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), to.as_ptr()) };
        };
        if let Ok(there) = capsule.pointer_checked(Some(VERSIONED)) {
            let there = there.cast::<Versioned>();
            // SAFETY: a capsule of this name holds one.
            let version = unsafe { there.as_ref() }.version;
            if version[0] != MAJOR {
                let what = format!("DLPack {}.{} is not known", version[0], version[1]);
                return Err(PyBufferError::new_err(what));
            }
            rename(c"used_dltensor_versioned");
            return Ok(Self::Versioned(there));
        }
        let there = capsule
            .pointer_checked(Some(UNVERSIONED))
            .map_err(|_| PyValueError::new_err("the capsule of DLPack was used before"))?;
        rename(c"used_dltensor");
        Ok(Self::Managed(there.cast()))
    }

    pub(crate) fn tensor(&self) -> &DlTensor {
        // SAFETY: it is there until the deleter is called.
        unsafe {
            match self {
                Self::Managed(there) => &there.as_ref().tensor,
                Self::Versioned(there) => &there.as_ref().tensor,
            }
        }
    }

    /// None where it does not say.
    pub(crate) fn is_read_only(&self) -> Option<bool> {
        match self {
            Self::Managed(_) => None,
            // SAFETY: as above.
            Self::Versioned(there) => Some(unsafe { there.as_ref() }.flags & READ_ONLY != 0),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: it was taken from its capsule, and is deleted once.
        unsafe {
            match self {
                Self::Managed(there) => {
                    if let Some(deleter) = there.as_ref().deleter {
                        deleter(there.as_ptr());
                    }
                }
                Self::Versioned(there) => {
                    if let Some(deleter) = there.as_ref().deleter {
                        deleter(there.as_ptr());
                    }
                }
            }
        }
    }
}
