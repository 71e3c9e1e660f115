//! What a node is made with, as JSON text: alike on every rank, but for `rank`, interfaces and ports.
//!
//! ```
//! use allrail_runtime::Settings;
//! let settings = Settings::from_json(r#"{
//!     "rank": 0,
//!     "ranks": 4,
//!     "dimensions": [
//!         {"size": 2, "interface": "127.0.0.1", "bandwidth": "10 Gb/s", "latency": "50 us", "kind": "switch"},
//!         {"size": 2, "interface": "127.0.0.1", "bandwidth": "1 Gb/s", "latency": "50 us", "kind": "switch"}
//!     ],
//!     "policy": "themis",
//!     "chunks": 4
//! }"#)?;
//! assert_eq!(settings.dimensions.len(), 2);
//! assert!(Settings::from_json("{}").is_err());
//! # Ok::<(), allrail_runtime::RuntimeError>(())
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use allrail_collective::CollectivePlan;
use allrail_collective::algorithm::OwnPrograms;
use allrail_core::{Bandwidth, Bytes, Time};
use allrail_engine::engine::FORGET_AFTER;
use allrail_fabric::{Dimension, Fabric, Fastest, Kind};
use allrail_schedule::tensor::TensorParameters;
use allrail_schedule::{Algorithms, Order};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::auth::Secret;
use crate::clock::duration;
use crate::coordination::Coordination;
use crate::error::RuntimeError;

/// One dimension of the fabric, and where this rank reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DimensionSettings {
    /// How many ranks it joins.
    pub size: u32,
    /// The interface that this rank listens on: its address or its name. Never all of them.
    #[serde(default = "loopback")]
    pub interface: String,
    /// The port to listen on; any free one where it is left out.
    #[serde(default)]
    pub port: u16,
    /// What one link carries, per direction.
    pub bandwidth: Bandwidth,
    /// From sending a message to its arrival.
    pub latency: Time,
    /// How its ranks are joined.
    #[serde(default = "switch")]
    pub kind: Kind,
    /// Links of a rank.
    #[serde(default = "one")]
    pub links: u32,
    /// Of `auto`: which algorithm was measured to be the fastest, by kind of collective.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fastest: BTreeMap<String, Vec<Fastest>>,
}

fn loopback() -> String {
    "127.0.0.1".to_owned()
}

fn switch() -> Kind {
    Kind::Switch
}

fn one() -> u32 {
    1
}

/// How long ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// For all ranks to find each other.
    pub connect: Time,
    /// For a link that carries nothing any more, not even acknowledgements.
    pub link: Time,
    /// For a process that is there and says nothing.
    pub silent: Time,
    /// From one sign of life to the next.
    pub heartbeat: Time,
    /// After which an exchange that some rank has not submitted is warned of.
    pub warn: Time,
    /// After which an exchange that is not over ends the job.
    pub stalled: Time,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = |count: u64| Time::from_us(count * 1_000_000);
        Self {
            connect: seconds(60),
            link: seconds(10),
            silent: seconds(60),
            heartbeat: seconds(1),
            warn: seconds(60),
            stalled: seconds(1800),
        }
    }
}

