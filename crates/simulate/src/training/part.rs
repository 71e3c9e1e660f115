//! The NPUs of a fabric that a job takes, and the dimensions that it sees on them.
//!
//! A layout's degrees say how many ranks there are. A fabric may have more NPUs, or be no product of
//! dimensions at all. The job takes
//!
//! - all NPUs, where there are as many;
//! - else a *block*: of each dimension its first places, the inner ones as full as it goes. 64 ranks on
//!   42 × 25 NPUs are 32 × 2 of them, so no group of tensor parallelism reaches over two leaves. A part
//!   of a ring is a line: rings are cut in network models of cables alone, where messages take the way there is;
//! - else the first NPUs of a topology, in order, as one dimension that counts over its cables
//!   ([`allrail_fabric::wiring`]); `flows` and `packets` carry what is planned over them.
//!
//! NPUs that are left over send nothing, and are said in a note.

use std::collections::BTreeSet;

use allrail_core::{Time, counted, either};
use allrail_fabric::graph::NodeId;
use allrail_fabric::{Dimension, Fabric, Kind, Wiring};

use crate::SimulateError;
use crate::scenario::TrainingScenario;
use crate::scenario::{Part, Topology, field};

impl Part {
    /// The part that a scenario's job takes; `None` if it takes all dimensions as they are.
    ///
    /// # Errors
    /// The network model needs dimensions, and there is no such block of them.
    pub fn of(scenario: &TrainingScenario) -> Result<Option<Self>, SimulateError> {
        let workload = &scenario.job.workload;
        let whole = &scenario.fabric;
        let npus = whole.npus();
        let planned = scenario.topology.as_ref().filter(|_| !scenario.has_own_dimensions());
        let notes: Vec<String> = planned.and_then(Topology::counted).into_iter().collect();
        let stated = workload.model.is_laid_out().then(|| workload.parallelism.ranks()).flatten();
        let ranks = stated.unwrap_or(npus);
        if ranks == 0 || ranks >= npus {
            // More are refused by the layout.
            let same = notes.is_empty();
            return Ok((!same).then(|| Self { fabric: whole.clone(), block: None, notes }));
        }
        let (mut part, notes) = match (Self::block(scenario, ranks), planned) {
            (Some(part), _) => (part, notes),
            (None, Some(topology)) => {
                let why = format!(
                    "{ranks} {are} no block of {}",
                    shown(&whole.dimensions),
                    ranks = counted(ranks, "rank"),
                    are = either(&ranks, "is", "are")
                );
                let ranks = u32::try_from(ranks).expect("fewer than its NPUs");
                let fabric = topology.first_npus(ranks)?;
                let part = Self { fabric, block: None, notes: Vec::new() };
                (part, vec![topology.over_cables(&why)])
            }
            (None, None) => return Err(no_block(scenario, ranks)),
        };
        let sizes = shown(&part.fabric.dimensions);
        let of = shown(&whole.dimensions);
        let which = if sizes.contains('×') { format!(", {sizes} of {of}") } else { String::new() };
        let are = either(&ranks, "is", "are");
        part.notes.push(format!(
            "{ranks} of {npus} {are} used{which}; the others are idle",
            npus = counted(npus, "NPU")
        ));
        part.notes.extend(notes);
        Ok(Some(part))
    }

    fn block(scenario: &TrainingScenario, ranks: u64) -> Option<Self> {
        let whole = &scenario.fabric;
        let cables = scenario.network_model.has_every_link();
        let cut = |(dimension, size): (&Dimension, u32)| {
            let resized = || Dimension { size, ..dimension.clone() };
            dimension.cut(size).or_else(|| cables.then(resized))
        };
        let fits = |d: usize, size: u32| cut((&whole.dimensions[d], size)).is_some();
        let sizes: Vec<u32> = whole.dimensions.iter().map(|dimension| dimension.size).collect();
        let together = scenario.job.workload.parallelism.tp;
        let mut search = Search { sizes: &sizes, fits: &fits, futile: BTreeSet::new() };
        let taken = search.block(0, ranks, together)?;
        let dimensions = whole.dimensions.iter().zip(taken.iter().copied()).map(cut);
        let mut fabric = Fabric { dimensions: dimensions.collect::<Option<_>>()?, ..whole.clone() };
        let mut lines = 1;
        for dimension in &mut fabric.dimensions {
            let of_job = |wiring: Wiring| wiring.of_job(lines, dimension.size);
            dimension.wiring = dimension.wiring.take().map(of_job);
            lines *= dimension.size;
        }
        let npus: Vec<NodeId> = places(&taken, &sizes).map(NodeId).collect();
        let first = (0..).zip(&npus).all(|(rank, npu)| npu.0 == rank);
        Some(Self { fabric, block: (!first).then_some(npus), notes: Vec::new() })
    }
}

