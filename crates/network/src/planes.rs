//! One of several alike planes: every message is split evenly over all of them.
//!
//! What leaves and arrives on one plane leaves and arrives on all at once, so one is enough. A share
//! that is not whole is rounded up.

use allrail_core::{Bytes, Time};

use crate::{Event, NetworkModel, Submission, Transfer, TransferId};

/// A network model that carries its share of each message.
pub struct OnePlane<W> {
    /// The plane.
    pub network_model: W,
    /// How many planes are alike; 1 at least.
    pub planes: u64,
}

impl<W> OnePlane<W> {
    /// What the plane has of it.
    fn share(&self, mut submission: Submission) -> Submission {
        if let Transfer::Message { bytes, .. } = &mut submission.transfer {
            *bytes = Bytes::new(bytes.count().div_ceil(self.planes));
        }
        submission
    }
}

impl<W: NetworkModel> NetworkModel for OnePlane<W> {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        self.network_model.submit(now, self.share(submission))
    }

    fn submit_in_stream(&mut self, now: Time, submission: Submission, stream: u64) -> TransferId {
        self.network_model.submit_in_stream(now, self.share(submission), stream)
    }

    fn submit_along(&mut self, now: Time, submission: Submission, via: &[u32]) -> TransferId {
        self.network_model.submit_along(now, self.share(submission), via)
    }

    fn next_time(&self) -> Option<Time> {
        self.network_model.next_time()
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        self.network_model.next_event(until)
    }

    fn cancel(&mut self, now: Time, transfer: TransferId) -> bool {
        self.network_model.cancel(now, transfer)
    }

    fn link_seconds(&self) -> Vec<f64> {
        self.network_model.link_seconds()
    }
}
