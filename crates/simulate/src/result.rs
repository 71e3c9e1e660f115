//! What a simulation gives. Names are those of the JSON and of the Python API.

use allrail_fabric::Dimension;
use serde::Serialize;
use serde::ser::SerializeMap;

use crate::columns::{Row, columns, names, values};
use crate::coordination::Counts;

/// The result of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct SimulationResult {
    /// From the first issue to the end of the last collective.
    pub time_us: f64,
    /// Total bytes over total bandwidth.
    pub ideal_time_us: f64,
    /// No schedule is faster, in any network model: see `allrail_schedule::bound`.
    pub bound_time_us: f64,
    /// `ideal_time_us / time_us`; absent where the model is below the physical bound.
    pub utilisation: Option<f64>,
    /// Bytes sent by an NPU (the busiest) over all dimensions.
    pub bytes_per_npu: u64,
    /// The network model that predicted this.
    pub network_model: String,
    /// The scenario's.
    pub seed: u64,
    /// Where the simulated network is not wired as the priced one: how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_as: Option<&'static str>,
    /// Where the network is no product of dimensions: how its plans are counted, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<String>,
    /// Where the policy is slower than the baseline in the model of `dims`: by how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_baseline: Option<String>,
    /// Set where messages that leave an NPU at once do not share its links (ASTRA-sim's
    /// congestion-unaware backend).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub below_physical_bound: bool,
    /// How many NPUs.
    pub npus: u64,
    /// Size over time, GB/s (nccl-tests); of the only collective.
    #[serde(rename = "algbw_GBps")]
    pub algbw_gbps: Option<f64>,
    /// `algbw` times the operation's factor (nccl-tests).
    #[serde(rename = "busbw_GBps")]
    pub busbw_gbps: Option<f64>,
    /// The chunk scheduler.
    pub policy: String,
    /// The order within a dimension.
    pub order: String,
    /// Chunks per collective.
    pub chunks: u32,
    /// Messages carried (`links`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// What coordinators said, where ranks agree on collectives first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinators: Option<AgreementResult>,
    /// Per dimension, innermost first.
    pub dimensions: Vec<DimensionResult>,
    /// Per collective.
    pub collectives: Vec<CollectiveResult>,
    /// Measurements of the host: the only part that differs between runs.
    pub host: Host,
    /// Every stage of one NPU, where asked for.
    #[serde(serialize_with = "columns", skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Vec<SpanResult>>,
    /// How many there are, where they were asked for and are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline_left_out: Option<usize>,
}

fn none(bytes: &u64) -> bool {
    *bytes == 0
}

/// One dimension's share.
#[derive(Clone, Debug, Serialize)]
pub struct DimensionResult {
    /// `dim1` is the innermost.
    pub name: String,
    /// Its kind.
    pub kind: allrail_fabric::Kind,
    /// Its size.
    pub size: u32,
    /// Its aggregate bandwidth per NPU, Gb/s.
    pub bandwidth_gbps: f64,
    /// The same with packets' headers, where they are said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_rate_gbps: Option<f64>,
    /// The algorithm of the first collective on it.
    pub algorithm: String,
    /// Bytes sent by an NPU (the busiest).
    pub bytes_per_npu: u64,
    /// Those of their packets' headers; `bandwidth_gbps` is without.
    #[serde(skip_serializing_if = "none")]
    pub header_bytes_per_npu: u64,
    /// Its bytes over what it could have sent in the time.
    pub utilisation: Option<f64>,
    /// The fraction of the time in which it was serving.
    pub busy_fraction: f64,
}

/// What a dimension's links carry with the headers of packets, Gb/s; `None` without headers.
pub(crate) fn line_rate(dimension: &Dimension) -> Option<f64> {
    let rate = dimension.line_rate();
    (rate > dimension.aggregate()).then(|| rate.gbps())
}

/// What coordinators said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AgreementResult {
    /// Messages between ranks.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Ranks' cycles that change nothing, and were left out.
    pub cycles_left_out: u64,
}

impl AgreementResult {
    pub(crate) fn of(counts: Counts) -> Self {
        let Counts { messages, bytes, skipped, .. } = counts;
        Self { messages, bytes, cycles_left_out: skipped }
    }
}

/// One collective's times.
#[derive(Clone, Debug, Serialize)]
pub struct CollectiveResult {
    /// Its name.
    pub name: String,
    /// What it does.
    pub kind: allrail_collective::Operation,
    /// Its buffer.
    pub size_bytes: u64,
    /// When it was issued.
    pub start_us: f64,
    /// When all ranks had agreed on it, where they do, and it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreed_us: Option<f64>,
    /// When it was over everywhere.
    pub finish_us: f64,
    /// The difference.
    pub time_us: f64,
    /// Size over time, GB/s.
    #[serde(rename = "algbw_GBps")]
    pub algbw_gbps: f64,
    /// `algbw` times the operation's factor.
    #[serde(rename = "busbw_GBps")]
    pub busbw_gbps: f64,
}

/// Measurements of the host.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Host {
    /// Making, or reading and checking, the plans.
    pub planning_ms: f64,
    /// Everything.
    pub wall_ms: f64,
}

/// One stage.
#[derive(Clone, Copy, Debug)]
pub struct SpanResult {
    /// Index of the dimension.
    pub dimension: u32,
    /// Index of the collective.
    pub collective: u32,
    /// Index of the chunk.
    pub chunk: u32,
    /// Index of the stage within the chunk.
    pub stage: u32,
    /// What it does.
    pub operation: allrail_collective::Operation,
    /// Bytes that the NPU sends in it.
    pub bytes: f64,
    /// When its dimension chose it.
    pub start_us: f64,
    /// When its last byte had left.
    pub end_us: f64,
    /// When it was over.
    pub finish_us: f64,
}

impl Row for SpanResult {
    fn columns<M: SerializeMap>(rows: &[Self], map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("dimension", &values(rows, |row| row.dimension))?;
        map.serialize_entry("collective", &values(rows, |row| row.collective))?;
        map.serialize_entry("chunk", &values(rows, |row| row.chunk))?;
        map.serialize_entry("stage", &values(rows, |row| row.stage))?;
        map.serialize_entry("operation", &names(rows, |row| Some(row.operation)))?;
        map.serialize_entry("bytes", &values(rows, |row| row.bytes))?;
        map.serialize_entry("start_us", &values(rows, |row| row.start_us))?;
        map.serialize_entry("end_us", &values(rows, |row| row.end_us))?;
        map.serialize_entry("finish_us", &values(rows, |row| row.finish_us))
    }
}
