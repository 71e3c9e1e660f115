//! Shift phases in `flows`, in closed form.
//!
//! In phase `i` of `n` NPUs, NPU `k` sends to `k + i` (mod `n`), all messages are equal, and the next
//! phase begins when this one is over everywhere. Then
//!
//! ```text
//! time = (phases / simulated) · Σ over simulated phases of (bytes · seconds per byte + latency)
//! ```
//!
//! The phases are independent of each other: where there are several threads they are shared among
//! them, and summed up in their own order.

use allrail_core::Bytes;
use allrail_fabric::graph::{Graph, NodeId};
use allrail_world::flows::{Phase, Phases, Splitting};
use rayon::prelude::*;

use crate::SimulateError;
use crate::driver::Observer;

/// Seconds of the simulated phases, and below what they cannot be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shifts {
    /// The sum.
    pub seconds: f64,
    /// The sum of the lower bounds.
    pub lower_bound: f64,
}

/// The phases `shifts`, one after another.
///
/// # Errors
/// [`SimulateError::Interrupted`] if the observer says so.
pub fn shifts(
    graph: &Graph,
    splitting: Splitting,
    detours: bool,
    shifts: &[u32],
    bytes: Bytes,
    observer: Observer<'_>,
) -> Result<Shifts, SimulateError> {
    // Of one worker, between two looks at Ctrl-C.
    const EACH: usize = 8;
    let mut workers: Vec<Phases<'_>> = (0..rayon::current_num_threads().min(shifts.len()))
        .map(|_| Phases::new(graph, splitting, detours))
        .collect();
    let mut sum = Shifts { seconds: 0.0, lower_bound: 0.0 };
    let mut done = 0;
    for batch in shifts.chunks(EACH * workers.len()) {
        if observer(done, shifts.len() as u64).is_break() {
            return Err(SimulateError::Interrupted);
        }
        done += batch.len() as u64;
        let phases: Vec<Vec<Phase>> = workers
            .par_iter_mut()
            .zip(batch.par_chunks(EACH))
            .map(|(worker, part)| {
                part.iter().map(|&shift| worker.run(&pairs(graph.npus(), shift))).collect()
            })
            .collect();
        for phase in phases.iter().flatten() {
            let (bytes, latency) = (bytes.count() as f64, phase.latency.as_s());
            sum.seconds += bytes * phase.seconds_per_byte + latency;
            sum.lower_bound += bytes * phase.lower_bound;
        }
    }
    Ok(sum)
}

/// Who sends to whom in a shift.
fn pairs(npus: u32, shift: u32) -> Vec<(NodeId, NodeId)> {
    (0..npus).map(|npu| (NodeId(npu), NodeId((npu + shift) % npus))).collect()
}
