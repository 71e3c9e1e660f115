//! The algorithms of one dimension: one file each, one line in [`ALL`].
//!
//! `docs/reference/algorithms.md` has the operations of each.
//!
//! Reduce-scatter leaves shard `i` with rank `i` and all-gather starts from there; shard `i` is blocks
//! `i·B/P .. (i + 1)·B/P`. An algorithm's reduce-scatter and all-gather have the same `B`.

pub mod binary_tree;
pub mod binary_trees;
pub mod direct;
pub mod double_binary_tree;
pub mod halving_doubling;
pub mod halving_doubling_near;
pub mod own;
pub mod parameter_server;
pub mod ring;
pub mod ring_by_block;
pub mod ring_unidirectional;

use allrail_fabric::Kind;

use crate::{CollectiveError, Operation, Program};

pub use own::{Own, OwnPrograms};

/// What an operation costs a rank, in closed form.
///
/// With `s` the bytes of the whole buffer (before a reduce-scatter, after an all-gather, per rank
/// for the others), the busiest rank sends `s · sent.0 / sent.1` bytes in `steps` steps.
/// `latencies` is how many messages the longest chain has of which each waits for the one before it. A
/// pipelined chain has fewer of them than steps, as a rank that awaits nothing sends on.
/// `fill` is time that no link is busy for but the last byte waits: a pipeline filling, as a
/// fraction of the time that `s` bytes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Bytes sent by the busiest rank, as a fraction of `s`.
    pub sent: (u64, u64),
    /// Steps.
    pub steps: u32,
    /// Messages of the longest chain, each of which costs one latency; at most `steps`.
    pub latencies: u32,
    /// Serialisations beside the busiest rank's own, as a fraction of `s`.
    pub fill: (u64, u64),
}

/// What is known of an algorithm's messages on the links of a kind of dimension. The default knows
/// nothing: then messages are counted one by one, up to 512 ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnLinks {
    /// Whether it is what a dimension of this kind runs if nobody says otherwise.
    pub usual: bool,
    /// How long the busiest link takes, in closed form.
    pub time: Option<LinkTime>,
    /// Whether messages halve from step to step (in an all-gather: double), and are not alike.
    pub halving: bool,
    /// How many messages its program has, or more; where `None`, one for each rank and step, and in an
    /// all-to-all one for each block that they carry.
    pub messages: Option<u64>,
    /// As what ASTRA-sim counts it without contention; `None` where it does not know it.
    pub unaware: Option<Pattern>,
    /// Whether the blocks of a step leave as messages of their own, each when the one before it has arrived.
    pub block_by_block: bool,
    /// Its steps, where all are alike and so are all ranks.
    pub alike: Option<Alike>,
    /// Whether what a rank passes on goes through its memory as what it reduces does: read twice, written
    /// once.
    pub relays: bool,
}

/// The patterns of messages that ASTRA-sim knows. An algorithm says as which of them it is counted
/// ([`OnLinks::unaware`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// From neighbour to neighbour, as often as there are others.
    Ring,
    /// To everyone at once.
    Direct,
    /// To partners whose distance doubles.
    HalvingDoubling,
}

/// Steps in which every rank sends the same, so that one says them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    /// How many.
    pub steps: u32,
    /// To whom each rank sends in each, as a distance that is counted round, one block each.
    pub to: &'static [i32],
    /// Of the buffer.
    pub blocks: u32,
}

/// How long the links of a dimension take, in the time that `s` bytes take at its whole bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTime {
    /// For which the busiest link carries bytes.
    pub busy: (u64, u64),
    /// For which none is busy, and the last byte waits.
    pub fill: (u64, u64),
}

impl LinkTime {
    /// Of an algorithm whose messages fit the links: what the busiest rank sends.
    #[must_use]
    pub(crate) const fn as_sent(cost: &Cost) -> Self {
        Self { busy: cost.sent, fill: cost.fill }
    }
}

/// An algorithm for one dimension. The planners ask for its cost, the verifier and the message
/// network models for its program.
pub trait Algorithm: Sync {
    /// The tag in scenario files.
    fn tag(&self) -> &str;

