//! A ring of bytes in memory that two processes have in common: one writes, one reads.
//!
//! `written` and `read` count bytes since the beginning and only grow; their difference is what lies in the
//! ring. Each side has its own count for itself, and looks at the other's once each time: a difference that
//! the ring cannot hold ends the link. So whatever a peer writes there, this side touches no byte outside
//! of the ring. The bytes themselves are the peer's, as those of any connection.
//!
//! Who finds nothing to do says so (`reader_waits`, `writer_waits`) and looks once more; who gives the other
//! something to do looks there afterwards, and has to wake it. One of the two sees the other.

use std::io::IoSlice;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::mapping::{Indices, Mapping, RING};
use crate::frame::BadFrame;

/// What is written or read at once: the other side goes on with it meanwhile.
const PIECE: usize = RING / 4;

fn at(ring: NonNull<u8>, count: u64) -> NonNull<u8> {
    // SAFETY: less than a ring from its beginning.
    unsafe { ring.add((count % RING as u64) as usize) }
}

/// How much lies in a ring.
fn unread(written: u64, read: u64) -> Result<usize, BadFrame> {
    match written.wrapping_sub(read) {
        unread if unread <= RING as u64 => Ok(unread as usize),
        unread => Err(BadFrame::Ring { unread, most: RING as u64 }),
    }
}

/// Whether the other side wants to be woken, and is told by this.
fn is_waiting(flag: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::Relaxed) != 0
}

/// The end that writes.
pub(super) struct Writer {
    mapping: Arc<Mapping>,
    written: u64,
}

impl Writer {
    pub(super) fn new(mapping: Arc<Mapping>) -> Self {
        Self { mapping, written: 0 }
    }

    fn indices(&self) -> &Indices {
        // SAFETY: in the mapping, which this holds; all of it are atomics.
        unsafe { self.mapping.outward().0.as_ref() }
    }

    fn unread(&self) -> Result<usize, BadFrame> {
        unread(self.written, self.indices().read.0.load(Ordering::Acquire))
    }

    /// Writes as much as there is room for, and some at least where there is room.
    pub(super) fn write(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, BadFrame> {
        let room = (RING - self.unread()?).min(PIECE);
        let ring = self.mapping.outward().1;
        let mut done = 0;
        for piece in pieces {
            let now = piece.len().min(room - done);
            let to = at(ring, self.written + done as u64);
            // SAFETY: less than a ring of bytes from a place in its first copy lies in the two copies. They
            // are free: the other side reads what is counted as written. If it does not keep to that, it
            // reads other bytes than it should.
            unsafe { to.as_ptr().copy_from_nonoverlapping(piece.as_ptr(), now) };
            done += now;
        }
        self.written += done as u64;
        self.indices().written.0.store(self.written, Ordering::Release);
        Ok(done)
    }

    pub(super) fn reader_waits(&self) -> bool {
        is_waiting(&self.indices().reader_waits.0)
    }

    /// Before it waits for room: whether there is none, and the other side will wake it.
    pub(super) fn waits(&self) -> Result<bool, BadFrame> {
        let flag = &self.indices().writer_waits.0;
        flag.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let full = self.unread()? == RING;
        if !full {
            flag.store(0, Ordering::Relaxed);
        }
        Ok(full)
    }
}

/// The end that reads.
pub(super) struct Reader {
    mapping: Arc<Mapping>,
    read: u64,
}

impl Reader {
    pub(super) fn new(mapping: Arc<Mapping>) -> Self {
        Self { mapping, read: 0 }
    }

    fn indices(&self) -> &Indices {
        // SAFETY: as that of the writer.
        unsafe { self.mapping.inward().0.as_ref() }
    }

    /// How much there is to be read.
    pub(super) fn unread(&self) -> Result<usize, BadFrame> {
        unread(self.indices().written.0.load(Ordering::Acquire), self.read)
    }

    /// Copies the first of `unread` bytes, as many as there is room for and a piece at most; how many. Whatever
    /// is done with them is done with the copy: no reference is ever made to memory that a peer may write to.
    pub(super) fn copy(&mut self, into: &mut [u8], unread: usize) -> usize {
        let bytes = into.len().min(unread).min(PIECE);
        let from = at(self.mapping.inward().1, self.read);
        // SAFETY: a piece is less than a ring, and as many bytes from a place in its first copy lie in the two
        // copies; `into` is this process's own, and apart from them. The other side may write there, against
        // the rules: then other bytes are copied.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), bytes) };
        self.read += bytes as u64;
        self.indices().read.0.store(self.read, Ordering::Release);
        bytes
    }

    /// Whether the other side waits for room, and there is enough for it to be worth its while.
    pub(super) fn writer_waits(&self) -> Result<bool, BadFrame> {
        Ok(self.unread()? <= RING / 2 && is_waiting(&self.indices().writer_waits.0))
    }

