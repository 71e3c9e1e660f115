//! Collectives as traffic: all-reduce, its halves, and broadcast, by the algorithms of a grid.
//!
//! What an NPU of `p` must send or receive of a buffer of `S` bytes at least, over cables of `B`, is a lower
//! bound of the time:
//!
//! | pattern | at least |
//! |---|---|
//! | `all_reduce` | 2 S (p − 1)/p sent |
//! | `reduce_scatter` | S (p − 1)/p sent: of every shard but its own a part of the sum |
//! | `all_gather` | S (p − 1)/p received: every shard but its own |
//! | `broadcast` | S sent by the root, and S received by every other |

use allrail_collective::grid::{GridAllReduce, Half, Spread};
use allrail_collective::{Steps, in_network};
use allrail_core::{Bytes, counted, either};
use allrail_fabric::graph::NodeId;
use allrail_fabric::topologies::Summing;

use super::grid::{self, AllReduce};
use super::pipelines::Pipelines;
use super::rounds::{Rounds, STEADY, Shortened};
use super::run::{PatternResult, TrafficRun};
use crate::SimulateError;
use crate::driver::Observer;
use crate::error::field;
use crate::scenario::NetworkModelKind;
use crate::scenario::SEGMENTS;

impl TrafficRun<'_> {
    pub(super) fn all_reduce(
        &mut self,
        observer: Observer<'_>,
    ) -> Result<PatternResult, SimulateError> {
        let AllReduce::Grid(algorithm) = self.algorithm()? else {
            return self.in_network();
        };
        let shape = self.shape(algorithm)?;
        let steps = algorithm.steps(shape[0], shape[1], self.size());
        let least = 2.0 * self.size().count() as f64 * self.others();
        let outcome = self.stepped(&*steps, least, observer)?;
        Ok(PatternResult { shape: Some(shape), ..outcome })
    }

    pub(super) fn half(
        &mut self,
        half: Half,
        observer: Observer<'_>,
    ) -> Result<PatternResult, SimulateError> {
        let algorithm = self.by_npus()?;
        let shape = self.shape(algorithm)?;
        let [rows, columns] = shape;
        let Some(steps) = algorithm.half_steps(half, rows, columns, self.size()) else {
            let why = "it sums whole buffers, and leaves no shards".to_owned();
            return Err(field(
                "traffic.algorithm",
                algorithm.tag(),
                why,
                "write `algorithm: ring`",
            ));
        };
        let least = self.size().count() as f64 * self.others();
        let outcome = self.stepped(&*steps, least, observer)?;
        Ok(PatternResult { shape: Some(shape), lower_bound: self.bound(least), ..outcome })
    }

    pub(super) fn broadcast(
        &mut self,
        observer: Observer<'_>,
    ) -> Result<PatternResult, SimulateError> {
        let algorithm = self.by_npus()?;
        let shape = self.shape(algorithm)?;
        let trees = algorithm.broadcast(shape[0], shape[1], self.traffic.root.unwrap_or(0));
        let part = self.size().count().div_ceil(trees.len() as u64);
        let segments = self.segments(&trees, part)?;
        let bytes = Bytes::new(part.div_ceil(u64::from(segments)));
        let skip = self.traffic.skip.unwrap_or(true);
        let mut pipelines = Pipelines::new(&trees, segments, bytes, skip);
        let run = pipelines.segments();
        let (carried, packets) = self.carry(&mut pipelines, observer)?;
        if run < segments {
            self.notes.push(format!(
                "of {of_segments} that follow each other alike {run} are simulated, and \
                 ({segments} - {run}) * (t_{run} - t_{}) / {STEADY} is added",
                run - STEADY,
                of_segments = counted(segments, "segment")
            ));
        }
        let least = self.size().count() as f64;
        let all = bytes.count() as f64 * f64::from(segments) * trees.len() as f64;
        Ok(PatternResult {
            seconds: pipelines.whole().as_s(),
            simulated: carried.end,
            // All but the root receive all of it, once.
            bytes_per_npu: all * self.others(),
            messages: carried.messages,
            packets,
            least_bytes: Some(least),
            lower_bound: self.bound(least),
            segments: Some((run, segments)),
            shape: Some(shape),
            ..PatternResult::default()
        })
    }

    /// As many as the scenario says, else as many as the deepest tree has levels, and [`SEGMENTS`] at
    /// least; none of them is empty.
    fn segments(&self, trees: &[Spread], part: u64) -> Result<u32, SimulateError> {
        let most = u32::try_from(part).unwrap_or(u32::MAX);
        match self.traffic.segments {
            Some(segments) if segments > most => {
                let why =
                    format!("each of {} has {part} B of the buffer", counted(trees.len(), "tree"));
                Err(field("traffic.segments", segments, why, format!("write {most} or fewer")))
            }
            Some(segments) => Ok(segments),
            None => {
                let depth = trees.iter().map(Spread::depth).max().unwrap_or(1);
                Ok(depth.max(SEGMENTS).min(most))
            }
        }
    }

    fn algorithm(&self) -> Result<AllReduce, SimulateError> {
        AllReduce::named(self.traffic.algorithm.as_deref().unwrap_or_default())
    }

    /// The algorithm, if NPUs do it: switches do whole sums only.
    fn by_npus(&self) -> Result<&'static dyn GridAllReduce, SimulateError> {
        match self.algorithm()? {
            AllReduce::Grid(algorithm) => Ok(algorithm),
            AllReduce::InNetwork => {
                let why = "switches sum whole buffers: they do `all_reduce` alone".to_owned();
                let hint = "for example `algorithm: rings`";
                Err(field("traffic.algorithm", in_network::TAG, why, hint))
            }
        }
    }

    fn shape(&self, algorithm: &dyn GridAllReduce) -> Result<[u32; 2], SimulateError> {
        let shape = grid::shape(self.traffic, self.topology, self.npus())?;
        grid::check(algorithm, shape)?;
        Ok(shape)
    }

    /// The part of a buffer that an NPU's peers have.
    fn others(&self) -> f64 {
        f64::from(self.npus() - 1) / f64::from(self.npus())
    }

    /// Seconds in which every NPU sends, or receives, so many bytes: cables carry as much either way.
    fn bound(&self, bytes: f64) -> f64 {
        let of = |npu| self.graph.injection(NodeId(npu)).bytes_per_second() as f64;
        (0..self.npus()).map(|npu| bytes / of(npu)).fold(0.0, f64::max)
    }

    /// Steps of messages, of which an NPU sends `least` bytes in any algorithm.
    fn stepped(
        &mut self,
        steps: &dyn Steps,
        least: f64,
        observer: Observer<'_>,
    ) -> Result<PatternResult, SimulateError> {
        let steady = self.traffic.skip.unwrap_or(true).then_some(STEADY);
        let shortened = Shortened::new(steps, steady);
        let mut rounds = Rounds::new(&shortened);
        let (carried, packets) = self.carry(&mut rounds, observer)?;
        let left_out = shortened.left_out();
        if left_out > 0 {
            self.notes.push(format!(
                "{} that {} the ones before {} not simulated: in each run of L alike steps {} are, and (L - {}) * (t_{} - t_{STEADY}) / {STEADY} is added",
                counted(left_out, "step"),
                either(&left_out, "repeats", "repeat"),
                either(&left_out, "it is", "them are"),
                2 * STEADY,
                2 * STEADY,
                2 * STEADY
            ));
        }
        Ok(PatternResult {
            seconds: shortened.whole(rounds.completed()).as_s(),
            simulated: carried.end,
            bytes_per_npu: shortened.whole_bytes(rounds.bytes()) as f64 / f64::from(self.npus()),
            messages: carried.messages,
            packets,
            least_bytes: Some(least),
            steps: Some((shortened.steps(), steps.steps())),
            ..PatternResult::default()
        })
    }

    /// By the switches: a closed form, which is what fluids would do.
    fn in_network(&mut self) -> Result<PatternResult, SimulateError> {
        let refuse = |why: &str, hint: &str| {
            Err(field("traffic.algorithm", in_network::TAG, why.to_owned(), hint))
        };
        let Some(summing) = self.topology.reduces() else {
            let hint = "write `in_network_reduction: true` in the fabric, such as a `fat_tree` or a `torus`";
            return refuse("the switches do not reduce", hint);
        };
        if self.scenario.network_model != NetworkModelKind::Flows {
            return refuse("`packets` has no switches that reduce", "write `network_model: flows`");
        }
        let size = self.size();
        let sum = in_network::in_network(&self.graph, summing, size)
            .map_err(|error| grid::explain(in_network::TAG, &error))?;
        let Some(time) = sum.time() else {
            return refuse("it takes longer than the clock can tell", "make `size` smaller");
        };
        let (roots, height) = (sum.roots.len(), sum.height);
        self.notes.push(match summing {
            Summing::Switches => {
                let (roots, height) = (counted(roots, "root"), counted(height, "cable"));
                format!("switches sum, at {roots}, {height} above the NPUs")
            }
            Summing::Routers => format!(
                "switches and the routers of NPUs sum; trees: {roots}, cables from an NPU to a root: at \
                 most {height}"
            ),
        });
        Ok(PatternResult {
            seconds: time.as_s(),
            simulated: time,
            bytes_per_npu: size.count() as f64,
            least_bytes: Some(size.count() as f64),
            ..PatternResult::default()
        })
    }
}