    /// One line for the docs: what it does and where it comes from.
    fn about(&self) -> &'static str;

    /// The operations it does.
    fn operations(&self) -> &'static [Operation];

    /// The closed form for `ranks` ≥ 2 ranks; only asked for [`Algorithm::operations`].
    fn cost(&self, operation: Operation, ranks: u32) -> Cost;

    /// The messages for `ranks` ≥ 2 ranks; only asked for [`Algorithm::operations`].
    fn program(&self, operation: Operation, ranks: u32) -> Program;

    /// What is known of `ranks` ≥ 2 ranks on links of that kind, so that nobody has to count; only
    /// asked for [`Algorithm::operations`].
    fn on_links(&self, kind: Kind, operation: Operation, ranks: u32) -> OnLinks {
        let _ = (kind, operation, ranks);
        OnLinks::default()
    }

    /// Where one rank does more than the others: how many of `ranks` take its place in turn, chunk by chunk,
    /// and in each collective of a runtime; ranks are then counted from another one on. 1 where all are
    /// alike. Only for all-reduces.
    fn turns(&self, ranks: u32) -> u32 {
        let _ = ranks;
        1
    }

    /// The one number of ranks that it is for; `None` where it is for any.
    fn ranks(&self) -> Option<u32> {
        None
    }
}

impl std::fmt::Debug for dyn Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tag())
    }
}

/// Every algorithm, in the order of the docs.
pub static ALL: &[&dyn Algorithm] = &[
    &ring::Ring,
    &ring_unidirectional::RingUnidirectional,
    &ring_by_block::RingByBlock,
    &direct::Direct,
    &halving_doubling::HalvingDoubling,
    &halving_doubling_near::HalvingDoublingNear,
    &double_binary_tree::DoubleBinaryTree,
    &binary_tree::BinaryTree,
    &binary_trees::BinaryTrees,
    &parameter_server::ParameterServer,
];

/// The algorithm with this tag.
///
/// # Errors
/// [`CollectiveError::UnknownAlgorithm`] with the known names.
pub fn named(name: &str) -> Result<&'static dyn Algorithm, CollectiveError> {
    ALL.iter().copied().find(|algorithm| algorithm.tag() == name).ok_or_else(|| {
        CollectiveError::UnknownAlgorithm {
            name: name.to_owned(),
            known: ALL.iter().map(|algorithm| algorithm.tag().to_owned()).collect(),
        }
    })
}

/// Refuses an operation that `algorithm` does not do, and ranks that it is not for.
///
/// # Errors
/// [`CollectiveError::Unsupported`] with those that do it; [`CollectiveError::Ranks`].
pub fn check(
    algorithm: &dyn Algorithm,
    operation: Operation,
    ranks: u32,
) -> Result<(), CollectiveError> {
    if !algorithm.operations().contains(&operation) {
        let doing = ALL.iter().filter(|other| other.operations().contains(&operation));
        let valid: Vec<String> = doing.map(|other| format!("`{}`", other.tag())).collect();
        return Err(CollectiveError::Unsupported {
            algorithm: algorithm.tag().to_owned(),
            operation,
            valid: valid.join(", "),
            does: algorithm.operations(),
        });
    }
    match algorithm.ranks() {
        Some(only) if only != ranks => {
            Err(CollectiveError::Ranks { algorithm: algorithm.tag().to_owned(), only, ranks })
        }
        _ => Ok(()),
    }
}

/// A number of steps as `Cost` counts them; more than 2^32 − 1 only beyond 2^31 ranks.
fn saturating_steps(steps: u64) -> u32 {
    u32::try_from(steps).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_cell_names_the_algorithms_that_do_it() {
        let tree = named("double_binary_tree").expect("known");
        let error = check(tree, Operation::AllToAll, 4).expect_err("not supported");
        assert_eq!(
            error.to_string(),
            "`double_binary_tree` does not do `all_to_all`; `ring`, `ring_unidirectional`, \
             `ring_by_block`, `direct` do"
        );
    }
}
