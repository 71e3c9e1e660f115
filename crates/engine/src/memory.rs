//! The elements of a message, read from memory and combined with it.
//!
//! A [`Chunk`] says which elements; here they are bytes, as frameworks hold them. Nothing outside the message's ranges is touched, and memory that is shorter
//! than the plan's buffer is an error before anything is.

use allrail_collective::rank::{Action, Chunk, Combine, Message};
use allrail_core::counted;
use thiserror::Error;

use crate::Dtype;

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
    #[error(
        "message {place} has {expected}, and {bytes} came",
        expected = counted(*.expected, "byte")
    )]
    Frame {
        /// The message.
        place: u32,
        /// By the plan.
        expected: u64,
        /// As it came.
        bytes: u64,
    },
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
