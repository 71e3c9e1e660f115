//! One rank's part of a plan before it is cut for a size, and after.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use allrail_core::{Bytes, DimensionId, FieldError, counted, either};

use super::buffer::{Buffer, cut, shard};
use super::cells::{Axis, Layout};
use super::line::Line;
use super::message::{Chunk, Shape};
use super::shape::{Route, RouteStage};
use crate::plan::check_stages;
use crate::{CollectiveError, CollectivePlan, Operation, SizeRange};

/// What a rank does in a collective: its messages, chunk by chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlan {
    /// The rank, of the fabric.
    pub rank: u32,
    /// Its place among the ranks that the collective joins: that of its shard.
    pub place: u32,
    /// How many ranks the collective joins.
    pub ranks: u32,
    /// What it does.
    pub operation: Operation,
    /// On how many elements.
    pub buffer: Buffer,
    /// The chunks, as in the plan.
    pub chunks: Vec<Chunk>,
}

impl RankPlan {
    /// The part of `rank` (of the fabric) in `plan`, for `buffer`.
    ///
    /// # Errors
    /// As [`RankPlanner::new`] and [`RankPlanner::plan`].
    pub fn new(plan: &CollectivePlan, rank: u32, buffer: Buffer) -> Result<Self, CollectiveError> {
        RankPlanner::new(plan, rank)?.plan(buffer)
    }
}

/// One rank's part of a plan, for any size that the plan holds for: what does not depend on the size is
/// worked out once.
#[derive(Clone, Debug)]
pub struct RankPlanner {
    rank: u32,
    place: u32,
    ranks: u32,
    operation: Operation,
    size: Bytes,
    sizes: SizeRange,
    /// Bytes of the plan's buffer before each chunk; one more at the end.
    before: Vec<u64>,
    /// The route of each chunk.
    route_of: Vec<usize>,
    routes: Vec<Route>,
}

/// Where a rank stands on a dimension of the collective.
#[derive(Clone, Copy)]
struct Position {
    dimension: DimensionId,
    size: u32,
    coordinate: u32,
    /// Where ranks are counted from.
    root: u32,
    /// From one rank of a line to the next.
    stride: u32,
}

impl Position {
    /// Counted from the root.
    fn counted(&self) -> u32 {
        (self.coordinate + self.size - self.root) % self.size
    }
}

fn check_root(operation: Operation, root: u32, ranks: u32) -> Result<(), CollectiveError> {
    let refuse = |why: String, hint: String| {
        Err(CollectiveError::Field(FieldError::new("root", root, why, hint)))
    };
    match root {
        0 => Ok(()),
        _ if !operation.has_root() => refuse(format!("{operation} has no root"), "0".to_owned()),
        _ if root >= ranks => refuse(
            format!(
                "there {are} {ranks}",
                ranks = counted(ranks, "rank"),
                are = either(&ranks, "is", "are")
            ),
            format!("0 to {}", ranks - 1),
        ),
        _ => Ok(()),
    }
}

impl RankPlanner {
    /// The part of `rank` (of the fabric) in `plan`.
    ///
    /// # Errors
    /// [`CollectiveError::Field`] if the fabric has no such rank; [`CollectiveError::Plan`] if the plan
    /// does not hold together; [`CollectiveError::Unsupported`] if an algorithm does not do its stage.
    pub fn new(plan: &CollectivePlan, rank: u32) -> Result<Self, CollectiveError> {
        Self::rooted(plan, rank, 0)
    }

    /// The same, of a broadcast from another place than 0: on every dimension ranks count from the root
    /// on, so each line stays what it is.
    ///
    /// # Errors
    /// As [`Self::new`]; [`CollectiveError::Field`] if there is no such place, or the collective has no
    /// root.
    pub fn rooted(plan: &CollectivePlan, rank: u32, root: u32) -> Result<Self, CollectiveError> {
        let planner = Self::counted_from(plan, rank, root)?;
        check_root(plan.operation, root, planner.ranks)?;
        Ok(planner)
    }

