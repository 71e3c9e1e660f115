//! Which jobs to move so that another one fits, and what that costs.
//!
//! For each shape of the job, targets are tried: the `u` rows and `v` columns whose boards belong to the
//! fewest jobs' boards, found by turns (the best rows for the columns, the best columns for the rows)
//! from several starts. The jobs on a target leave, the new job enters, and those that left are placed
//! again, the largest first. Of the targets that work, the one that moves the fewest bytes is taken. If
//! none works (on a torus none is tried), all jobs are placed anew, the largest first; those that come out
//! where they were stay.
//!
//! Moves go in rounds: a job moves as soon as its new boards are free; jobs that wait for each other in
//! a circle move together, each board sending and receiving at once.
//!
//! ```text
//! bytes = boards that move · memory of a board
//! time  = rounds · memory of a board / bandwidth of a board
//! ```
//!
//! What it ignores: sharing of tapered trees, and the pause of the jobs that move.

use allrail_core::{Bandwidth, Bytes, FieldError, Time};
use allrail_fabric::placement::{Block, Boards, Floor, Request};

use super::place::{Options, Placed, Placement, Shapes, place};

/// What a board holds and how long it takes to move it.
#[derive(Clone, Copy, Debug)]
pub struct Mover {
    memory: Bytes,
    time: Time,
}

impl Mover {
    /// A board with so many bytes, which it sends into the network with this bandwidth.
    ///
    /// # Errors
    /// That takes more than a day.
    pub fn new(memory: Bytes, bandwidth: Bandwidth) -> Result<Self, FieldError> {
        let day = Time::from_us(86_400_000_000);
        match bandwidth.time_for(memory).filter(|&time| time <= day) {
            Some(time) => Ok(Self { memory, time }),
            None => Err(FieldError::new(
                "memory",
                memory,
                format!("moving it at {bandwidth} takes more than a day"),
                "write what one board holds, such as `320 GiB`",
            )),
        }
    }
}

/// A job that moves.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Move {
    /// Its place in the mix.
    pub job: u32,
    /// Where it was.
    pub from: Placed,
    /// Where it goes.
    pub to: Placed,
    /// In which round, from 0.
    pub round: u32,
}

/// What to move so that a job fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defragmentation {
    /// The moves, by round.
    pub moves: Vec<Move>,
    /// Where the new job then goes.
    pub placed: Placed,
    /// Bytes to move.
    pub bytes: Bytes,
    /// How long that takes.
    pub time: Time,
}

/// Makes room for a job among the jobs of `placement`; `asked` says what each of them, and the new one, asks
/// for, so that a job that moves keeps its shape if it asked for one. `free` is what the jobs leave, and it
/// and `placement` are changed. `None`, and nothing changed, where no way was found. No moves where it fits as it is.
pub fn defragment(
    floor: &Floor,
    free: &mut Boards,
    placement: &mut Placement,
    job: u32,
    asked: &dyn Fn(u32) -> Request,
    options: Options,
    mover: Mover,
) -> Option<Defragmentation> {
    let mut shapes = Shapes::new(floor, options.choice);
    let wanted = shapes.of(asked(job)).to_vec();
    if u64::from(wanted.first()?.iter().product::<u32>()) > free.free() {
        return None;
    }
    let mut best: Option<(u32, Vec<Placed>)> = None;
    let targets = match floor.find(free, &wanted, options.locality) {
        Some(block) => vec![block],
        None if floor.takes_sub_grids() => targets(floor, free, placement, &wanted),
        None => Vec::new(),
    };
    for target in targets {
        let Some(after) = clear(floor, free, placement, &target, asked, &mut shapes, options)
        else {
            continue;
        };
        let moved = moved(placement, &after);
        if best.as_ref().is_none_or(|(least, _)| moved < *least) {
            let new = Placed::new(job, target);
            best = Some((moved, [after, vec![new]].concat()));
        }
    }
    let jobs = match best {
        Some((_, jobs)) => jobs,
        None => anew(floor, free, placement, job, asked, options)?,
    };
    let mut after = jobs;
    let at = after.iter().position(|placed| placed.job == job).expect("the new job is placed");
    let placed = after.remove(at);
    let moves = rounds(free, placement, &after);
    let count: u64 = moves.iter().map(|step| u64::from(step.to.boards())).sum();
    let rounds = moves.iter().map(|step| step.round + 1).max().unwrap_or(0);
    for step in &moves {
        free.release(&step.from.block());
    }
    for step in &moves {
        free.take(&step.to.block());
    }
    free.take(&placed.block());
    placement.jobs = after;
    placement.jobs.push(placed.clone());
    placement.left_out.retain(|&other| other != job);
    Some(Defragmentation {
        moves,
        placed,
        bytes: Bytes::new(mover.memory.count().saturating_mul(count)),
        time: Time::from_ps(mover.time.as_ps().saturating_mul(u64::from(rounds))),
    })
}

