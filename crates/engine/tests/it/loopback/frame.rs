//! What goes from one rank to another.

use allrail_engine::Work;
use allrail_schedule::operation::OperationName;

use super::Launch;

/// What tells the receiver which stage a frame belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Address {
    /// Its full name.
    Named(Launch),
    /// The number of the launch on this port, counted by each side.
    Counted(u32, usize),
}

/// A frame under way.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) address: Address,
    pub(crate) step: u32,
    pub(crate) index: u32,
    pub(crate) data: Vec<u8>,
}

/// Work that was handed out.
pub(crate) type Handed = (OperationName, u32, Work<Vec<u8>>);
