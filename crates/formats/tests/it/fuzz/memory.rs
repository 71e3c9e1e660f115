//! Refuses a thread more memory than [`MOST`] while it reads an input.
//!
//! An allocation beyond it fails as it does on a machine without memory: the process ends, and the
//! input lies where the fuzzer put it. Nothing is refused outside [`limited`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What reading an input of some kilobytes may take, in bytes.
pub(super) const MOST: usize = 1 << 30;

thread_local! {
    /// What may still be allocated; `None` where nothing is counted.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

// SAFETY: every block comes from `System` and goes back to it with the layout it was asked with; in
// between only a number is changed. `LEFT` needs neither allocation nor destruction, so that the
// allocator does not call itself.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about `layout` is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LEFT.set(LEFT.get().map(|left| left.saturating_add(layout.size())));
        // SAFETY: `block` came from `System` with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

fn take(bytes: usize) -> bool {
    match LEFT.get().map(|left| left.checked_sub(bytes)) {
        None => true,
        Some(None) => false,
        Some(left) => {
            LEFT.set(left);
            true
        }
    }
}

/// Does `work` with at most [`MOST`] bytes.
pub(super) fn limited<T>(work: impl FnOnce() -> T) -> T {
    LEFT.set(Some(MOST));
    let done = work();
    LEFT.set(None);
    done
}
