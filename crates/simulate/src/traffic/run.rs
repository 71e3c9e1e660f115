//! Chooses the network model and the demand of a scenario, runs them, and sums up.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use allrail_collective::grid::Half;
use allrail_core::{Bytes, Time, counted, either};
use allrail_fabric::graph::{Graph, NodeId, measure};
use allrail_fabric::routing::FARTHEST;
use allrail_fabric::topologies::GraphTopology;
use allrail_network::flows::{Phases, Splitting};
use allrail_network::packets::Statistics;

use super::driver::{Carried, Demand, carry_out};
use super::lists::{Lists, Timed};
use super::result::{Distribution, TrafficResult};
use super::{draw, phases};
use crate::SimulateError;
use crate::driver::Observer;
use crate::error::field;
use crate::on_graph::{Built, OnGraph};
use crate::runs::Runs;
use crate::scenario::{
    COUNT, Network, NetworkModelKind, Pattern, Topology, Traffic, TrafficScenario, WINDOW,
};

/// Ways round by any switch take about 24 bytes for each pair of switches.
const MOST_DETOURS: u64 = 1 << 27;

/// Simulates a scenario of traffic.
///
/// # Errors
/// Names the field that is wrong; a stall with who waits for what; an interruption.
pub fn simulate(
    scenario: &TrafficScenario,
    observer: Observer<'_>,
) -> Result<TrafficResult, SimulateError> {
    let begin = Instant::now();
    let Some(Topology(topology, _)) = &scenario.topology else {
        let why = "traffic needs a network of switches and cables";
        return Err(field("fabric", &scenario.fabric.name, why, "take one with `topology`"));
    };
    let graph = Arc::new(topology.simulated()?);
    check_size(&**topology, &graph)?;
    let planes = topology.counts().planes;
    scenario.job.check(graph.npus())?;
    let mut job = TrafficRun {
        scenario,
        traffic: &scenario.job,
        topology: &**topology,
        graph,
        planes,
        begin,
        built: None,
        splitting: scenario.job.paths.unwrap_or(Splitting::Ideal),
        routing: None,
        notes: Vec::new(),
    };
    job.check_detours()?;
    let mut result = job.run(observer)?;
    result.host.wall_ms = begin.elapsed().as_secs_f64() * 1e3;
    Ok(result)
}

/// Refuses what no table can hold. A routing of `packets` looks to its own; `flows` keeps no more than
/// it needs.
pub(crate) fn check_size(topology: &dyn GraphTopology, graph: &Graph) -> Result<(), SimulateError> {
    let Some(far) = measure::distance_above(graph, FARTHEST) else { return Ok(()) };
    let why = format!("two NPUs are {far} apart, more than {FARTHEST}", far = counted(far, "link"));
    Err(field("fabric", topology.tag(), why, "take a network that is less long"))
}

/// A scenario on the way to its result.
pub(super) struct TrafficRun<'a> {
    pub(super) scenario: &'a TrafficScenario,
    pub(super) traffic: &'a Traffic,
    pub(super) topology: &'a dyn GraphTopology,
    pub(super) graph: Arc<Graph>,
    pub(super) planes: u64,
    pub(super) begin: Instant,
    pub(super) built: Option<Instant>,
    /// The one that is tried.
    splitting: Splitting,
    /// What it says of itself, and its channels.
    pub(super) routing: Option<(String, u8)>,
    pub(super) notes: Vec<String>,
}

