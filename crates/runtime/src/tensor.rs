//! What a caller says of its tensors and calls.

use allrail_collective::Operation;
use allrail_engine::Dtype;
use allrail_engine::engine::Registration;
use allrail_schedule::signature::Signature;

use crate::RuntimeError;
use crate::memory::{Memory, is_dense};

/// A tensor, as it is registered. All ranks register the same, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registered {
    /// Its name, unique on this rank.
    pub name: String,
    /// The type of its elements, such as `float32`.
    pub dtype: String,
    /// Its shape; empty for a single number.
    pub shape: Vec<u64>,
    /// Elements from one to the next in each direction; empty for a contiguous tensor.
    pub strides: Vec<i64>,
    /// Its place in the next forward pass, 0 first.
    pub place: u32,
    /// Tensors of one group travel together, where the policy packs.
    pub group: Option<u32>,
}

impl Registered {
    /// As an engine takes it.
    ///
    /// # Errors
    /// Strides with holes between elements.
    pub fn registration(self) -> Result<Registration, RuntimeError> {
        let Registered { name, dtype, shape, strides, place, group } = self;
        if !strides.is_empty() && !is_dense(&shape, &strides) {
            let why = format!("elements of tensor `{name}` do not lie close together, each once");
            let text = format!("{strides:?}");
            return Err(RuntimeError::setting("strides", text, why, "`tensor.contiguous()`"));
        }
        let width = Dtype::named(&dtype).map_or(1, Dtype::width);
        let signature = Signature { name, dtype, shape, strides };
        Ok(Registration { signature, width, place, group })
    }
}

/// An operation that is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOf<'a> {
    /// Of which kind.
    pub operation: Operation,
    /// Of a broadcast: whose buffer all get. 0 for others.
    pub root: u32,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Of several that wait for a link, the highest goes first.
    pub priority: i64,
    /// What it is called on every rank. Only with the setting `named_calls`.
    pub name: Option<&'a str>,
}

/// The memory of so many elements.
///
/// # Safety
/// As [`Node::submit`](crate::Node::submit).
pub(crate) unsafe fn memory_at(
    pointer: *mut u8,
    elements: u64,
    dtype: Dtype,
) -> Result<Memory, RuntimeError> {
    let bytes = elements.checked_mul(u64::from(dtype.width()));
    let bytes = bytes.and_then(|bytes| isize::try_from(bytes).ok()).map(isize::unsigned_abs);
    let fits = |bytes: &usize| {
        pointer.addr().checked_add(*bytes).is_some() && (*bytes == 0 || !pointer.is_null())
    };
    let Some(bytes) = bytes.filter(fits) else {
        let (at, why) = (format!("{pointer:?}"), "there is no such memory");
        return Err(RuntimeError::setting("pointer", at, why, "a tensor in host memory"));
    };
    // SAFETY: as the caller promises; the length is that of the elements.
    Ok(unsafe { Memory::new(pointer, bytes) })
}