    /// The same, where it is the `turn`-th of many collectives: on the dimensions whose algorithm
    /// [turns](crate::Algorithm::turns), chunk `i` counts ranks from the one that is `turn + i` on.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn in_turn(plan: &CollectivePlan, rank: u32, turn: u32) -> Result<Self, CollectiveError> {
        Self::counted_from(plan, rank, if plan.operation.has_root() { 0 } else { turn })
    }

    fn counted_from(plan: &CollectivePlan, rank: u32, first: u32) -> Result<Self, CollectiveError> {
        let mut positions = positions(plan, rank)?;
        let (mut place, mut ranks) = (0, 1);
        for position in &mut positions {
            place += position.coordinate * ranks;
            if plan.operation.has_root() || plan.turns(position.dimension) > 1 {
                position.root = first / ranks % position.size;
            }
            ranks *= position.size;
        }
        let mut lines: BTreeMap<(DimensionId, Operation, u32), Arc<Line>> = BTreeMap::new();
        let mut routes: Vec<Route> = Vec::new();
        let mut known: BTreeMap<(&[crate::Stage], Vec<u32>), usize> = BTreeMap::new();
        let (mut route_of, mut before) = (Vec::new(), vec![0u64]);
        for (i, chunk) in plan.chunks.iter().enumerate() {
            let stages = chunk.stages.as_slice();
            let positions = in_chunk(plan, &positions, i);
            let key = (stages, positions.iter().map(|position| position.root).collect());
            let route = match known.get(&key) {
                Some(route) => *route,
                None => {
                    check_stages(i, stages, plan.operation, &plan.dimensions)?;
                    for stage in stages {
                        let root = at(&positions, stage.dimension).root;
                        let key = (stage.dimension, stage.operation, root);
                        if let Entry::Vacant(empty) = lines.entry(key) {
                            let of = (stage.dimension, stage.operation);
                            empty.insert(Arc::new(line(plan, &positions, of)?));
                        }
                    }
                    routes.push(route(plan.operation, stages, &positions, &lines));
                    known.insert(key, routes.len() - 1);
                    routes.len() - 1
                }
            };
            route_of.push(route);
            let total = before[i].checked_add(chunk.bytes.count());
            let total = total.filter(|total| *total <= plan.size.count());
            before.push(total.ok_or_else(|| {
                let text = format!("its chunks hold more than its {}", plan.size);
                CollectiveError::Plan(text)
            })?);
        }
        if before.last() != Some(&plan.size.count()) || plan.size == Bytes::default() {
            let text = format!("its chunks do not hold its {}", plan.size);
            return Err(CollectiveError::Plan(text));
        }
        let operation = plan.operation;
        let (size, sizes) = (plan.size, plan.holds_for());
        Ok(Self { rank, place, ranks, operation, size, sizes, before, route_of, routes })
    }

    /// Cut for `buffer`. A buffer without elements is always taken: there is nothing to send.
    ///
    /// # Errors
    /// [`CollectiveError::Size`] if the plan does not hold for its size;
    /// [`CollectiveError::Field`] if it is an all-to-all whose shards would not be equal.
    pub fn plan(&self, buffer: Buffer) -> Result<RankPlan, CollectiveError> {
        let elements = buffer.elements();
        if elements > 0 && !self.sizes.contains(buffer.size()) {
            return Err(CollectiveError::Size { size: buffer.size(), range: self.sizes });
        }
        if self.operation == Operation::AllToAll && !elements.is_multiple_of(u64::from(self.ranks))
        {
            let least = elements - elements % u64::from(self.ranks);
            return Err(FieldError::new(
                "elements",
                elements,
                format!(
                    "an all-to-all swaps equal shards, and there {are} {}",
                    counted(self.ranks, "rank"),
                    are = either(&self.ranks, "is", "are")
                ),
                format!("{least}, or {}", least.saturating_add(u64::from(self.ranks))),
            )
            .into());
        }
        let sharded = !matches!(self.operation, Operation::AllReduce | Operation::Broadcast);
        let divided = if sharded { shard(elements, 0, self.ranks).end } else { elements };
        let at = |bytes: u64| cut(divided, buffer.granule(), bytes, self.size.count());
        let mut shapes: BTreeMap<(usize, Layout), Arc<Shape>> = BTreeMap::new();
        let mut chunks = Vec::with_capacity(self.route_of.len());
        for (route, bytes) in self.route_of.iter().zip(self.before.windows(2)) {
            let (from, to) = (at(bytes[0]), at(bytes[1]));
            let layout = if sharded {
                Layout::in_shards(elements, self.ranks, &(from..to))
            } else {
                Layout::Together { length: to - from }
            };
            let shape = shapes.entry((*route, layout)).or_insert_with(|| {
                Arc::new(self.routes[*route].shape(layout, buffer.granule(), self.rank))
            });
            chunks.push(Chunk { shape: Arc::clone(shape), offset: from });
        }
        let Self { rank, place, ranks, operation, .. } = *self;
        Ok(RankPlan { rank, place, ranks, operation, buffer, chunks })
    }
}

