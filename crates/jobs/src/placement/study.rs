//! Many mixes on one fabric: how much of it they use.
//!
//! The mixes and the failed boards of each are drawn one after the other from the seed; they are placed
//! in parallel, a batch at a time, and come out in order, so that the number of threads changes nothing.
//! Utilisation is boards in use / boards that work.

use std::ops::ControlFlow;

use allrail_core::{FieldError, counted, either};
use allrail_fabric::placement::{Block, Boards, Floor, Request, Unit};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

use super::defragment::{Mover, defragment};
use super::mix::{Histogram, Mixes};
use super::place::{Options, Placement, place};
use super::upper::{Upper, upper};

/// Boards placed between two looks at the clock.
const BATCH_BOARDS: u64 = 1 << 22;

/// What to place, how, and how often.
#[derive(Clone, Debug)]
pub struct Study {
    /// On what.
    pub floor: Floor,
    /// Jobs to draw.
    pub histogram: Histogram,
    /// What a size of the histogram counts.
    pub unit: Unit,
    /// How many mixes.
    pub count: u64,
    /// How they are placed.
    pub options: Options,
    /// Boards that fail beside those that the fabric names, others in each mix.
    pub failed: u64,
    /// What boards hold, if jobs move to make room for those that found none (`defragment.rs`).
    pub mover: Option<Mover>,
    /// For mixes and failures.
    pub seed: u64,
}

/// What was moved to make room in one mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moved {
    /// Jobs that found boards only so.
    pub jobs_placed: u64,
    /// Jobs that moved; one that moves twice counts twice.
    pub jobs_moved: u64,
    /// Bytes that moved.
    pub bytes: u64,
    /// How long that took, one after the other, in picoseconds.
    pub time_ps: u64,
}

/// A mix, placed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct PlacedMix {
    /// Boards in use / boards that work.
    pub utilisation: f64,
    /// Jobs that were placed.
    pub placed: u64,
    /// Jobs that found no boards.
    pub left_out: u64,
    /// Traffic across the upper levels; `None` where no job uses a tree, or three dimensions have trees.
    pub upper: Option<Upper>,
    /// What moved; `None` if nothing may move.
    pub moved: Option<Moved>,
}

/// The boards of one mix, for a picture.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Map {
    /// What each job asks for, by its place in the mix: a number of boards, or rows and columns.
    pub sizes: Vec<Request>,
    /// Where they are.
    #[serde(flatten)]
    pub placement: Placement,
    /// Failed boards, as row and column.
    pub failed: Vec<[u32; 2]>,
}

/// What a study found.
#[derive(Clone, Debug)]
pub struct Found {
    /// By mix.
    pub mixes: Vec<PlacedMix>,
    /// The first mix.
    pub map: Map,
    /// Jobs of the histogram that are larger than the fabric.
    pub dropped: u64,
}

impl Study {
    /// Places all mixes. `observe` is told how many are done and may stop the work: `None` then.
    ///
    /// # Errors
    /// There is nothing to place, or too many boards fail.
    pub fn run(
        &self,
        observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Option<Found>, FieldError> {
        self.validate()?;
        let sizes = self.histogram.on(&self.floor, self.unit)?;
        let dropped = sizes.dropped;
        let mut mixes = Mixes::new(sizes, self.seed);
        // Another stream than the mixes', so that these stay the same when boards fail.
        let mut random = Pcg64Mcg::seed_from_u64(!self.seed);
        let batch = (BATCH_BOARDS / self.floor.boards()).clamp(1, 256);
        let mut found = Vec::with_capacity(self.count as usize);
        let mut map = None;
        while (found.len() as u64) < self.count {
            let left = self.count - found.len() as u64;
            let cases: Vec<(Vec<Request>, Vec<[u32; 2]>)> = mixes
                .by_ref()
                .take(batch.min(left) as usize)
                .map(|jobs| (jobs, self.fail(&mut random)))
                .collect();
            let placed: Vec<(Placement, Option<Moved>)> =
                cases.par_iter().map(|case| self.place(case)).collect();
            for ((placement, moved), (jobs, failed)) in placed.into_iter().zip(cases) {
                let working = self.floor.boards() - failed.len() as u64;
                found.push(PlacedMix {
                    utilisation: placement.boards() as f64 / working as f64,
                    placed: placement.jobs.len() as u64,
                    left_out: placement.left_out.len() as u64,
                    upper: (self.floor.knows_leaves())
                        .then(|| upper(&placement.jobs, &self.floor.leaves))
                        .flatten(),
                    moved,
                });
                map.get_or_insert(Map { sizes: jobs, placement, failed });
            }
            if observe(found.len() as u64, self.count).is_break() {
                return Ok(None);
            }
        }
        Ok(map.map(|map| Found { mixes: found, map, dropped }))
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.options.choice.validate()?;
        if self.count == 0 || self.count > 1_000_000 {
            let why = if self.count == 0 { "there is nothing to place" } else { "it is too many" };
            return Err(FieldError::new("count", self.count, why, "from 1 to 1000000 mixes"));
        }
        let working = self.floor.boards() - self.floor.failed.len() as u64;
        if self.failed >= working {
            return Err(FieldError::new(
                "failed",
                self.failed,
                format!(
                    "{working} {work}, and one must be left",
                    working = counted(working, "board"),
                    work = either(&working, "works", "work")
                ),
                format!("`{}` at most", working - 1),
            ));
        }
        Ok(())
    }

    /// The failed boards of the next mix, as row and column, ascending.
    fn fail(&self, random: &mut Pcg64Mcg) -> Vec<[u32; 2]> {
        let columns = self.floor.columns();
        let mut failed = self.floor.failed.clone();
        failed.sort_unstable();
        let mut working: Vec<u32> = (0..self.floor.boards() as u32)
            .filter(|board| failed.binary_search(&[board / columns, board % columns]).is_err())
            .collect();
        let (drawn, _) = working.partial_shuffle(random, self.failed as usize);
        failed.extend(drawn.iter().map(|board| [*board / columns, *board % columns]));
        failed.sort_unstable();
        failed
    }

    fn place(&self, (jobs, failed): &(Vec<Request>, Vec<[u32; 2]>)) -> (Placement, Option<Moved>) {
        let mut free = Boards::new(self.floor.rows(), self.floor.columns());
        for &[row, column] in failed {
            free.take(&Block { rows: vec![row], columns: vec![column] });
        }
        let mut placement = place(&self.floor, &mut free, jobs, self.options);
        let moved = self.mover.map(|mover| {
            let mut moved = Moved::default();
            for job in placement.left_out.clone() {
                let asked = |job: u32| jobs[job as usize];
                let (floor, options) = (&self.floor, self.options);
                let made =
                    defragment(floor, &mut free, &mut placement, job, &asked, options, mover);
                if let Some(made) = made {
                    moved.jobs_placed += 1;
                    moved.jobs_moved += made.moves.len() as u64;
                    moved.bytes = moved.bytes.saturating_add(made.bytes.count());
                    moved.time_ps = moved.time_ps.saturating_add(made.time.as_ps());
                }
            }
            moved
        });
        (placement, moved)
    }
}
