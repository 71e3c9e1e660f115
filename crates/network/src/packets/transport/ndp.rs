//! `ndp`: receivers pull, and a full queue cuts packets to their headers (NDP, SIGCOMM'17).
//!
//! Switches need little buffer: of a packet that finds more than `cut_above` before an output the header
//! alone goes on, past all queues, and the receiver pulls it again.

use super::{Rules, Transport};

pub(super) struct Ndp;

impl Transport for Ndp {
    fn tag(&self) -> &'static str {
        "ndp"
    }

    fn about(&self) -> &'static str {
        "as `pull`, and an output with much to send cuts packets to headers, to be pulled again"
    }

    fn rules(&self) -> Rules {
        Rules { pulls: true, cuts: true }
    }
}
