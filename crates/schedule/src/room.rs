//! How many stages a dimension runs at once: `schedule.active_chunks`.
//!
//! A stage that runs alone uses `N·B / (A + N·B)` of its dimension's bandwidth: during its latency `A` it sends
//! nothing. With `fill`, a dimension begins another stage for as long as those that it runs do not fill it
//! (Themis §4.3-4.4):
//!
//! ```text
//! sum over running stages of N·B / (A + N·B)  <  1
//! ```
//!
//! Of alike stages that is `n` at once, the least with `n ≥ 1 + A / N·B`, and the dimension never waits. Of stages
//! that differ, a large one leaves little room, and small ones that follow it wait for its latency: so `fill` can
//! be slower than no limit, under which a dimension begins the next stage whenever it has nothing to send.

use std::borrow::Cow;

use allrail_core::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// How many stages a dimension runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ActiveChunks {
    /// So many.
    AtMost(u32),
    /// As many as fill it.
    Fill(Fill),
}

/// `fill` in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// The word.
    Fill,
}

impl ActiveChunks {
    /// As many as fill the dimension.
    pub const FILL: Self = Self::Fill(Fill::Fill);
}

impl From<u32> for ActiveChunks {
    fn from(most: u32) -> Self {
        Self::AtMost(most)
    }
}

impl JsonSchema for ActiveChunks {
    fn schema_name() -> Cow<'static, str> {
        "ActiveChunks".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1 }, { "const": "fill" }] })
    }
}

/// A part of a dimension's bandwidth, in units of 2⁻³².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u64);

impl Share {
    const WHOLE: Self = Self(1 << 32);

    /// What a stage uses that sends for `served` and is over `total` after its beginning.
    #[must_use]
    pub fn of(served: Time, total: Time) -> Self {
        let (served, total) = (u128::from(served.as_ps()), u128::from(total.as_ps().max(1)));
        let share = (served << 32).div_ceil(total);
        Self(u64::try_from(share).unwrap_or(u64::MAX).min(Self::WHOLE.0))
    }
}

/// What of a dimension is taken by the stages that it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    limit: Option<ActiveChunks>,
    used: u64,
}

impl Room {
    /// Of a dimension that runs nothing.
    #[must_use]
    pub fn new(limit: Option<ActiveChunks>) -> Self {
        Self { limit, used: 0 }
    }

    /// Whether another stage may begin.
    #[must_use]
    #[inline]
    pub fn is_left(&self) -> bool {
        match self.limit {
            None => true,
            Some(ActiveChunks::AtMost(most)) => self.used < u64::from(most),
            Some(ActiveChunks::Fill(_)) => self.used < Share::WHOLE.0,
        }
    }

    fn taken(&self, share: Share) -> u64 {
        match self.limit {
            Some(ActiveChunks::Fill(_)) => share.0,
            None | Some(ActiveChunks::AtMost(_)) => 1,
        }
    }

    /// A stage begins.
    #[inline]
    pub fn take(&mut self, share: Share) {
        self.used += self.taken(share);
    }

    /// A stage is over.
    #[inline]
    pub fn give_back(&mut self, share: Share) {
        self.used -= self.taken(share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_stages_run_as_many_at_once_as_fill_the_dimension() {
        // Of a latency of so many transfers, 1 + A/NB, rounded up.
        for (served, latency, most) in
            [(10, 0, 1), (10, 10, 2), (10, 11, 3), (10, 95, 11), (3, 6, 3)]
        {
            let share = Share::of(Time::from_ns(served), Time::from_ns(served + latency));
            let mut room = Room::new(Some(ActiveChunks::FILL));
            let mut running = 0;
            while room.is_left() {
                room.take(share);
                running += 1;
            }
            assert_eq!(running, most, "{served} ns of bytes, {latency} ns of latency");
            room.give_back(share);
            assert!(room.is_left());
        }
    }

    #[test]
    fn what_takes_no_time_takes_no_room() {
        let mut room = Room::new(Some(ActiveChunks::FILL));
        for _ in 0..100 {
            room.take(Share::of(Time::ZERO, Time::from_ns(5)));
            room.take(Share::of(Time::ZERO, Time::ZERO));
        }
        assert!(room.is_left());
    }

    #[test]
    fn it_is_a_number_or_a_word_in_files() {
        let read = |text: &str| serde_json::from_str::<Option<ActiveChunks>>(text).ok();
        assert_eq!(read("3"), Some(Some(ActiveChunks::AtMost(3))));
        assert_eq!(read("\"fill\""), Some(Some(ActiveChunks::FILL)));
        assert_eq!(read("null"), Some(None));
        assert_eq!(read("\"full\""), None);
        assert_eq!(serde_json::to_string(&ActiveChunks::FILL).ok().as_deref(), Some("\"fill\""));
    }
}
