//! One dimension of a fabric: a network that joins `size` NPUs.

use std::collections::BTreeMap;

use allrail_core::{Bandwidth, Bytes, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packet::Packet;
use crate::wiring::Wiring;

/// How the NPUs of a dimension are joined.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a kind of dimension"))]
pub enum Kind {
    /// Each NPU has links to its two neighbours.
    Ring,
    /// Each NPU has a link to every other.
    FullyConnected,
    /// Each NPU has links to one switch.
    Switch,
}

/// Whether messages that leave an NPU at once share its links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a contention"))]
pub enum Contention {
    /// They do, as on a real network.
    #[default]
    Shared,
    /// They do not: a step takes as long as one of its messages, which has all links of a ring or a
    /// switch to itself. ASTRA-sim's congestion-unaware backend counts so, below what the links can
    /// carry; only the reader of its files sets this. A message between ranks that differ on several
    /// dimensions crosses the first of them only.
    None,
}

/// A dimension joins as many NPUs as this at least.
pub const SMALLEST: u32 = 2;
/// An NPU has at most as many links as this on a dimension.
pub(crate) const MOST_LINKS: u32 = 1 << 16;

/// A dimension. Its NPUs are alike, and so are its links.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dimension {
    /// How its NPUs are joined.
    pub kind: Kind,
    /// How many NPUs it joins.
    #[schemars(range(min = SMALLEST))]
    #[schemars(extend("x-hint" = "a dimension joins 2 NPUs or more"))]
    pub size: u32,
    /// Links of one NPU.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = MOST_LINKS))]
    #[schemars(extend("x-hint" = "links of one NPU on this dimension"))]
    pub links: u32,
    /// Bandwidth of one link, per direction.
    pub bandwidth: Bandwidth,
    /// Latency of one step of an algorithm: from sending a message to its arrival, without its
    /// serialisation. On a switch that is two links.
    pub latency: Time,
    /// What a message waits for beside, once, however many links it crosses: its network interfaces.
    #[serde(default, skip_serializing_if = "is_nothing")]
    #[schemars(extend("default" = Time::ZERO))]
    pub message_latency: Time,
    /// Packets of a known network, in place of `payload` and `header`, each of which may still be another:
    /// `infiniband`, `nvlink`. Their headers take their part of the bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-table" = "packets"))]
    pub packet: Option<Packet>,
    /// Of a packet's bytes, those that are carried; with `header`, the bandwidth is that of both.
    #[serde(default, skip_serializing_if = "no_bytes")]
    #[schemars(extend("default" = Bytes::default()))]
    pub payload: Bytes,
    /// Of a packet's bytes, those beside its `payload`: they take their part of the bandwidth.
    #[serde(default, skip_serializing_if = "no_bytes")]
    #[schemars(extend("default" = Bytes::default()))]
    pub header: Bytes,
    /// Whether the switch reduces; `kind: switch` only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub in_network_reduction: bool,
    /// With `in_network_reduction`: the bandwidth at which an NPU's data passes through sums, as published for
    /// the switch (the `algbw` of nccl-tests). That of its links if left out, which no switch reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduction_bandwidth: Option<Bandwidth>,
    /// `none`: messages of a step do not share links, as ASTRA-sim's congestion-unaware backend
    /// counts; below what the links can carry.
    #[serde(default, skip_serializing_if = "is_shared")]
    #[schemars(extend("default" = Contention::default()))]
    pub contention: Contention,
    /// Of `schedule.algorithms: auto`: which algorithm was measured to be the fastest, by kind of collective,
    /// from which size on: `{all_reduce: [{from: 1 B, algorithm: direct}, {from: 4 MiB, algorithm: ring}]}`.
    /// Sizes are of the buffer that reaches this dimension, which dimensions before it have divided. `allrail
    /// calibrate network` writes it. If left out, the model of the dimension decides.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("default" = nothing_measured()))]
    pub fastest: BTreeMap<String, Vec<Fastest>>,
    /// Of a ring whose hops are unlike: what one carries on average, where `bandwidth` is the narrowest's. A
    /// topology says it, no file.
    #[serde(skip)]
    pub mean_bandwidth: Option<Bandwidth>,
    /// Of what stands for a network that is no product of dimensions: the cables that carry it. A topology
    /// says it, no file.
    #[serde(skip)]
    pub wiring: Option<Wiring>,
}

/// From which size on an algorithm is the fastest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fastest {
    /// The size; below the first of a list, that one is taken.
    pub from: Bytes,
    /// Its name.
    pub algorithm: String,
}

const fn one() -> u32 {
    1
}

fn is_nothing(time: &Time) -> bool {
    *time == Time::ZERO
}