/// Keys of the tensor scheduler beside its partition; as its policy has them where they are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TensorKeys {
    /// How much may be started and not finished.
    pub credit: Option<Bytes>,
    /// A bucket is closed once it holds as much.
    pub bucket: Option<Bytes>,
    /// The first bucket.
    pub first_bucket: Option<Bytes>,
    /// No more is packed together.
    pub threshold: Option<Bytes>,
    /// How often what is ready is packed.
    pub cycle: Option<Time>,
    /// How many groups the tensors are cut into, complete or not at all.
    pub groups: Option<u32>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// This rank.
    pub rank: u32,
    /// How many ranks there are: the product of the dimensions' sizes.
    pub ranks: u32,
    /// The dimensions of the fabric, the one along which ranks are neighbours first; none for one rank.
    #[serde(default)]
    pub dimensions: Vec<DimensionSettings>,
    /// Which dimension a chunk visits next.
    #[serde(default = "baseline")]
    pub policy: String,
    /// Which stage a dimension runs next.
    #[serde(default)]
    pub order: Order,
    /// Into how many chunks a collective is cut at most.
    #[serde(default = "sixteen")]
    pub chunks: u32,
    /// No chunk is cut to less than this: each costs a little, however small it is.
    #[serde(default = "smallest_chunk")]
    pub smallest_chunk: Bytes,
    /// Themis keeps the baseline's order while loads differ by less than the time of a chunk's 1/threshold.
    #[serde(default = "sixteen")]
    pub threshold: u32,
    /// The algorithm of each dimension, or `auto`, as in a scenario. Where it is left out, for every size that
    /// which is predicted to be the quickest, if by a tenth.
    #[serde(default)]
    pub algorithms: Option<Algorithms>,
    /// Programs that `algorithms` name, by name; each is taken for its operation and its sizes.
    #[serde(default, skip_serializing_if = "OwnPrograms::is_empty")]
    pub programs: OwnPrograms,
    /// Plans that are carried out as they are, where they hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<CollectivePlan>,
    /// Which tensor goes next.
    #[serde(default = "bytescheduler")]
    pub tensor: String,
    /// Tensors are cut into pieces no larger; as the policy has it where it is left out.
    #[serde(default)]
    pub partition: Option<Bytes>,
    /// What else the tensor scheduler is told.
    #[serde(default)]
    pub tensor_keys: TensorKeys,
    /// How ranks agree, with `elsewhere`; on each event, until their order is frozen, where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<Coordination>,
    /// How many bytes of small tensors whoever registers them sends as one; a node does not ask.
    #[serde(default = "pack")]
    pub pack: Bytes,
    /// How much may wait in a socket that the link has not taken: less lets what is urgent overtake sooner,
    /// more asks for fewer calls.
    #[serde(default = "send_ahead")]
    pub send_ahead: Bytes,
    /// Whether tensors are carried by others, who pair launches by their order: this node has connections for
    /// control only, ranks agree on one order, and [`Node::next_launches`](crate::Node::next_launches) hands it
    /// out.
    #[serde(default)]
    pub elsewhere: bool,
    /// Whether ranks on one host exchange through memory that both have, and not over TCP.
    #[serde(default = "yes")]
    pub shared_memory: bool,
    /// Whether what goes over TCP is inside TLS 1.3. It needs a secret.
    #[serde(default)]
    pub tls: bool,
    /// Whether the elements of frames carry a checksum where the link does not protect them itself.
    #[serde(default = "yes")]
    pub frame_checks: bool,
    /// By dimension the CPU that its thread runs on; any where there is none.
    #[serde(default)]
    pub pin: Vec<Option<u32>>,
    /// How much is kept at most of what peers send for tensors that this rank has not submitted, beyond
    /// the size of all its tensors.
    #[serde(default = "early")]
    pub early: Bytes,
    /// How long it waits.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// How many records it keeps of what has happened, the last ones; 0 for none.
    #[serde(default = "records")]
    pub records: u32,
    /// A folder: what was recorded is written there when a fault ends the job.
    #[serde(default)]
    pub flight_recorder: Option<PathBuf>,
    /// What only the ranks of this job know, in hexadecimal. Without one only loopback is used.
    #[serde(default)]
    pub secret: Option<String>,
    /// The name of the job; ranks of another are refused.
    #[serde(default)]
    pub job: String,
    /// How often the job was restarted.
    #[serde(default)]
    pub epoch: u32,
    /// The number of the process group.
    #[serde(default)]
    pub group: u32,
    /// Whether calls may have names, by which they meet in any order.
    #[serde(default)]
    pub named_calls: bool,
    /// A name that was not used for so many calls with names is forgotten.
    #[serde(default = "forget_after")]
    pub forget_after: u64,
}

pub(crate) fn sixteen() -> u32 {
    16
}

pub(crate) fn smallest_chunk() -> Bytes {
    Bytes::new(1 << 20)
}

pub(crate) fn baseline() -> String {
    "baseline".to_owned()
}

pub(crate) fn bytescheduler() -> String {
    "bytescheduler".to_owned()
}

pub(crate) fn pack() -> Bytes {
    Bytes::new(1 << 20)
}
pub(crate) fn send_ahead() -> Bytes {
    Bytes::new(64 << 10)
}

pub(crate) fn yes() -> bool {
    true
}

pub(crate) fn early() -> Bytes {
    Bytes::new(64 << 20)
}

pub(crate) fn forget_after() -> u64 {
    FORGET_AFTER
}

pub(crate) fn records() -> u32 {
    1 << 13
}

/// Open files. Of a dimension: listeners for this host and for others, what wakes its port. Of a node: the same of control,
/// and room for connections that are being made.
const OF_DIMENSION: u64 = 4;
const OF_NODE: u64 = 16;

impl Settings {
    pub(crate) fn secret(&self) -> Result<Secret, RuntimeError> {
        self.secret.as_deref().map_or_else(|| Ok(Secret::default()), Secret::from_hex)
    }

