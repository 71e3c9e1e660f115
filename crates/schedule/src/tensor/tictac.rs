//! `tic` and `tac`: the order of TicTac (Hashemi, Jyothi and Campbell, `MLSys` 2019), from the step graph.
//!
//! Both go by the tensors `D` that computing of the next iteration still waits for, directly or not:
//!
//! - `M` of a tensor is how long its exchange takes, of computing the sum of that over its `D`;
//! - `P` of a tensor is how long what waits for it *alone* computes;
//! - `M+` of a tensor is the least `M` of computing that waits for it *and others*.
//!
//! **TIC** takes no times: an exchange counts 1, computing 0, and tensors go by `M+` (§4.2). **TAC** takes the
//! next tensor again and again, with what is left: of two, `a` goes first if `min(P_b, M_a) < min(P_a, M_b)`,
//! which ends the pair sooner, and of equal ones the smaller `M+` (§4.3). Equals go by their place in the
//! forward pass, where the paper leaves them in any order. On a chain of layers, one tensor a layer, both are
//! the order of the forward pass, and so `bytescheduler`'s.
//!
//! The order is TicTac's; partitions, credit and the crossing of the barrier are `bytescheduler`'s. TicTac cuts
//! nothing: a `partition` larger than every tensor is that. Where no graph is known (a job on real processes)
//! layers are a chain in the order of the forward pass.
//!
//! Left out: TicTac's hand-off of transfers in exactly this order, whatever is ready; here a tensor that is
//! not ready holds no other back.

use allrail_core::{Bytes, Time};

use super::bytescheduler::{ByteScheduler, PARTITION};
use super::{
    CommTask, Exchange, Outlook, Planned, StepFacts, Tensor, TensorParameters, TensorPolicy,
    TensorScheduler,
};
use crate::error::ScheduleError;

/// The timing-independent order.
pub(super) static TIC: TicTac = TicTac {
    tag: "tic",
    about: "as `bytescheduler`, in TicTac's order by what computing waits for, without times (TIC)",
    rank: tic,
};

/// The timing-aware order.
pub(super) static TAC: TicTac = TicTac {
    tag: "tac",
    about: "as `bytescheduler`, in TicTac's order by what computing waits for and all times (TAC)",
    rank: tac,
};

pub(super) struct TicTac {
    tag: &'static str,
    about: &'static str,
    /// The tensors, the most urgent first.
    rank: fn(&StepFacts) -> Vec<u32>,
}

impl TicTac {
    fn planned(
        &self,
        parameters: &TensorParameters,
        tensors: &[Tensor],
        facts: &StepFacts,
    ) -> Result<Planned, ScheduleError> {
        let mut ranked = tensors.to_vec();
        for (place, tensor) in (0..).zip((self.rank)(facts)) {
            ranked[tensor as usize].place = place;
        }
        let tasks = CommTask::all(&ranked, parameters.partition.unwrap_or(PARTITION))?;
        Ok(Planned { tasks, credit: parameters.credit_or_default(), chooser: None })
    }
}

impl TensorPolicy for TicTac {
    fn tag(&self) -> &'static str {
        self.tag
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn version(&self) -> u32 {
        1
    }

    fn crosses_barrier(&self) -> bool {
        ByteScheduler.crosses_barrier()
    }

    fn ranks_in_the_network(&self) -> bool {
        ByteScheduler.ranks_in_the_network()
    }

    fn partition(&self, parameters: &TensorParameters) -> Option<Bytes> {
        ByteScheduler.partition(parameters)
    }

    fn credit(&self, parameters: &TensorParameters) -> Option<Bytes> {
        ByteScheduler.credit(parameters)
    }

    fn reads(&self) -> &'static [&'static str] {
        ByteScheduler.reads()
    }

    fn outlook(&self) -> Outlook {
        Outlook::Computing
    }

    fn scheduler(
        &self,
        parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        let places = tensors.iter().map(|tensor| tensor.place);
        // Every time alike: which layer comes first is all that counts on a chain.
        let facts = StepFacts::chain(places, Time::from_us(1));
        Ok(self.planned(parameters, tensors, &facts)?.scheduler(exchange))
    }

    fn in_step(
        &self,
        parameters: &TensorParameters,
        _: Exchange,
        tensors: &[Tensor],
        facts: &StepFacts,
    ) -> Result<Option<Planned>, ScheduleError> {
        self.planned(parameters, tensors, facts).map(Some)
    }
}

/// What goes into an order: the computing that is left, and what each tensor is worth.
struct Properties {
    /// Of each computing, its time and the tensors that it still waits for.
    left: Vec<(u128, Vec<u32>)>,
    /// `M` of each tensor.
    exchange: Vec<u128>,
}

/// `P` and `M+` of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Worth {
    computing: u128,
    impending: u128,
}

impl Properties {
    fn new(facts: &StepFacts, timed: bool) -> Self {
        let of = |time: Time, otherwise| if timed { u128::from(time.as_ps()) } else { otherwise };
        let left = facts.computing.iter().map(|one| (of(one.time, 0), one.waits_for.clone()));
        let exchange = facts.tensors.iter().map(|one| of(one.alone, 1));
        Self { left: left.collect(), exchange: exchange.collect() }
    }

