//! Network models: they carry transfers out in virtual time and say when they finish.
//!
//! A network model knows nothing of chunks, plans or schedulers. The driver (crate `simulate`) submits
//! transfers, and takes events; all waiting for decisions is the driver's.
//!
//! - [`dims`]: each dimension is one server; a stage is one transfer.
//! - [`flows`]: messages share the links of a graph max-min fairly.
//! - [`links`]: each link is a server of whole messages, store and forward.
//! - [`packets`]: routers with queues, virtual channels, credits and adaptive routing.

pub mod dims;
pub mod flows;
pub mod links;
pub mod packets;
mod planes;

use allrail_core::{Bytes, DimensionId, Rank, Time};

pub use dims::Dims;
pub use flows::Flows;
pub use links::Links;
pub use packets::Packets;
pub use planes::OnePlane;

/// A transfer's handle, unique within a network model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// What a network model is asked to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// A whole stage on a dimension, for a class of ranks that are alike (`dims`).
    Stage {
        /// Where.
        dimension: DimensionId,
        /// How long the dimension serves it.
        occupancy: Time,
        /// How long after its last byte it ends.
        latency: Time,
    },
    /// A message between two ranks that differ on one dimension only (`links`),
    /// or between any two NPUs of a graph (`packets`).
    Message {
        /// That dimension.
        dimension: DimensionId,
        /// From.
        source: Rank,
        /// To.
        destination: Rank,
        /// How much.
        bytes: Bytes,
    },
}

/// A transfer with what the driver wants to hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submission {
    /// What to carry.
    pub transfer: Transfer,
    /// Comes back when it is delivered.
    pub tag: u64,
    /// Comes back when its last byte has left the sender; no event where `None`.
    pub sent_tag: Option<u64>,
}

/// What happened to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its last byte left the sender, which can send something else.
    Sent {
        /// The submission's `sent_tag`.
        tag: u64,
    },
    /// It has arrived.
    Delivered {
        /// The submission's `tag`.
        tag: u64,
    },
}

/// A model of a network in virtual time. The driver calls [`NetworkModel::submit`] at the time of the
/// last event it took, never earlier.
pub trait NetworkModel {
    /// Starts, or queues, a transfer at `now`.
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId;

    /// Starts, or queues, a message of a stream: those of one stream from one NPU to another leave one after the
    /// other. Where links serve messages in the order in which they came, they do so anyway.
    fn submit_in_stream(&mut self, now: Time, submission: Submission, stream: u64) -> TransferId {
        let _ = stream;
        self.submit(now, submission)
    }

    /// Starts, or queues, a message over the given switches, in their order. Network models that route messages
    /// themselves ignore `via`.
    fn submit_along(&mut self, now: Time, submission: Submission, via: &[u32]) -> TransferId {
        let _ = via;
        self.submit(now, submission)
    }

    /// When something happens next. Not all of it is an event for the driver: a message may only
    /// have reached a switch.
    fn next_time(&self) -> Option<Time>;

    /// Takes the next event at `until` or before; `None` if there is none. The network model does not move
    /// beyond `until`: what is submitted then finds it as it is then. At one time, deliveries come
    /// before departures.
    fn next_event(&mut self, until: Time) -> Option<(Time, Event)>;

    /// Withdraws a transfer at `now`: none of its events that have not been taken will come.
    /// `false` if it was over already.
    fn cancel(&mut self, now: Time, transfer: TransferId) -> bool;

    /// For each dimension, the fraction of `span` in which its servers were busy, on average; `None`
    /// where a cable may serve several dimensions.
    fn busy(&self, span: Time) -> Option<Vec<f64>> {
        let _ = span;
        None
    }

    /// What has arrived so far, also of messages that are under way; `None` where nobody counts it.
    fn arrived(&self) -> Option<Bytes> {
        None
    }

    /// For each directed link, the seconds that it takes for all the bytes that it was given so far;
    /// empty where links are not known. What is under way may count whole already.
    fn link_seconds(&self) -> Vec<f64> {
        Vec::new()
    }
}

/// A network model behind a pointer is one.
macro_rules! behind {
    ($($pointer:ty),+) => {$(
        impl<W: NetworkModel + ?Sized> NetworkModel for $pointer {
            fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
                (**self).submit(now, submission)
            }

            fn submit_in_stream(
                &mut self,
                now: Time,
                submission: Submission,
                stream: u64,
            ) -> TransferId {
                (**self).submit_in_stream(now, submission, stream)
            }

            fn submit_along(
                &mut self,
                now: Time,
                submission: Submission,
                via: &[u32],
            ) -> TransferId {
                (**self).submit_along(now, submission, via)
            }

            fn next_time(&self) -> Option<Time> {
                (**self).next_time()
            }

            fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
                (**self).next_event(until)
            }

            fn cancel(&mut self, now: Time, transfer: TransferId) -> bool {
                (**self).cancel(now, transfer)
            }

            fn busy(&self, span: Time) -> Option<Vec<f64>> {
                (**self).busy(span)
            }

            fn arrived(&self) -> Option<Bytes> {
                (**self).arrived()
            }

            fn link_seconds(&self) -> Vec<f64> {
                (**self).link_seconds()
            }
        }
    )+};
}

behind!(&mut W, Box<W>);

/// Deliveries before departures: a stage that is over frees its chunk before any dimension chooses.
pub(crate) const DELIVERED: u8 = 0;
pub(crate) const SENT: u8 = 1;
