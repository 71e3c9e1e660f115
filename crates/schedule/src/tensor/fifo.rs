//! `fifo`: every tensor whole, in the order in which they become ready. What frameworks do by
//! themselves.

use allrail_core::Time;

use super::whole::Whole;
use super::{Action, Event, Exchange, Tensor, TensorParameters, TensorPolicy, TensorScheduler};
use crate::error::ScheduleError;

pub(super) struct Fifo;

impl TensorPolicy for Fifo {
    fn tag(&self) -> &'static str {
        "fifo"
    }

    fn about(&self) -> &'static str {
        "whole tensors in the order in which they become ready"
    }

    fn version(&self) -> u32 {
        1
    }

    fn crosses_barrier(&self) -> bool {
        false
    }

    fn reads(&self) -> &'static [&'static str] {
        &[]
    }

    fn scheduler(
        &self,
        _parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        Ok(Box::new(Scheduler(Whole::new(tensors, exchange))))
    }
}

struct Scheduler(Whole);

impl TensorScheduler for Scheduler {
    fn on(&mut self, _now: Time, event: Event<'_>, actions: &mut Vec<Action>) {
        match event {
            Event::Ready { tensor } => {
                self.0.ready(tensor);
                self.0.launch(&[tensor], actions);
            }
            Event::Together { tensors } => self.0.together(tensors, actions),
            Event::Finished { operation } => self.0.finished(operation, actions),
            Event::Arrived { .. } | Event::Timer { .. } => {}
        }
    }
}
