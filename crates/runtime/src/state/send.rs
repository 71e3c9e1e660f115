//! How messages leave: the most urgent of a peer first, with its header.

use super::State;
use super::outgoing::{Frame, Sending};

impl State {
    /// What goes next to a peer.
    pub(crate) fn next_send(&mut self, port: u32, peer: u32) -> Option<Frame> {
        loop {
            let what = self.ports.next_send(port, peer)?;
            if let Some(frame) = self.carrying.frame(what, self.group.rank) {
                return Some(frame);
            }
        }
    }

    /// A message has left whole.
    pub(crate) fn sent(&mut self, what: Sending) {
        self.done(what);
        self.settle();
    }
}
