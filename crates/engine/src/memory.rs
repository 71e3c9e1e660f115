//! The elements of a message, read from memory and combined with it.
//!
//! A [`Chunk`] says which elements; here they are bytes, little-endian, as frameworks hold them. Integers
//! wrap around, as theirs do. Nothing outside the message's ranges is touched, and memory that is shorter
//! than the plan's buffer is an error before anything is.

use allrail_collective::rank::{Action, Chunk, Combine, Message};
use thiserror::Error;

/// An element type that can be summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// 32 bits, IEEE.
    Float32,
    /// 64 bits, IEEE.
    Float64,
    /// 32 bits, signed.
    Int32,
    /// 64 bits, signed.
    Int64,
}

/// Memory or a frame does not have what the message needs. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Outside {
    /// The memory ends before the message's elements do.
    #[error("message {place} reaches to byte {to}, and the memory has {bytes}")]
    Memory {
        /// The message.
        place: u32,
        /// Where its elements end.
        to: u64,
        /// How much memory there is.
        bytes: u64,
    },
    /// The frame has another length.
    #[error("message {place} has {expected} bytes, and {bytes} came")]
    Frame {
        /// The message.
        place: u32,
        /// By the plan.
        expected: u64,
        /// As it came.
        bytes: u64,
    },
}

macro_rules! sum {
    ($kind:ty, $held:expr, $came:expr, $plus:expr) => {{
        const WIDTH: usize = size_of::<$kind>();
        let (held, _) = $held.as_chunks_mut::<WIDTH>();
        let (came, _) = $came.as_chunks::<WIDTH>();
        for (held, came) in held.iter_mut().zip(came) {
            let plus: fn($kind, $kind) -> $kind = $plus;
            *held =
                plus(<$kind>::from_le_bytes(*held), <$kind>::from_le_bytes(*came)).to_le_bytes();
        }
    }};
}

impl Dtype {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Float32, Self::Float64, Self::Int32, Self::Int64];

    /// As frameworks call it, and signatures do.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Bytes of an element.
    #[must_use]
    pub fn width(self) -> u32 {
        match self {
            Self::Float32 | Self::Int32 => 4,
            Self::Float64 | Self::Int64 => 8,
        }
    }

    /// Adds `came` to `held`, element by element.
    fn add(self, held: &mut [u8], came: &[u8]) {
        match self {
            Self::Float32 => sum!(f32, held, came, |a, b| a + b),
            Self::Float64 => sum!(f64, held, came, |a, b| a + b),
            Self::Int32 => sum!(i32, held, came, i32::wrapping_add),
            Self::Int64 => sum!(i64, held, came, i64::wrapping_add),
        }
    }
}

/// The ranges of a message in bytes, checked against the memory.
fn ranges<'a>(
    (chunk, message): (&'a Chunk, &'a Message),
    width: u32,
    memory: usize,
) -> Result<impl Iterator<Item = std::ops::Range<usize>> + 'a, Outside> {
    let width = u64::from(width);
    let to = chunk.ranges(message).map(|range| range.end).max().unwrap_or(0).saturating_mul(width);
    if usize::try_from(to).is_ok_and(|to| to <= memory) {
        let byte = move |element: u64| usize::try_from(element * width).unwrap_or(memory);
        Ok(chunk.ranges(message).map(move |range| byte(range.start)..byte(range.end)))
    } else {
        Err(Outside::Memory { place: message.place, to, bytes: memory as u64 })
    }
}

/// Appends the elements of a message to `out`, as it carries them.
///
/// # Errors
/// [`Outside::Memory`].
pub fn read(
    chunk: &Chunk,
    message: &Message,
    dtype: Dtype,
    memory: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), Outside> {
    for range in ranges((chunk, message), dtype.width(), memory.len())? {
        out.extend_from_slice(&memory[range]);
    }
    Ok(())
}

/// Combines what a message has carried with what is held.
///
/// # Errors
/// [`Outside::Memory`], [`Outside::Frame`].
pub fn combine(
    chunk: &Chunk,
    message: &Message,
    dtype: Dtype,
    memory: &mut [u8],
    mut came: &[u8],
) -> Result<(), Outside> {
    let (place, bytes) = (message.place, came.len() as u64);
    let expected = message.elements.saturating_mul(u64::from(dtype.width()));
    if bytes != expected {
        return Err(Outside::Frame { place, expected, bytes });
    }
    for range in ranges((chunk, message), dtype.width(), memory.len())? {
        let held = &mut memory[range];
        let (now, rest) = came.split_at(held.len());
        match message.action {
            Action::Receive(Combine::Reduce) => dtype.add(held, now),
            Action::Receive(Combine::Replace) => held.copy_from_slice(now),
            // Its bytes go the other way.
            Action::Send => {}
        }
        came = rest;
    }
    Ok(())
}
