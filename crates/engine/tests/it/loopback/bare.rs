//! A rank that decides with an [`Executor`] alone: what is submitted is issued.

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_collective::StageRef;
use allrail_collective::rank::{Buffer, RankPlan};
use allrail_engine::{CollectiveId, Executor, Progress, Run, StageTask, Stages};
use allrail_schedule::evaluate::Work;
use allrail_schedule::operation::{Key, OperationName};
use allrail_schedule::planner::model_of;

use super::Job;

/// What a decider wants done, in this order.
pub(crate) enum Do {
    /// An operation of a tensor begins.
    Begin { id: CollectiveId, operation: OperationName, part: Arc<RankPlan>, tensor: usize },
    /// A stage is launched.
    Run(Run),
    /// An operation is over.
    Over { id: CollectiveId },
}

/// See the module.
pub(crate) struct Bare {
    executor: Executor,
    /// Of each tensor: what the queues know of it, and the rank's part.
    tensors: Vec<(Arc<Stages>, Arc<RankPlan>)>,
    priorities: Vec<i64>,
    running: BTreeMap<CollectiveId, usize>,
    pub(crate) events: u64,
}

impl Bare {
    pub(crate) fn new(job: &Job, rank: u32) -> Self {
        let tensor = |tensor: &super::job::Tensor| {
            let buffer = Buffer::new(tensor.elements, tensor.dtype.width()).expect("a buffer");
            let buffer = buffer.cut_at(job.granule).expect("a granule");
            let part = RankPlan::new(&tensor.plan, rank, buffer).expect("a right plan");
            (Arc::new(stages(tensor)), Arc::new(part))
        };
        Self {
            executor: Executor::new(job.order, job.sizes.len(), job.active_chunks),
            tensors: job.tensors.iter().map(tensor).collect(),
            priorities: job.tensors.iter().map(|tensor| tensor.priority).collect(),
            running: BTreeMap::new(),
            events: 0,
        }
    }

    pub(crate) fn submit(&mut self, tensor: usize, out: &mut Vec<Do>) {
        self.events += 1;
        let (stages, part) = &self.tensors[tensor];
        let issued = self.executor.issue(Arc::clone(stages), self.priorities[tensor]);
        let (id, progress) = issued.expect("a stage stands on a port that there is");
        let key = Key::call(tensor as u64);
        let operation = OperationName { key, ..OperationName::default() };
        out.push(Do::Begin { id, operation, part: Arc::clone(part), tensor });
        self.running.insert(id, tensor);
        if progress == Progress::Over {
            out.push(Do::Over { id });
        }
        // An eager queue chooses before it hears of anything else.
        self.settle(out);
    }

    pub(crate) fn port_free(&mut self, port: u32) {
        self.events += 1;
        self.executor.port_free(port).expect("a port that was taken exists");
    }

    pub(crate) fn stage_over(&mut self, id: CollectiveId, at: StageRef, out: &mut Vec<Do>) {
        self.events += 1;
        if self.executor.stage_over(id, at).expect("what was launched is over") == Progress::Over {
            self.running.remove(&id);
            out.push(Do::Over { id });
        }
    }

    pub(crate) fn settle(&mut self, out: &mut Vec<Do>) {
        while self.executor.is_unsettled() {
            while let Some(run) = self.executor.choose() {
                out.push(Do::Run(run));
            }
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.executor.under_way().next().is_none()
    }
}

fn stages(tensor: &super::job::Tensor) -> Stages {
    let plan = &*tensor.plan;
    let model = model_of(plan, &plan.fabric).expect("a plan of known algorithms");
    let chunks = plan.chunks.iter().map(|chunk| (chunk.bytes, chunk.stages.as_slice()));
    let work = Work::new(&model, chunks).expect("times that fit the clock");
    let mut stages = Stages::new(plan.dimension_order.clone());
    for chunk in 0..plan.chunks.len() {
        stages.push((0..).zip(work.chunk(chunk)).map(|(stage, task)| StageTask {
            stage,
            port: task.dimension,
            operation: task.operation,
            buffer: task.buffer,
            brought: task.brought,
        }));
    }
    stages
}
