//! What a message costs: the LogGP model (Alexandrov et al. 1995), with the work of parsing requests.
//!
//! A rank does one thing at a time. A message keeps its sender busy for `send + bytes / bandwidth`,
//! travels for `wire`, and keeps its receiver busy for `receive + entries · entry` before it is
//! understood (an answer is passed on down its tree before its entries are read). So what one rank sends to another arrives in order, and a rank that hears from everyone
//! is late by as much as they are many.
//!
//! Ignored: contention inside the network (these messages are small), and noise of the hosts, which the
//! faults stand for.

use allrail_coordinate::Payload;
use allrail_coordinate::messages::Vote;
use allrail_core::{Bandwidth, Bytes, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The costs of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Latency {
    /// From the sender's network card to the receiver's memory.
    pub wire: Time,
    /// How fast a message leaves.
    pub bandwidth: Bandwidth,
    /// Work of the sender for each message.
    pub send: Time,
    /// Work of the receiver for each message.
    pub receive: Time,
    /// Work of the receiver for each request or response in it.
    pub entry: Time,
    /// Bytes of a request or response.
    pub entry_bytes: Bytes,
}

impl Default for Latency {
    /// EDR `InfiniBand` and Horovod's requests; the sources are in `docs/concepts/coordination.md`.
    fn default() -> Self {
        Self {
            wire: Time::from_ns(1_000),
            bandwidth: Bandwidth::from_bytes_per_second(12_500_000_000).expect("not zero"),
            send: Time::from_ns(500),
            receive: Time::from_ns(500),
            entry: Time::from_ns(370),
            entry_bytes: Bytes::new(100),
        }
    }
}

/// Of a message without content.
const HEADER: u64 = 8;

impl Latency {
    /// The bytes of a message.
    #[inline]
    #[must_use]
    pub fn bytes(&self, payload: &Payload, slots: usize) -> u64 {
        let bits = |sets: u64| sets * (slots as u64).div_ceil(64) * 8;
        let entries = || payload.entries() * self.entry_bytes.count();
        HEADER
            + payload.finished() * 8
            + match payload {
                Payload::Vote(one) => return self.vote(one, slots),
                Payload::Verdict(one) => bits(1 + u64::from(!one.invalid.is_empty())),
                Payload::Report(_) | Payload::Agreed(_) => bits(1) + entries(),
                _ => entries(),
            }
    }

    /// The bytes of a vote.
    #[inline]
    #[must_use]
    pub fn vote(&self, vote: &Vote, slots: usize) -> u64 {
        let sets = 1 + u64::from(!vote.invalid.is_empty());
        HEADER + vote.finished() * 8 + sets * (slots as u64).div_ceil(64) * 8
    }

    /// The bytes of the longest vote.
    #[must_use]
    pub(crate) fn vote_bytes(&self, slots: usize) -> u64 {
        HEADER + 2 * (slots as u64).div_ceil(64) * 8
    }

    /// How long a message of so many bytes keeps its sender busy.
    #[must_use]
    pub(crate) fn leaving(&self, bytes: u64) -> Time {
        self.send + self.bandwidth.time_for(Bytes::new(bytes)).unwrap_or(Time::ZERO)
    }

    /// How long it keeps its receiver busy before it acts on it, and afterwards. Requests are parsed
    /// first; an answer is passed on first, as broadcasts are.
    #[inline]
    #[must_use]
    pub(crate) fn arriving(&self, payload: &Payload) -> (Time, Time) {
        let entries = || self.entry.checked_mul(payload.entries()).unwrap_or(Time::ZERO);
        match payload {
            Payload::Vote(_) | Payload::Verdict(_) => (self.receive, Time::ZERO),
            Payload::Decision(_) | Payload::Agreed(_) => (self.receive, entries()),
            _ => (self.receive + entries(), Time::ZERO),
        }
    }
}
