//! The memory of tensors, by address: the one place where bytes of others are read and written.
//!
//! Whoever submits a tensor promises that its memory stays where it is, and is nobody else's, until its
//! exchange is over or the node is closed ([`Node::submit`](crate::Node::submit)). What of it is touched when
//! is the engine's matter: a message is handed out once everything that touches its elements before is done,
//! and what is handed out at one time touches no elements in common, but for sends that read the same
//! ([`ChunkRun`](allrail_engine::ChunkRun)). So a [`View`] of a message that is handed out, and not done,
//! is the only one that writes its elements, and none reads what another writes.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;

use allrail_collective::rank::{Action, Chunk, Combine, Message};
use allrail_engine::Dtype;

/// Contiguous memory of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: an address and a length; who reads and writes there is said in the module.
unsafe impl Send for Memory {}

impl Memory {
    /// # Safety
    /// `at` is the start of `bytes` bytes that may be read and written until the caller takes them back.
    pub(crate) unsafe fn new(at: *mut u8, bytes: usize) -> Self {
        Self { at, bytes }
    }

    /// Where it lies, for comparing.
    pub(crate) fn range(self) -> Range<usize> {
        let from = self.at.addr();
        from..from.saturating_add(self.bytes)
    }

    /// Part of it; all that is not there is left out.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        let (from, to) = (range.start.min(self.bytes), range.end.min(self.bytes));
        // SAFETY: `from` is no further than the end of the memory.
        Self { at: unsafe { self.at.add(from) }, bytes: to.saturating_sub(from) }
    }

    /// # Safety
    /// Nothing else reads or writes there as long as the slice lives.
    pub(crate) unsafe fn as_mut<'a>(self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: it is memory of this length by `new`, and nobody else's by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    /// # Safety
    /// Nothing writes there as long as the slice lives.
    pub(crate) unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: it is memory of this length by `new`, and nobody writes by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes) }
    }
}

/// Tensors laid end to end: the buffer of an operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    /// Each with where it begins in the buffer.
    parts: Vec<(usize, Memory)>,
}

impl Buffer {
    pub(crate) fn push(&mut self, memory: Memory) {
        let from = self.parts.last().map_or(0, |(from, last)| from + last.bytes);
        if memory.bytes > 0 {
            self.parts.push((from, memory));
        }
    }

    /// Appends what lies at a range of bytes.
    fn append(&self, range: Range<usize>, out: &mut Vec<Memory>) {
        let first = self.parts.partition_point(|(from, memory)| from + memory.bytes <= range.start);
        for (from, memory) in &self.parts[first..] {
            if *from >= range.end {
                break;
            }
            let here = range.start.max(*from) - from..range.end.min(from + memory.bytes) - from;
            out.push(memory.part(here));
        }
    }
}

/// The elements of one message, in the order in which it carries them.
#[derive(Debug)]
pub(crate) struct View {
    dtype: Dtype,
    combine: Option<Combine>,
    parts: Vec<Memory>,
    /// How many parts are done, and how many bytes of the next.
    done: usize,
    within: usize,
}

impl View {
    pub(crate) fn new(buffer: &Buffer, dtype: Dtype, chunk: &Chunk, message: &Message) -> Self {
        let width = dtype.width() as usize;
        let mut parts = Vec::with_capacity(1);
        for range in chunk.ranges(message) {
            // No more than there is memory: parts that are not there are left out.
            let byte =
                |element: u64| usize::try_from(element).unwrap_or(usize::MAX).saturating_mul(width);
            buffer.append(byte(range.start)..byte(range.end), &mut parts);
        }
        let combine = match message.action {
            Action::Send => None,
            Action::Receive(combine) => Some(combine),
        };
        Self { dtype, combine, parts, done: 0, within: 0 }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done == self.parts.len()
    }

    fn advance(&mut self, mut bytes: usize) {
        while let Some(part) = self.parts.get(self.done) {
            let left = part.bytes - self.within;
            if bytes < left {
                self.within += bytes;
                return;
            }
            bytes -= left;
            (self.done, self.within) = (self.done + 1, 0);
        }
    }

    /// What is next in memory, all that lies together.
    fn next(&self) -> Option<Memory> {
        self.parts.get(self.done).map(|part| part.part(self.within..part.bytes))
    }

    /// Combines what has come with what is held, as far as there are whole elements; how many bytes that
    /// took.
    pub(crate) fn combine(&mut self, came: &[u8]) -> usize {
        // What replaces may stop within an element, as `put` does.
        let width = match self.combine {
            Some(Combine::Reduce) => self.dtype.width() as usize,
            Some(Combine::Replace) | None => 1,
        };
        let mut taken = 0;
        while let Some(next) = self.next() {
            let left = came.len() - taken;
            let bytes = next.bytes.min(left - left % width);
            if bytes == 0 {
                break;
            }
            let now = &came[taken..taken + bytes];
            // SAFETY: the message of this view is handed out and not done: nothing else touches these.
            let held = unsafe { next.part(0..bytes).as_mut() };
            match self.combine {
                Some(Combine::Reduce) => self.dtype.add(held, now),
                Some(Combine::Replace) => held.copy_from_slice(now),
                // Its bytes go the other way.
                None => {}
            }
            taken += bytes;
            self.advance(bytes);
        }
        taken
    }

