//! Laws of every tensor scheduler, on random tensors that become ready and finish in random order,
//! over several iterations: bytes go once, a tensor is done once and last, nothing starves, the
//! same events give the same actions.

use std::collections::BTreeMap;

use crate::tensor_common::*;
use allrail_schedule::tensor::{ALL, Exchange, Leg, OperationId, Piece, Tensor};
use proptest::prelude::*;

type Parts = Vec<(Leg, Piece)>;

/// Each tensor's bytes go once a leg between its ready and its done, and each push before its
/// pull.
fn bytes_go_once(records: &[Record], tensors: &[Tensor], exchange: Exchange) {
    let legs: &[Leg] = match exchange {
        Exchange::AllReduce => &[Leg::Whole],
        Exchange::ParameterServer => &[Leg::Push, Leg::Pull],
    };
    let mut started: BTreeMap<OperationId, (Leg, Vec<Piece>)> = BTreeMap::new();
    let mut seen = Vec::new();
    // Of each tensor: pieces started and finished since it was ready.
    let mut open: BTreeMap<u32, (Parts, Parts)> = BTreeMap::new();
    let mut done = vec![0u32; tensors.len()];
    for record in records {
        match record {
            Record::Ready(tensor) => {
                assert!(open.insert(*tensor, Default::default()).is_none());
            }
            Record::Together(tensors) => {
                for tensor in tensors {
                    assert!(open.insert(*tensor, Default::default()).is_none());
                }
            }
            Record::Started { operation, leg, pieces, .. } => {
                assert!(!seen.contains(operation) && !pieces.is_empty());
                seen.push(*operation);
                for piece in pieces {
                    assert!(piece.bytes.count() > 0);
                    let (starts, ends) = open.get_mut(&piece.tensor).expect("ready");
                    assert!(*leg != Leg::Pull || ends.contains(&(Leg::Push, *piece)));
                    starts.push((*leg, *piece));
                }
                started.insert(*operation, (*leg, pieces.clone()));
            }
            Record::Finished(operation) => {
                let (leg, pieces) = &started[operation];
                for piece in pieces {
                    open.get_mut(&piece.tensor).expect("ready").1.push((*leg, *piece));
                }
            }
            Record::Done(tensor) => {
                let (mut starts, mut ends) = open.remove(tensor).expect("ready");
                starts.sort_unstable();
                ends.sort_unstable();
                assert_eq!(starts, ends, "done while pieces are in flight");
                for leg in legs {
                    let mut at = 0;
                    for (_, piece) in starts.iter().filter(|(other, _)| other == leg) {
                        assert_eq!(piece.offset.count(), at);
                        at += piece.bytes.count();
                    }
                    assert_eq!(at, tensors[*tensor as usize].bytes.count());
                }
                assert!(starts.iter().all(|(leg, _)| legs.contains(leg)));
                done[*tensor as usize] += 1;
            }
            Record::Timer(_) => {}
        }
    }
    assert!(open.is_empty());
    assert_eq!(done, vec![ITERATIONS; tensors.len()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_policy_moves_every_byte_once_and_ends(
        tensors in tensors(),
        exchange in exchange(),
        choices in prop::collection::vec(0usize..1000, 5..60),
        small in (1u64..30, 1u64..60, 0u32..4),
    ) {
        for policy in ALL {
            let parameters = parameters(policy.tag(), exchange, small);
            for records in [records, packed_records] {
                let all = records(&parameters, &tensors, &choices);
                bytes_go_once(&all, &tensors, exchange);
                prop_assert_eq!(all, records(&parameters, &tensors, &choices));
            }
        }
    }

    /// What a coordinator packs is one operation in its order, or is cut tensor by tensor.
    #[test]
    fn what_is_packed_goes_as_it_is_or_by_tensor(
        tensors in tensors(),
        exchange in exchange(),
        choices in prop::collection::vec(0usize..1000, 5..60),
        small in (1u64..30, 1u64..60, 0u32..4),
    ) {
        for policy in ALL {
            let parameters = parameters(policy.tag(), exchange, small);
            let cuts = policy.reads().contains(&"partition");
            let records = packed_records(&parameters, &tensors, &choices);
            let started = |record: &Record| match record {
                Record::Started { pieces, .. } => {
                    Some(pieces.iter().map(|piece| piece.tensor).collect::<Vec<u32>>())
                }
                _ => None,
            };
            for (place, record) in records.iter().enumerate() {
                let Record::Together(together) = record else { continue };
                let full = together.iter().filter(|t| tensors[**t as usize].bytes.count() > 0);
                let full: Vec<u32> = full.copied().collect();
                // A policy may hold it back, but neither take it apart nor add to it.
                let mut later = records[place..].iter().filter_map(started);
                let whole = full.is_empty() || later.any(|tensors| tensors == full);
                prop_assert!(cuts || whole, "{}: {:?}", policy.tag(), together);
            }
            let mut all = records.iter().filter_map(started);
            prop_assert!(!cuts || all.all(|tensors| tensors.len() == 1), "{}", policy.tag());
        }
    }
}
