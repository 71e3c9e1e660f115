//! Traffic on graph fabrics: the key `traffic`.
//!
//! Keys that do not belong to the pattern are refused. What needs the built network (a destination
//! that does not exist) is checked by [`Traffic::check`], once its NPUs are counted.

use allrail_core::{Bytes, Time, counted, either};
use allrail_network::flows::Splitting;
use allrail_network::packets::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SimulateError;
use crate::error::field;
use crate::scenario::{NetworkModelKind, tag};

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a pattern"))]
pub enum Pattern {
    /// Every NPU to every other, in shift phases: in phase `i`, NPU `n` sends to `n + i`.
    AllToAll,
    /// Every NPU to all others at once (`flows`), or to NPUs drawn one by one (`packets`).
    Uniform,
    /// Every NPU to one other and from one other, drawn; all at once.
    Permutation,
    /// Some NPUs to a single one, all at once.
    Incast,
    /// An all-reduce by an algorithm.
    AllReduce,
    /// The first half of one: every NPU keeps its shard of the sum.
    ReduceScatter,
    /// The second half of one: every NPU gets all shards.
    AllGather,
    /// One NPU's buffer to all others, in segments down the trees of an algorithm.
    Broadcast,
    /// Messages that are listed, each with its time.
    Trace,
}

impl Pattern {
    /// As files write it.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::AllToAll => "all_to_all",
            Self::Uniform => "uniform",
            Self::Permutation => "permutation",
            Self::Incast => "incast",
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast",
            Self::Trace => "trace",
        }
    }

    /// Those that an algorithm does.
    pub(crate) const COLLECTIVES: [Self; 4] =
        [Self::AllReduce, Self::ReduceScatter, Self::AllGather, Self::Broadcast];
}

/// What is sent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// all_to_all: every NPU to every other, in shift phases; uniform: to all at once (`flows`) or
    /// to NPUs drawn one by one (`packets`); permutation: every NPU to one other, drawn; incast:
    /// many to one; all_reduce, reduce_scatter, all_gather, broadcast: by an algorithm; trace:
    /// messages with times.
    pub pattern: Pattern,
    /// From one NPU to another, over all planes, split evenly; of a collective: the buffer (before a
    /// reduce_scatter, after an all_gather). A trace has none.
    #[serde(default)]
    #[schemars(extend("x-positive" = true))]
    pub size: Option<Bytes>,
    /// all_to_all: `all`, or how many shift phases are drawn and simulated; the time is scaled.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub phases: Option<u32>,
    /// all_to_all: whether a phase begins when the one before is over everywhere. If left out: so
    /// in `flows`, not in `packets`.
    #[serde(default)]
    pub phase_barrier: Option<bool>,
    /// `all_to_all` without a barrier: how many phases an NPU has begun and not done (sent in and
    /// received in). `uniform` in `packets`: how many messages of an NPU may be leaving it at once.
    /// 8 if left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub window: Option<u32>,
    /// In `flows`: best splitting (`ideal`; on a dragonfly over detours too), best splitting over
    /// minimal paths, equal splitting, one path. `ideal` if left out.
    #[serde(default)]
    pub paths: Option<Splitting>,
    /// uniform, in `packets`: how many messages each NPU sends; 16 if left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub count: Option<u32>,
    /// incast: how many NPUs send, drawn; all others if left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub fan_in: Option<u32>,
    /// incast: to which NPU; 0 if left out.
    #[serde(default)]
    pub destination: Option<u32>,
    /// Collectives: by which algorithm; `in_network` and `tree` do not do all of them.
    #[serde(default)]
    #[schemars(extend("x-table" = "grid_algorithms"))]
    pub algorithm: Option<String>,
    /// Collectives: rows and columns of the ranks; the fabric's own if left out.
    #[serde(default)]
    #[schemars(inner(range(min = 1)))]
    pub shape: Option<[u32; 2]>,
    /// broadcast: which NPU has the buffer; 0 if left out.
    #[serde(default)]
    pub root: Option<u32>,
    /// broadcast: into how many segments each tree's part of the buffer is cut; if left out, as many as
    /// the tree is deep, and 16 at least.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub segments: Option<u32>,
    /// Collectives: whether steps, or segments, that repeat are skipped once they are steady; so if left
    /// out.
    #[serde(default)]
    pub skip: Option<bool>,
    /// trace: rows of time, source, destination and size, in the order of time.
    #[serde(default)]
    pub messages: Option<Vec<(Time, u32, u32, Bytes)>>,
}

