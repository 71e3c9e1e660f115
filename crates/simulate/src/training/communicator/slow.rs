//! Slow links on a fabric of dimensions: where they are, and in `dims` who feels them.
//!
//! In `dims` ranks of a class are alike, and all instances of a group are one. So a group goes at the
//! pace of its slowest link: its stages and messages on a dimension take `1 / factor` of their time if
//! any rank of its actors has a slow link there. A link is its sender's, and on the way down from a
//! switch its receiver's; of a fully connected dimension a group has those among its own ranks only.
//! Schedulers plan for the bandwidths that links should have.

use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_fabric::kinds::{self, Reach};
use allrail_fabric::{Dimension, Fabric};
use allrail_workload::{Group, SlowLinks, StepGraph, Work};

use crate::SimulateError;
use crate::scenario::field;

/// No message, and no stage, is longer: 53 days, of which the clock has room for some.
pub(crate) const LONGEST: Time = Time::from_ps(1 << 62);

/// A link by the ranks at its ends; `None` is a switch.
type Ends = [Option<u64>; 2];

/// The slow links of a fabric.
pub struct Found {
    /// By dimension.
    slow: Vec<Vec<Ends>>,
    /// How many links there are, by dimension.
    links: Vec<u64>,
}

impl Found {
    /// Draws them.
    #[must_use]
    pub fn new(drawn: &SlowLinks, fabric: &Fabric) -> Self {
        let (mut slow, mut links) = (Vec::new(), Vec::new());
        let mut stride = 1;
        for id in fabric.ids() {
            let dimension = fabric.dimension(id);
            let size = u64::from(dimension.size);
            let ends = kinds::ends(dimension);
            let instances = fabric.npus() / size;
            links.push(instances * ends.iter().flatten().count() as u64);
            let mut found = Vec::new();
            for instance in 0..instances {
                let first = instance / stride * stride * size + instance % stride;
                for (link, ends) in (instance * ends.len() as u64..).zip(&ends) {
                    if let Some(ends) = ends
                        && drawn.link(id, link)
                    {
                        let rank = |place: u32| first + u64::from(place) * stride;
                        found.push(ends.map(|end| end.map(rank)));
                    }
                }
            }
            slow.push(found);
            stride *= size;
        }
        Self { slow, links }
    }

    /// Says how many there are.
    #[must_use]
    pub fn note(&self, drawn: &SlowLinks) -> String {
        let each = self.slow.iter().zip(&self.links).zip(0u32..);
        let counts: Vec<String> = each
            .filter(|((slow, _), _)| !slow.is_empty())
            .map(|((slow, links), d)| {
                format!("{} of {links} on {}", slow.len(), DimensionId(d).name())
            })
            .collect();
        let said = if counts.is_empty() { "none was drawn".to_owned() } else { counts.join(", ") };
        format!("slow links, with {} of their bandwidth: {said}", drawn.factor())
    }
}

/// Refuses dimensions that count over cables: all their groups share these.
///
/// # Errors
/// There is one.
pub(crate) fn check_links(drawn: &SlowLinks, fabric: &Fabric) -> Result<(), SimulateError> {
    let Some(id) = fabric.ids().find(|id| fabric.dimension(*id).wiring.is_some()) else {
        return Ok(());
    };
    Err(field(
        "workload.slow_links.factor",
        drawn.factor(),
        format!("{} is a network without dimensions, whose links are cables", id.name()),
        "use `network_model: flows` or `packets`, where cables are slow",
    ))
}

/// Refuses messages that would outlast the clock on a slow link of the network model `links`.
///
/// # Errors
/// Such a message.
pub(crate) fn check(
    drawn: &SlowLinks,
    fabric: &Fabric,
    graph: &StepGraph,
) -> Result<(), SimulateError> {
    let bytes = |id| match graph.node(id).work {
        Work::Collective { bytes, .. } | Work::Send { bytes, .. } => bytes,
        Work::Compute { .. } | Work::Receive { .. } => Bytes::default(),
    };
    let most = graph.ids().map(bytes).max().unwrap_or_default();
    for dimension in &fabric.dimensions {
        let slow = drawn.bandwidth(kinds::of(dimension.kind).link_bandwidth(dimension));
        if slow.time_for(most).is_none_or(|time| time > LONGEST) {
            return Err(field(
                "workload.slow_links.factor",
                drawn.factor(),
                format!("{most} on a slow link take longer than 53 days"),
                "raise it, or the bandwidths",
            ));
        }
    }
    Ok(())
}

/// Which groups feel which slow links, in `dims`.
pub struct Felt<'a> {
    drawn: &'a SlowLinks,
    /// By group and dimension.
    by: Vec<Vec<bool>>,
}

