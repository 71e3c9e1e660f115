//! What goes from one rank to another.

use allrail_engine::{SignatureHash, Work};
use allrail_schedule::operation::{Key, OperationName};

use super::Launch;
use super::draw::Draw;

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
    /// Of the operation as its sender has it, beside a name.
    pub(crate) signature: Option<SignatureHash>,
    pub(crate) step: u32,
    pub(crate) index: u32,
    pub(crate) data: Vec<u8>,
}

impl Frame {
    /// Almost the same: of another operation, chunk or step, or of another length.
    pub(crate) fn altered(&self, draw: &mut Draw) -> Self {
        let mut frame = self.clone();
        let last = if let Address::Named(_) = frame.address { 7 } else { 2 };
        match (draw.below(last), &mut frame.address) {
            (0, _) => frame.step += 1000,
            (1, _) => drop(frame.data.pop()),
            (2, Address::Named((name, _))) => name.key = Key::of("nobody's"),
            (3, Address::Named((name, _))) => name.part += 1000,
            (4, Address::Named((name, _))) => name.group += 1,
            (5, Address::Named((_, at))) => at.chunk += 1000,
            _ => frame.signature = Some(SignatureHash(1)),
        }
        frame
    }
}

/// Work that was handed out.
pub(crate) type Handed = (OperationName, u32, Work<Vec<u8>>);
