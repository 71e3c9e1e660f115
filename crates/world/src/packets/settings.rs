//! What can be set in the world `packets`, and what of it is refused.

use allrail_core::{Bytes, Time};
use allrail_fabric::FabricError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sizes, latencies and speeds of ports. The default is `HammingMesh` (SC'22), Table III.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The largest packet.
    pub packet: Bytes,
    /// Buffer of a port, over all its virtual channels.
    pub buffer: Bytes,
    /// What of a packet must be there before it goes on.
    pub flit: Bytes,
    /// Of an input buffer, and of an output buffer.
    pub buffer_latency: Time,
    /// How much faster than a link a crossbar takes packets to it.
    pub crossbar_speedup: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            packet: Bytes::new(8192),
            buffer: Bytes::new(32_000_000),
            flit: Bytes::new(256),
            buffer_latency: Time::from_ns(40),
            crossbar_speedup: 2.0,
        }
    }
}

/// Packet numbers and times stay within their integers.
const LARGEST_PACKET: u64 = 1 << 24;

impl Settings {
    /// Checks every value, for links of `channels` virtual channels.
    ///
    /// # Errors
    /// Names the first that is out of range, with a hint. A packet that does not fit its channel's
    /// share of a buffer could never be sent.
    pub fn validate(&self, channels: u8) -> Result<(), FabricError> {
        let refuse = |field: &str, value: String, why: String, hint: String| {
            Err(FabricError { field: format!("world.{field}"), value, why, hint })
        };
        let (packet, flit) = (self.packet.count(), self.flit.count());
        if packet == 0 || packet > LARGEST_PACKET {
            let why = "a packet has 1 B to 16 MiB".to_owned();
            return refuse("packet", format!("{packet} B"), why, "write `packet: 8192 B`".into());
        }
        if flit == 0 || flit > packet {
            let why = format!("a packet of {packet} B is cut into flits");
            let hint = "write `flit: 256 B`, or less where packets are smaller".into();
            return refuse("flit", format!("{flit} B"), why, hint);
        }
        if !(self.crossbar_speedup >= 1.0 && self.crossbar_speedup <= 1e3) {
            let why = "a crossbar is as fast as its links at least, and 1000 times at most".into();
            let hint = "write `crossbar_speedup: 2`".into();
            return refuse("crossbar_speedup", self.crossbar_speedup.to_string(), why, hint);
        }
        let longest = Time::from_us(1_000_000);
        if self.buffer_latency > longest {
            let value = format!("{} ns", self.buffer_latency.as_ps() / 1000);
            let why = "it is longer than a second".into();
            return refuse("buffer_latency", value, why, "write `buffer_latency: 40 ns`".into());
        }
        let share = self.channel_share(channels);
        if share < packet {
            let why = format!(
                "each of {channels} virtual channels has {share} B of it, a packet {packet} B"
            );
            let hint = format!("at least {} B, or smaller packets", packet * u64::from(channels));
            return refuse("buffer", format!("{} B", self.buffer.count()), why, hint);
        }
        Ok(())
    }

    /// A virtual channel's share of a port's buffer, in bytes.
    pub(super) fn channel_share(&self, channels: u8) -> u64 {
        self.buffer.count() / u64::from(channels.max(1))
    }
}
