//! The rule that makes each tensor scheduler what it is.

use std::collections::BTreeMap;

use crate::tensor_common::*;
use allrail_core::{Bytes, Time};
use allrail_schedule::tensor::{
    Action, Event, Exchange, Leg, OperationId, Piece, Tensor, TensorParameters,
};
use proptest::prelude::*;

fn of(policy: &str) -> TensorParameters {
    TensorParameters { policy: policy.to_owned(), ..TensorParameters::default() }
}

fn tensor(bytes: u64, place: u32) -> Tensor {
    Tensor { bytes: Bytes::new(bytes), place, group: None }
}

/// The tensors of every operation of a first leg, in order.
fn operations(records: &[Record]) -> Vec<Vec<u32>> {
    let tensors = |pieces: &[Piece]| pieces.iter().map(|piece| piece.tensor).collect();
    records
        .iter()
        .filter_map(|record| match record {
            Record::Started { leg: Leg::Whole | Leg::Push, pieces, .. } => Some(tensors(pieces)),
            _ => None,
        })
        .collect()
}

/// In one leg: no more than the credit flies, or one partition alone; what starts is the most
/// urgent that waits; and nothing is held back that fits.
fn urgent_first(records: &[Record], tensors: &[Tensor], leg: Leg, (partition, credit): (u64, u64)) {
    let key = |piece: Piece| (tensors[piece.tensor as usize].place, piece);
    let mut waiting: Vec<(u32, Piece)> = Vec::new();
    let mut flying: BTreeMap<OperationId, u64> = BTreeMap::new();
    let mut pushes: BTreeMap<OperationId, Piece> = BTreeMap::new();
    for (position, record) in records.iter().enumerate() {
        match record {
            Record::Ready(tensor) if leg != Leg::Pull => {
                let total = tensors[*tensor as usize].bytes.count();
                for index in 0..total.div_ceil(partition) {
                    let offset = index * partition;
                    let bytes = Bytes::new(partition.min(total - offset));
                    waiting.push(key(Piece { tensor: *tensor, offset: Bytes::new(offset), bytes }));
                }
            }
            Record::Started { operation, leg: of, pieces, priority } => {
                let [piece] = pieces[..] else { panic!("one piece an operation") };
                assert_eq!(*priority, -i64::from(tensors[piece.tensor as usize].place));
                if *of == Leg::Push {
                    pushes.insert(*operation, piece);
                }
                if *of == leg {
                    let best = *waiting.iter().min().expect("what starts has waited");
                    assert_eq!(key(piece), best, "a more urgent one waits");
                    waiting.retain(|other| *other != best);
                    flying.insert(*operation, piece.bytes.count());
                    let sum: u64 = flying.values().sum();
                    assert!(sum <= credit || flying.len() == 1, "{sum} bytes fly");
                }
            }
            Record::Finished(operation) => {
                flying.remove(operation);
                if leg == Leg::Pull
                    && let Some(piece) = pushes.get(operation)
                {
                    waiting.push(key(*piece));
                }
            }
            Record::Ready(_) | Record::Together(_) | Record::Timer(_) | Record::Done(_) => {}
        }
        let settled =
            !matches!(records.get(position + 1), Some(Record::Started { .. } | Record::Done(_)));
        if settled && let Some((_, piece)) = waiting.iter().min() {
            let sum: u64 = flying.values().sum();
            assert!(
                !flying.is_empty() && sum + piece.bytes.count() > credit,
                "{piece:?} could have started"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn partitions_go_by_urgency_within_the_credit(
        tensors in tensors(),
        exchange in exchange(),
        choices in prop::collection::vec(0usize..1000, 5..60),
        partition in 1u64..30,
        credit in 1u64..60,
    ) {
        let legs: &[Leg] = match exchange {
            Exchange::AllReduce => &[Leg::Whole],
            Exchange::ParameterServer => &[Leg::Push, Leg::Pull],
        };
        for (policy, credit) in [("bytescheduler", credit), ("priority", 1)] {
            let parameters = parameters(policy, exchange, (partition, credit, 0));
            let records = records(&parameters, &tensors, &choices);
            for leg in legs {
                urgent_first(&records, &tensors, *leg, (partition, credit));
            }
        }
    }

    #[test]
    fn fifo_starts_what_is_ready_at_once_and_in_order(
        tensors in tensors(),
        exchange in exchange(),
        choices in prop::collection::vec(0usize..1000, 5..60),
    ) {
        let records = records(&of_exchange("fifo", exchange), &tensors, &choices);
        let ready: Vec<Vec<u32>> = records
            .iter()
            .filter_map(|record| match record {
                Record::Ready(tensor) if tensors[*tensor as usize].bytes.count() > 0 => {
                    Some(vec![*tensor])
                }
                _ => None,
            })
            .collect();
        prop_assert_eq!(operations(&records), ready);
    }

    #[test]
    fn buckets_are_launched_in_order_round_and_round(
        tensors in prop::collection::vec((1u64..40, 0u32..6), 1..9),
        choices in prop::collection::vec(0usize..1000, 5..60),
        first in 1u64..30,
        bound in 1u64..60,
    ) {
        let tensors: Vec<Tensor> = tensors.into_iter().map(|(b, place)| tensor(b, place)).collect();
        let parameters = parameters("ddp", Exchange::AllReduce, (first, bound, 0));
        let records = records(&parameters, &tensors, &choices);
        let operations = operations(&records);
        let per_iteration = operations.len() / ITERATIONS as usize;
        for (index, operation) in operations.iter().enumerate() {
            prop_assert_eq!(operation, &operations[index % per_iteration]);
        }
        let order: Vec<u32> = operations[..per_iteration].concat();
        let places: Vec<u32> = order.iter().map(|t| tensors[*t as usize].place).collect();
        prop_assert!(places.is_sorted_by(|a, b| a >= b), "{:?}", places);
        for (index, operation) in operations[..per_iteration].iter().enumerate() {
            let bound = if index == 0 { first } else { bound };
            let bytes = |part: &[u32]| -> u64 {
                part.iter().map(|t| tensors[*t as usize].bytes.count()).sum()
            };
            prop_assert!(bytes(&operation[..operation.len() - 1]) < bound, "closed too late");
            if index + 1 < per_iteration {
                prop_assert!(bytes(operation) >= bound, "closed too early");
            }
        }
    }

    #[test]
    fn fusion_packs_at_cycles_what_fits_and_keeps_groups_together(
        tensors in tensors(),
        choices in prop::collection::vec(0usize..1000, 5..60),
        cycle in 0u64..30,
        threshold in 0u64..60,
        groups in 0u32..4,
    ) {
        let parameters = parameters("fusion", Exchange::AllReduce, (cycle, threshold, groups));
        let records = records(&parameters, &tensors, &choices);
        let mut between = Vec::new();
        for record in &records {
            match record {
                Record::Timer(at) => {
                    if let Some(late) = at.as_ps().checked_rem(cycle * 100_000) {
                        prop_assert_eq!(late, 0);
                    }
                    between.clear();
                }
                Record::Started { pieces, .. } => {
                    let bytes: u64 = pieces.iter().map(|piece| piece.bytes.count()).sum();
                    if bytes > threshold && groups == 0 {
                        let group = |piece: &Piece| tensors[piece.tensor as usize].group;
                        let alone = pieces.len() == 1
                            || pieces.iter().all(|p| group(p).is_some() && group(p) == group(&pieces[0]));
                        prop_assert!(alone, "{:?} exceeds {}", pieces, threshold);
                    }
                    if let Some(previous) = between.last() {
                        prop_assert!(previous + bytes > threshold, "two that fit into one");
                    }
                    between.push(bytes);
                    for piece in pieces {
                        let Some(group) = tensors[piece.tensor as usize].group else { continue };
                        for (index, other) in (0..).zip(&tensors) {
                            if other.group == Some(group) && other.bytes.count() > 0 {
                                prop_assert!(pieces.iter().any(|p| p.tensor == index));
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn of_exchange(policy: &str, exchange: Exchange) -> TensorParameters {
    TensorParameters { exchange, ..of(policy) }
}

/// Feeds events at given times; returns the starts with their times.
fn starts(
    parameters: &TensorParameters,
    tensors: &[Tensor],
    events: &[(u64, Event<'_>)],
) -> Vec<(u64, Vec<u32>)> {
    let mut scheduler = parameters.scheduler(tensors).expect("valid");
    let mut starts = Vec::new();
    let mut timers: Vec<u64> = Vec::new();
    let mut feed = |now: u64, event: Event<'_>, timers: &mut Vec<u64>| {
        let mut actions = Vec::new();
        scheduler.on(Time::from_us(now), event, &mut actions);
        for action in actions {
            match action {
                Action::Start { pieces, .. } => {
                    starts.push((now, pieces.iter().map(|piece| piece.tensor).collect()));
                }
                Action::SetTimer { at, .. } => timers.push(at.as_ps() / 1_000_000),
                Action::Done { .. } => {}
            }
        }
    };
    for (now, event) in events {
        while let Some(at) = timers.first().copied().filter(|at| at < now) {
            timers.remove(0);
            feed(at, Event::Timer { id: 0 }, &mut timers);
        }
        feed(*now, *event, &mut timers);
    }
    while let Some(at) = timers.first().copied() {
        timers.remove(0);
        feed(at, Event::Timer { id: 0 }, &mut timers);
    }
    starts
}

#[test]
fn horovod_packs_what_a_millisecond_brings_up_to_64_mib() {
    let mib = 1 << 20;
    let tensors = [tensor(40 * mib, 3), tensor(20 * mib, 2), tensor(8 * mib, 1), tensor(mib, 0)];
    let ready = |tensor: u32, at: u64| (at, Event::Ready { tensor });
    let events = [ready(0, 100), ready(1, 900), ready(2, 1000), ready(3, 1001)];
    let expected = [(1000, vec![0, 1]), (1000, vec![2]), (2000, vec![3])];
    assert_eq!(starts(&of("fusion"), &tensors, &events), expected);
    let at_once = TensorParameters { cycle: Some(Time::ZERO), ..of("fusion") };
    let expected = [(100, vec![0]), (900, vec![1]), (1000, vec![2]), (1001, vec![3])];
    assert_eq!(starts(&at_once, &tensors, &events), expected);
}

/// What a coordinator packs is one operation at once, in its order, and nobody packs it again or waits for
/// it; what comes alone is packed as before, without those.
#[test]
fn what_a_coordinator_has_packed_is_not_packed_again() {
    let tensors = [tensor(8, 3), tensor(8, 2), tensor(8, 1), tensor(8, 0)];
    let together = |at: u64, tensors| (at, Event::Together { tensors });
    let ready = |at: u64, tensor: u32| (at, Event::Ready { tensor });
    let events = [together(100, &[2, 0]), ready(200, 3), ready(300, 1)];
    let alone = |policy: &str| {
        let starts = starts(&of(policy), &tensors, &events);
        assert_eq!(starts[0], (100, vec![2, 0]), "{policy}");
        starts[1..].to_vec()
    };
    assert_eq!(alone("fifo"), [(200, vec![3]), (300, vec![1])]);
    // One bucket, and its others have gone.
    assert_eq!(alone("ddp"), [(300, vec![1, 3])]);
    assert_eq!(alone("fusion"), [(1000, vec![3, 1])]);
    // Those that cut tensors rank all partitions of the group, and go on by tensor.
    assert_eq!(
        starts(&of("bytescheduler"), &tensors, &events),
        [(100, vec![2]), (100, vec![0]), (200, vec![3]), (300, vec![1])]
    );
    assert_eq!(starts(&of("priority"), &tensors, &events), [(100, vec![2])]);
}

#[test]
fn two_groups_of_four_layers_are_halves_of_the_forward_pass() {
    let tensors = [tensor(8, 3), tensor(8, 2), tensor(8, 1), tensor(8, 0)];
    let parameters =
        TensorParameters { groups: Some(2), threshold: Some(Bytes::new(16)), ..of("fusion") };
    let events: Vec<(u64, Event)> = [0, 2, 1, 3]
        .iter()
        .zip(1u64..)
        .map(|(t, k)| (k * 1500, Event::Ready { tensor: *t }))
        .collect();
    let expected = [(5000, vec![0, 1]), (6000, vec![2, 3])];
    assert_eq!(starts(&parameters, &tensors, &events), expected);
}

#[test]
fn ddp_by_default_has_a_first_bucket_of_one_and_others_of_25_mib() {
    let mib = 1 << 20;
    let tensors: Vec<Tensor> = (0..12).map(|place| tensor(5 * mib, place)).collect();
    let events: Vec<(u64, Event)> =
        (0..12).rev().map(|t| (u64::from(100 - t), Event::Ready { tensor: t })).collect();
    let buckets: Vec<Vec<u32>> =
        starts(&of("ddp"), &tensors, &events).into_iter().map(|(_, tensors)| tensors).collect();
    let expected: [&[u32]; 3] = [&[11], &[10, 9, 8, 7, 6], &[5, 4, 3, 2, 1]];
    assert_eq!(buckets[..3], expected);
    assert_eq!(buckets[3..], [[0]]);
}

#[test]
fn an_urgent_tensor_overtakes_once_credit_is_free() {
    let parameters = TensorParameters {
        partition: Some(Bytes::new(4)),
        credit: Some(Bytes::new(8)),
        ..of("bytescheduler")
    };
    let finished = |at, operation| (at, Event::Finished { operation: OperationId(operation) });
    let events = [
        (1, Event::Ready { tensor: 1 }),
        (2, Event::Ready { tensor: 0 }),
        finished(3, 0),
        finished(4, 1),
        finished(5, 2),
    ];
    let starts = starts(&parameters, &[tensor(5, 0), tensor(100, 1)], &events);
    let expected = [(1, vec![1]), (1, vec![1]), (3, vec![0]), (4, vec![0]), (5, vec![1])];
    // The rest of tensor 0 is one byte, so 4 + 1 bytes fly at 4, and no further 4 of tensor 1.
    assert_eq!(starts[..5], expected);
}