    pub(crate) fn fabric(&self) -> Fabric {
        let dimension = |one: &DimensionSettings| {
            let fastest = one.fastest.clone();
            let of = Dimension::new(one.kind, one.size, one.links, one.bandwidth, one.latency);
            Dimension { fastest, ..of }
        };
        let dimensions = self.dimensions.iter().map(dimension).collect();
        Fabric { memory_bandwidth: None, window: None, name: "job".to_owned(), dimensions }
    }

    pub(crate) fn tensor_parameters(&self) -> TensorParameters {
        let (policy, partition) = (self.tensor.clone(), self.partition);
        let TensorKeys { credit, bucket, first_bucket, threshold, cycle, groups } =
            self.tensor_keys.clone();
        TensorParameters {
            policy,
            partition,
            credit,
            bucket,
            first_bucket,
            threshold,
            cycle,
            groups,
            ..TensorParameters::default()
        }
    }

    /// What all ranks must have in common, by key: what they would decide differently with. A value that is
    /// long is there as its hash.
    pub(crate) fn alike(&self) -> BTreeMap<String, String> {
        let Self { policy, order, chunks, smallest_chunk, threshold, .. } = self;
        let Self { algorithms, tensor, partition, group, plans, elsewhere, .. } = self;
        let Self { frame_checks, tensor_keys, coordination, .. } = self;
        let mut alike = BTreeMap::from([
            ("policy".to_owned(), short(policy)),
            ("order".to_owned(), short(order)),
            ("chunks".to_owned(), short(chunks)),
            ("smallest_chunk".to_owned(), short(smallest_chunk)),
            ("threshold".to_owned(), short(threshold)),
            ("algorithms".to_owned(), short(algorithms)),
            ("tensor".to_owned(), short(tensor)),
            ("partition".to_owned(), short(partition)),
            ("tensor_keys".to_owned(), short(tensor_keys)),
            ("coordination".to_owned(), short(coordination)),
            ("group".to_owned(), short(group)),
            ("plans".to_owned(), short(plans)),
            ("elsewhere".to_owned(), short(elsewhere)),
            ("frame_checks".to_owned(), short(frame_checks)),
        ]);
        for (number, one) in self.dimensions.iter().enumerate() {
            let DimensionSettings { size, bandwidth, latency, kind, links, fastest, .. } = one;
            let network = (bandwidth, latency, kind, links, fastest);
            alike.insert(format!("dimensions[{number}].size"), short(size));
            alike.insert(format!("dimensions[{number}].network"), short(&network));
        }
        alike
    }

    /// How many files a node has open at the most: one for each connection, and a few more.
    pub(crate) fn open_files(&self) -> u64 {
        let others = |size: u32| u64::from(size.saturating_sub(1));
        let data = self.dimensions.iter().map(|one| others(one.size) + OF_DIMENSION);
        others(self.ranks) + data.sum::<u64>() + OF_NODE
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        duration(self.timeouts.connect)
    }
}

/// A value as JSON, or the hash of that where it is long.
fn short(value: &impl Serialize) -> String {
    const LONGEST: usize = 24;
    let text = serde_json::to_string(value).expect("settings are plain data");
    if text.len() <= LONGEST {
        return text;
    }
    let digest = Sha256::digest(text);
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Ranks of these sizes on this machine, with short timeouts.
    pub(crate) fn local(rank: u32, sizes: &[u32]) -> Settings {
        let dimensions: Vec<_> = sizes
            .iter()
            .map(|size| {
                serde_json::json!({"size": size, "bandwidth": "10 Gb/s", "latency": "20 us"})
            })
            .collect();
        let ranks: u32 = sizes.iter().product();
        let text = serde_json::json!({
            "rank": rank, "ranks": ranks, "dimensions": dimensions,
            "timeouts": {"connect": "30 s", "link": "10 s", "silent": "60 s", "heartbeat": "1 s"},
        });
        Settings::from_json(&text.to_string()).expect("right settings")
    }

    #[test]
    fn what_ranks_have_in_common_is_known_by_its_key() {
        let one = local(0, &[2, 2]);
        let mut other = local(3, &[2, 2]);
        other.dimensions[1].interface = "lo".to_owned();
        other.timeouts.silent = Time::from_us(9_000_000);
        assert_eq!(one.alike(), other.alike());
        other.chunks = 2;
        let differing = |other: &Settings| -> Vec<String> {
            let theirs = other.alike();
            one.alike()
                .into_iter()
                .filter(|(key, value)| theirs[key] != *value)
                .map(|one| one.0)
                .collect()
        };
        assert_eq!(differing(&other), ["chunks"]);
        other.dimensions[1].links = 2;
        assert_eq!(differing(&other), ["chunks", "dimensions[1].network"]);
        assert_ne!(local(0, &[4]).alike(), local(0, &[2, 2]).alike());
    }
}