fn no_bytes(bytes: &Bytes) -> bool {
    *bytes == Bytes::default()
}

fn nothing_measured() -> BTreeMap<String, Vec<Fastest>> {
    BTreeMap::new()
}

fn is_shared(contention: &Contention) -> bool {
    *contention == Contention::Shared
}

impl Dimension {
    /// A dimension of `size` NPUs with `links` links each, and nothing else that a file may say.
    #[must_use]
    pub fn new(kind: Kind, size: u32, links: u32, bandwidth: Bandwidth, latency: Time) -> Self {
        Self {
            kind,
            size,
            links,
            bandwidth,
            latency,
            message_latency: Time::ZERO,
            packet: None,
            payload: Bytes::default(),
            header: Bytes::default(),
            in_network_reduction: false,
            reduction_bandwidth: None,
            contention: Contention::default(),
            fastest: BTreeMap::new(),
            mean_bandwidth: None,
            wiring: None,
        }
    }

    /// What cables join, as one dimension that counts over them.
    #[must_use]
    pub fn over_cables(wiring: Wiring) -> Self {
        let (size, rate, latency) = (wiring.places(), wiring.rate(), wiring.shortest());
        let dimension = Self::new(Kind::Switch, size, 1, rate, latency);
        Self { wiring: Some(wiring), ..dimension }
    }

    /// It without what a topology alone says: as a file has it.
    #[must_use]
    pub fn written(&self) -> Self {
        Self { mean_bandwidth: None, wiring: None, ..self.clone() }
    }

    /// The algorithm that was measured to be the fastest for a kind of collective of that size; `None` where
    /// nothing was measured.
    ///
    /// ```
    /// use allrail_fabric::Dimension;
    /// let keys = r#"{"kind": "switch", "size": 8, "bandwidth": "70 GB/s", "latency": "1 us", "fastest":
    ///     {"all_reduce": [{"from": "1 KB", "algorithm": "direct"}, {"from": "1 MB", "algorithm": "ring"}]}}"#;
    /// let dimension: Dimension = serde_json::from_str(keys).unwrap();
    /// let of = |size: &str| dimension.fastest("all_reduce", size.parse().unwrap());
    /// assert_eq!([of("8 B"), of("999 KB"), of("1 MB")], [Some("direct"), Some("direct"), Some("ring")]);
    /// assert_eq!(dimension.fastest("all_gather", "1 MB".parse().unwrap()), None);
    /// ```
    #[must_use]
    pub fn fastest(&self, operation: &str, size: Bytes) -> Option<&str> {
        let points = self.fastest.get(operation)?;
        let reached = points.iter().rev().find(|one| one.from <= size).or(points.first())?;
        Some(&reached.algorithm)
    }

    /// What one NPU can send on this dimension at once: links × bandwidth per link, of which headers
    /// take their part.
    ///
    /// # Panics
    /// If the product exceeds 2^64 B/s, which [`crate::Fabric::validate`] refuses.
    #[must_use]
    pub fn aggregate(&self) -> Bandwidth {
        self.all_links(self.bandwidth)
    }

    /// What its links carry at most, an NPU's share: as [`Self::aggregate`], but of hops that are unlike
    /// their mean. Bytes of a network model that has every link are held against it.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn capacity(&self) -> Bandwidth {
        self.all_links(self.mean_bandwidth.unwrap_or(self.bandwidth))
    }

    fn all_links(&self, each: Bandwidth) -> Bandwidth {
        let whole = each.checked_mul(u64::from(self.links));
        let whole = whole.expect("a validated fabric's aggregate fits");
        match self.framing() {
            (_, 0) => whole,
            (payload, header) => whole.fraction(payload, payload + header),
        }
    }

    /// The bytes of the headers of so many bytes of payload.
    #[must_use]
    pub fn headers(&self, payload: f64) -> f64 {
        match self.framing() {
            (_, 0) => 0.0,
            (of, header) => payload / of as f64 * header as f64,
        }
    }

    /// What the links of one NPU carry with the headers of packets: what a data sheet says.
    ///
    /// # Panics
    /// As [`Self::aggregate`].
    #[must_use]
    pub fn line_rate(&self) -> Bandwidth {
        let whole = self.bandwidth.checked_mul(u64::from(self.links));
        whole.expect("a validated fabric's aggregate fits")
    }

    /// Bytes that a packet carries, and bytes of its headers; no headers where nothing is said.
    fn framing(&self) -> (u64, u64) {
        let known = self.packet.map(Packet::sizes).unwrap_or_default();
        let said = |own: Bytes, known: Bytes| if own.count() > 0 { own } else { known }.count();
        (said(self.payload, known.0), said(self.header, known.1))
    }
}
