//! What `allrail place` asks and is told: one mapping in, one object out.

use std::ops::ControlFlow;

use allrail_core::{Bytes, FieldError, Time};
use allrail_fabric::placement::{Choice, Floor, Leaves, Request, Size, Unit};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::defragment::Mover;
use super::mix::Histogram;
use super::place::Options;
use super::queue::{Arrival, Queue, arrivals};
use super::read::read_floor;
use super::study::{Found, Study};

/// How a placement is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Common {
    /// A mapping with `topology`.
    fabric: Value,
    #[serde(default)]
    unit: Unit,
    #[serde(default)]
    transpose: bool,
    #[serde(default)]
    aspect: Option<u32>,
    #[serde(default)]
    sort: bool,
    #[serde(default)]
    locality: bool,
    /// Boards under one leaf switch; the fabric's own if left out.
    #[serde(default)]
    leaf_boards: Option<u32>,
    #[serde(default)]
    seed: u64,
    /// Sizes and numbers of jobs.
    #[serde(default)]
    mix: Vec<(Size, u64)>,
    /// Mixes, or jobs that arrive.
    #[serde(default)]
    count: u64,
    #[serde(default)]
    failed: u64,
    /// Of a board, if jobs may move.
    #[serde(default)]
    memory: Option<Bytes>,
    /// Jobs that arrive: arrival, duration, size.
    #[serde(default)]
    trace: Vec<(Time, Time, Size)>,
    #[serde(default)]
    backfill: bool,
    #[serde(default)]
    load: f64,
    #[serde(default)]
    duration: Time,
}

impl Common {
    fn read(request: Value) -> Result<(Self, Floor), FieldError> {
        let read: Self = serde_json::from_value(request).map_err(|error| {
            let hint = "help(allrail.simulation.placement.place) lists what it takes";
            FieldError::new("request", "malformed", error.to_string(), hint)
        })?;
        let mut floor = read_floor(&read.fabric)?;
        floor.check_leaves(read.locality, read.leaf_boards)?;
        for (index, &(size, _)) in read.mix.iter().enumerate() {
            floor.check(format!("mix[{index}].size"), size)?;
        }
        match read.leaf_boards {
            Some(0) => {
                let why = "a leaf switch has 1 board at least";
                return Err(FieldError::new("leaf_boards", 0, why, "for example `16`"));
            }
            Some(each) => floor.leaves = Leaves::of(floor.rows(), floor.columns(), each),
            None => {}
        }
        Ok((read, floor))
    }

    fn options(&self) -> Options {
        let choice = Choice { transpose: self.transpose, aspect: self.aspect };
        Options { choice, sort: self.sort, locality: self.locality }
    }
}

/// What a list of numbers is like; quantiles by linear interpolation.
#[derive(Serialize)]
struct Summary {
    mean: f64,
    median: f64,
    p1: f64,
    p99: f64,
    min: f64,
    max: f64,
}

impl Summary {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let quantile = |part: f64| {
            let at = part * last as f64;
            let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
            low + (high - low) * at.fract()
        };
        Some(Self {
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            median: quantile(0.5),
            p1: quantile(0.01),
            p99: quantile(0.99),
            min: sorted[0],
            max: sorted[last],
        })
    }
}

fn shown(floor: &Floor) -> Value {
    let mut shown = json!({
        "topology": floor.topology,
        "rows": floor.rows(),
        "columns": floor.columns(),
        "boards": floor.boards(),
        "npus_per_board": floor.per_board(),
        "failed_boards": floor.failed,
        "leaves": [count(&floor.leaves.of_rows), count(&floor.leaves.of_columns)],
        "board_bandwidth": floor.board_bandwidth,
    });
    if let Some(sides) = floor.sides() {
        shown["sides"] = json!(sides);
    }
    shown
}

fn count(leaves: &[u32]) -> u32 {
    leaves.last().map_or(0, |last| last + 1)
}