/// The JSON schema of the key `packets`.
#[must_use]
pub fn packets_schema() -> schemars::Schema {
    schemars::schema_for!(Settings)
}

/// Messages of an NPU that leave at once, if the scenario does not say.
pub(crate) const WINDOW: u32 = 8;
/// Messages of an NPU in `uniform`, if the scenario does not say.
pub(crate) const COUNT: u32 = 16;
/// Segments of each tree of a `broadcast` at least, if the scenario does not say: those of
/// `double_binary_tree`.
pub(crate) const SEGMENTS: u32 = 16;

impl Traffic {
    /// Whether a phase waits for the one before.
    #[must_use]
    pub fn barrier(&self, network_model: NetworkModelKind) -> bool {
        self.phase_barrier.unwrap_or(network_model == NetworkModelKind::Flows)
    }

    /// Bytes in one of `planes` planes, rounded up.
    pub(crate) fn plane_size(&self, planes: u64) -> Bytes {
        Bytes::new(self.size.unwrap_or_default().count().div_ceil(planes))
    }

    /// Refuses keys that do not belong to the pattern or the network model.
    pub(crate) fn check_keys(&self, network_model: NetworkModelKind) -> Result<(), SimulateError> {
        use Pattern::{AllToAll, Broadcast, Incast, Trace, Uniform};
        let of = |key: &str, given: Option<String>, patterns: &[Pattern]| {
            let Some(value) = given.filter(|_| !patterns.contains(&self.pattern)) else {
                return Ok(());
            };
            let names: Vec<_> = patterns.iter().map(|p| format!("`{}`", p.tag())).collect();
            let why = format!("it belongs to the pattern {}", names.join(" or "));
            let hint = format!("leave it out, or write `pattern: {}`", patterns[0].tag());
            Err(field(format!("traffic.{key}"), value, why, hint))
        };
        of("phases", self.phases.map(|v| v.to_string()), &[AllToAll])?;
        of("phase_barrier", self.phase_barrier.map(|v| v.to_string()), &[AllToAll])?;
        of("window", self.window.map(|v| v.to_string()), &[AllToAll, Uniform])?;
        of("count", self.count.map(|v| v.to_string()), &[Uniform])?;
        of("fan_in", self.fan_in.map(|v| v.to_string()), &[Incast])?;
        of("destination", self.destination.map(|v| v.to_string()), &[Incast])?;
        of("algorithm", self.algorithm.clone(), &Pattern::COLLECTIVES)?;
        of("shape", self.shape.map(|v| format!("{v:?}")), &Pattern::COLLECTIVES)?;
        of("root", self.root.map(|v| v.to_string()), &[Broadcast])?;
        of("segments", self.segments.map(|v| v.to_string()), &[Broadcast])?;
        of("skip", self.skip.map(|v| v.to_string()), &Pattern::COLLECTIVES)?;
        of("messages", self.messages.as_ref().map(|m| format!("{} of them", m.len())), &[Trace])?;
        self.check_missing()?;
        self.check_network_model(network_model)?;
        for (key, value) in [
            ("phases", self.phases),
            ("window", self.window),
            ("count", self.count),
            ("fan_in", self.fan_in),
            ("segments", self.segments),
        ] {
            if value == Some(0) {
                let key = format!("traffic.{key}");
                return Err(field(&key, 0, "nothing would be sent", "write 1 or more"));
            }
        }
        Ok(())
    }

    fn check_missing(&self) -> Result<(), SimulateError> {
        let trace = self.pattern == Pattern::Trace;
        match self.size {
            Some(size) if trace => Err(field(
                "traffic.size",
                size,
                "each message of a trace has its own",
                "leave it out",
            )),
            None if !trace => Err(field(
                "traffic.size",
                "",
                "it is missing",
                "bytes from one NPU to another, for example `size: 1 MiB`",
            )),
            Some(size) if size == Bytes::default() => Err(field(
                "traffic.size",
                size,
                "a message has 1 byte at least",
                "for example `size: 1 MiB`",
            )),
            _ if trace && self.messages.as_ref().is_none_or(Vec::is_empty) => Err(field(
                "traffic.messages",
                "",
                "a trace without messages",
                "name a `file:`, or list `messages: [[0 us, 0, 1, 1 MiB]]`",
            )),
            _ if Pattern::COLLECTIVES.contains(&self.pattern) && self.algorithm.is_none() => Err(
                field("traffic.algorithm", "", "it is missing", "for example `algorithm: rings`"),
            ),
            _ => Ok(()),
        }
    }

