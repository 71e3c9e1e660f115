//! What traffic gives. Names are those of the JSON and of the Python API.

use allrail_core::Time;
use serde::Serialize;

/// The result of a simulation of traffic.
#[derive(Clone, Debug, Serialize)]
pub struct TrafficResult {
    /// Who sent to whom.
    pub pattern: &'static str,
    /// The network model that predicted this.
    pub network_model: String,
    /// NPUs that took part.
    pub npus: u32,
    /// Planes of the fabric, all alike; one was simulated.
    pub planes: u64,
    /// From one NPU to another over all planes, or an NPU's buffer; absent in a trace.
    pub size_bytes: Option<u64>,
    /// The scenario's.
    pub seed: u64,
    /// Until the last byte has arrived.
    pub time_us: f64,
    /// No time is below it.
    pub lower_bound_time_us: f64,
    /// Bytes that an NPU sends (`incast`: that the destination receives) over what its cables carry in
    /// that time.
    pub share_of_injection: f64,
    /// Collectives: what an NPU must send, or receive, at least, over what its cables carry in that time. Of
    /// `p` NPUs that is `2 (p - 1) / p` of the buffer (`all_reduce`), `(p - 1) / p` of it (`reduce_scatter`,
    /// `all_gather`), or the buffer once (`broadcast`, and where switches reduce).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_of_optimum: Option<f64>,
    /// Bytes that an NPU sends over all planes, on average.
    pub bytes_per_npu: f64,
    /// What an NPU's cables carry over all planes, on average, Gb/s.
    pub injection_gbps: f64,
    /// `all_to_all`: shift phases that were simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases_simulated: Option<u32>,
    /// `all_to_all`: shift phases that there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phases: Option<u32>,
    /// `all_to_all` in `flows`, with a barrier, where phases were drawn: the standard error of time and
    /// share, as a part of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_error: Option<f64>,
    /// `all_to_all`: whether a phase waited for the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_barrier: Option<bool>,
    /// Messages of an NPU that may leave at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// `flows`: over which paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<String>,
    /// Collectives: which one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Collectives: rows and columns of ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<[u32; 2]>,
    /// Collectives but `broadcast`: steps that were simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_simulated: Option<u32>,
    /// Collectives but `broadcast`: steps that there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// `broadcast`: segments of each tree that were simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_simulated: Option<u32>,
    /// `broadcast`: segments of each tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments: Option<u32>,
    /// `permutation`, `incast`, `uniform`: what each NPU that sends got, Gb/s over all planes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npu_bandwidth_gbps: Option<Distribution>,
    /// The same, one by one, in the order of NPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub npu_bandwidths_gbps: Option<Vec<f64>>,
    /// `trace`: from leaving to arriving, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_latency_us: Option<Distribution>,
    /// Messages in one plane; in phases of a closed form, those that it stands for.
    pub messages: u64,
    /// What was built: one plane.
    pub built: Built,
    /// `packets`: what its packets did.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub packets: Option<PacketsResult>,
    /// Where the simulated graph is not the costed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_as: Option<&'static str>,
    /// What was left out, sampled or scaled, a sentence each.
    pub notes: Vec<String>,
    /// Measurements of the host: the only part that differs between runs.
    pub host: TrafficHost,
}

/// What was built of the fabric: one plane.
#[derive(Clone, Debug, Serialize)]
pub struct Built {
    /// NPUs.
    pub npus: u32,
    /// Switches.
    pub switches: usize,
    /// Directed links.
    pub links: u32,
    /// How messages or packets find their way.
    pub routing: String,
    /// How a packet chooses among the hops of the routing (`packets`).
    pub choice: Option<&'static str>,
    /// When NPUs send, and what full queues do (`packets`).
    pub transport: Option<&'static str>,
    /// Virtual channels of a link (`packets`).
    pub channels: Option<u8>,
    /// Buffer of a port (`packets`).
    pub buffer_bytes: Option<u64>,
    /// Of a full packet (`packets`).
    pub packet_bytes: Option<u64>,
}

/// A distribution by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// The smallest.
    pub min: f64,
    /// 1 % are below it.
    pub p1: f64,
    /// Half are below it.
    pub median: f64,
    /// 99 % are below it.
    pub p99: f64,
    /// The largest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

impl Distribution {
    /// Of values; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1];
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Self { min, p1: at(1), median: at(50), p99: at(99), max, mean })
    }

    /// Of times, in µs.
    #[must_use]
    pub fn of_times(times: &[Time]) -> Option<Self> {
        Self::of(&times.iter().map(|time| time.as_us()).collect::<Vec<_>>())
    }
}

/// What packets did, in one plane.
#[derive(Clone, Debug, Serialize)]
pub struct PacketsResult {
    /// Packets carried.
    pub packets: u64,
    /// Links that they crossed.
    pub packet_hops: u64,
    /// From when its NPU takes a packet up to its last byte's arrival, µs.
    pub packet_latency_us: PacketLatency,
    /// Packets that arrived after a later one of their message.
    pub out_of_order: u64,
    /// `choice: flowlet`: times that a flow has drawn its path again after a gap, at any node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flowlets: Option<u64>,
    /// Packets that lost their payload and were sent again.
    pub cut: u64,
    /// Of links, of the time.
    pub link_use: LinkUse,
    /// The most that a virtual channel held.
    pub deepest_queue_bytes: u64,
    /// What a link held on average.
    pub mean_queue_bytes: u64,
}

/// Percentiles of packets' latencies, µs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PacketLatency {
    /// Half take no longer.
    pub median: f64,
    /// Nine of ten take no longer.
    pub p90: f64,
    /// 99 of 100 take no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// How much of what links could carry they did, 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub struct LinkUse {
    /// Of all links.
    pub mean: f64,
    /// Of the busiest.
    pub max: f64,
    /// Its ends, such as `NPU 3 to switch 1`.
    pub busiest: String,
}

/// Measurements of the host.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TrafficHost {
    /// Building the network and its tables.
    pub building_ms: f64,
    /// Everything.
    pub wall_ms: f64,
    /// `packets`: links crossed per second of the host, without building.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packet_hops_per_s: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_by_nearest_rank() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let all = Distribution::of(&values).expect("values");
        assert_eq!((all.min, all.p1, all.median, all.p99, all.max), (1.0, 1.0, 50.0, 99.0, 100.0));
        assert_eq!(Distribution::of(&[3.0, 1.0]).expect("values").median, 1.0);
        assert!(Distribution::of(&[]).is_none());
    }
}