/// What a pattern came to, in one plane.
#[derive(Default)]
pub(super) struct PatternResult {
    pub(super) seconds: f64,
    /// The time of what was simulated, in the network model's clock.
    pub(super) simulated: Time,
    /// Tighter than what the cables of an NPU allow, if it is known.
    pub(super) lower_bound: f64,
    /// Sent by an NPU on average; by all to the destination of an incast.
    pub(super) bytes_per_npu: f64,
    /// What an NPU must send, or receive, in any collective of this kind.
    pub(super) least_bytes: Option<f64>,
    pub(super) messages: u64,
    pub(super) packets: Option<Statistics>,
    /// Of each NPU that sends, the bytes and when the last one arrived.
    pub(super) each: Vec<(u64, Time)>,
    pub(super) phases: Option<(u32, u32)>,
    /// Of the time, as a part of it, where phases were drawn.
    pub(super) sample_error: Option<f64>,
    pub(super) steps: Option<(u32, u32)>,
    pub(super) segments: Option<(u32, u32)>,
    pub(super) shape: Option<[u32; 2]>,
    pub(super) latencies: Option<Distribution>,
}

impl TrafficRun<'_> {
    fn run(&mut self, observer: Observer<'_>) -> Result<TrafficResult, SimulateError> {
        if self.planes > 1 {
            let planes = self.planes;
            self.notes.push(format!("one of {planes} alike planes is simulated"));
            if self.traffic.size.is_some_and(|size| !size.count().is_multiple_of(planes)) {
                let each = self.size().count();
                let note = format!(
                    "`size` does not divide by {planes}: each carries {each} B",
                    planes = counted(planes, "plane")
                );
                self.notes.push(note);
            }
        }
        let outcome = self.best(observer)?;
        self.summarise(&outcome)
    }

    /// A best splitting looks at messages that start together, not at those under way, and stops within
    /// 1 % of what is proved: where a plainer one ends earlier, its time is the one that is possible.
    fn best(&mut self, observer: Observer<'_>) -> Result<PatternResult, SimulateError> {
        let asked = self.splitting;
        let mut taken = asked;
        let plainer = if self.scenario.network_model == NetworkModelKind::Flows {
            asked.plainer()
        } else {
            &[]
        };
        // Without ways round, the best one is the minimal one.
        let other = |one: &Splitting| *one != Splitting::Minimal || self.detours();
        let others: Vec<Splitting> = plainer.iter().copied().filter(other).collect();
        let mut runs = Runs::new(observer);
        runs.expect(1 + others.len() as u64);
        let mut best = self.once(&mut |done, total| runs.observe(done, total))?;
        let told = (self.notes.clone(), self.built);
        for splitting in others {
            runs.next();
            self.splitting = splitting;
            let outcome = self.once(&mut |done, total| runs.observe(done, total))?;
            if outcome.seconds < best.seconds {
                taken = splitting;
                best = PatternResult { lower_bound: best.lower_bound, ..outcome };
            }
        }
        (self.splitting, (self.notes, self.built)) = (asked, told);
        if taken != asked {
            let taken = super::tag(&taken);
            self.notes.push(format!("`paths: {taken}` ended earlier: the time is that of it"));
        }
        Ok(best)
    }

    fn once(&mut self, observer: Observer<'_>) -> Result<PatternResult, SimulateError> {
        match self.traffic.pattern {
            Pattern::AllToAll => self.all_to_all(observer),
            Pattern::Uniform => self.uniform(observer),
            Pattern::Permutation => self.permutation(observer),
            Pattern::Incast => self.incast(observer),
            Pattern::AllReduce => self.all_reduce(observer),
            Pattern::ReduceScatter => self.half(Half::ReduceScatter, observer),
            Pattern::AllGather => self.half(Half::AllGather, observer),
            Pattern::Broadcast => self.broadcast(observer),
            Pattern::Trace => self.trace(observer),
        }
    }

    /// Ways round by any switch are the one thing that `flows` has tables of.
    fn check_detours(&self) -> Result<(), SimulateError> {
        let switches = self.graph.switches() as u64;
        let fits = switches * switches <= MOST_DETOURS;
        if fits || !self.detours() || self.scenario.network_model != NetworkModelKind::Flows {
            return Ok(());
        }
        let why = "its tables of ways round would not fit into memory".to_owned();
        let hint = "write `paths: minimal`, or take a smaller network";
        Err(field(
            "fabric",
            format!("{switches} {switch}", switch = either(&switches, "switch", "switches")),
            why,
            hint,
        ))
    }

    pub(super) fn npus(&self) -> u32 {
        self.graph.npus()
    }

    pub(super) fn splitting(&self) -> Splitting {
        self.splitting
    }

    /// Detours are part of the best splitting where minimal paths alone leave most links unused.
    pub(super) fn detours(&self) -> bool {
        self.splitting() == Splitting::Ideal && self.topology.takes_detours()
    }

    pub(super) fn size(&self) -> Bytes {
        self.traffic.plane_size(self.planes)
    }

    /// Carries a demand out in the scenario's network model.
    pub(super) fn carry(
        &mut self,
        demand: &mut dyn Demand,
        observer: Observer<'_>,
    ) -> Result<(Carried, Option<Statistics>), SimulateError> {
        let Network::Graph(model) = self.scenario.network_model.network() else {
            unreachable!("the network model of a read scenario has cables");
        };
        let on = OnGraph {
            topology: self.topology,
            graph: &self.graph,
            paths: self.splitting(),
            packets: &self.scenario.packets,
            seed: self.scenario.seed,
        };
        let Built { mut network_model, routing } = model.build(&on)?;
        self.routing = routing;
        self.built = Some(Instant::now());
        let carried = carry_out(&mut *network_model, demand, observer).map_err(|error| {
            match (error, network_model.stalled()) {
                (SimulateError::Stalled { time_us, waits, hint }, Some(cycle)) => {
                    let waits = format!("{waits}\n{cycle}");
                    SimulateError::Stalled { time_us, waits, hint }
                }
                (error, _) => error,
            }
        })?;
        network_model.check_empty();
        Ok((carried, network_model.statistics()))
    }

    fn all_to_all(&mut self, observer: Observer<'_>) -> Result<PatternResult, SimulateError> {
        let (npus, bytes) = (self.npus(), self.size());
        let all = npus - 1;
        let taken = self.traffic.phases.unwrap_or(all);
        let shifts: Vec<u32> =
            draw::sample(self.scenario.seed, all, taken).iter().map(|shift| shift + 1).collect();
        let scale = f64::from(all) / f64::from(taken);
        if taken < all {
            self.notes.push(format!(
                "{taken} of {of_all} {} simulated, drawn by the seed: the time is theirs \
                 times {all}/{taken}",
                either(&taken, "is", "are"),
                of_all = counted(all, "phase")
            ));
        }
        let mut outcome = PatternResult {
            bytes_per_npu: f64::from(all) * bytes.count() as f64,
            messages: u64::from(taken) * u64::from(npus),
            phases: Some((taken, all)),
            ..PatternResult::default()
        };
        let barrier = self.traffic.barrier(self.scenario.network_model);
        if barrier && self.scenario.network_model == NetworkModelKind::Flows {
            let (graph, splitting, detours) =
                (self.graph.clone(), self.splitting(), self.detours());
            let sum = phases::shifts(&graph, splitting, detours, &shifts, bytes, observer)?;
            outcome.seconds = sum.seconds * scale;
            outcome.lower_bound = sum.lower_bound * scale;
            outcome.sample_error = sum.error(taken, all).filter(|_| taken < all);
            return Ok(outcome);
        }
        let to = |npu: u32, k: u32| Some((npu + shifts[k as usize]) % npus);
        let window = (!barrier).then(|| self.traffic.window.unwrap_or(WINDOW));
        let mut lists = Lists::new(npus, taken, bytes, window, &to).exchanges();
        let (carried, packets) = self.carry(&mut lists, observer)?;
        outcome.seconds = carried.end.as_s() * scale;
        outcome.simulated = carried.end;
        outcome.packets = packets;
        Ok(outcome)
    }

    fn uniform(&mut self, observer: Observer<'_>) -> Result<PatternResult, SimulateError> {
        let (npus, bytes) = (self.npus(), self.size());
        if self.scenario.network_model == NetworkModelKind::Flows {
            let pairs: Vec<(NodeId, NodeId)> = (0..npus)
                .flat_map(|from| (0..npus).map(move |to| (NodeId(from), NodeId(to))))
                .filter(|(from, to)| from != to)
                .collect();
            if observer(0, 1) == ControlFlow::Break(()) {
                return Err(SimulateError::Interrupted);
            }
            let graph = self.graph.clone();
            let mut phases = Phases::new(&graph, self.splitting(), self.detours());
            self.built = Some(Instant::now());
            let phase = phases.run(&pairs);
            return Ok(PatternResult {
                seconds: bytes.count() as f64 * phase.seconds_per_byte + phase.latency.as_s(),
                lower_bound: bytes.count() as f64 * phase.lower_bound,
                bytes_per_npu: f64::from(npus - 1) * bytes.count() as f64,
                messages: pairs.len() as u64,
                ..PatternResult::default()
            });
        }
        let count = self.traffic.count.unwrap_or(COUNT);
        let others = draw::others(self.scenario.seed, npus, count);
        let to = |npu: u32, k: u32| Some(others[npu as usize][k as usize]);
        let window = self.traffic.window.unwrap_or(WINDOW);
        let lists = Lists::new(npus, count, bytes, Some(window), &to);
        self.listed(lists, u64::from(count), observer)
    }

    fn permutation(&mut self, observer: Observer<'_>) -> Result<PatternResult, SimulateError> {
        let npus = self.npus();
        let permutation = draw::permutation(self.scenario.seed, npus);
        let to = |npu: u32, _| Some(permutation[npu as usize]);
        let lists = Lists::new(npus, 1, self.size(), Some(1), &to);
        self.listed(lists, 1, observer)
    }

    fn incast(&mut self, observer: Observer<'_>) -> Result<PatternResult, SimulateError> {
        let npus = self.npus();
        let destination = self.traffic.destination.unwrap_or(0);
        let fan_in = self.traffic.fan_in.unwrap_or(npus - 1);
        let mut sends = vec![false; npus as usize];
        for other in draw::sample(self.scenario.seed, npus - 1, fan_in) {
            sends[(other + u32::from(other >= destination)) as usize] = true;
        }
        let to = |npu: u32, _| sends[npu as usize].then_some(destination);
        let lists = Lists::new(npus, 1, self.size(), Some(1), &to);
        let mut outcome = self.listed(lists, 1, observer)?;
        outcome.each = (0..).zip(outcome.each).filter_map(|(n, e)| to(n, 0).map(|_| e)).collect();
        outcome.bytes_per_npu = f64::from(fan_in) * self.size().count() as f64;
        Ok(outcome)
    }

    /// Every NPU sends `count` messages, and how long each of them took is kept.
    fn listed(
        &mut self,
        mut lists: Lists<'_>,
        count: u64,
        observer: Observer<'_>,
    ) -> Result<PatternResult, SimulateError> {
        let (carried, packets) = self.carry(&mut lists, observer)?;
        let bytes = count * self.size().count();
        Ok(PatternResult {
            seconds: carried.end.as_s(),
            simulated: carried.end,
            bytes_per_npu: bytes as f64,
            messages: carried.messages,
            packets,
            each: lists.finish().iter().map(|finish| (bytes, *finish)).collect(),
            ..PatternResult::default()
        })
    }

    fn trace(&mut self, observer: Observer<'_>) -> Result<PatternResult, SimulateError> {
        let planes = self.planes;
        let messages = self.traffic.messages.iter().flatten().map(|&(time, from, to, bytes)| {
            (time, from, to, Bytes::new(bytes.count().div_ceil(planes)))
        });
        let mut timed = Timed::new(messages);
        let (carried, packets) = self.carry(&mut timed, observer)?;
        Ok(PatternResult {
            seconds: carried.end.as_s(),
            simulated: carried.end,
            bytes_per_npu: carried.bytes as f64 / f64::from(self.npus()),
            messages: carried.messages,
            packets,
            latencies: Distribution::of_times(timed.latencies()),
            ..PatternResult::default()
        })
    }
}
