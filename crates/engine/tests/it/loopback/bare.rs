//! A rank that decides with an [`Executor`] alone: what is submitted is issued. Unlike an engine it has
//! operations of all kinds at once, over any dimensions.

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_collective::rank::{Buffer, RankPlan};
use allrail_core::Time;
use allrail_engine::engine::{Action, Event, Home};
use allrail_engine::{Broken, CollectiveId, Executor, Progress, SignatureHash, StageTask, Stages};
use allrail_schedule::evaluate::Work;
use allrail_schedule::operation::{Key, OperationName};
use allrail_schedule::scheduled::model_of;

use super::Job;
use super::decider::{Decider, Share};
use super::job::Tensor;

struct Known {
    key: Key,
    stages: Arc<Stages>,
    part: Arc<RankPlan>,
    priority: i64,
    submitted: u64,
    running: Option<CollectiveId>,
}

/// See the module.
pub(crate) struct Bare {
    executor: Executor,
    tensors: Vec<Known>,
    running: BTreeMap<CollectiveId, usize>,
}

impl Bare {
    pub(crate) fn new(job: &Job, rank: u32) -> Self {
        let known = |(number, tensor): (usize, &Tensor)| {
            let buffer = Buffer::new(tensor.elements, tensor.dtype.width()).expect("a buffer");
            let buffer = buffer.cut_at(job.granule).expect("a granule");
            let part = RankPlan::new(&tensor.plan, rank, buffer).expect("a right plan");
            Known {
                key: job.key(number),
                stages: Arc::new(stages(tensor)),
                part: Arc::new(part),
                priority: tensor.priority,
                submitted: 0,
                running: None,
            }
        };
        Self {
            executor: Executor::new(job.order, job.sizes.len(), job.active_chunks.map(Into::into)),
            tensors: job.tensors.iter().enumerate().map(known).collect(),
            running: BTreeMap::new(),
        }
    }

    fn submit(&mut self, key: Key, out: &mut Vec<Action>) -> Result<(), Broken> {
        let number = self.tensors.iter().position(|tensor| tensor.key == key);
        let number = number.ok_or(Broken::UnknownTensor(key))?;
        let tensor = &mut self.tensors[number];
        let (id, progress) = self.executor.issue(Arc::clone(&tensor.stages), 0, tensor.priority)?;
        let generation = tensor.submitted;
        tensor.submitted += 1;
        tensor.running = Some(id);
        self.running.insert(id, number);
        let operation = OperationName { key, generation, ..OperationName::default() };
        let signature = SignatureHash::default();
        let (priority, part) = (tensor.priority, Arc::clone(&tensor.part));
        out.push(Action::Begin { id, operation, priority, signature, part });
        self.note(id, progress, out);
        Ok(())
    }

    fn note(&mut self, id: CollectiveId, progress: Progress, out: &mut Vec<Action>) {
        if progress == Progress::Over
            && let Some(number) = self.running.remove(&id)
        {
            let tensor = &mut self.tensors[number];
            tensor.running = None;
            let (key, generation) = (tensor.key, tensor.submitted - 1);
            let operation = OperationName { key, generation, ..OperationName::default() };
            out.push(Action::Over { id, operation });
            out.push(Action::Done { key, generation });
        }
    }
}

impl Decider for Bare {
    fn on(&mut self, _now: Time, event: Event, out: &mut Vec<Action>) -> Result<(), Broken> {
        match event {
            Event::Submit { key } | Event::Unused { key } => self.submit(key, out)?,
            Event::PortFree { port } => self.executor.port_free(port)?,
            Event::StageOver { id, at } => {
                let progress = self.executor.stage_over(id, at)?;
                self.note(id, progress, out);
            }
            other => panic!("an executor is not told {other:?}"),
        }
        if self.executor.is_eager() {
            self.settle(out);
        }
        Ok(())
    }

    fn settle(&mut self, out: &mut Vec<Action>) {
        while self.executor.is_unsettled() {
            while let Some(run) = self.executor.choose() {
                out.push(Action::Run(run));
            }
        }
    }

    fn shares(&self, id: CollectiveId) -> Vec<Share> {
        let number = self.running[&id];
        vec![(number, 0..self.tensors[number].part.buffer.elements())]
    }

    fn home(&self, name: &OperationName) -> Result<Home, Broken> {
        let tensor = self.tensors.iter().find(|tensor| tensor.key == name.key);
        let tensor = tensor.ok_or(Broken::UnknownTensor(name.key))?;
        match tensor.running {
            _ if name.generation >= tensor.submitted => Ok(Home::Early),
            Some(id) if name.generation + 1 == tensor.submitted => Ok(Home::Running(id)),
            _ => Err(Broken::Old(*name)),
        }
    }

    fn peers(&self) -> (u32, &[u32]) {
        (0, &[])
    }
}

fn stages(tensor: &Tensor) -> Stages {
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
            load: task.served.as_ps(),
            share: task.share,
        }));
    }
    stages
}
