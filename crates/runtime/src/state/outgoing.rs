//! What is to be sent: by peer a heap of names, the most urgent first. It holds no bytes; they are read when
//! they leave.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use allrail_engine::{FrameAt, FrameName};
use allrail_schedule::OperationName;

use super::State;
use crate::frame::{HEADER, Header};
use crate::memory::View;

/// A message that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sending {
    pub(crate) operation: OperationName,
    pub(crate) chunk: u32,
    pub(crate) place: u32,
}

/// The higher priority first; of one priority, what could leave first.
#[derive(Default)]
pub(super) struct Heap(BinaryHeap<(i64, Reverse<u64>, Sending)>);

impl Heap {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A message on its way out.
pub(crate) struct Frame {
    pub(crate) what: Sending,
    pub(crate) header: [u8; HEADER],
    pub(crate) view: View,
    /// How much of the header has left.
    pub(crate) of_header: usize,
}

impl State {
    pub(super) fn push(&mut self, (port, peer): (u32, u32), priority: i64, what: Sending) {
        let port_state = &mut self.ports[port as usize];
        if let Some(heap) = port_state.heaps.get_mut(&peer) {
            if heap.0.is_empty() {
                port_state.fresh.push(peer);
            }
            heap.0.push((priority, Reverse(self.sequence), what));
            self.sequence += 1;
            self.wakes.ports |= 1 << port;
        }
    }

    /// Peers for which there is something again.
    pub(crate) fn take_fresh(&mut self, port: u32, out: &mut Vec<u32>) {
        out.append(&mut self.ports[port as usize].fresh);
    }

    /// What goes next to a peer.
    pub(crate) fn next_send(&mut self, port: u32, peer: u32) -> Option<Frame> {
        loop {
            let (.., what) = self.ports[port as usize].heaps.get_mut(&peer)?.0.pop()?;
            let Sending { operation, chunk, place } = what;
            let (Some(live), Some(run)) =
                (self.live.get(&operation), self.operations.run(operation, chunk))
            else {
                continue;
            };
            let Some(message) = run.message(place) else { continue };
            let view = View::new(&live.buffer, live.dtype, run.chunk(), message);
            let (stage, step, from, index) =
                (message.stage, message.step, self.rank, message.index);
            let at = FrameAt { stage, step, from, index };
            let header = Header {
                name: FrameName { operation, chunk, at },
                signature: live.signature.0,
                length: message.elements.saturating_mul(u64::from(live.dtype.width())),
            };
            return Some(Frame { what, header: header.to_bytes(), view, of_header: 0 });
        }
    }

    /// A message has left whole.
    pub(crate) fn sent(&mut self, what: Sending) {
        self.done(what);
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_leaves_first_and_of_equals_the_first() {
        let mut heap = Heap::default();
        let sending = |place| Sending { operation: OperationName::default(), chunk: 0, place };
        for (sequence, priority) in [(0, 1), (1, 5), (2, 1), (3, -2), (4, 5)] {
            heap.0.push((priority, Reverse(sequence), sending(sequence as u32)));
        }
        let order: Vec<u32> =
            std::iter::from_fn(|| heap.0.pop()).map(|(.., what)| what.place).collect();
        assert_eq!(order, [1, 4, 0, 2, 3]);
    }
}
