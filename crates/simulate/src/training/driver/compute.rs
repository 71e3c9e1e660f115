//! The compute engines, and why they have nothing to do.

use std::cmp::Reverse;

use allrail_core::Time;
use allrail_workload::Work;

use super::{Driver, Turn};
use crate::training::driver::record::{Gap, Idle, Ran};

impl Driver<'_> {
    pub(super) fn attend(&mut self, player: u32) {
        let engine = &mut self.engines[player as usize];
        let can = engine.running.is_none() && !engine.ready.is_empty();
        if (can || engine.turns.iter().any(Turn::can)) && !engine.choosing {
            engine.choosing = true;
            self.choosing.push(player);
        }
    }

    /// Lets idle compute engines start the earliest node that is ready.
    pub(super) fn choose(&mut self, now: Time) {
        let mut choosing = std::mem::take(&mut self.choosing);
        choosing.sort_unstable();
        for player in choosing.drain(..) {
            let engine = &mut self.engines[player as usize];
            engine.choosing = false;
            self.take_turns(now, player);
            let engine = &mut self.engines[player as usize];
            if engine.running.is_some() {
                continue;
            }
            let Some(Reverse((iteration, node))) = engine.ready.pop() else { continue };
            let ran = Ran { player, node, iteration };
            let (idle_since, last) = (engine.idle_since, engine.last);
            engine.running = Some(ran);
            let index = self.shape.index(player, node);
            let held = self.iteration(iteration).expect("it is under way");
            if held.records[index].start < now {
                // It was ready before: the engine is what it waited for.
                held.records[index].cause = last;
            }
            held.records[index].start = now;
            let cause = held.records[index].cause;
            if idle_since < now {
                let gaps = self.attribute(idle_since, now, cause);
                self.out.gaps[player as usize].extend(gaps);
            }
            let Work::Compute { time } = self.graph.node(node).work else { continue };
            let time = match self.settings.slowness {
                Some(slowness) => scaled(time, slowness(player, node, iteration)),
                None => time,
            };
            self.begin(now, ran, time);
        }
        choosing.append(&mut self.choosing);
        self.choosing = choosing;
    }

    /// Why an engine had nothing to do from `start` to `end`: what it waited for last.
    pub(super) fn attribute(&self, start: Time, end: Time, cause: Option<Ran>) -> Vec<Gap> {
        let waiting = vec![Gap { start, end, idle: Idle::Waiting }];
        let mut cause = cause;
        // A join of dependencies has a cause of its own.
        let (ran, record) = loop {
            let Some(ran) = cause else { return waiting };
            let Some(record) = self.record(ran) else { return waiting };
            match self.graph.node(ran.node).work {
                Work::Compute { .. }
                    if record.start == record.finish || self.graph.is_delay(ran.node) =>
                {
                    cause = record.cause;
                }
                _ => break (ran, record),
            }
        };
        let (purpose, begun) = match self.graph.node(ran.node).work {
            Work::Compute { .. } => return waiting,
            Work::Collective { purpose, .. }
            | Work::Send { purpose, .. }
            | Work::Receive { purpose, .. } => (purpose, record.start),
        };
        let begun = begun.max(start).min(end);
        let mut gaps = Vec::new();
        if start < begun {
            gaps.push(Gap { start, end: begun, idle: Idle::Waiting });
        }
        if begun < end {
            gaps.push(Gap { start: begun, end, idle: Idle::Exposed(purpose) });
        }
        gaps
    }
}

/// A time, scaled; never to nothing.
fn scaled(time: Time, factor: f64) -> Time {
    Time::from_ps(((time.as_ps() as f64 * factor).round() as u64).max(1))
}