    /// Where bytes that have come may be put as they are; nothing where they are to be combined. `read` may
    /// say more than fits there: the rest is elsewhere.
    pub(crate) fn put(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>,
    ) -> Option<std::io::Result<usize>> {
        if self.combine != Some(Combine::Replace) {
            return None;
        }
        let next = self.next()?;
        // SAFETY: as in `combine`.
        let result = read(unsafe { next.as_mut() });
        if let Ok(bytes) = &result {
            self.advance((*bytes).min(next.bytes));
        }
        Some(result)
    }

    /// What is to be sent next, in as many pieces as there is room for, and no more than so many bytes; how
    /// many pieces, and whether that is all that is left.
    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>], most: usize) -> (usize, bool) {
        let (mut count, mut room) = (0, most);
        for part in &self.parts[self.done..] {
            let from = if count == 0 { self.within } else { 0 };
            if part.bytes == from {
                continue;
            }
            let bytes = (part.bytes - from).min(room);
            let Some(place) = out.get_mut(count).filter(|_| bytes > 0) else {
                return (count, false);
            };
            // SAFETY: the send of this view is handed out and not done: nothing writes its elements.
            *place = IoSlice::new(unsafe { part.part(from..from + bytes).as_slice() });
            (count, room) = (count + 1, room - bytes);
            if from + bytes < part.bytes {
                return (count, false);
            }
        }
        (count, true)
    }

    /// As many bytes of it were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.advance(bytes);
    }
}

/// Whether elements of these strides lie close together, each in a place of its own.
#[must_use]
pub fn is_dense(shape: &[u64], strides: &[i64]) -> bool {
    if shape.len() != strides.len() {
        return false;
    }
    if shape.contains(&0) {
        return true;
    }
    let mut sides: Vec<(i64, u64)> =
        strides.iter().copied().zip(shape.iter().copied()).filter(|(_, side)| *side > 1).collect();
    sides.sort_unstable();
    let mut wanted = 1i64;
    sides.into_iter().all(|(stride, side)| {
        let fits = stride == wanted;
        wanted = i64::try_from(side).ok().and_then(|side| wanted.checked_mul(side)).unwrap_or(-1);
        fits
    })
}

/// Which memory is in use, so that no two exchanges share any.
#[derive(Debug, Default)]
pub(crate) struct InUse<T>(BTreeMap<usize, (usize, T)>);

impl<T: Copy> InUse<T> {
    /// Takes memory into use; whose it is already, if it is.
    pub(crate) fn take(&mut self, memory: Memory, whose: T) -> Result<(), T> {
        let Range { start, end } = memory.range();
        if start == end {
            return Ok(());
        }
        if let Some((_, (_, other))) =
            self.0.range(..end).next_back().filter(|(_, (other_end, _))| *other_end > start)
        {
            return Err(*other);
        }
        self.0.insert(start, (end, whose));
        Ok(())
    }

    pub(crate) fn give_back(&mut self, memory: Memory) {
        self.0.remove(&memory.range().start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_dense_in_any_order_of_directions() {
        assert!(is_dense(&[2, 3], &[3, 1]) && is_dense(&[2, 3], &[1, 2]) && is_dense(&[], &[]));
        // Channels last, and a direction of one.
        assert!(is_dense(&[2, 3, 4, 5], &[60, 1, 15, 3]) && is_dense(&[4, 1], &[1, 77]));
        assert!(!is_dense(&[2, 3], &[6, 2]) && !is_dense(&[2, 3], &[0, 1]));
        assert!(!is_dense(&[2, 3], &[4, 1]) && !is_dense(&[3], &[-1]) && !is_dense(&[3], &[]));
    }

    #[test]
    fn memory_is_in_one_use_at_a_time() {
        let mut bytes = [0u8; 100];
        // SAFETY: of an array that lives on.
        let all = unsafe { Memory::new(bytes.as_mut_ptr(), 100) };
        let mut used = InUse::default();
        assert_eq!(used.take(all.part(10..20), 1), Ok(()));
        assert_eq!(used.take(all.part(20..30), 2), Ok(()));
        assert_eq!(used.take(all.part(0..11), 3), Err(1));
        assert_eq!(used.take(all.part(19..40), 3), Err(2));
        assert_eq!(used.take(all.part(15..15), 3), Ok(()));
        used.give_back(all.part(10..20));
        assert_eq!(used.take(all.part(0..20), 3), Ok(()));
    }
}
