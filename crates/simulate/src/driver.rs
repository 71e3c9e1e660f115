//! The driver of collectives: issues each at its time, and runs the network model until all are over.
//!
//! What happens in between is the executors' (`executors`).

use std::ops::ControlFlow;
use std::rc::Rc;

use allrail_collective::CollectivePlan;
use allrail_core::{Bytes, EventQueue, Rank, Time};
use allrail_engine::ALONE;
use allrail_network::NetworkModel;
use allrail_schedule::ActiveChunks;
use allrail_schedule::queue::Order;

use crate::error::SimulateError;
use crate::executors::{Cargo, Event, Executors, Kept, Settings, StageSpan};
use crate::lowering::Lowering;

/// Called now and then with (stages done, stages in all); breaks off the run.
pub type Observer<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// So many events apart.
const OBSERVE_EVERY: u64 = 1 << 10;

/// What is run, beside the network model.
pub struct Collectives<'a> {
    /// One plan per collective.
    pub plans: &'a [CollectivePlan],
    /// When each is issued.
    pub starts: &'a [Time],
    /// Higher goes first.
    pub priorities: &'a [i64],
    /// How dimensions choose.
    pub order: Order,
    /// How many stages a dimension runs at once.
    pub active_chunks: Option<ActiveChunks>,
    /// What links may have yet to send when a dimension chooses.
    pub send_ahead: Bytes,
    /// How long an endpoint takes over every step, and once more over a stage; the links go on.
    pub endpoint_delay: Time,
    /// Whether spans are kept.
    pub timeline: bool,
    /// A run that is not over by then is broken off: its collectives never finish.
    pub until: Time,
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// When each collective was over on every actor.
    pub finish: Vec<Time>,
    /// The stages of actor 0 in the order in which they started; their tags are collectives.
    pub spans: Vec<StageSpan>,
    /// Transfers submitted.
    pub transfers: u64,
    /// For every actor and dimension, the bytes sent.
    pub sent: Vec<f64>,
}

/// Runs a job in a network model to its end.
///
/// # Errors
/// [`SimulateError::Stalled`] with who waits for what; [`SimulateError::Interrupted`].
pub fn run(
    job: &Collectives<'_>,
    lowering: &Lowering,
    network_model: &mut dyn NetworkModel,
    observer: Observer<'_>,
) -> Result<Run, SimulateError> {
    let dimensions = job.plans.first().map_or(0, |plan| plan.fabric.dimensions.len());
    let settings = Settings {
        order: job.order,
        active_chunks: job.active_chunks,
        endpoint_delay: job.endpoint_delay,
        kept: if job.timeline { Kept::First } else { Kept::None },
        ..Settings::default()
    };
    let members: Rc<[u32]> = (0..lowering.actors).collect();
    let npus = members.iter().map(|actor| Rank(*actor));
    let mut executors = Executors::new(network_model, npus, dimensions, settings);
    executors.set_send_ahead(job.send_ahead);
    let stages = job.plans.iter().flat_map(|plan| &plan.chunks);
    let total =
        stages.map(|chunk| chunk.stages.len() as u64).sum::<u64>() * u64::from(lowering.actors);
    let mut starts = EventQueue::new();
    for (collective, start) in job.starts.iter().enumerate() {
        starts.push(*start, 0, collective);
    }
    let mut run = Run { finish: vec![Time::ZERO; job.plans.len()], ..Run::default() };
    let mut left = job.plans.len();
    let mut observed = 0;
    let mut now = Time::ZERO;
    loop {
        now = executors.run_before(now, starts.next_time().unwrap_or(Time::MAX));
        let next = [starts.next_time(), executors.next_time()].into_iter().flatten().min();
        let Some(next) = next else { break };
        if next > job.until {
            run.finish.fill(Time::MAX);
            return Ok(run);
        }
        now = next;
        while starts.next_time() == Some(now) {
            let Some((_, collective)) = starts.pop() else { break };
            executors.carry(now, cargo(job, lowering, collective, Rc::clone(&members)));
        }
        while let Some((time, event)) = executors.next_event(now) {
            if let Event::Over { tag } = event {
                run.finish[tag as usize] = time;
                left -= 1;
            }
        }
        executors.settle(now);
        if executors.events() >= observed + OBSERVE_EVERY {
            observed = executors.events();
            if observer(executors.stages_over(), total).is_break() {
                return Err(SimulateError::Interrupted);
            }
        }
    }
    if left > 0 {
        return Err(stalled(&executors, now));
    }
    run.spans = executors.take_spans();
    run.transfers = executors.transfers();
    run.sent = executors.sent().collect();
    Ok(run)
}

/// A collective, as it is handed to the executors of its members.
fn cargo(
    job: &Collectives<'_>,
    lowering: &Lowering,
    collective: usize,
    members: Rc<[u32]>,
) -> Cargo {
    Cargo {
        lowered: Rc::clone(&lowering.collectives[collective]),
        members,
        communicator: ALONE,
        priority: job.priorities[collective],
        overhead: Time::ZERO,
        tag: collective as u64,
        tell_left: false,
    }
}

fn stalled<W: NetworkModel>(executors: &Executors<W>, now: Time) -> SimulateError {
    SimulateError::Stalled {
        time_us: now.as_us(),
        waits: executors.waits(12, |tag| format!("collective {tag}")).join("\n"),
        hint: "ranks that order their stages differently can block each other where \
               `active_chunks` limits them: leave it out, or use `order: planned`",
    }
}
