//! `pull`: receivers ask for packets at the rate at which their cables bring them; nothing is lost.
//!
//! The receiver's credits of a lossless fabric: links' credits still hold, so a queue that is full pushes
//! back.

use super::{Rules, Transport};

pub(super) struct Pull;

impl Transport for Pull {
    fn tag(&self) -> &'static str {
        "pull"
    }

    fn about(&self) -> &'static str {
        "after its first window a message's packets are pulled, at the rate of the receiver's cables"
    }

    fn rules(&self) -> Rules {
        Rules { pulls: true, cuts: false }
    }
}
