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
use allrail_network::flows::{Phase, Phases, Splitting};
use rayon::prelude::*;

use crate::SimulateError;
use crate::driver::Observer;

/// Seconds of the simulated phases, and below what they cannot be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shifts {
    /// The sum.
    pub seconds: f64,
    /// The sum of the lower bounds.
    pub lower_bound: f64,
    /// The sum of the squares of the phases' times.
    squares: f64,
}

impl Shifts {
    /// The standard error of the time of all phases, as a part of it, if `taken` were drawn of `all`:
    /// `sqrt((1 - taken / all) · variance / taken) / mean`. None of a single phase.
    #[must_use]
    pub(super) fn error(&self, taken: u32, all: u32) -> Option<f64> {
        let (n, all) = (f64::from(taken), f64::from(all));
        if taken < 2 || self.seconds <= 0.0 {
            return None;
        }
        let mean = self.seconds / n;
        let variance = ((self.squares - n * mean * mean) / (n - 1.0)).max(0.0);
        Some(((1.0 - n / all) * variance / n).sqrt() / mean)
    }
}

/// The phases `shifts`, one after another.
///
/// # Errors
/// [`SimulateError::Interrupted`] if the observer says so.
pub(crate) fn shifts(
    graph: &Graph,
    splitting: Splitting,
    detours: bool,
    shifts: &[u32],
    bytes: Bytes,
    observer: Observer<'_>,
) -> Result<Shifts, SimulateError> {
    // Of one worker, between two looks at Ctrl-C.
    const EACH: usize = 2;
    let mut workers: Vec<Phases<'_>> = (0..rayon::current_num_threads().min(shifts.len()))
        .map(|_| Phases::new(graph, splitting, detours))
        .collect();
    let mut sum = Shifts { seconds: 0.0, lower_bound: 0.0, squares: 0.0 };
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
            let seconds = bytes * phase.seconds_per_byte + latency;
            sum.seconds += seconds;
            sum.squares += seconds * seconds;
            sum.lower_bound += bytes * phase.lower_bound;
        }
    }
    Ok(sum)
}

/// Who sends to whom in a shift.
fn pairs(npus: u32, shift: u32) -> Vec<(NodeId, NodeId)> {
    (0..npus).map(|npu| (NodeId(npu), NodeId((npu + shift) % npus))).collect()
}

#[cfg(test)]
mod tests {
    use super::Shifts;

    #[test]
    fn the_error_of_a_sample_is_that_of_its_mean() {
        // 1 and 3 s of 8 phases: mean 2, variance 2, (1 - 2 / 8) · 2 / 2 = 0.75.
        let sum = Shifts { seconds: 4.0, lower_bound: 0.0, squares: 10.0 };
        let error = sum.error(2, 8).expect("two phases");
        assert!((error - 0.75_f64.sqrt() / 2.0).abs() < 1e-12, "{error}");
        assert_eq!(sum.error(1, 8), None);
        assert_eq!(sum.error(8, 8), Some(0.0));
    }
}
