//! `adaptive`: all that the routing allows, so that queues decide.

use allrail_fabric::routing::Hop;

use super::{Fork, PathChoice};

pub(super) struct Adaptive;

impl PathChoice for Adaptive {
    fn tag(&self) -> &'static str {
        "adaptive"
    }

    fn about(&self) -> &'static str {
        "the least loaded of all that the routing allows, for every packet"
    }

    fn narrows(&self) -> bool {
        false
    }

    fn narrow(&self, _: &Fork, _: &mut Vec<Hop>) {}
}
