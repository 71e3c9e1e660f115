//! The operations whose bytes this node carries: which stages run, which frames have come for them, and where the
//! bytes of each message lie.

use std::collections::BTreeMap;

use allrail_core::Bytes;
use allrail_engine::{CollectiveId, Dtype, FrameAt, FrameName, Operations, SignatureHash};
use allrail_schedule::OperationName;

use super::intake::{Arrivals, Kept};
use super::outgoing::{Frame, Sending};
use super::ports::Launch;
use crate::frame::Header;
use crate::memory::{Buffer, View};

/// An operation under way.
pub(super) struct Live {
    pub(super) id: CollectiveId,
    pub(super) dtype: Dtype,
    pub(super) buffer: Buffer,
    pub(super) priority: i64,
    pub(super) signature: SignatureHash,
}

/// What is carried.
pub(super) struct Carrying {
    pub(super) operations: Operations<usize>,
    pub(super) live: BTreeMap<OperationName, Live>,
    pub(super) named: BTreeMap<CollectiveId, OperationName>,
    /// Stages that run, and the port of each.
    pub(super) running: BTreeMap<Launch, u32>,
    pub(super) arrivals: Arrivals,
    /// Ports with a connection that waits for room.
    pub(super) stalled: u64,
}

impl Carrying {
    pub(super) fn new(epoch: u32) -> Self {
        Self {
            operations: Operations::new(epoch, Bytes::default()),
            live: BTreeMap::new(),
            named: BTreeMap::new(),
            running: BTreeMap::new(),
            arrivals: Arrivals::default(),
            stalled: 0,
        }
    }

    /// An operation begins, in this memory.
    pub(super) fn begin(&mut self, operation: OperationName, live: Live) {
        self.named.insert(live.id, operation);
        self.live.insert(operation, live);
    }

    /// Where the bytes of a message lie.
    pub(super) fn view(&self, what: Sending) -> Option<View> {
        let Sending { operation, chunk, place } = what;
        let (live, run) = (self.live.get(&operation)?, self.operations.run(operation, chunk)?);
        Some(View::new(&live.buffer, live.dtype, run.chunk(), run.message(place)?))
    }

    /// A message with its header, as this rank sends it; none of what is over.
    pub(super) fn frame(&self, what: Sending, from: u32) -> Option<Frame> {
        let Sending { operation, chunk, place } = what;
        let (live, run) = (self.live.get(&operation)?, self.operations.run(operation, chunk)?);
        let message = run.message(place)?;
        let view = View::new(&live.buffer, live.dtype, run.chunk(), message);
        let at = FrameAt { stage: message.stage, step: message.step, from, index: message.index };
        let header = Header {
            name: FrameName { operation, chunk, at },
            signature: live.signature.0,
            length: message.elements.saturating_mul(u64::from(live.dtype.width())),
        };
        Some(Frame { what, header: header.to_bytes(), view, of_header: 0 })
    }

    /// A frame that is kept has come whole.
    pub(super) fn kept(&mut self, number: usize, data: Vec<u8>) -> Kept {
        let Some(arrival) = self.arrivals.get(number) else { return Kept::Later };
        let Some(what) = arrival.ready else {
            arrival.data = Some(data);
            return Kept::Later;
        };
        self.view(what).map_or(Kept::Later, |view| Kept::Combine(view, data))
    }

    /// A frame that came whole and may be combined.
    pub(super) fn take_combine(&mut self, number: usize) -> Option<(View, Vec<u8>)> {
        let arrival = self.arrivals.get(number)?;
        let (what, data) = (arrival.ready?, arrival.data.take()?);
        Some((self.view(what)?, data))
    }
}
