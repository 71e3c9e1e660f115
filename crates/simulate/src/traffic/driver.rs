//! The driver of traffic: hands messages to a network model when they may leave, and takes what it delivers.
//!
//! Which messages may leave is a [`Demand`]'s to say. At one time, everything that happens is taken
//! in before anything new is submitted, so that no answer depends on the order of equal times.

use allrail_core::{Bytes, DimensionId, Rank, Time, counted};
use allrail_network::{Event, NetworkModel, Submission, Transfer};

use crate::SimulateError;
use crate::driver::Observer;
use crate::error::field;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// From.
    pub source: u32,
    /// To.
    pub destination: u32,
    /// How much.
    pub bytes: Bytes,
    /// The demand's own; it comes back.
    pub tag: u64,
}

/// Says which messages may leave. The driver tells it what happened and when; all messages that it
/// appends leave at that time.
pub trait Demand {
    /// When messages fall due that wait for the clock alone.
    fn next_time(&self) -> Option<Time> {
        None
    }

    /// The clock has reached [`Demand::next_time`], or the run begins (at zero).
    fn due(&mut self, now: Time, out: &mut Vec<Message>);

    /// The last byte of a message has left its source; told only if [`Demand::wants_sent`].
    fn sent(&mut self, now: Time, tag: u64, out: &mut Vec<Message>) {
        let _ = (now, tag, out);
    }

    /// Whether it asks to be told what was sent.
    fn wants_sent(&self) -> bool {
        false
    }

    /// A message has arrived.
    fn delivered(&mut self, now: Time, tag: u64, out: &mut Vec<Message>);

    /// How many messages have arrived, and how many there are.
    fn progress(&self) -> (u64, u64);

    /// Who waits for what, for the report of a stall.
    fn waits(&self) -> String;
}

/// What a run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// When the last message arrived.
    pub end: Time,
    /// Messages carried.
    pub messages: u64,
    /// Bytes carried.
    pub bytes: u64,
}

/// How long a network model runs, in its own time, before the observer is asked again.
const SLICE: Time = Time::from_us(5);
/// A run that gets here is broken off: network models count in 2^62 ps.
const LONGEST: Time = Time::from_ps(1 << 61);
const OBSERVE_EVERY: u32 = 1 << 6;
/// A message counts as so many parts of work, so that long ones are heard of on their way.
const PARTS: u64 = 1 << 10;

/// Carries a demand out in a network model, to the end.
///
/// # Errors
/// [`SimulateError::Stalled`] if the network model stops before everything has arrived, with what the demand
/// waits for; [`SimulateError::Interrupted`] if the observer says so.
pub fn carry_out(
    network_model: &mut dyn NetworkModel,
    demand: &mut dyn Demand,
    observer: Observer<'_>,
) -> Result<Carried, SimulateError> {
    let mut run = Carried::default();
    let mut out = Vec::new();
    let mut countdown = OBSERVE_EVERY;
    let mut now = Time::ZERO;
    demand.due(now, &mut out);
    loop {
        for message in out.drain(..) {
            run.messages += 1;
            run.bytes += message.bytes.count();
            let transfer = Transfer::Message {
                dimension: DimensionId(0),
                source: Rank(message.source),
                destination: Rank(message.destination),
                bytes: message.bytes,
            };
            let sent_tag = demand.wants_sent().then_some(message.tag);
            network_model.submit(now, Submission { transfer, tag: message.tag, sent_tag });
        }
        let (in_network_model, due) = (network_model.next_time(), demand.next_time());
        let Some(next) = [in_network_model, due].into_iter().flatten().min() else { break };
        if due == Some(next) && in_network_model != Some(next) {
            now = next;
            demand.due(now, &mut out);
            continue;
        }
        if next > LONGEST {
            return Err(field(
                "traffic",
                counted(run.messages, "message"),
                "it takes longer than 26 days",
                "send less, or over faster links",
            ));
        }
        let slice = next.checked_add(SLICE).unwrap_or(Time::MAX);
        let event = network_model.next_event(due.map_or(slice, |due| due.min(slice)));
        countdown -= 1;
        if event.is_none() || countdown == 0 {
            countdown = OBSERVE_EVERY;
            let (done, total) = parts(demand, network_model, &run);
            if observer(done, total).is_break() {
                return Err(SimulateError::Interrupted);
            }
        }
        let Some((time, first)) = event else { continue };
        now = time;
        take(demand, &mut run, now, first, &mut out);
        while let Some((_, event)) = network_model.next_event(now) {
            take(demand, &mut run, now, event, &mut out);
        }
        if demand.next_time() == Some(now) {
            demand.due(now, &mut out);
        }
    }
    let (done, total) = demand.progress();
    if done < total {
        let waits = demand.waits();
        return Err(SimulateError::Stalled {
            time_us: now.as_us(),
            waits,
            hint: "ports that wait for each other in a circle never go on: the routing needs more \
                   virtual channels, or another order of turns",
        });
    }
    Ok(run)
}

/// How much of a demand is done, and how much there is, in parts of messages. What has arrived of messages under way
/// counts, where the network model knows it.
fn parts(demand: &dyn Demand, network_model: &dyn NetworkModel, run: &Carried) -> (u64, u64) {
    let (done, total) = demand.progress();
    let under_way = run.messages.saturating_sub(done);
    let whole = if run.messages > 0 { run.bytes as f64 / run.messages as f64 } else { 0.0 };
    let arrived = network_model.arrived().filter(|_| whole > 0.0).map_or(0.0, |bytes| {
        (bytes.count() as f64 / whole - done as f64).clamp(0.0, under_way as f64)
    });
    (done * PARTS + (arrived * PARTS as f64) as u64, total * PARTS)
}

fn take(
    demand: &mut dyn Demand,
    run: &mut Carried,
    now: Time,
    event: Event,
    out: &mut Vec<Message>,
) {
    match event {
        Event::Delivered { tag } => {
            run.end = now;
            demand.delivered(now, tag, out);
        }
        Event::Sent { tag } => demand.sent(now, tag, out),
    }
}
