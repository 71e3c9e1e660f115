//! What a run of traffic comes to: shares, bounds, and what was built.

use allrail_core::{Bytes, Time};
use allrail_fabric::graph::NodeId;
use allrail_network::flows::Splitting;
use allrail_network::packets::Statistics;

use super::result::{
    Built, Distribution, LinkUse, PacketLatency, PacketsResult, TrafficHost, TrafficResult,
};
use super::run::{PatternResult, TrafficRun};
use super::tag;
use crate::SimulateError;
use crate::error::field;
use crate::scenario::NetworkModelKind;
use crate::scenario::{Pattern, WINDOW};

impl TrafficRun<'_> {
    /// What an NPU's cables carry in one plane, on average, bytes per second.
    fn injection(&self) -> f64 {
        let of = |npu| self.graph.injection(NodeId(npu)).bytes_per_second() as f64;
        match (self.traffic.pattern, self.traffic.destination) {
            (Pattern::Incast, destination) => of(destination.unwrap_or(0)),
            _ => (0..self.npus()).map(of).sum::<f64>() / f64::from(self.npus()),
        }
    }

    pub(super) fn summarise(
        &mut self,
        outcome: &PatternResult,
    ) -> Result<TrafficResult, SimulateError> {
        const DAYS: f64 = 213.0 * 86400.0;
        if outcome.seconds > DAYS {
            let why = "it takes longer than 213 days".to_owned();
            let size = self.traffic.size.unwrap_or_default();
            return Err(field("traffic.size", size, why, "send less"));
        }
        let traffic = self.traffic;
        let (injection, planes) = (self.injection(), self.planes as f64);
        let least = outcome.bytes_per_npu / injection;
        let share = |bytes: f64| bytes / injection / outcome.seconds;
        let gbps = |(bytes, finish): &(u64, Time)| *bytes as f64 * 8e-9 * planes / finish.as_s();
        let each: Vec<f64> = outcome.each.iter().map(gbps).collect();
        let flows = self.scenario.network_model == NetworkModelKind::Flows;
        let listed = matches!(traffic.pattern, Pattern::AllToAll | Pattern::Uniform);
        let barrier = traffic.barrier(self.scenario.network_model);
        let windowed = listed
            && !(flows && traffic.pattern == Pattern::Uniform)
            && !(traffic.pattern == Pattern::AllToAll && barrier);
        let ran = self.built.unwrap_or(self.begin).elapsed().as_secs_f64();
        let building = self.built.map_or(0.0, |built| (built - self.begin).as_secs_f64());
        let hops = outcome.packets.as_ref().map(|s| s.packet_hops as f64 / ran);
        Ok(TrafficResult {
            pattern: traffic.pattern.tag(),
            network_model: tag(&self.scenario.network_model),
            npus: self.npus(),
            planes: self.planes,
            size_bytes: traffic.size.map(Bytes::count),
            seed: self.scenario.seed,
            time_us: outcome.seconds * 1e6,
            lower_bound_time_us: outcome.lower_bound.max(least) * 1e6,
            share_of_injection: share(outcome.bytes_per_npu),
            share_of_optimum: outcome.least_bytes.map(share),
            bytes_per_npu: outcome.bytes_per_npu * planes,
            injection_gbps: injection * planes * 8e-9,
            phases_simulated: outcome.phases.map(|(simulated, _)| simulated),
            phases: outcome.phases.map(|(_, all)| all),
            sample_error: outcome.sample_error,
            phase_barrier: outcome.phases.map(|_| barrier),
            window: windowed.then(|| traffic.window.unwrap_or(WINDOW)),
            paths: flows.then(|| tag(&self.splitting())),
            algorithm: traffic.algorithm.clone(),
            shape: outcome.shape,
            steps_simulated: outcome.steps.map(|(simulated, _)| simulated),
            steps: outcome.steps.map(|(_, all)| all),
            segments_simulated: outcome.segments.map(|(simulated, _)| simulated),
            segments: outcome.segments.map(|(_, all)| all),
            npu_bandwidth_gbps: Distribution::of(&each),
            npu_bandwidths_gbps: (!each.is_empty()).then_some(each),
            message_latency_us: outcome.latencies,
            messages: outcome.messages,
            built: self.built(),
            packets: outcome.packets.as_ref().map(|s| self.packets(s, outcome.simulated)),
            simulated_as: self.topology.simulated_as(),
            notes: std::mem::take(&mut self.notes),
            host: TrafficHost {
                building_ms: building * 1e3,
                wall_ms: 0.0,
                packet_hops_per_s: hops,
            },
        })
    }

    fn packets(&self, statistics: &Statistics, simulated: Time) -> PacketsResult {
        let mut link_use = LinkUse { mean: 0.0, max: 0.0, busiest: String::new() };
        for (number, bytes) in (0u32..).zip(&statistics.link_bytes) {
            let link = self.graph.link(number);
            let rate = link.wire.bandwidth.bytes_per_second() as f64;
            let used = bytes.count() as f64 / rate / simulated.as_s();
            link_use.mean += used / f64::from(self.graph.links());
            if used > link_use.max {
                link_use.max = used;
                link_use.busiest = format!("{} to {}", self.name(link.from), self.name(link.to));
            }
        }
        PacketsResult {
            packets: statistics.packets,
            packet_hops: statistics.packet_hops,
            packet_latency_us: PacketLatency {
                median: statistics.latency_p50.as_us(),
                p90: statistics.latency_p90.as_us(),
                p99: statistics.latency_p99.as_us(),
                max: statistics.latency_max.as_us(),
            },
            out_of_order: statistics.out_of_order,
            flowlets: self.scenario.packets.choice.by_flowlets().then_some(statistics.flowlets),
            cut: statistics.cut,
            link_use,
            deepest_queue_bytes: statistics.deepest_queue.count(),
            mean_queue_bytes: statistics.mean_queue.count(),
        }
    }

    fn name(&self, node: NodeId) -> String {
        match node.0.checked_sub(self.npus()) {
            None => format!("NPU {}", node.0),
            Some(switch) => format!("switch {switch}"),
        }
    }

    fn built(&self) -> Built {
        let (graph, settings) = (&self.graph, &self.scenario.packets);
        let packets = self.scenario.network_model == NetworkModelKind::Packets;
        let paths = || match (self.splitting(), self.detours()) {
            (Splitting::Ideal, true) => "best splitting, over detours too",
            (Splitting::Ideal, false) => "best splitting",
            (Splitting::Minimal, _) => "best splitting over minimal paths",
            (Splitting::Ecmp, _) => "equal splitting at every node over minimal paths",
            (Splitting::Single, _) => "one minimal path",
        };
        Built {
            npus: graph.npus(),
            switches: graph.switches(),
            links: graph.links(),
            routing: self.routing.as_ref().map_or_else(|| paths().to_owned(), |r| r.0.clone()),
            choice: packets.then(|| settings.choice.tag()),
            transport: packets.then(|| settings.transport.tag()),
            channels: self.routing.as_ref().map(|routing| routing.1),
            buffer_bytes: packets.then(|| settings.buffer.count()),
            packet_bytes: packets.then(|| settings.packet().count()),
        }
    }
}