/// Sub-grids of these shapes with few occupied boards and no failed one, some of each shape.
fn targets(floor: &Floor, free: &Boards, placement: &Placement, shapes: &[Vec<u32>]) -> Vec<Block> {
    let (rows, columns) = (floor.rows() as usize, floor.columns() as usize);
    // What it costs to clear a board: as many boards as its job has; a failed one cannot be cleared.
    const NEVER: u64 = 1 << 32;
    let mut cost = vec![NEVER; rows * columns];
    for row in 0..floor.rows() {
        for column in (0..floor.columns()).filter(|&column| free.is_free(row, column)) {
            cost[row as usize * columns + column as usize] = 0;
        }
    }
    for job in &placement.jobs {
        for &row in &job.rows {
            for &column in &job.columns {
                cost[row as usize * columns + column as usize] = u64::from(job.boards());
            }
        }
    }
    let cheapest = |count: usize, of: usize, price: &dyn Fn(usize) -> u64| -> Vec<u32> {
        let mut lines: Vec<u32> = (0..of as u32).collect();
        lines.sort_by_cached_key(|&line| price(line as usize));
        lines.truncate(count);
        lines.sort_unstable();
        lines
    };
    let mut found: Vec<Block> = Vec::new();
    for sides in shapes {
        let (u, v) = (sides[0] as usize, sides[1] as usize);
        for start in (0..columns).step_by(v.max(columns / 16)) {
            let mut block = Block {
                rows: Vec::new(),
                columns: (0..v).map(|i| ((start + i) % columns) as u32).collect(),
            };
            for _ in 0..4 {
                let price = |row: usize| {
                    block.columns.iter().map(|&column| cost[row * columns + column as usize]).sum()
                };
                block.rows = cheapest(u, rows, &price);
                let price = |column: usize| {
                    block.rows.iter().map(|&row| cost[row as usize * columns + column]).sum()
                };
                block.columns = cheapest(v, columns, &price);
            }
            let dead = block.rows.iter().any(|&row| {
                let at = |&column: &u32| cost[row as usize * columns + column as usize];
                block.columns.iter().any(|column| at(column) == NEVER)
            });
            if !dead && !found.contains(&block) {
                found.push(block);
            }
        }
    }
    found
}

/// The jobs after those on `target` have moved elsewhere.
fn clear(
    floor: &Floor,
    free: &Boards,
    placement: &Placement,
    target: &Block,
    asked: &dyn Fn(u32) -> Request,
    shapes: &mut Shapes<'_>,
    options: Options,
) -> Option<Vec<Placed>> {
    let meets = |job: &Placed| {
        job.rows.iter().any(|row| target.rows.contains(row))
            && job.columns.iter().any(|column| target.columns.contains(column))
    };
    let mut free = free.clone();
    let mut after = placement.jobs.clone();
    let mut leaving: Vec<usize> = (0..after.len()).filter(|&at| meets(&after[at])).collect();
    for &at in &leaving {
        free.release(&after[at].block());
    }
    free.take(target);
    leaving.sort_by_key(|&at| std::cmp::Reverse(after[at].boards()));
    for at in leaving {
        let block = floor.find(&free, shapes.of(asked(after[at].job)), options.locality)?;
        free.take(&block);
        after[at] = Placed::new(after[at].job, block);
    }
    Some(after)
}

/// All jobs and the new one placed from nothing, the largest first.
fn anew(
    floor: &Floor,
    free: &Boards,
    placement: &Placement,
    job: u32,
    asked: &dyn Fn(u32) -> Request,
    options: Options,
) -> Option<Vec<Placed>> {
    let mut empty = free.clone();
    for placed in &placement.jobs {
        empty.release(&placed.block());
    }
    let ids: Vec<u32> = placement.jobs.iter().map(|placed| placed.job).chain([job]).collect();
    let sizes: Vec<Request> = ids.iter().map(|&job| asked(job)).collect();
    let again = place(floor, &mut empty, &sizes, Options { sort: true, ..options });
    if !again.left_out.is_empty() {
        return None;
    }
    let mut after = again.jobs;
    after.sort_by_key(|placed| placed.job);
    for placed in &mut after {
        placed.job = ids[placed.job as usize];
    }
    Some(after)
}

/// Boards of the jobs that are elsewhere in `after`, which has the same jobs in the same order.
fn moved(before: &Placement, after: &[Placed]) -> u32 {
    let pairs = before.jobs.iter().zip(after);
    pairs.filter(|(old, new)| old != new).map(|(_, new)| new.boards()).sum()
}

/// The moves from `before` to `after`, each in the first round in which its boards are free.
fn rounds(free: &Boards, before: &Placement, after: &[Placed]) -> Vec<Move> {
    let pairs = before.jobs.iter().zip(after).filter(|(old, new)| old != new);
    let mut waiting: Vec<Move> = pairs
        .map(|(old, new)| Move { job: new.job, from: old.clone(), to: new.clone(), round: 0 })
        .collect();
    let mut free = free.clone();
    let (mut moves, mut round) = (Vec::new(), 0);
    while !waiting.is_empty() {
        let can_go = |step: &Move| {
            // Its own old boards are not in its way.
            let own =
                |row, column| step.from.rows.contains(&row) && step.from.columns.contains(&column);
            step.to.rows.iter().all(|&row| {
                step.to.columns.iter().all(|&column| free.is_free(row, column) || own(row, column))
            })
        };
        let mut going: Vec<bool> = waiting.iter().map(can_go).collect();
        if !going.contains(&true) {
            going.fill(true);
        }
        let mut turns = going.into_iter();
        let (now, later): (Vec<Move>, Vec<Move>) =
            waiting.into_iter().partition(|_| turns.next().expect("one a move"));
        for step in &now {
            free.release(&step.from.block());
        }
        for step in &now {
            free.take(&step.to.block());
        }
        moves.extend(now.into_iter().map(|step| Move { round, ..step }));
        (waiting, round) = (later, round + 1);
    }
    moves
}
