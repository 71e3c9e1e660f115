//! What can be set in the network model `packets`, and what of it is refused.

use allrail_core::{Bytes, FieldError, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice::PathChoice;
use super::policy::Chosen;
use super::transport::Transport;

/// Sizes, latencies and speeds of ports. The default is `HammingMesh` (SC'22), Table III.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The largest packet; 8 KiB if left out, and more in training steps of very many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet: Option<Bytes>,
    /// Buffer of a port, over all its virtual channels.
    pub buffer: Bytes,
    /// What of a packet must be there before it goes on.
    pub flit: Bytes,
    /// Of an input buffer, and of an output buffer.
    pub buffer_latency: Time,
    /// How much faster than a link a crossbar takes packets to it.
    pub crossbar_speedup: f64,
    /// Which of the hops that the routing allows a packet takes.
    pub choice: Chosen<dyn PathChoice>,
    /// How long no packet of a flow has come before it may take another path; 500 us if left out. Of
    /// `flowlet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flowlet_gap: Option<Time>,
    /// When NPUs may send, and what a full queue does.
    pub transport: Chosen<dyn Transport>,
    /// What a message sends before its receiver pulls; 16 packets if left out. Transports with pulls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_window: Option<Bytes>,
    /// With more than this before an output, packets for it are cut; 8 packets if left out. Of `ndp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_above: Option<Bytes>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            packet: None,
            buffer: Bytes::new(32_000_000),
            flit: Bytes::new(256),
            buffer_latency: Time::from_ns(40),
            crossbar_speedup: 2.0,
            choice: Chosen(super::choice::ALL[0]),
            flowlet_gap: None,
            transport: Chosen(super::transport::ALL[0]),
            first_window: None,
            cut_above: None,
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
    pub fn validate(&self, channels: u8) -> Result<(), FieldError> {
        let refuse = |field: &str, value: String, why: String, hint: String| {
            Err(FieldError { field: format!("network_model.{field}"), value, why, hint })
        };
        let (packet, flit) = (self.packet().count(), self.flit.count());
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
        if let Some(gap) = self.flowlet_gap.filter(|_| !self.choice.by_flowlets()) {
            let why = format!("`choice: {}` does not read it", self.choice.tag());
            let hint = "leave it out, or write `choice: flowlet`".into();
            return refuse("flowlet_gap", gap.to_string(), why, hint);
        }
        let rules = self.transport.rules();
        let unread = [
            ("first_window", self.first_window, rules.pulls),
            ("cut_above", self.cut_above, rules.cuts),
        ];
        for (field, value, read) in unread {
            let Some(value) = value else { continue };
            let value_text = format!("{} B", value.count());
            if !read {
                let why = format!("`transport: {}` does not read it", self.transport.tag());
                return refuse(
                    field,
                    value_text,
                    why,
                    "leave it out, or write `transport: ndp`".into(),
                );
            }
            if value.count() < packet {
                let why = format!("a packet has {packet} B");
                return refuse(field, value_text, why, "leave room for one packet at least".into());
            }
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

    /// The largest packet, if nothing says otherwise of `HammingMesh` (SC'22), Table III.
    #[must_use]
    pub fn packet(&self) -> Bytes {
        self.packet.unwrap_or(Bytes::new(8192))
    }

    /// How long no packet of a flow has come before it may take another path.
    pub(super) fn flowlet_gap(&self) -> Time {
        self.flowlet_gap.unwrap_or(Time::from_us(500))
    }

    /// How many packets a message sends unasked.
    pub(super) fn first_window_packets(&self) -> u32 {
        const PACKETS: u64 = 16;
        let window = self.first_window.map(|bytes| bytes.count() / self.packet().count());
        u32::try_from(window.unwrap_or(PACKETS)).unwrap_or(u32::MAX)
    }

    /// Bytes before an output above which packets are cut.
    pub(super) fn cut_above(&self) -> u64 {
        const PACKETS: u64 = 8;
        self.cut_above.map_or(PACKETS * self.packet().count(), Bytes::count)
    }

    /// A virtual channel's share of a port's buffer, in bytes.
    pub(super) fn channel_share(&self, channels: u8) -> u64 {
        self.buffer.count() / u64::from(channels.max(1))
    }
}
