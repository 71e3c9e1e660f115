//! In which order, and in which partitions, a scenario's tensor scheduler sends gradients, as far as that is
//! known before a step runs: for whoever carries the order out elsewhere.

use allrail_schedule::tensor::Cut;
use serde::Serialize;

use crate::SimulateError;
use crate::scenario::TrainingScenario;
use crate::training::job::graph_of;
use crate::training::lists::{Lists, known};

/// The gradients of one process group and kind of collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ranking {
    /// The group's name.
    pub group: String,
    /// Whether an order says nothing, as it chooses what starts as it goes.
    pub chooses: bool,
    /// Its gradients, the most urgent first.
    pub tasks: Vec<RankedTask>,
}

/// A gradient in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankedTask {
    /// Its name in the graph.
    pub name: String,
    /// How large, in bytes.
    pub bytes: u64,
    /// The place of its layer in the forward pass, 0 first.
    pub place: u32,
    /// The largest size of a partition, in bytes; none of partitions that are listed.
    pub partition: Option<u64>,
}

/// Asks the tensor scheduler; empty where it knows of no order beforehand.
///
/// # Errors
/// As the simulation.
pub fn ranking(scenario: &TrainingScenario) -> Result<Vec<Ranking>, SimulateError> {
    let sizes: Vec<u32> = scenario.fabric.dimensions.iter().map(|d| d.size).collect();
    let graph = graph_of(&scenario.timed_workload()?, &sizes)?.graph;
    let parameters = scenario.tensor();
    let mut found = Vec::new();
    for ((group, _), list) in Lists::new(&graph).lists {
        let (list, nodes): (Vec<_>, Vec<_>) = list.into_iter().unzip();
        let Some(facts) = known(&graph, &scenario.fabric, &parameters, &nodes)? else {
            continue;
        };
        let policy = parameters.policy()?;
        let Some(planned) = policy.in_step(&parameters, parameters.exchange, &list, &facts)? else {
            continue;
        };
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by_key(|index| (planned.tasks[*index].place(), *index));
        let task = |index: usize| RankedTask {
            name: graph.name(nodes[index]).to_owned(),
            bytes: list[index].bytes.count(),
            place: list[index].place,
            partition: match planned.tasks[index].cut() {
                Cut::Size(size) => Some(size.count()),
                Cut::Sizes(_) => None,
            },
        };
        found.push(Ranking {
            group: graph.groups()[group as usize].name.clone(),
            chooses: planned.chooser.is_some(),
            tasks: order.into_iter().map(task).collect(),
        });
    }
    Ok(found)
}
