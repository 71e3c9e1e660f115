//! How long an algorithm takes on a dimension that counts over cables: step by step, its messages.
//!
//! A stage of `s` bytes keeps such a dimension busy for the sum over its steps of the most loaded link
//! ([`allrail_fabric::wiring`]), and ends after the latencies of the longest path of every step. Steps of the
//! same messages are counted once.

use std::collections::BTreeMap;

use allrail_core::{DimensionId, Time};
use allrail_fabric::wiring::{Load, Message};
use allrail_fabric::{Dimension, Wiring};

use crate::algorithm::Algorithm;
use crate::{CollectiveError, Operation};

/// More messages than this are not counted.
const MOST: u64 = 1 << 22;
/// Loads are fractions of a buffer with this denominator a block.
const PARTS: f64 = 1e6;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    /// In the time that the buffer takes at the dimension's rate.
    pub(crate) busy: (u64, u64),
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
) -> Result<Counted, CollectiveError> {
    let size = dimension.size;
    let name = format!("{} {operation}", algorithm.tag());
    // In units of the buffer.
    let load = wiring.remembered(&name, || {
        let cost = algorithm.cost(operation, size);
        let known = algorithm.on_links(dimension.kind, operation, size);
        let messages = known.messages.unwrap_or(match operation {
            // In transit, a message names every block that it carries.
            Operation::AllToAll => u64::from(size).saturating_pow(3),
            _ => u64::from(size) * u64::from(cost.steps),
        });
        if messages > MOST {
            let why = format!(
                "it stands for a network without dimensions, where messages are counted, and \
                 `{}` among {size} has {messages}; name another algorithm",
                algorithm.tag()
            );
            return Err(CollectiveError::NotModelled { dimension: id, why });
        }
        let program = algorithm.program(operation, size);
        let mut counted: BTreeMap<Vec<Message>, Load> = BTreeMap::new();
        let (mut busy, mut latency) = (0.0, Time::ZERO);
        for step in 0..program.step_count() {
            let ranks = (0u32..).zip(&program.steps);
            let sends = ranks.flat_map(|(rank, steps)| {
                steps[step].sends.iter().map(move |send| (rank, send.to, &send.blocks))
            });
            let step: Vec<Message> =
                sends.map(|(from, to, blocks)| (from, to, u64::from(blocks.len()))).collect();
            let load = counted.get(&step).copied().unwrap_or_else(|| wiring.load(&step));
            busy += load.busy;
            // Block by block, each that a message has is a step.
            let blocks = step.iter().map(|message| message.2).max().unwrap_or(0);
            let steps = if known.block_by_block { blocks } else { 1 };
            let all = load.latency.checked_mul(steps).and_then(|more| latency.checked_add(more));
            latency = all.unwrap_or(latency);
            // Few patterns come again and again; of others none is kept.
            if counted.len() < 8 {
                counted.insert(step, load);
            }
        }
        Ok(Load { busy: busy / f64::from(program.blocks), latency })
    })?;
    let blocks = f64::from(size);
    let busy = ((load.busy * blocks * PARTS).round() as u64, u64::from(size) * PARTS as u64);
    Ok(Counted { busy, latency: load.latency })
}
