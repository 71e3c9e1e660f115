//! How long an algorithm takes on a dimension that counts over cables: step by step, its messages.
//!
//! A stage of `s` bytes takes the sum over its steps of the most loaded link ([`allrail_fabric::wiring`]), and the
//! latencies of the longest path of every step, along the longest chain of messages that wait for each other. It
//! keeps the dimension busy for as long as the link that carries most over
//! all steps is; the rest is time that other stages may have. Steps of the same messages are counted once.

use std::collections::BTreeMap;

use allrail_core::{DimensionId, FieldError, Time, counted};
use allrail_fabric::wiring::{Along, Counted, Load, Message};
use allrail_fabric::{Dimension, Wiring};

use crate::algorithm::{Algorithm, Alike};
use crate::program::Send;
use crate::{CollectiveError, Operation};

/// More messages than this are not counted.
const MOST: u64 = 1 << 22;
/// Loads are fractions of a buffer with this denominator a block.
const PARTS: f64 = 1e6;

/// What is counted, in the time that the buffer takes at the dimension's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkSteps {
    pub(crate) busy: (u64, u64),
    pub(crate) fill: (u64, u64),
    /// Of all steps, one after the other.
    pub(crate) latency: Time,
}

/// Counts the messages of an algorithm.
///
/// # Errors
/// They are too many.
pub(crate) fn count(
    id: DimensionId,
    dimension: &Dimension,
    wiring: &Wiring,
    algorithm: &dyn Algorithm,
    operation: Operation,
) -> Result<LinkSteps, CollectiveError> {
    let size = dimension.size;
    let name = format!("{} {operation}", algorithm.tag());
    // In units of the buffer.
    let counted = wiring.remembered(&name, || {
        let cost = algorithm.cost(operation, size);
        let known = algorithm.on_links(dimension.kind, operation, size);
        if let Some(Alike { steps, to, blocks }) = known.alike {
            let ahead = |rank: u32, by: i32| {
                let to = (i64::from(rank) + i64::from(by)).rem_euclid(i64::from(size));
                u32::try_from(to).expect("a rank")
            };
            let of_rank = |rank| to.iter().map(move |by| (rank, ahead(rank, *by), 1));
            let load = wiring.load(&(0..size).flat_map(of_rank).collect::<Vec<Message>>());
            let busy = load.most() * f64::from(steps) / f64::from(blocks);
            let latency = load.latency.checked_mul(u64::from(steps)).unwrap_or(load.latency);
            return Ok(Counted { busy, fill: 0.0, latency });
        }
        let messages = known.messages.unwrap_or(match operation {
            // In transit, a message names every block that it carries.
            Operation::AllToAll => u64::from(size).saturating_pow(3),
            _ => u64::from(size) * u64::from(cost.steps),
        });
        if messages > MOST {
            return Err(CollectiveError::Field(FieldError::new(
                "schedule.algorithms",
                algorithm.tag(),
                format!(
                    "{} is a network without dimensions, where messages are counted, and \
                     this has {messages} among {size} or domains, more than {MOST}",
                    id.name(),
                    size = counted(size, "NPU")
                ),
                "`ring` goes among any number, but for all-to-alls; these run as `traffic` in \
                       `network_model: flows`",
            )));
        }
        let program = algorithm.program(operation, size);
        let mut known_loads: BTreeMap<Vec<Message>, Load> = BTreeMap::new();
        let (mut links, mut all, mut latencies) = (Vec::new(), 0.0, Vec::new());
        for step in 0..program.step_count() {
            let ranks = (0u32..).zip(&program.steps);
            let sends = ranks
                .flat_map(|(rank, steps)| steps[step].sends.iter().map(move |one| (rank, one)));
            let message = |rank, send: &Send| (rank, send.to, u64::from(send.blocks.len()));
            let (along, free): (Vec<_>, Vec<_>) = sends.partition(|(_, send)| !send.via.is_empty());
            let step: Vec<Message> =
                free.into_iter().map(|(rank, send)| message(rank, send)).collect();
            let along: Vec<Along<'_>> =
                along.into_iter().map(|(rank, send)| (message(rank, send), &*send.via)).collect();
            // Block by block, each that a message has is a step.
            let blocks = step.iter().map(|message| message.2).max().unwrap_or(0);
            let steps = if known.block_by_block { blocks } else { 1 };
            let is_known = along.is_empty() && known_loads.contains_key(&step);
            let fresh = (!is_known).then(|| wiring.load_along(&step, &along));
            let load = fresh.as_ref().or_else(|| known_loads.get(&step)).expect("one of both");
            links.resize(load.links.len(), 0.0);
            links.iter_mut().zip(&load.links).for_each(|(sum, more)| *sum += more);
            all += load.most();
            latencies.push(load.latency.as_ps().saturating_mul(steps));
            // Few patterns come again and again; of others none is kept.
            if let Some(fresh) = fresh.filter(|_| along.is_empty() && known_loads.len() < 8) {
                known_loads.insert(step, fresh);
            }
        }
        let latency = Time::from_ps(program.chain(|step| latencies[step]));
        let blocks = f64::from(program.blocks);
        let busy = links.into_iter().fold(0.0, f64::max);
        Ok(Counted { busy: busy / blocks, fill: (all - busy).max(0.0) / blocks, latency })
    })?;
    let parts =
        |of: f64| ((of * f64::from(size) * PARTS).round() as u64, u64::from(size) * PARTS as u64);
    Ok(LinkSteps { busy: parts(counted.busy), fill: parts(counted.fill), latency: counted.latency })
}
