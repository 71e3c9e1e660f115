//! A program of MSCCL as one of ours: steps of messages in one buffer, which receives add to.
//!
//! Its run has said what moves and what is added ([`Flow`]). Here that is laid out anew: [`chains`] says what
//! each place holds one after the other, [`steps`] when messages leave and where they go. Copies are the same
//! value, so they cost nothing; sums on a GPU are made as their parts come. What the program moves, and to
//! whom, stays. Whether the result does its operation is not argued here but proved, by
//! [`crate::verify`].

use super::chains::chains;
use super::flow::Flow;
use super::schedule::steps;
use super::{File, Wrong};
use crate::Program;
use crate::program::{Blocks, Combine};

/// Lays it out.
///
/// # Errors
/// The step that asks for what an algorithm of ours does not have.
pub(super) fn convert(file: &File, flow: &Flow) -> Result<Program, Wrong> {
    let chains = chains(file, flow)?;
    let steps = steps(file, flow, &chains)?;
    let ranks = u32::try_from(file.gpus.len()).expect("few ranks");
    let mut program = Program::empty(ranks, file.chunks, steps.len());
    for (step, moves) in steps.iter().enumerate() {
        let mut moves: Vec<_> =
            moves.iter().map(|one| (&flow.messages[one.message], one)).collect();
        // As it is read from a plan.
        moves.sort_by_key(|(carried, _)| (carried.from, carried.to));
        for (carried, one) in moves {
            for combine in [Combine::Replace, Combine::Reduce] {
                let so =
                    one.chunks.iter().filter(|(_, _, adds)| *adds == (combine == Combine::Reduce));
                let (from, into): (Vec<u32>, Vec<u32>) =
                    so.map(|(from, into, _)| (*from, *into)).unzip();
                if !from.is_empty() {
                    program.message(
                        step,
                        (carried.from, Blocks::of(from, file.chunks)),
                        (carried.to, Blocks::of(into, file.chunks)),
                        combine,
                    );
                }
            }
        }
    }
    Ok(program)
}
