//! What waits in the calendar of a control plane, and what ranks submit by the clock.

use allrail_coordinate::{Payload, Request};
use allrail_core::Time;

/// What ranks submit by the clock. Ranks may be asked in any order, each at times that ascend.
pub trait Feed {
    /// Appends the requests of a rank that are due by now, and says when its next one is; `None` if none
    /// is left.
    fn take(&mut self, rank: u32, now: Time, requests: &mut Vec<Request>) -> Option<Time>;
}

/// The same feed, for a while.
pub(super) fn again<'a>(feed: &'a mut Option<&mut dyn Feed>) -> Option<&'a mut dyn Feed> {
    match feed {
        Some(feed) => Some(&mut **feed),
        None => None,
    }
}

pub(super) enum What {
    Message {
        from: u32,
        payload: Payload,
    },
    Timer(u64),
    /// A submission is due, of a rank that acts on it.
    Wake,
}

pub(super) struct Entry {
    pub(super) to: u32,
    pub(super) what: What,
}