fn shown(dimensions: &[Dimension]) -> String {
    let sizes: Vec<String> = dimensions.iter().map(|d| d.size.to_string()).collect();
    sizes.join(" × ")
}

fn no_block(scenario: &TrainingScenario, ranks: u64) -> SimulateError {
    let dimensions = &scenario.fabric.dimensions;
    let npus = scenario.fabric.npus();
    let mut why = format!(
        "{ranks} {are} no block of {} = {npus}",
        shown(dimensions),
        ranks = counted(ranks, "rank"),
        are = either(&ranks, "is", "are"),
        npus = counted(npus, "NPU")
    );
    if dimensions.iter().any(|d| d.cut(d.size - 1).is_none()) {
        why.push_str(", of which rings are not cut");
    }
    let hint = "give the fabric the dimensions that the job has";
    field("workload.parallelism.dp", degrees(scenario), &why, hint)
}

fn degrees(scenario: &TrainingScenario) -> String {
    let p = &scenario.job.workload.parallelism;
    let all = [("tp", p.tp), ("cp", p.cp), ("op", p.op), ("ep", p.ep), ("pp", p.pp)];
    let all = all.into_iter().chain(p.dp.map(|dp| ("dp", dp)));
    let said: Vec<String> =
        all.filter(|(_, n)| *n > 1).map(|(axis, n)| format!("{axis} {n}")).collect();
    said.join(" × ")
}

/// The numbers of the NPUs whose coordinates are below `taken`, of dimensions of these sizes; the first
/// coordinate fastest.
fn places<'a>(taken: &'a [u32], sizes: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    (0..taken.iter().product::<u32>()).map(move |rank| {
        let (mut left, mut stride, mut npu) = (rank, 1, 0);
        for (taken, size) in taken.iter().zip(sizes) {
            npu += left % taken * stride;
            left /= taken;
            stride *= size;
        }
        npu
    })
}

/// Looks for a block, in which dimension after dimension is as full as it goes.
struct Search<'a> {
    sizes: &'a [u32],
    /// Whether a dimension can be cut to a size.
    fits: &'a dyn Fn(usize, u32) -> bool,
    /// What was tried and leads nowhere.
    futile: BTreeSet<(usize, u64, u32)>,
}

impl Search<'_> {
    /// The sizes of dimension `at` and those around it, for `ranks` ranks; groups of `together` ranks
    /// lie within a dimension where they can.
    fn block(&mut self, at: usize, ranks: u64, together: u32) -> Option<Vec<u32>> {
        let Some(size) = self.sizes.get(at) else { return (ranks == 1).then(Vec::new) };
        if !self.futile.insert((at, ranks, together)) {
            return None;
        }
        let most = u32::try_from(ranks).unwrap_or(u32::MAX).min(*size);
        let divides = |part: &u32| ranks.is_multiple_of(u64::from(*part)) && (self.fits)(at, *part);
        let mut parts: Vec<u32> = (1..=most).rev().filter(divides).collect();
        let whole = |part: u32| part.is_multiple_of(together) || together.is_multiple_of(part);
        parts.sort_by_key(|part| !whole(*part));
        parts.into_iter().find_map(|part| {
            let left = if together.is_multiple_of(part) { together / part } else { 1 };
            let mut block = self.block(at + 1, ranks / u64::from(part), left)?;
            block.insert(0, part);
            Some(block)
        })
    }
}

/// The dimensions of a job on a topology: what an NPU has is on each of them while the others rest.
///
/// # Errors
/// The topology cannot be built.
pub(crate) fn switches(topology: &Topology, sizes: &[u32]) -> Result<Fabric, SimulateError> {
    let graph = topology.0.simulated()?;
    let planes = topology.0.counts().planes;
    let bandwidth = graph.injection(NodeId(0)).checked_mul(planes).ok_or_else(|| {
        field("fabric", topology.0.tag(), "its NPUs send 2^64 B/s or more", "lower it")
    })?;
    let dimension = |size: &u32| Dimension::new(Kind::Switch, *size, 1, bandwidth, Time::ZERO);
    let dimensions = sizes.iter().map(dimension).collect();
    Ok(topology.named(dimensions))
}
