//! Memory that two processes have in common: what a [`ring`](super::ring) of bytes each way lies in.
//!
//! | in the file | bytes | what |
//! |---|---|---|
//! | first page | 256 | [`Indices`] of the ring from who dials to who answers |
//! | | 256 | those of the other ring |
//! | then | [`RING`] | bytes from who dials |
//! | | [`RING`] | bytes from who answers |
//!
//! The file has no name (`memfd`), goes to the peer over their socket once both are authenticated, and is
//! sealed: a peer that could shorten it could kill this process by it. Each ring is mapped twice in a row,
//! so that what runs over its end lies together all the same.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

use allrail_core::counted;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

/// Bytes of one ring: small enough for a core's own cache, so that its bytes seldom go through memory.
pub(super) const RING: usize = 256 << 10;

/// On a cache line of its own, or writing one would slow down whoever reads the other.
#[repr(align(64))]
pub(super) struct Apart<T>(pub(super) T);

/// How far a ring is; see [`ring`](super::ring).
#[repr(C)]
pub(super) struct Indices {
    pub(super) written: Apart<AtomicU64>,
    pub(super) read: Apart<AtomicU64>,
    pub(super) reader_waits: Apart<AtomicU32>,
    pub(super) writer_waits: Apart<AtomicU32>,
}

/// See the module.
pub(crate) struct Mapping {
    at: NonNull<u8>,
    dials: bool,
}

// SAFETY: an address of memory that stays mapped; atomics are all that is read and written through it here.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Bytes of addresses: the page, and each ring twice.
fn mapped() -> usize {
    page_size() + 4 * RING
}

fn file() -> usize {
    page_size() + 2 * RING
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

impl Mapping {
    /// New memory, all zeros, to be given to a peer.
    pub(crate) fn create() -> Result<OwnedFd, Errno> {
        let memory = memfd_create("allrail", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, file() as u64)?;
        fcntl_add_seals(&memory, seals())?;
        Ok(memory)
    }

    /// Maps memory that this process or a peer has created; `dials` tells the two sides apart.
    pub(crate) fn new(memory: impl AsFd, dials: bool) -> io::Result<Self> {
        let size = u64::try_from(fstat(&memory)?.st_size).unwrap_or(0);
        if size != file() as u64 || !fcntl_get_seals(&memory)?.contains(seals()) {
            let what = format!(
                "memory of {size}, and not {} that are sealed",
                file(),
                size = counted(size, "byte")
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let (page, both) = (page_size(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: new addresses that nobody uses.
        let at =
            unsafe { mmap_anonymous(null_mut(), mapped(), ProtFlags::empty(), MapFlags::PRIVATE)? };
        let Some(at) = NonNull::new(at.cast::<u8>()) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        // From here on its end unmaps it.
        let mapping = Self { at, dials };
        let ring = |number: usize| (page + number * RING) as u64;
        let parts = [
            (0, page, 0),
            (page, RING, ring(0)),
            (page + RING, RING, ring(0)),
            (page + 2 * RING, RING, ring(1)),
            (page + 3 * RING, RING, ring(1)),
        ];
        for (to, bytes, from) in parts {
            // SAFETY: it replaces part of the addresses that were taken above, which nobody uses yet; the
            // file has these bytes, and is sealed so that it keeps them.
            unsafe {
                let to = at.as_ptr().add(to).cast();
                mmap(to, bytes, both, MapFlags::SHARED | MapFlags::FIXED, &memory, from)?;
            }
        }
        // SAFETY: the addresses above; a child made by `fork` has no use of them.
        unsafe { madvise(at.as_ptr().cast(), mapped(), Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    /// The ring that this side writes to.
    pub(super) fn outward(&self) -> (NonNull<Indices>, NonNull<u8>) {
        self.ring(usize::from(!self.dials))
    }

    /// The ring that this side reads from.
    pub(super) fn inward(&self) -> (NonNull<Indices>, NonNull<u8>) {
        self.ring(usize::from(self.dials))
    }

    fn ring(&self, number: usize) -> (NonNull<Indices>, NonNull<u8>) {
        // SAFETY: within the mapping: the page has room for two, and each ring is there twice.
        unsafe {
            let indices = self.at.cast::<Indices>().add(number);
            (indices, self.at.add(page_size() + 2 * number * RING))
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the addresses that `new` has taken; whoever has pointers into them has this mapping, too.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), mapped()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_as_it_should_be_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = memfd_create("open", flags).expect("a file");
        ftruncate(&open, file() as u64).expect("its size");
        assert!(Mapping::new(&open, true).is_err(), "it could be shortened");
        fcntl_add_seals(&open, seals()).expect("a seal");
        assert!(Mapping::new(&open, true).is_ok());
        let short = memfd_create("short", flags).expect("a file");
        ftruncate(&short, 4096).expect("its size");
        fcntl_add_seals(&short, seals()).expect("a seal");
        assert!(Mapping::new(&short, true).is_err());
        let (reads, _writes) = io::pipe().expect("a pipe");
        assert!(Mapping::new(&reads, true).is_err());
    }
}