/// Where a rank stands in chunk `i`: where ranks take turns, each chunk counts from the next one on.
fn in_chunk(plan: &CollectivePlan, positions: &[Position], i: usize) -> Vec<Position> {
    let turned = |position: &Position| {
        let by = i % plan.turns(position.dimension) as usize;
        let by = u32::try_from(by).expect("less than its size");
        Position { root: (position.root + by) % position.size, ..*position }
    };
    positions.iter().map(turned).collect()
}

/// The dimensions of the collective, innermost first, and where `rank` stands on them.
fn positions(plan: &CollectivePlan, rank: u32) -> Result<Vec<Position>, CollectiveError> {
    let refuse = |text: String| CollectiveError::Plan(text);
    let mut all = Vec::with_capacity(plan.fabric.dimensions.len());
    let mut stride = 1u32;
    for (dimension, of) in (0..).map(DimensionId).zip(&plan.fabric.dimensions) {
        if of.size == 0 {
            return Err(refuse(format!("{} has no NPU", dimension.name())));
        }
        let (size, coordinate) = (of.size, rank / stride % of.size);
        all.push(Position { dimension, size, coordinate, root: 0, stride });
        let next = stride.checked_mul(size);
        stride = next.ok_or_else(|| refuse("its fabric has 2^32 ranks or more".to_owned()))?;
    }
    if rank >= stride {
        return Err(FieldError::new(
            "rank",
            rank,
            format!("the plan's fabric has {stride}", stride = counted(stride, "rank")),
            format!("0 to {}", stride - 1),
        )
        .into());
    }
    if let Some(unknown) = plan.dimensions.iter().find(|id| id.index() >= all.len()) {
        return Err(refuse(format!("the fabric has no {}", unknown.name())));
    }
    let joined = all.into_iter().filter(|one| plan.dimensions.contains(&one.dimension));
    Ok(joined.collect())
}

fn line(
    plan: &CollectivePlan,
    positions: &[Position],
    (dimension, operation): (DimensionId, Operation),
) -> Result<Line, CollectiveError> {
    let position = at(positions, dimension);
    Line::new(plan.algorithm(dimension)?, operation, position.size, position.counted())
}

fn at(positions: &[Position], dimension: DimensionId) -> Position {
    let found = positions.iter().find(|position| position.dimension == dimension);
    *found.expect("checked stages are on the collective's dimensions")
}

/// The stages of a chunk for this rank.
fn route(
    operation: Operation,
    stages: &[crate::Stage],
    positions: &[Position],
    lines: &BTreeMap<(DimensionId, Operation, u32), Arc<Line>>,
) -> Route {
    let axis = |position: &Position| Axis {
        dimension: position.dimension.index(),
        size: position.size,
        coordinate: position.coordinate,
        own: operation == Operation::AllGather,
    };
    let axes = match operation {
        Operation::Broadcast => Vec::new(),
        // What is scattered first lies furthest apart, so that what a rank holds is always one range.
        Operation::AllReduce => stages
            .iter()
            .rev()
            .filter(|stage| stage.operation == Operation::ReduceScatter)
            .map(|stage| axis(&at(positions, stage.dimension)))
            .collect(),
        Operation::ReduceScatter | Operation::AllGather | Operation::AllToAll => {
            positions.iter().map(axis).collect()
        }
    };
    let stages = stages.iter().enumerate().map(|(i, stage)| {
        let position = at(positions, stage.dimension);
        // A broadcast has reached those that are first wherever it has not been yet.
        let reached = positions.iter().all(|other| {
            let visited = stages[..=i].iter().any(|stage| stage.dimension == other.dimension);
            visited || other.counted() == 0
        });
        RouteStage {
            dimension: position.dimension,
            operation: stage.operation,
            line: Arc::clone(&lines[&(stage.dimension, stage.operation, position.root)]),
            takes_part: operation != Operation::Broadcast || reached,
            coordinate: position.coordinate,
            root: position.root,
            size: position.size,
            stride: position.stride,
        }
    });
    Route { stages: stages.collect(), axes }
}
