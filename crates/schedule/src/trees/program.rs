//! Trees as a program: who sends which blocks to whom.
//!
//! Every member's share is [`copies`](Forest::copies) blocks, and a tree of multiplicity `m` carries `m` of them. A message
//! of a gathering tree is in the step of its sender's depth. A reduce-scatter goes the same ways back on the
//! reversed network, the deepest first, and sums; an all-reduce is both, one after the other block by block, which takes
//! twice the time of one. Sends wait for their own blocks alone ([`Waits::Blocks`]).

use allrail_collective::program::{Blocks, Combine, Waits};
use allrail_collective::{Operation, Program};

use super::{Forest, NoTrees, forest};
use crate::cuts::Network;

/// A message of a tree, as a gathering sends it: its step, its ends, and its blocks.
struct Message {
    step: usize,
    from: u32,
    to: u32,
    blocks: Blocks,
    /// The switches that it passes.
    via: Box<[u32]>,
}

/// The program of an all-gather, a reduce-scatter or an all-reduce among all of the first `npus` nodes; `None` for
/// others.
///
/// # Errors
/// There are no trees.
pub fn program(
    network: &Network,
    npus: u32,
    operation: Operation,
) -> Result<Option<Program>, NoTrees> {
    let members: Vec<u32> = (0..npus).collect();
    let gather = || forest(network, &members).map(|found| messages(network, &found, npus));
    let scatter = || {
        let turned = network.reversed();
        forest(&turned, &members).map(|found| messages(&turned, &found, npus))
    };
    let (scattered, gathered) = match operation {
        Operation::AllGather => (None, Some(gather()?)),
        Operation::ReduceScatter => (Some(scatter()?), None),
        Operation::AllReduce => (Some(scatter()?), Some(gather()?)),
        Operation::AllToAll | Operation::Broadcast => return Ok(None),
    };
    let total = scattered.iter().chain(&gathered).map(|(total, _)| *total).max().unwrap_or(0);
    let depths = [&scattered, &gathered].map(|half| {
        half.iter().flat_map(|(_, messages)| messages).map(|one| one.step + 1).max().unwrap_or(0)
    });
    let mut program = Program::empty(npus, total, depths.iter().sum());
    program.waits = Waits::Blocks;
    let scattered = scattered.into_iter().flat_map(|(_, mut all)| {
        all.sort_by_key(|one| (one.to, one.from));
        all
    });
    for Message { step, from, to, blocks, mut via } in scattered {
        let (sent, summed) = ((to, blocks.clone()), (from, blocks));
        via.reverse();
        program.message_via(depths[0] - 1 - step, sent, summed, Combine::Reduce, via);
    }
    for Message { step, from, to, blocks, via } in gathered.into_iter().flat_map(|(_, all)| all) {
        let (sent, kept) = ((from, blocks.clone()), (to, blocks));
        program.message_via(depths[0] + step, sent, kept, Combine::Replace, via);
    }
    Ok(Some(program))
}

/// How many blocks a buffer has, and the messages of all trees.
fn messages(network: &Network, forest: &Forest, npus: u32) -> (u32, Vec<Message>) {
    let narrow = |copies: u128| u32::try_from(copies).expect("few copies");
    let copies = narrow(forest.copies);
    let mut used = vec![0u32; npus as usize];
    let mut depths = vec![0usize; npus as usize];
    let mut messages = Vec::new();
    for tree in &forest.trees {
        let first = tree.root * copies + used[tree.root as usize];
        used[tree.root as usize] += narrow(tree.multiplicity);
        depths[tree.root as usize] = 0;
        for edge in &tree.edges {
            let step = depths[edge.from as usize];
            depths[edge.to as usize] = step + 1;
            let mut next = first;
            for path in &edge.paths {
                let blocks = Blocks::range(next..next + narrow(path.multiplicity));
                next += narrow(path.multiplicity);
                let passed = path.arcs[1..].iter().map(|arc| network.tail(*arc));
                let via = passed.collect();
                messages.push(Message { step, from: edge.from, to: edge.to, blocks, via });
            }
        }
    }
    // As files have them.
    messages.sort_by_key(|one| (one.step, one.from, one.to));
    (copies * npus, messages)
}
