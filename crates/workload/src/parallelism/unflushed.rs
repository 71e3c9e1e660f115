//! Updates of pipelines that are never flushed: which weights a pass finds, and what it waits for.
//!
//! | `schedule` | an update | the passes behind it |
//! |---|---|---|
//! | `pipedream` | of every microbatch, in the order of the stage's passes, when its gradient is there from all replicas | wait for it; a backward pass uses the weights of its forward pass, which are kept (Narayanan et al., SOSP'19, §3.3) |
//! | `pipedream_2bw` | once a step, when its last microbatch is through | those of the step but one after: a step's first forward passes are over before the last backward pass of the step before, so its weights are those of two steps before (ICML'21, §3.1) |
//! | `pipemare` | once a step | the same, with one version of the weights (Yang et al., `MLSys`'21) |
//!
//! A stage's last backward pass of a step stands in the next iteration of the graph, but for the last stage
//! ([`super::order`]). So there an update of an iteration is needed by the next one, and at the last stage by the
//! one after that: a node without time is between.
//!
//! Ignored: what stale weights cost in convergence; `PipeMare`'s running difference of weights, which is one
//! more array of parameters.

use allrail_core::{FieldError, Time};

use super::emit::Emitter;
use super::gradients::place;
use super::passes::Done;
use super::plan::Plan;
use crate::error::wrong;
use crate::graph::{NodeId, Pass};
use crate::spec::Updates;

impl Plan<'_> {
    /// Whether a stage updates its parameters after every microbatch.
    pub(crate) fn updates_each(&self) -> bool {
        !self.pipeline.flushes() && self.pipeline.schedule.updates_each_microbatch()
    }

    /// Whether the gradients of every microbatch leave by themselves.
    pub(crate) fn leaves_each(&self) -> bool {
        self.reduces_each() || self.updates_each()
    }

    /// How many versions of its weights a position keeps.
    pub(crate) fn versions(&self, position: u32) -> u64 {
        if self.pipeline.flushes() {
            return 1;
        }
        self.pipeline.schedule.versions(self.pipeline.positions - 1 - position)
    }

    /// How many sets of gradients a position has: what travels beside the next step's is still there.
    pub(crate) fn sets_of_gradients(&self) -> u64 {
        let unflushed = !self.pipeline.flushes() && !self.updates_each();
        1 + u64::from(self.workload.lag.max(u32::from(unflushed)))
    }

    /// Whether what is said goes with a pipeline that is never flushed.
    pub(super) fn goes_without_flush(&self) -> Result<(), FieldError> {
        if self.pipeline.flushes() {
            return Ok(());
        }
        let (workload, parallelism) = (self.workload, &self.workload.parallelism);
        let tag = self.pipeline.schedule.tag();
        let refuse = |field: &str, value: &dyn ToString, why: &str| {
            let hint = format!("leave it out, or `schedule: 1f1b` in place of `{tag}`");
            Err(wrong(field, value.to_string(), why, &hint))
        };
        if parallelism.zero > 0 {
            let why = "a pipeline that is never flushed keeps whole weights and gradients";
            return refuse("parallelism.zero", &parallelism.zero, why);
        }
        if workload.every > 1 {
            let why = "replicas that train apart average parameters at the end of a step, which a \
                       pipeline without a flush has not";
            return refuse("every", &workload.every, why);
        }
        if workload.lag > 0 {
            let why = "a pipeline that is never flushed has its own delay of updates";
            return refuse("lag", &workload.lag, why);
        }
        if !parallelism.overlap_gradients {
            let why = "the backward pass of a stage that is never flushed does not end";
            return refuse("parallelism.overlap_gradients", &false, why);
        }
        if self.updates_each() && self.model.tied > 0 {
            let why = "the ends of a tied table would wait for each other after every microbatch";
            let hint = "take `pipedream_2bw`, or a model whose head has a table of its own";
            return Err(wrong("parallelism.schedule", tag, why, hint));
        }
        Ok(())
    }

    /// What a pipeline without a flush takes for granted.
    pub(super) fn flush_notes(&self) -> Vec<String> {
        if self.pipeline.flushes() {
            return Vec::new();
        }
        let tag = self.pipeline.schedule.tag();
        let mut notes = vec![format!(
            "`{tag}` is never flushed: the first iteration, which fills it, is not a real one"
        )];
        let told = self.workload.target.and_then(|target| target.statistical_efficiency);
        notes.extend(told.is_none().then(|| {
            format!(
                "`{tag}` updates weights while microbatches are in flight: what that costs in \
                 convergence is not modelled (`target.statistical_efficiency`)"
            )
        }));
        notes
    }
}

impl Emitter<'_> {
    /// The gradients of a microbatch travel, and parameters are updated before the position's next pass.
    pub(super) fn step_at_once(&mut self, position: usize, done: &Done, microbatch: u32) {
        let plan = self.plan;
        let mut updates = Vec::new();
        for (i, ready) in done {
            let layer = &plan.model.layers[*i];
            let (mut own, mut after, mut time) = (0, vec![*ready], Time::ZERO);
            for (parameters, span) in self.unit_spans(std::slice::from_ref(layer), 0) {
                own += parameters;
                if !self.travels(layer, span) {
                    continue;
                }
                let name = format!("{} gradient of microbatch {microbatch}", layer.name);
                let (last, decoding) = self.exchange(
                    position,
                    (layer, place(*i)),
                    &name,
                    (parameters, span),
                    &[*ready],
                );
                after.extend(last);
                time += decoding;
            }
            if own > 0 {
                time += plan.update(plan.updated(*i, own));
                updates.push((format!("{} update", layer.name), time, after));
            }
        }
        if plan.workload.updates != Some(Updates::Each) {
            let all: Vec<NodeId> = updates.iter().flat_map(|(_, _, after)| after.clone()).collect();
            self.compute(position, "optimizer step", (Time::ZERO, Pass::Update), &all);
        }
        for (name, time, after) in updates {
            self.compute(position, &name, (time, Pass::Update), &after);
        }
    }

    /// Whether the iteration after an update does not wait for it, but the one after that: see the module.
    pub(super) fn is_waited_for_later(&self, position: usize, layer: usize) -> bool {
        // The ends of a tied table exchange gradients in the iteration after.
        let tied = self.plan.model.tied > 0 && layer + 1 == self.plan.model.layers.len();
        !self.plan.pipeline.flushes() && position + 1 == self.stages.len() && !tied
    }

    /// The iteration but one waits for a node.
    pub(super) fn carry_further(&mut self, position: usize, last: NodeId) {
        let between = match self.stages[position].between {
            Some(between) => between,
            None => {
                let between =
                    self.instant(position, "weights of the step before", Pass::Update, &[]);
                if let Some(first) = self.stages[position].first {
                    self.builder.carry(first, between);
                }
                self.stages[position].between = Some(between);
                between
            }
        };
        self.builder.carry(between, last);
    }

    /// What stands for a node of this iteration and one of the iteration before.
    pub(super) fn with_carried(
        &mut self,
        position: usize,
        ready: NodeId,
        before: Option<NodeId>,
    ) -> NodeId {
        let both = self.instant(position, "tied gradients of a step", Pass::Backward, &[ready]);
        before.into_iter().for_each(|before| self.builder.carry(both, before));
        both
    }
}
