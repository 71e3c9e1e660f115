//! Job mixes: sizes drawn from a histogram until the boards of a mesh are spoken for.
//!
//! A histogram has sizes and how many jobs had each; a size is a number or a shape (`2x4`). Its unit is
//! the board, or the NPU: then a job takes `ceil(size / NPUs of a board)` boards, or as many for each
//! side of its shape. A number is rounded up to a size that has a shape
//! (`shape.rs`); a size that does not fit the mesh is never drawn. A mix asks for exactly as many boards
//! as the mesh has: what was drawn and is larger than what is left waits for the next mix, where it comes first. So large jobs are as frequent as in the
//! histogram, over all mixes. A mix ends early where no size fits what is left, or after 10,000 draws
//! in a row that did not.

use std::collections::VecDeque;

use allrail_core::{FieldError, counted};
use allrail_fabric::placement::{Choice, Floor, Request, Size, Unit};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Draws in a row that do not fit, after which a mix ends.
const MOST_MISFITS: u32 = 10_000;

/// How many jobs there are of each size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Size and number of jobs, ascending by size; neither is 0.
    rows: Vec<(Size, u64)>,
}

impl Histogram {
    /// From sizes and numbers of jobs, in any order; a size of no jobs is left out.
    ///
    /// # Errors
    /// A size is 0 or stands twice, or there are no jobs or too many.
    pub fn new<S: Copy + Into<Size>>(rows: &[(S, u64)]) -> Result<Self, FieldError> {
        let mut sorted: Vec<(Size, u64)> = Vec::new();
        let mut total = 0u64;
        for (index, &(size, count)) in rows.iter().enumerate() {
            let size = size.into();
            let refuse = |key: &str, value: String, why: &str, hint: &str| {
                FieldError::new(format!("mix[{index}].{key}"), value, why, hint)
            };
            if size.count() == 0 {
                let (why, hint) = ("a job is not empty", "leave the row out");
                return Err(refuse("size", size.to_string(), why, hint));
            }
            if rows[..index].iter().any(|&(other, _)| other.into() == size) {
                let (why, hint) = ("the size stands twice", "add up its jobs");
                return Err(refuse("size", size.to_string(), why, hint));
            }
            total = total.checked_add(count).ok_or_else(|| {
                refuse(
                    "jobs",
                    count.to_string(),
                    "these are more than 2^64 jobs",
                    "divide all counts",
                )
            })?;
            if count > 0 {
                sorted.push((size, count));
            }
        }
        if sorted.is_empty() {
            return Err(FieldError::new(
                "mix",
                counted(rows.len(), "size"),
                "there is no job in it",
                "each row is a size and a number of jobs, such as `4,849`",
            ));
        }
        sorted.sort_unstable();
        Ok(Self { rows: sorted })
    }

    /// Sizes and numbers of jobs, ascending.
    #[must_use]
    pub fn rows(&self) -> &[(Size, u64)] {
        &self.rows
    }

    /// The same jobs by the boards that they take on `floor`.
    ///
    /// # Errors
    /// Every size is larger than the fabric.
    pub fn on(&self, floor: &Floor, unit: Unit) -> Result<Sizes, FieldError> {
        let whole = floor.boards();
        let mut sizes = Sizes { jobs: Vec::new(), until: Vec::new(), whole, dropped: 0 };
        let mut total = 0;
        for &(size, count) in &self.rows {
            // A shape that only fits with rows and columns exchanged waits for `transpose`.
            let turn = Choice { transpose: true, aspect: None };
            let fits = floor.request(size, unit).and_then(|request| {
                let first = floor.shapes(request, turn).into_iter().next()?;
                Some((request, first.iter().product()))
            });
            let Some((request, boards)) = fits else {
                sizes.dropped += count;
                continue;
            };
            total += count;
            sizes.jobs.push(match request {
                Request::Boards(_) => Request::Boards(boards),
                Request::Sides(_) | Request::Cuboid(_) => request,
            });
            sizes.until.push(total);
        }
        if sizes.jobs.is_empty() {
            let (least, _) = self.rows[0];
            return Err(FieldError::new(
                "mix",
                least,
                match floor.sides() {
                    None => format!(
                        "the smallest job does not fit the {whole}",
                        whole = counted(whole, "board")
                    ),
                    Some([a, b, c]) => {
                        format!(
                            "the smallest job does not fit the {a} x {b} x {c}",
                            c = counted(c, "board")
                        )
                    }
                },
                "take smaller jobs or a larger fabric, or say what a size counts: `unit: npus`",
            ));
        }
        Ok(sizes)
    }
}

/// A histogram of what jobs ask for in boards, to draw from.
#[derive(Clone, Debug)]
pub struct Sizes {
    jobs: Vec<Request>,
    /// Jobs up to each of them.
    until: Vec<u64>,
    whole: u64,
    /// Jobs of the histogram that are larger than the mesh, and hence never drawn.
    pub dropped: u64,
}

impl Sizes {
    pub(super) fn draw(&self, random: &mut Pcg64Mcg) -> Request {
        let total = *self.until.last().expect("a histogram has jobs");
        let at = random.random_range(0..total);
        self.jobs[self.until.partition_point(|&until| until <= at)]
    }

    /// The mean of a job's boards.
    pub(super) fn mean(&self) -> f64 {
        let mut before = 0;
        let weighted = self.jobs.iter().zip(&self.until).map(|(&job, &until)| {
            let jobs = until - before;
            before = until;
            boards_of(job) as f64 * jobs as f64
        });
        weighted.sum::<f64>() / *self.until.last().expect("a histogram has jobs") as f64
    }

    /// The smallest job.
    fn least(&self) -> u64 {
        self.jobs.iter().map(|&job| boards_of(job)).min().expect("a histogram has jobs")
    }
}

fn boards_of(job: Request) -> u64 {
    job.boards().expect("it fits the fabric").into()
}

/// An endless source of mixes; the same seed gives the same ones.
pub struct Mixes {
    sizes: Sizes,
    random: Pcg64Mcg,
    waiting: VecDeque<Request>,
}

impl Mixes {
    /// From sizes and a seed.
    #[must_use]
    pub fn new(sizes: Sizes, seed: u64) -> Self {
        Self { sizes, random: Pcg64Mcg::seed_from_u64(seed), waiting: VecDeque::new() }
    }
}

impl Iterator for Mixes {
    type Item = Vec<Request>;

    /// What each job of the next mix asks for, in the order of arrival.
    fn next(&mut self) -> Option<Vec<Request>> {
        let mut left = self.sizes.whole;
        let mut mix = Vec::new();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|&job| {
            let fits = boards_of(job) <= left;
            if fits {
                left -= boards_of(job);
                mix.push(job);
            }
            !fits
        });
        let (least, mut misfits) = (self.sizes.least(), 0);
        while left >= least && misfits < MOST_MISFITS {
            let job = self.sizes.draw(&mut self.random);
            if boards_of(job) <= left {
                left -= boards_of(job);
                mix.push(job);
                misfits = 0;
            } else {
                waiting.push_back(job);
                misfits += 1;
            }
        }
        self.waiting = waiting;
        Some(mix)
    }
}
