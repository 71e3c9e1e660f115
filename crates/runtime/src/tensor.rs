//! What a caller says of its tensors and calls, and hears of launches.

use std::ops::Range;

use allrail_collective::Operation;
use allrail_engine::engine::Registration;
use allrail_engine::{Asked, Dtype, SignatureHash};
use allrail_schedule::signature::Signature;
use allrail_schedule::{Key, OperationName};

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
    /// Of a broadcast: whose buffer all get. Of others 0, or the root of what was asked.
    pub root: u32,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Of several that wait for a link, the highest goes first.
    pub priority: i64,
    /// What it is called on every rank. Only with the setting `named_calls`.
    pub name: Option<&'a str>,
    /// What it carries out, where that is not the kind itself, or elements of another type.
    pub asked: Asked<'a>,
}

impl CallOf<'_> {
    /// The root that its messages depend on.
    pub(crate) fn root_of_plan(&self) -> u32 {
        let of_asked = self.asked != Asked::default() && self.operation != Operation::Broadcast;
        if of_asked { 0 } else { self.root }
    }

    /// What ranks compare of it, where that is more than its kind and its elements.
    pub(crate) fn signature(&self, elements: u64) -> Option<SignatureHash> {
        if self.asked == Asked::default() {
            return None;
        }
        let dtype = if self.asked.dtype.is_empty() { self.dtype.name() } else { self.asked.dtype };
        let asked = Asked { dtype, ..self.asked };
        let elements = asked.elements(elements.saturating_mul(u64::from(self.dtype.width())));
        let shape = if asked.sizes.is_empty() { &[elements][..] } else { asked.sizes };
        Some(SignatureHash::of_asked(self.operation, self.root, &asked, shape))
    }
}

/// A stage of one chunk, to be run by the group of its dimension.
///
/// The chunk's elements are those of a buffer: the slices laid end to end. A reduce-scatter leaves each rank of
/// the line its share, in the order of their places; an all-gather puts shares together again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// By what it is said to be over.
    pub number: u64,
    /// The operation that it is of, on every rank.
    pub operation: OperationName,
    /// Which chunk of it.
    pub chunk: u32,
    /// Which stage, and of how many.
    pub stage: (u32, u32),
    /// What it does.
    pub kind: Operation,
    /// On which dimension.
    pub dimension: u32,
    /// What lies in the buffer: elements of tensors.
    pub slices: Vec<(Key, Range<u64>)>,
    /// The chunk's elements of the buffer.
    pub elements: Range<u64>,
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