impl<'a> Felt<'a> {
    /// Looks at every group.
    ///
    /// # Panics
    /// If a rank is not one of the fabric's, which [`crate::training::players`] refuses.
    #[must_use]
    pub fn new(drawn: &'a SlowLinks, found: &Found, graph: &StepGraph, fabric: &Fabric) -> Self {
        let mut by = Vec::with_capacity(graph.groups().len());
        for group in graph.groups() {
            let mut member = vec![false; usize::try_from(fabric.npus()).unwrap_or(0)];
            for actor in &group.actors {
                for rank in &graph.actors()[actor.index()].ranks {
                    member[rank.index()] = true;
                }
            }
            let mut stride = 1;
            let mut felt = Vec::new();
            for (id, slow) in fabric.ids().zip(&found.slow) {
                let dimension = fabric.dimension(id);
                felt.push(slow.iter().any(|ends| {
                    let owner = ends[0].or(ends[1]).expect("an end is an NPU");
                    member[owner as usize] && within(group, id, dimension, stride, *ends)
                }));
                stride *= u64::from(dimension.size);
            }
            by.push(felt);
        }
        Self { drawn, by }
    }

    fn by(&self, group: u32, dimension: DimensionId) -> bool {
        self.by[group as usize][dimension.index()]
    }

    /// What becomes of a time that a group's bytes take on a dimension; `None` beyond the clock.
    #[must_use]
    pub fn time(&self, group: u32, dimension: DimensionId, whole: Time) -> Option<Time> {
        if self.by(group, dimension) { self.drawn.time(whole) } else { Some(whole) }
    }

    /// What is left of a dimension's bandwidth for a group.
    #[must_use]
    pub fn bandwidth(&self, group: u32, dimension: DimensionId, whole: Bandwidth) -> Bandwidth {
        if self.by(group, dimension) { self.drawn.bandwidth(whole) } else { whole }
    }
}

/// Whether a link that one of a group's ranks has carries the group's bytes: of a fully connected
/// dimension, whether both ends are in one part.
fn within(group: &Group, id: DimensionId, dimension: &Dimension, stride: u64, ends: Ends) -> bool {
    let [Some(from), Some(to)] = ends else { return true };
    if kinds::of(dimension.kind).reach() != Reach::Peers {
        return true;
    }
    // What is left of a coordinate without the parts that the group spans.
    let rest = |rank: u64| {
        let mut place = rank / stride % u64::from(dimension.size);
        for part in group.parts.iter().filter(|part| part.dimension == id) {
            let (size, apart) = (u64::from(part.size), u64::from(part.stride));
            place -= place / apart % size * apart;
        }
        place
    };
    group.parts.is_empty() || rest(from) == rest(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_core::Rank;
    use allrail_fabric::Kind;
    use allrail_workload::{Actor, Builder, Part};

    /// Ranks 0 to 3 on one dimension, in groups of two: neighbours, and those two apart.
    fn pairs() -> StepGraph {
        let mut builder = Builder::default();
        let ranks = (0..4).map(Rank).collect();
        let actor = builder.actor(Actor { name: "ranks".into(), ranks });
        for stride in [1, 2] {
            builder.group(Group {
                name: format!("{stride} apart"),
                parts: vec![Part { dimension: DimensionId(0), size: 2, stride }],
                ranks: Vec::new(),
                actors: vec![actor],
            });
        }
        builder.finish().expect("a graph")
    }

    #[test]
    fn of_a_fully_connected_dimension_a_group_has_the_links_among_its_ranks() {
        let said = allrail_workload::spec::SlowLinks { share: 1.0, factor: 0.5, dimensions: None };
        let drawn = SlowLinks::new(0, &said).expect("they are slow");
        let (time, graph) = (Time::from_us(1), pairs());
        for (kind, link, neighbours, apart) in [
            (Kind::FullyConnected, [0, 1], true, false),
            (Kind::FullyConnected, [2, 0], false, true),
            (Kind::FullyConnected, [0, 3], false, false),
            (Kind::Ring, [3, 0], true, true),
        ] {
            let dimension =
                Dimension::new(kind, 4, 6, "10 GB/s".parse().expect("a bandwidth"), Time::ZERO);
            let fabric = Fabric {
                memory_bandwidth: None,
                window: None,
                name: "one".into(),
                dimensions: vec![dimension],
            };
            let mut found = Found::new(&drawn, &fabric);
            assert_eq!(found.slow[0].len() as u64, found.links[0], "all of them");
            found.slow[0] = vec![link.map(Some)];
            let felt = Felt::new(&drawn, &found, &graph, &fabric);
            let doubled = |group| felt.time(group, DimensionId(0), time) == Some(time + time);
            assert_eq!((doubled(0), doubled(1)), (neighbours, apart), "{kind:?} {link:?}");
        }
    }
}