    /// Before it waits: whether there is nothing, and the other side will wake it.
    pub(super) fn waits(&self) -> Result<bool, BadFrame> {
        let flag = &self.indices().reader_waits.0;
        flag.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let nothing = self.unread()? == 0;
        if !nothing {
            flag.store(0, Ordering::Relaxed);
        }
        Ok(nothing)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    /// Both ends of a ring, and what a peer could write of its indices.
    fn ends() -> (Writer, Reader) {
        let memory = Mapping::create().expect("memory");
        let side = |dials| Arc::new(Mapping::new(&memory, dials).expect("it is mapped"));
        (Writer::new(side(true)), Reader::new(side(false)))
    }

    fn counts(reader: &Reader) -> [&AtomicU64; 2] {
        // SAFETY: in the mapping, which outlives the reader.
        let indices = unsafe { reader.mapping.inward().0.as_ref() };
        [&indices.written.0, &indices.read.0]
    }

    fn read(reader: &mut Reader, most: usize) -> Vec<u8> {
        let mut came = vec![0; most];
        let unread = reader.unread().expect("right counts");
        let bytes = reader.copy(&mut came, unread);
        came.truncate(bytes);
        came
    }

    #[test]
    fn bytes_come_as_they_were_written_over_the_end_of_the_ring_too() {
        let (mut writer, mut reader) = ends();
        let mut draw = Pcg64::seed_from_u64(3);
        let all: Vec<u8> = (0..8 * RING).map(|_| draw.random()).collect();
        let (mut sent, mut came) = (0, Vec::new());
        while came.len() < all.len() {
            let (one, two) = (draw.random_range(0..PIECE), draw.random_range(0..PIECE));
            let middle = (sent + one).min(all.len());
            let pieces = [&all[sent..middle], &all[middle..(middle + two).min(all.len())]];
            sent += writer.write(&pieces.map(IoSlice::new)).expect("right counts");
            came.extend(read(&mut reader, draw.random_range(0..2 * PIECE)));
        }
        assert!(came == all);
    }

    #[test]
    fn a_full_ring_takes_nothing_and_either_side_is_woken_once() {
        let (mut writer, mut reader) = ends();
        let bytes = vec![7; PIECE];
        let piece = [IoSlice::new(&bytes)];
        assert_eq!(reader.waits(), Ok(true));
        assert_eq!(writer.write(&piece), Ok(PIECE));
        assert!(writer.reader_waits() && !writer.reader_waits());
        // There is something meanwhile.
        assert_eq!(reader.waits(), Ok(false));
        assert!(!writer.reader_waits());
        assert_eq!(writer.waits(), Ok(false));
        while writer.write(&piece).expect("right counts") > 0 {}
        assert_eq!(writer.unread(), Ok(RING));
        assert_eq!(writer.waits(), Ok(true));
        assert_eq!(reader.writer_waits(), Ok(false), "it is not worth its while");
        for _ in 0..RING / 2 / PIECE {
            assert_eq!(read(&mut reader, RING).len(), PIECE);
        }
        assert_eq!(reader.writer_waits(), Ok(true));
        assert_eq!(reader.writer_waits(), Ok(false));
    }

    /// A peer writes anything at all into its indices while both sides work: every look is an answer
    /// within the ring, or an error.
    #[test]
    fn whatever_a_peer_counts_nothing_outside_of_the_ring_is_touched() {
        let mut draw = Pcg64::seed_from_u64(11);
        let bytes = vec![1; PIECE];
        for _ in 0..200 {
            let (mut writer, mut reader) = ends();
            for _ in 0..20 {
                let near = draw.random_range(0..3 * RING as u64);
                let value = match draw.random_range(0..4) {
                    0 => draw.random(),
                    1 => u64::MAX - near,
                    2 => reader.read.wrapping_sub(near),
                    _ => writer.written.wrapping_add(near),
                };
                let [written, read] = counts(&reader);
                if draw.random() { written } else { read }.store(value, Ordering::Release);
                if let Ok(unread) = reader.unread() {
                    assert!(unread <= RING);
                    let mut came = vec![0; PIECE];
                    let taken = reader.copy(&mut came, unread);
                    assert!(taken <= unread && came[taken..].iter().all(|byte| *byte == 0));
                    let _ = reader.writer_waits();
                }
                match writer.write(&[IoSlice::new(&bytes)]) {
                    Ok(done) => assert!(done <= PIECE),
                    Err(bad) => {
                        assert!(matches!(bad, BadFrame::Ring { most, .. } if most == RING as u64));
                    }
                }
                let _ = (writer.waits(), reader.waits());
            }
        }
    }
}
