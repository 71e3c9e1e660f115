//! The schedulers of a step, made from its graph.

use std::collections::BTreeMap;

use allrail_fabric::Fabric;
use allrail_schedule::tensor::{
    CommTask, Cut, Exchange, Planned, Tensor, TensorParameters, TensorPolicy,
};
use allrail_workload::{NodeId, StepGraph};
use serde_json::Value;

use super::{Scheduled, Tensors};
use crate::SimulateError;
use crate::scenario::field;
use crate::training::agreements::{Agreements, Drawn};
use crate::training::apart::{Apart, Worker};
use crate::training::communicator::servers::workers;
use crate::training::lists::{Kind, Lists, known};
use crate::training::players::{Players, ProcessGroup};

/// What schedulers are made from.
struct Source<'a> {
    graph: &'a StepGraph,
    players: &'a Players,
    fabric: &'a Fabric,
    parameters: &'a TensorParameters,
    policy: &'a dyn TensorPolicy,
}

/// The gradients that a process group exchanges by one kind of collective.
struct Gradients {
    tensors: Vec<Tensor>,
    nodes: Vec<NodeId>,
    names: Vec<String>,
}

impl Tensors {
    /// The schedulers of a graph's gradients.
    ///
    /// # Errors
    /// A parameter is wrong: names it.
    pub(crate) fn new(
        graph: &StepGraph,
        players: &Players,
        fabric: &Fabric,
        parameters: &TensorParameters,
        coordination: Option<&Value>,
        drawn: Drawn,
    ) -> Result<Self, SimulateError> {
        let Lists { lists, tensor_of } = Lists::new(graph);
        let mut tensors = Self {
            schedulers: Vec::new(),
            of: BTreeMap::new(),
            apart: Vec::new(),
            agreements: Agreements::new(graph, coordination, drawn)?,
            tensor_of,
            ready: Vec::new(),
            agreed: Vec::new(),
            arrived: Vec::new(),
            finished: Vec::new(),
            timers: Vec::new(),
            parameters: parameters.clone(),
            iterations: drawn.lag + 1,
            started: 0,
            parts: BTreeMap::new(),
        };
        let policy = parameters.policy()?;
        let source = Source { graph, players, fabric, parameters, policy };
        for (index, process_group) in (0u32..).zip(&players.process_groups) {
            let mut partitions = 0;
            let own = lists.iter().filter(|((group, _), _)| *group == process_group.group.0);
            for ((_, kind), list) in own {
                let gradients = source.gradients(list);
                let group = (index, process_group);
                tensors.add(&source, group, *kind, &gradients, &mut partitions)?;
            }
            // Of a process group without gradients.
            tensors.agreements.add(players, (index, process_group), 0, (&[], &[]))?;
        }
        Ok(tensors)
    }

    /// The schedulers of one process group and kind of collective: one for each iteration under way, of each worker.
    /// `partitions` is the number of the group's next partition over servers.
    fn add(
        &mut self,
        source: &Source<'_>,
        (index, process_group): (u32, &ProcessGroup),
        kind: Kind,
        gradients: &Gradients,
        partitions: &mut u32,
    ) -> Result<(), SimulateError> {
        let &Source { graph, players, fabric, parameters, policy } = source;
        let Gradients { tensors, nodes, names } = gradients;
        let exchange = parameters.exchange;
        let servers = exchange == Exchange::ParameterServer;
        let first = u32::try_from(self.schedulers.len()).expect("few schedulers");
        let known = known(graph, fabric, parameters, nodes)?;
        // A scheduler that chooses as it goes has a state of its own, so each is made anew.
        let planned = || match &known {
            Some(facts) => policy.in_step(parameters, exchange, tensors, facts),
            None => Ok(None),
        };
        let mut next = planned()?;
        let cuts = source.cuts(next.as_ref(), tensors.len());
        self.of.insert((index, kind), first);
        let agreement =
            self.agreements.add(players, (index, process_group), first, (tensors, names))?;
        let workers = match servers {
            true => {
                let group = &graph.groups()[process_group.group.index()];
                workers::players(group, players, process_group)
            }
            false => vec![process_group.players.clone()],
        };
        let apart = self.apart.len();
        if servers {
            self.apart.push(Apart::new(tensors, &workers, cuts.clone(), partitions));
        }
        for turn in 0..self.iterations {
            for (number, on_it) in (0u32..).zip(&workers) {
                let made = match next.take() {
                    Some(first) => Some(first),
                    None => planned()?,
                };
                let scheduler = match made {
                    None => parameters.scheduler(tensors)?,
                    Some(made) => {
                        same_cuts(&made.tasks, &cuts, names, &parameters.policy)?;
                        made.scheduler(exchange)
                    }
                };
                self.schedulers.push(Scheduled {
                    scheduler,
                    process_group: index,
                    operation: kind.0,
                    came: vec![Vec::new(); tensors.len()],
                    expected: on_it.len(),
                    worker: servers.then_some(Worker { number, turn, group: apart }),
                    agreement,
                });
            }
        }
        Ok(())
    }
}

impl Source<'_> {
    fn gradients(&self, list: &[(Tensor, NodeId)]) -> Gradients {
        let (tensors, nodes): (Vec<Tensor>, Vec<NodeId>) = list.iter().copied().unzip();
        let names = nodes.iter().map(|id| self.graph.name(*id).to_owned()).collect();
        Gradients { tensors, nodes, names }
    }

    /// How each of so many tensors is cut; `None` of whole ones.
    fn cuts(&self, planned: Option<&Planned>, tensors: usize) -> Vec<Option<Cut>> {
        match planned {
            Some(planned) => planned.tasks.iter().map(CommTask::cut).cloned().map(Some).collect(),
            None => vec![self.policy.partition(self.parameters).map(Cut::Size); tensors],
        }
    }
}

/// Refuses a policy that cuts a tensor for one worker otherwise than for another.
fn same_cuts(
    tasks: &[CommTask],
    cuts: &[Option<Cut>],
    names: &[String],
    policy: &str,
) -> Result<(), SimulateError> {
    let differs = tasks.iter().zip(cuts).position(|(task, cut)| Some(task.cut()) != cut.as_ref());
    let Some(tensor) = differs else { return Ok(()) };
    let why = format!("it cuts `{}` otherwise for another worker", names[tensor]);
    let hint = "the same tasks must be cut alike: draw with a fixed seed, read no clock";
    Err(field("schedule.tensor.policy", policy, &why, hint))
}
