//! Places the jobs of a mix, one after the other.
//!
//! Jobs come in the order of arrival or, sorted, the largest first. A job takes the first of its shapes
//! for which a block is found; one that finds none is left out, and the next is tried.

use allrail_fabric::placement::{Block, Boards, Choice, Floor, Request};

/// A job on its boards. Its sub-grid is `rows × columns`: on a `HammingMesh` neighbours in it are
/// adjacent, by a trace or by the tree of their row or column.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Placed {
    /// Its place in the mix.
    pub job: u32,
    /// Rows of boards; ascending, but for a box that goes around the end of a torus.
    pub rows: Vec<u32>,
    /// Columns of boards, alike.
    pub columns: Vec<u32>,
}

impl Placed {
    pub(super) fn new(job: u32, block: Block) -> Self {
        Self { job, rows: block.rows, columns: block.columns }
    }

    /// Its boards.
    #[must_use]
    pub fn block(&self) -> Block {
        Block { rows: self.rows.clone(), columns: self.columns.clone() }
    }

    /// How many boards it has.
    #[must_use]
    pub fn boards(&self) -> u32 {
        (self.rows.len() * self.columns.len()) as u32
    }
}

/// Where the jobs of a mix are.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Placement {
    /// The jobs that found boards, in the order in which they were placed.
    pub jobs: Vec<Placed>,
    /// The others, by their place in the mix.
    pub left_out: Vec<u32>,
}

impl Placement {
    /// Boards in use.
    #[must_use]
    pub fn boards(&self) -> u64 {
        self.jobs.iter().map(|job| u64::from(job.boards())).sum()
    }
}

/// How jobs are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which shapes are tried.
    pub choice: Choice,
    /// The largest job first.
    pub sort: bool,
    /// Blocks below few leaf switches are preferred.
    pub locality: bool,
}

/// Places jobs where `free` has room for what they ask for, and takes their boards.
pub fn place<J: Copy + Into<Request>>(
    floor: &Floor,
    free: &mut Boards,
    jobs: &[J],
    options: Options,
) -> Placement {
    let jobs: Vec<Request> = jobs.iter().map(|&job| job.into()).collect();
    let mut order: Vec<u32> = (0..jobs.len() as u32).collect();
    if options.sort {
        order.sort_by_key(|&job| std::cmp::Reverse(jobs[job as usize].boards()));
    }
    let mut shapes = Shapes::new(floor, options.choice);
    let mut placement = Placement::default();
    for job in order {
        match floor.find(free, shapes.of(jobs[job as usize]), options.locality) {
            Some(block) => {
                free.take(&block);
                placement.jobs.push(Placed::new(job, block));
            }
            None => placement.left_out.push(job),
        }
    }
    placement
}

/// The shapes of each size, made once.
pub(super) struct Shapes<'a> {
    floor: &'a Floor,
    choice: Choice,
    known: std::collections::BTreeMap<Request, Vec<Vec<u32>>>,
}

impl<'a> Shapes<'a> {
    pub(super) fn new(floor: &'a Floor, choice: Choice) -> Self {
        Self { floor, choice, known: std::collections::BTreeMap::new() }
    }

    pub(super) fn of(&mut self, request: Request) -> &[Vec<u32>] {
        let Self { floor, choice, known } = self;
        known.entry(request).or_insert_with(|| floor.shapes(request, *choice))
    }
}
