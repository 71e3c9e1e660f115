//! The programs of algorithms, each made once.

use std::sync::Arc;

use allrail_collective::algorithm::Own;
use allrail_collective::program::{Blocks, Combine, Send, Waits};
use allrail_collective::{CollectivePlan, Dataflow, Operation, Program, Stage};
use allrail_core::FieldError;
use allrail_fabric::Kind;

use crate::SimulateError;

/// More messages than this in one stage's program are refused.
const MAX_PROGRAM: u64 = 1 << 24;
/// Programs that were made, by algorithm, operation and number of ranks.
#[derive(Default)]
pub(crate) struct Programs(Vec<Known>);

/// A program, and where its messages wait for their own blocks only, for which.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) program: Arc<Program>,
    pub(super) dataflow: Option<Arc<Dataflow>>,
}

struct Known {
    name: String,
    /// Where it is a user's own: two plans may have one of this name.
    own: Option<Arc<Own>>,
    operation: Operation,
    size: u32,
    made: Made,
}

impl Programs {
    pub(super) fn get(
        &mut self,
        plan: &CollectivePlan,
        Stage { operation, dimension }: Stage,
        (kind, size): (Kind, u32),
        field: impl FnOnce() -> String,
    ) -> Result<Made, SimulateError> {
        let (name, algorithm) = (&plan.algorithms[dimension.index()], plan.algorithm(dimension)?);
        let own = plan.programs.get(name);
        let is_it = |known: &&Known| {
            (known.operation, known.size) == (operation, size)
                && known.name == *name
                && known.own.as_ref() == own
        };
        if let Some(known) = self.0.iter().find(is_it) {
            return Ok(known.made.clone());
        }
        let steps = u64::from(algorithm.cost(operation, size).steps);
        let counted = algorithm.on_links(kind, operation, size).messages;
        let messages = counted.unwrap_or(match operation {
            // In transit, a message names every block that it carries.
            Operation::AllToAll => u64::from(size).pow(3),
            _ => u64::from(size) * steps,
        });
        if messages > MAX_PROGRAM {
            return Err(too_large(
                field(),
                size.to_string(),
                format!(
                    "`{name}` on it has {messages} per stage",
                    messages = allrail_core::counted(messages, "message")
                ),
            ));
        }
        let mut program = algorithm.program(operation, size);
        if algorithm.on_links(kind, operation, size).block_by_block {
            program = block_by_block(&program);
        }
        let dataflow = (program.waits == Waits::Blocks).then(|| Arc::new(Dataflow::of(&program)));
        let made = Made { program: Arc::new(program), dataflow };
        let (name, own) = (name.clone(), own.cloned());
        self.0.push(Known { name, own, operation, size, made: made.clone() });
        Ok(made)
    }
}

/// Every step as so many as its messages have blocks, one of each message in each.
fn block_by_block(program: &Program) -> Program {
    let lengths = |step: usize| {
        let of_rank = program.steps.iter().flat_map(move |steps| &steps[step].sends);
        of_rank.map(|send| send.blocks.len()).max().unwrap_or(1)
    };
    let parts: Vec<(usize, usize)> = (0..program.step_count())
        .flat_map(|step| (0..lengths(step) as usize).map(move |part| (step, part)))
        .collect();
    let mut spread = Program::empty(program.ranks, program.blocks, parts.len());
    for (rank, steps) in (0u32..).zip(&program.steps) {
        for (place, (step, part)) in parts.iter().enumerate() {
            for Send { to, blocks, .. } in &steps[*step].sends {
                let Some(block) = blocks.iter(program.blocks).nth(*part) else { continue };
                let one = Blocks::Wrapped { start: block, count: 1 };
                spread.message(place, (rank, one.clone()), (*to, one), Combine::Replace);
            }
        }
    }
    spread
}

pub(super) fn too_large(field: String, value: String, why: String) -> SimulateError {
    SimulateError::Field(FieldError::new(field, value, why, "use `network_model: dims`"))
}
