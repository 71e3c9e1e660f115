//! What a thread block of a program knows to be over: of every block, how many of its steps.

use std::rc::Rc;

use super::flow::At;

/// Steps that are over, by block.
pub(super) type Clock = Rc<[u32]>;

/// Takes in what another clock knows.
pub(super) fn join(clock: &mut [u32], other: &[u32]) {
    clock.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

/// Whether a step is known to be over.
pub(super) fn knows(clock: &[u32], (block, step): At) -> bool {
    clock[block] as usize > step
}