    fn worth(&self) -> Vec<Worth> {
        let none = Worth { computing: 0, impending: u128::MAX };
        let mut worth = vec![none; self.exchange.len()];
        for (time, waits) in &self.left {
            if let [only] = waits[..] {
                worth[only as usize].computing += time;
                continue;
            }
            let sum: u128 = waits.iter().map(|tensor| self.exchange[*tensor as usize]).sum();
            for tensor in waits {
                let impending = &mut worth[*tensor as usize].impending;
                *impending = sum.min(*impending);
            }
        }
        worth
    }
}

/// The tensors in the order of the forward pass: which of equal ones goes first.
fn by_place(facts: &StepFacts) -> Vec<u32> {
    let mut order: Vec<u32> = (0..).zip(&facts.tensors).map(|(index, _)| index).collect();
    order.sort_by_key(|index| (facts.tensors[*index as usize].place, *index));
    order
}

fn tic(facts: &StepFacts) -> Vec<u32> {
    let worth = Properties::new(facts, false).worth();
    let mut order = by_place(facts);
    order.sort_by_key(|tensor| worth[*tensor as usize].impending);
    order
}

fn tac(facts: &StepFacts) -> Vec<u32> {
    let mut properties = Properties::new(facts, true);
    let mut left = by_place(facts);
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let worth = properties.worth();
        let mut best = 0;
        for place in 1..left.len() {
            let (a, b) = (left[place] as usize, left[best] as usize);
            let (a, b) = ((worth[a], properties.exchange[a]), (worth[b], properties.exchange[b]));
            let key = |one: (Worth, u128), other: (Worth, u128)| {
                (other.0.computing.min(one.1), one.0.impending)
            };
            if key(a, b) < key(b, a) {
                best = place;
            }
        }
        let first = left.remove(best);
        order.push(first);
        for (_, waits) in &mut properties.left {
            waits.retain(|tensor| *tensor != first);
        }
        properties.left.retain(|(_, waits)| !waits.is_empty());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::super::{Computing, TensorFacts};
    use super::*;

    fn us(time: u64) -> Time {
        Time::from_us(time)
    }

    /// (place, µs alone) of tensors, (µs, waits for) of computing.
    fn facts(tensors: &[(u32, u64)], computing: &[(u64, &[u32])]) -> StepFacts {
        let tensors = tensors.iter().map(|(place, alone)| TensorFacts {
            place: *place,
            alone: us(*alone),
            ..TensorFacts::default()
        });
        let computing = computing
            .iter()
            .map(|(time, waits)| Computing { time: us(*time), waits_for: waits.to_vec() });
        StepFacts { tensors: tensors.collect(), computing: computing.collect() }
    }

    /// Two branches that meet: 0 and 1 lead to 3 µs of computing, 2 alone to 5 µs, all of them to the end.
    fn branches() -> StepFacts {
        facts(&[(0, 4), (0, 4), (0, 2)], &[(3, &[0, 1]), (5, &[2]), (1, &[0, 1, 2])])
    }

    #[test]
    fn properties_are_those_of_the_paper() {
        let worth = Properties::new(&branches(), true).worth();
        let of = |computing, impending| Worth {
            computing: u128::from(us(computing).as_ps()),
            impending: u128::from(us(impending).as_ps()),
        };
        // 0 and 1 are the two of the first branch: 4 + 4; 2 alone leads to 5, with the others to the end: 10.
        assert_eq!(worth, [of(0, 8), of(0, 8), of(5, 10)]);
    }

    #[test]
    fn by_hand() {
        // TIC counts exchanges: 0 and 1 lead to something after 2, 2 with others after 3 only.
        assert_eq!(tic(&branches()), [0, 1, 2]);
        // TAC: of 2 and 0, min(P0, M2) = 0 < min(P2, M0) = 4, so 2 first; of 0 and 1 nothing differs.
        assert_eq!(tac(&branches()), [2, 0, 1]);
    }

    #[test]
    fn what_ends_a_pair_sooner_goes_first() {
        // Each leads to computing of its own. 0: exchange 6, computing 1; 1: exchange 2, computing 5.
        // 0 first: 6 + max(1, 2) + 5 = 13 µs; 1 first: 2 + max(5, 6) + 1 = 9 µs.
        assert_eq!(tac(&facts(&[(0, 6), (0, 2)], &[(1, &[0]), (5, &[1])])), [1, 0]);
        // Exchanged, it is 0 that is quick and leads to much.
        assert_eq!(tac(&facts(&[(0, 2), (0, 6)], &[(5, &[0]), (1, &[1])])), [0, 1]);
    }

    #[test]
    fn several_tensors_of_a_layer_go_together() {
        // Layers of two tensors each, in a chain; nothing computes after one of them alone.
        let chain = facts(
            &[(1, 1), (1, 9), (0, 5), (0, 5)],
            &[(1, &[2, 3]), (1, &[0, 1, 2, 3]), (3, &[0, 1, 2, 3])],
        );
        assert_eq!(tac(&chain), [2, 3, 0, 1]);
        assert_eq!(tic(&chain), [2, 3, 0, 1]);
    }

    #[test]
    fn on_a_chain_it_is_the_forward_pass() {
        let chain = StepFacts::chain([3, 0, 2, 1, 0], us(7));
        assert_eq!(tic(&chain), [1, 4, 3, 2, 0]);
        assert_eq!(tac(&chain), [1, 4, 3, 2, 0]);
    }

    #[test]
    fn what_nothing_waits_for_goes_last() {
        let lonely = facts(&[(9, 1), (0, 1), (0, 1)], &[(1, &[1, 2])]);
        assert_eq!(tic(&lonely), [1, 2, 0]);
        assert_eq!(tac(&lonely), [1, 2, 0]);
    }
}