/// Places many mixes (`study.rs`) and sums them up. `None` if `observe` has stopped it.
///
/// # Errors
/// Something in the request is wrong.
pub fn place_mixes(
    request: Value,
    observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Value>, FieldError> {
    let (read, floor) = Common::read(request)?;
    let mover = match read.memory {
        Some(memory) => Some(Mover::new(memory, floor.board_bandwidth)?),
        None => None,
    };
    let study = Study {
        histogram: Histogram::new(&read.mix)?,
        unit: read.unit,
        count: read.count,
        options: read.options(),
        failed: read.failed,
        mover,
        seed: read.seed,
        floor,
    };
    let Some(Found { mixes, map, dropped }) = study.run(observe)? else { return Ok(None) };
    let upper = |of: fn(&super::upper::Upper) -> f64| {
        Summary::of(mixes.iter().filter_map(|mix| mix.upper.as_ref().map(of)))
    };
    let moved = study.mover.map(|_| {
        let each = |of: fn(&super::study::Moved) -> u64| {
            Summary::of(mixes.iter().filter_map(|mix| mix.moved.as_ref().map(|m| of(m) as f64)))
        };
        json!({
            "jobs_placed": each(|moved| moved.jobs_placed),
            "jobs_moved": each(|moved| moved.jobs_moved),
            "bytes": each(|moved| moved.bytes),
            "time_us": Summary::of(mixes.iter().filter_map(|mix| {
                mix.moved.as_ref().map(|moved| Time::from_ps(moved.time_ps).as_us())
            })),
        })
    });
    Ok(Some(json!({
        "fabric": shown(&study.floor),
        "seed": read.seed,
        "count": read.count,
        "failed": read.failed,
        "utilisation": Summary::of(mixes.iter().map(|mix| mix.utilisation)),
        "jobs": Summary::of(mixes.iter().map(|mix| (mix.placed + mix.left_out) as f64)),
        "left_out": Summary::of(mixes.iter().map(|mix| mix.left_out as f64)),
        "sizes_dropped": dropped,
        "upper_level": {
            "all_to_all": upper(|part| part.all_to_all),
            "rings": upper(|part| part.rings),
        },
        "defragmentation": moved,
        "mixes": mixes,
        "map": map,
    })))
}

/// Runs a queue of jobs (`queue.rs`): those of a trace, or `count` seeded ones. `None` if `observe` has
/// stopped it.
///
/// # Errors
/// Something in the request is wrong.
pub fn run_queue(
    request: Value,
    observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Value>, FieldError> {
    let (read, floor) = Common::read(request)?;
    let jobs = if read.mix.is_empty() {
        let job = |(index, &(at, duration, size)): (usize, &(Time, Time, Size))| {
            floor.check(format!("trace[{index}].size"), size)?;
            // What is larger than the floor never fits, however much larger.
            let asks = floor.request(size, read.unit).unwrap_or(Request::Boards(u32::MAX));
            Ok(Arrival { at, duration, asks })
        };
        read.trace.iter().enumerate().map(job).collect::<Result<Vec<_>, FieldError>>()?
    } else {
        let sizes = Histogram::new(&read.mix)?.on(&floor, read.unit)?;
        let count = u32::try_from(read.count).ok().filter(|count| (1..=10_000_000).contains(count));
        let Some(count) = count else {
            let why = "it is not a number of jobs that can be run";
            return Err(FieldError::new("jobs", read.count, why, "from 1 to 10000000"));
        };
        arrivals(&sizes, floor.boards(), count, read.load, read.duration, read.seed)?
    };
    let queue = Queue { options: read.options(), backfill: read.backfill, floor };
    let Some(run) = queue.run(&jobs, observe)? else { return Ok(None) };
    let waits = |ran: &(&super::queue::Ran, &Arrival)| (ran.0.start - ran.1.at).as_s();
    let pairs = || run.jobs.iter().zip(&jobs);
    let end = run.jobs.iter().map(|ran| ran.end).max().unwrap_or(Time::ZERO);
    Ok(Some(json!({
        "fabric": shown(&queue.floor),
        "seed": read.seed,
        "jobs": run.jobs.len(),
        "backfill": read.backfill,
        "utilisation": { "mean": run.utilisation() },
        "waiting_s": Summary::of(pairs().map(|pair| waits(&pair))),
        "makespan_s": (end - jobs[0].at).as_s(),
        "timeline": run.busy.iter().map(|(at, busy)| (at.as_s(), busy)).collect::<Vec<_>>(),
        "ran": pairs()
            .map(|(ran, job)| json!({
                "arrive_s": job.at.as_s(),
                "start_s": ran.start.as_s(),
                "end_s": ran.end.as_s(),
                "boards": ran.placed.boards(),
            }))
            .collect::<Vec<_>>(),
    })))
}
