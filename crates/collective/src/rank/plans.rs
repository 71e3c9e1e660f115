//! Plans by size, and a rank's parts of those that were used last.
//!
//! A table holds, for each operation and each set of dimensions, plans for ranges of sizes that do not
//! overlap. Looking a plan up is a binary search; a rank's part is kept for each plan and buffer, as
//! many as the table has room for, and the one not used for longest makes place.

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_core::Bytes;

use super::{Buffer, RankPlan, RankPlanner};
use crate::{CollectiveError, CollectivePlan, DimensionSet, Operation, SizeRange};

struct Entry {
    key: (Operation, usize),
    sizes: SizeRange,
    plan: Arc<CollectivePlan>,
    planner: RankPlanner,
    /// Names it in the cache: entries move when others are added.
    number: usize,
}

struct Kept {
    part: Arc<RankPlan>,
    used: u64,
}

/// The plans of one rank.
pub struct Plans {
    rank: u32,
    room: usize,
    /// By operation, dimensions and size.
    entries: Vec<Entry>,
    kept: BTreeMap<(usize, u32, Buffer), Kept>,
    /// Counted from another place than 0 on, made when they are first asked for.
    rooted: BTreeMap<(usize, u32), RankPlanner>,
    clock: u64,
}

impl Plans {
    /// For `rank`, without a plan yet, with room for `room` parts (at least one).
    #[must_use]
    pub fn new(rank: u32, room: usize) -> Self {
        let (kept, rooted) = (BTreeMap::new(), BTreeMap::new());
        Self { rank, room: room.max(1), entries: Vec::new(), kept, rooted, clock: 0 }
    }

    /// Takes in a plan for the sizes that it holds for.
    ///
    /// # Errors
    /// As [`CollectivePlan::check`] and [`RankPlanner::new`]; [`CollectiveError::Plan`] if another plan
    /// holds for some of these sizes.
    pub fn add(&mut self, plan: CollectivePlan) -> Result<(), CollectiveError> {
        plan.check()?;
        let planner = RankPlanner::new(&plan, self.rank)?;
        let spanned =
            plan.dimensions.iter().copied().fold(DimensionSet::default(), DimensionSet::with);
        let (key, sizes) = ((plan.operation, spanned.bits()), plan.holds_for());
        let at =
            self.entries.partition_point(|other| (other.key, other.sizes.from) < (key, sizes.from));
        let neighbours = &self.entries[at.saturating_sub(1)..self.entries.len().min(at + 1)];
        let clash = neighbours.iter().find(|other| {
            other.key == key && other.sizes.from <= sizes.to && sizes.from <= other.sizes.to
        });
        if let Some(other) = clash {
            return Err(CollectiveError::Plan(format!(
                "it holds for {sizes}, and there is a plan for {} already",
                other.sizes
            )));
        }
        let number = self.entries.len();
        self.entries.insert(at, Entry { key, sizes, plan: Arc::new(plan), planner, number });
        Ok(())
    }

    /// The plan for `size` bytes (of the whole buffer).
    ///
    /// # Errors
    /// [`CollectiveError::NoPlan`] with the sizes that there are plans for.
    pub fn find(
        &self,
        operation: Operation,
        dimensions: DimensionSet,
        size: Bytes,
    ) -> Result<&Arc<CollectivePlan>, CollectiveError> {
        Ok(&self.entry(operation, dimensions, size)?.plan)
    }

    /// The rank's part of the plan for `buffer`: kept from before, or made. For a buffer without
    /// elements it is that of the smallest sizes.
    ///
    /// # Errors
    /// As [`Self::find`] and [`RankPlanner::plan`].
    pub fn part(
        &mut self,
        operation: Operation,
        dimensions: DimensionSet,
        buffer: Buffer,
    ) -> Result<Arc<RankPlan>, CollectiveError> {
        self.part_from(operation, dimensions, 0, buffer)
    }

    /// The same, of a broadcast from the place `root` of those that it joins.
    ///
    /// # Errors
    /// As [`Self::part`] and [`RankPlanner::rooted`].
    pub fn part_from(
        &mut self,
        operation: Operation,
        dimensions: DimensionSet,
        root: u32,
        buffer: Buffer,
    ) -> Result<Arc<RankPlan>, CollectiveError> {
        self.counted_from(operation, dimensions, root, buffer, RankPlanner::rooted)
    }

    /// The same, of the `turn`-th of many collectives.
    ///
    /// # Errors
    /// As [`Self::part`].
    pub fn part_in_turn(
        &mut self,
        operation: Operation,
        dimensions: DimensionSet,
        turn: u32,
        buffer: Buffer,
    ) -> Result<Arc<RankPlan>, CollectiveError> {
        self.counted_from(operation, dimensions, turn, buffer, RankPlanner::in_turn)
    }

    /// Whether any plan has ranks take turns.
    #[must_use]
    pub fn take_turns(&self) -> bool {
        let turns =
            |entry: &Entry| entry.plan.dimensions.iter().any(|one| entry.plan.turns(*one) > 1);
        self.entries.iter().any(turns)
    }

    fn counted_from(
        &mut self,
        operation: Operation,
        dimensions: DimensionSet,
        root: u32,
        buffer: Buffer,
        planner: fn(&CollectivePlan, u32, u32) -> Result<RankPlanner, CollectiveError>,
    ) -> Result<Arc<RankPlan>, CollectiveError> {
        let entry = self.entry(operation, dimensions, buffer.size())?;
        let key = (entry.number, root, buffer);
        self.clock += 1;
        if let Some(kept) = self.kept.get_mut(&key) {
            kept.used = self.clock;
            return Ok(Arc::clone(&kept.part));
        }
        let entry = self.entry(operation, dimensions, buffer.size())?;
        let planned = if root == 0 {
            entry.planner.plan(buffer)?
        } else {
            let which = (entry.number, root);
            if let Some(planner) = self.rooted.get(&which) {
                planner.plan(buffer)?
            } else {
                let planner = planner(&entry.plan, self.rank, root)?;
                let planned = planner.plan(buffer)?;
                self.rooted.insert(which, planner);
                planned
            }
        };
        let part = Arc::new(planned);
        if self.kept.len() >= self.room {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
            oldest.and_then(|key| self.kept.remove(&key));
        }
        self.kept.insert(key, Kept { part: Arc::clone(&part), used: self.clock });
        Ok(part)
    }

    /// How many parts are kept now.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    fn entry(
        &self,
        operation: Operation,
        dimensions: DimensionSet,
        size: Bytes,
    ) -> Result<&Entry, CollectiveError> {
        let key = (operation, dimensions.bits());
        let nothing = size == Bytes::default();
        let at = if nothing {
            self.entries.partition_point(|entry| entry.key < key)
        } else {
            let after =
                self.entries.partition_point(|entry| (entry.key, entry.sizes.from) <= (key, size));
            after.wrapping_sub(1)
        };
        self.entries
            .get(at)
            .filter(|entry| entry.key == key && (nothing || entry.sizes.contains(size)))
            .ok_or_else(|| self.missing(key, size))
    }

    fn missing(&self, key: (Operation, usize), size: Bytes) -> CollectiveError {
        let list = |names: Vec<String>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let named =
            (0..usize::BITS).filter(|d| key.1 >> d & 1 == 1).map(|d| format!("dim{}", d + 1));
        let known = self.entries.iter().filter(|entry| entry.key == key);
        CollectiveError::NoPlan {
            operation: key.0,
            size,
            dimensions: list(named.collect()),
            known: list(known.map(|entry| entry.sizes.to_string()).collect()),
        }
    }
}
