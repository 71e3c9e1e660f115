//! Job mixes: sizes drawn from a histogram until the boards of a mesh are spoken for.
//!
//! A histogram has sizes and how many jobs had each. Its unit is the board, or the NPU: then a job
//! takes `ceil(size / NPUs of a board)` boards. That is rounded up to a size that has a shape
//! (`shape.rs`); a size larger than the mesh is never drawn. A mix asks for exactly as many boards as the mesh has: what was drawn and is larger than what
//! is left waits for the next mix, where it comes first. So large jobs are as frequent as in the
//! histogram, over all mixes. A mix ends early where no size fits what is left, or after 10,000 draws
//! in a row that did not.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::floor::Floor;
use super::shape::Choice;
use crate::FabricError;

/// Draws in a row that do not fit, after which a mix ends.
const MOST_MISFITS: u32 = 10_000;

/// How many jobs there are of each size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Size and number of jobs, ascending by size; neither is 0.
    rows: Vec<(u64, u64)>,
}

impl Histogram {
    /// From sizes and numbers of jobs, in any order; a size of no jobs is left out.
    ///
    /// # Errors
    /// A size is 0 or stands twice, or there are no jobs or too many.
    pub fn new(rows: &[(u64, u64)]) -> Result<Self, FabricError> {
        let mut sorted: Vec<(u64, u64)> = Vec::new();
        let mut total = 0u64;
        for (index, &(size, count)) in rows.iter().enumerate() {
            let refuse = |key: &str, value: u64, why: &str, hint: &str| {
                FabricError::new(format!("mix[{index}].{key}"), value, why, hint)
            };
            if size == 0 {
                return Err(refuse("size", size, "a job is not empty", "leave the row out"));
            }
            if rows[..index].iter().any(|&(other, _)| other == size) {
                return Err(refuse("size", size, "the size stands twice", "add up its jobs"));
            }
            total = total.checked_add(count).ok_or_else(|| {
                refuse("jobs", count, "these are more than 2^64 jobs", "divide all counts")
            })?;
            if count > 0 {
                sorted.push((size, count));
            }
        }
        if sorted.is_empty() {
            return Err(FabricError::new(
                "mix",
                format!("{} sizes", rows.len()),
                "there is no job in it",
                "each row is a size and a number of jobs, such as `4,849`",
            ));
        }
        sorted.sort_unstable();
        Ok(Self { rows: sorted })
    }

    /// Sizes and numbers of jobs, ascending.
    #[must_use]
    pub fn rows(&self) -> &[(u64, u64)] {
        &self.rows
    }

    /// The same jobs by the boards that they take on `floor`.
    ///
    /// # Errors
    /// Every size is larger than the fabric.
    pub fn on(&self, floor: &Floor, unit: Unit) -> Result<Sizes, FabricError> {
        let whole = floor.boards();
        let mut sizes = Sizes { boards: Vec::new(), until: Vec::new(), whole, dropped: 0 };
        let mut total = 0;
        for &(size, count) in &self.rows {
            let boards = unit.boards(size, floor);
            if boards > whole {
                sizes.dropped += count;
                continue;
            }
            let boards = u32::try_from(boards).expect("no more than the fabric has");
            let shapes = floor.shapes(boards, Choice::default());
            let first = shapes.first().expect("it is not larger than the fabric");
            total += count;
            sizes.boards.push(first.iter().product());
            sizes.until.push(total);
        }
        if sizes.boards.is_empty() {
            let (least, _) = self.rows[0];
            return Err(FabricError::new(
                "mix",
                least,
                format!("the smallest job is larger than the {whole} boards"),
                "take smaller jobs or a larger fabric, or say what a size counts: `unit: npus`",
            ));
        }
        Ok(sizes)
    }
}

/// What a size of a histogram counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Boards.
    #[default]
    Boards,
    /// NPUs; a job has whole boards.
    Npus,
}

impl Unit {
    /// The boards of a job of that size.
    #[must_use]
    pub fn boards(self, size: u64, floor: &Floor) -> u64 {
        match self {
            Self::Boards => size,
            Self::Npus => size.div_ceil(floor.per_board),
        }
    }
}

/// A histogram of boards, to draw from.
#[derive(Clone, Debug)]
pub struct Sizes {
    boards: Vec<u32>,
    /// Jobs up to each of them.
    until: Vec<u64>,
    whole: u64,
    /// Jobs of the histogram that are larger than the mesh, and hence never drawn.
    pub dropped: u64,
}

impl Sizes {
    pub(super) fn draw(&self, random: &mut Pcg64Mcg) -> u32 {
        let total = *self.until.last().expect("a histogram has jobs");
        let at = random.random_range(0..total);
        self.boards[self.until.partition_point(|&until| until <= at)]
    }

    /// The mean of a job's boards.
    pub(super) fn mean(&self) -> f64 {
        let mut before = 0;
        let weighted = self.boards.iter().zip(&self.until).map(|(&boards, &until)| {
            let jobs = until - before;
            before = until;
            f64::from(boards) * jobs as f64
        });
        weighted.sum::<f64>() / *self.until.last().expect("a histogram has jobs") as f64
    }

    /// The smallest job.
    fn least(&self) -> u32 {
        self.boards.iter().copied().min().expect("a histogram has jobs")
    }
}

/// An endless source of mixes; the same seed gives the same ones.
pub struct Mixes {
    sizes: Sizes,
    random: Pcg64Mcg,
    waiting: VecDeque<u32>,
}

impl Mixes {
    /// From sizes and a seed.
    #[must_use]
    pub fn new(sizes: Sizes, seed: u64) -> Self {
        Self { sizes, random: Pcg64Mcg::seed_from_u64(seed), waiting: VecDeque::new() }
    }
}

impl Iterator for Mixes {
    type Item = Vec<u32>;

    /// The boards of each job of the next mix, in the order of arrival.
    fn next(&mut self) -> Option<Vec<u32>> {
        let mut left = self.sizes.whole;
        let mut mix = Vec::new();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|&boards| {
            let fits = u64::from(boards) <= left;
            if fits {
                left -= u64::from(boards);
                mix.push(boards);
            }
            !fits
        });
        let (least, mut misfits) = (u64::from(self.sizes.least()), 0);
        while left >= least && misfits < MOST_MISFITS {
            let boards = self.sizes.draw(&mut self.random);
            if u64::from(boards) <= left {
                left -= u64::from(boards);
                mix.push(boards);
                misfits = 0;
            } else {
                waiting.push_back(boards);
                misfits += 1;
            }
        }
        self.waiting = waiting;
        Some(mix)
    }
}
