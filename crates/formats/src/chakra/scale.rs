//! A trace of a few ranks as one of many.
//!
//! The ranks of the trace are numbered in blocks of `at`; each block is repeated `factor` times,
//! so that rank `hi·at + lo` becomes the ranks `hi·at·factor + q·at + lo` for every `q`. They run the
//! same nodes.
//!
//! A process group *grows* when it spans the axis that is repeated: its ranks within a block are
//! evenly spaced up to the block's end (in a job of 2 tensor × 2 data parallel ranks and blocks of 4,
//! `[0, 2]` does and `[0, 1]` does not), or it is of all ranks. It then spans all repetitions. Every
//! other group is repeated with its block. Where the rule is not what is meant, the groups that grow
//! are named.
//!
//! Bytes per rank stay as they are: an all-reduce of gradients has the same size with more replicas.

use std::path::Path;

use allrail_core::{counted, either};

use super::error::TraceError;

/// How a trace is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scale {
    /// The size of a block; all ranks of the trace where absent.
    pub at: Option<u32>,
    /// The process groups that grow; by the rule where absent.
    pub grow: Option<Vec<String>>,
}

/// A scale with its numbers.
#[derive(Clone, Debug)]
pub(super) struct Scaling {
    pub(super) ranks: u32,
    pub(super) factor: u32,
    at: u32,
    grow: Option<Vec<String>>,
}

impl Scaling {
    /// From so many ranks to so many NPUs; without a `scale` these are the same.
    pub(super) fn new(
        prefix: &Path,
        ranks: u32,
        npus: u32,
        scale: Option<&Scale>,
    ) -> Result<Self, TraceError> {
        let wrong = |why: String, hint: &str| TraceError::new(prefix, "the trace", why, hint);
        if scale.is_none() && ranks != npus {
            return Err(wrong(
                format!(
                    "it has {ranks}, and the fabric {npus}",
                    ranks = counted(ranks, "rank"),
                    npus = counted(npus, "NPU")
                ),
                "use a fabric of as many NPUs, or `scale: {}` to repeat the trace over it",
            ));
        }
        let at = scale.and_then(|scale| scale.at).unwrap_or(ranks);
        if at == 0 || !ranks.is_multiple_of(at) {
            return Err(wrong(
                format!(
                    "its {ranks} {are} no blocks of {at}",
                    ranks = counted(ranks, "rank"),
                    are = either(&ranks, "is", "are")
                ),
                "take a divisor of the ranks for `at`",
            ));
        }
        if !npus.is_multiple_of(ranks) {
            return Err(wrong(
                format!(
                    "its {ranks} {does} not divide {npus}",
                    ranks = counted(ranks, "rank"),
                    does = either(&ranks, "does", "do"),
                    npus = counted(npus, "NPU")
                ),
                "scale it to a multiple of its ranks",
            ));
        }
        let grow = scale.and_then(|scale| scale.grow.clone());
        Ok(Self { ranks, factor: npus / ranks, at, grow })
    }

    /// A rank of the trace in its `q`-th repetition.
    pub(super) fn home(&self, rank: u32, q: u32) -> u32 {
        rank / self.at * self.at * self.factor + q * self.at + rank % self.at
    }

    /// Everywhere that a rank of the trace runs, ascending.
    pub(super) fn homes(&self, rank: u32) -> impl Iterator<Item = u32> {
        (0..self.factor).map(move |q| self.home(rank, q))
    }

    /// The ranks of a process group in the first repetition, ascending.
    pub(super) fn group(&self, name: &str, ranks: &[u32]) -> Vec<u32> {
        let grows = match &self.grow {
            Some(names) => names.iter().any(|grown| grown == name),
            None => self.spans(ranks),
        };
        let repetitions = if grows { self.factor } else { 1 };
        let mut homes: Vec<u32> = (0..repetitions)
            .flat_map(|q| ranks.iter().map(move |rank| self.home(*rank, q)))
            .collect();
        homes.sort_unstable();
        homes
    }

    fn spans(&self, ranks: &[u32]) -> bool {
        let mut within: Vec<u32> = ranks.iter().map(|rank| rank % self.at).collect();
        within.sort_unstable();
        within.dedup();
        let Ok(many) = u32::try_from(within.len()) else { return false };
        let Some(apart) = within.get(1).map(|second| second - within[0]) else {
            return self.at == 1 && many == 1;
        };
        within.windows(2).all(|pair| pair[1] - pair[0] == apart) && apart * many == self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling(ranks: u32, npus: u32, scale: &Scale) -> Scaling {
        Scaling::new(Path::new("t"), ranks, npus, Some(scale)).expect("it scales")
    }

    #[test]
    fn data_parallel_groups_grow_and_tensor_parallel_ones_are_repeated() {
        let scaling = scaling(4, 16, &Scale::default());
        assert_eq!(scaling.group("tp", &[2, 3]), [2, 3]);
        assert_eq!(scaling.group("dp", &[1, 3]), [1, 3, 5, 7, 9, 11, 13, 15]);
        assert_eq!(scaling.group("all", &[0, 1, 2, 3]), (0..16).collect::<Vec<_>>());
        assert_eq!(scaling.homes(3).collect::<Vec<_>>(), [3, 7, 11, 15]);
    }

    #[test]
    fn blocks_within_stages_keep_the_stages_outermost() {
        let scaling = scaling(8, 16, &Scale { at: Some(4), grow: None });
        assert_eq!(scaling.homes(5).collect::<Vec<_>>(), [9, 13]);
        assert_eq!(scaling.group("dp", &[4, 6]), [8, 10, 12, 14]);
        assert_eq!(scaling.group("stages", &[1, 5]), [1, 9]);
    }

    #[test]
    fn groups_that_grow_may_be_named() {
        let named = Scale { at: None, grow: Some(vec!["ep".into()]) };
        let scaling = scaling(4, 8, &named);
        assert_eq!(scaling.group("ep", &[0, 1]), [0, 1, 4, 5]);
        assert_eq!(scaling.group("dp", &[0, 2]), [0, 2]);
    }

    #[test]
    fn what_does_not_divide_is_refused() {
        let of = |ranks, npus, scale: Option<&Scale>| {
            Scaling::new(Path::new("t"), ranks, npus, scale)
                .map(|_| ())
                .expect_err("it does not divide")
                .why
        };
        assert!(of(4, 8, None).contains("4 ranks, and the fabric 8"));
        assert!(of(4, 10, Some(&Scale::default())).contains("do not divide 10"));
        assert!(of(4, 8, Some(&Scale { at: Some(3), grow: None })).contains("blocks of 3"));
    }
}