    fn check_network_model(&self, network_model: NetworkModelKind) -> Result<(), SimulateError> {
        match network_model {
            NetworkModelKind::Dims | NetworkModelKind::Links => {
                return Err(field(
                    "network_model",
                    network_model.tag(),
                    "it knows dimensions, not switches and cables",
                    "write `network_model: flows` or `network_model: packets`",
                ));
            }
            NetworkModelKind::Packets => {
                if let Some(paths) = self.paths {
                    return Err(field(
                        "traffic.paths",
                        tag(&paths),
                        "in `packets` each packet finds its own path",
                        "leave it out, or write `network_model: flows`",
                    ));
                }
            }
            _ => {
                if let Some(count) = self.count {
                    return Err(field(
                        "traffic.count",
                        count,
                        "in `flows` every NPU sends to all others at once",
                        "leave it out, or write `network_model: packets`",
                    ));
                }
                if self.pattern == Pattern::Uniform
                    && let Some(window) = self.window
                {
                    return Err(field(
                        "traffic.window",
                        window,
                        "in `flows` every NPU sends to all others at once",
                        "leave it out, or write `network_model: packets`",
                    ));
                }
            }
        }
        match self.window {
            Some(window) if self.pattern == Pattern::AllToAll && self.barrier(network_model) => {
                Err(field(
                    "traffic.window",
                    window,
                    "with a barrier after each phase an NPU has one message",
                    "leave it out, or write `phase_barrier: false`",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what does not fit a network of `npus` NPUs.
    ///
    /// # Errors
    /// Names the field.
    pub fn check(&self, npus: u32) -> Result<(), SimulateError> {
        let last = npus - 1;
        if npus < 2 {
            return Err(field("fabric", "1 NPU", "it has no one to send to", "take more NPUs"));
        }
        if let Some(phases) = self.phases.filter(|phases| *phases > last) {
            return Err(field(
                "traffic.phases",
                phases,
                format!(
                    "{npus} {have} {last} shift phases",
                    npus = counted(npus, "NPU"),
                    have = either(&npus, "has", "have")
                ),
                "write `phases: all`, or fewer",
            ));
        }
        let exists = format!("the NPUs are 0 to {last}");
        if let Some(destination) = self.destination.filter(|destination| *destination > last) {
            let hint = "name an NPU that exists";
            return Err(field("traffic.destination", destination, exists, hint));
        }
        if let Some(root) = self.root.filter(|root| *root > last) {
            return Err(field("traffic.root", root, exists, "name an NPU that exists"));
        }
        if let Some(fan_in) = self.fan_in.filter(|fan_in| *fan_in > last) {
            let why = format!("only {last} other NPUs can send to one");
            return Err(field("traffic.fan_in", fan_in, why, format!("write {last} or fewer")));
        }
        self.check_messages(npus)
    }

    fn check_messages(&self, npus: u32) -> Result<(), SimulateError> {
        let mut before = Time::ZERO;
        for (i, &(time, source, destination, _)) in self.messages.iter().flatten().enumerate() {
            let at = |key: &str| format!("traffic.messages[{i}].{key}");
            for (key, npu) in [("source", source), ("destination", destination)] {
                if npu >= npus {
                    let why = format!("the NPUs are 0 to {}", npus - 1);
                    return Err(field(at(key), npu, why, "name an NPU that exists"));
                }
            }
            if source == destination {
                return Err(field(
                    at("destination"),
                    destination,
                    "an NPU does not send to itself",
                    "name two different NPUs",
                ));
            }
            if time < before {
                return Err(field(
                    at("time"),
                    time,
                    format!("time goes backwards: the message before it leaves at {before}"),
                    "sort the messages by time",
                ));
            }
            before = time;
        }
        Ok(())
    }
}
