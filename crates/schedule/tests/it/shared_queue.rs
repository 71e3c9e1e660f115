//! Communicators on one port: who goes next.

use std::collections::BTreeMap;

use allrail_collective::{Operation, StageRef};
use allrail_core::Bytes;
use allrail_schedule::queue::{Shared, queues};
use allrail_schedule::{DimensionQueue, Order, Waiting};
use proptest::prelude::*;

/// The first stage of a chunk; its buffer is its load.
fn stage(collective: u32, chunk: u32, load: u64) -> Waiting {
    Waiting {
        collective,
        at: StageRef { chunk, stage: 0 },
        priority: -i64::from(collective),
        operation: Operation::AllReduce,
        buffer: Bytes::new(load),
        brought: Bytes::new(load),
    }
}

fn load(stage: &Waiting) -> u64 {
    stage.buffer.count()
}

/// The collectives in the order in which all goes that waits.
fn served(queue: &mut Shared) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop(load)).map(|stage| stage.collective).collect()
}

#[test]
fn a_message_waits_for_the_chunk_in_service_and_no_other() {
    let mut queue = Shared::new(Order::FIFO);
    for chunk in 0..64 {
        queue.push(0, stage(0, chunk, 100));
    }
    for before in [1, 10] {
        for _ in 0..before {
            assert_eq!(queue.pop(load).map(|stage| stage.collective), Some(0));
        }
        // Larger than a chunk, and of a collective that was issued later.
        queue.push(7, stage(1, 0, 250));
        assert_eq!(queue.pop(load).map(|stage| stage.collective), Some(1));
    }
    assert_eq!(served(&mut queue).len(), 53);
}

#[test]
fn chunks_of_two_collectives_take_turns_and_of_one_communicator_they_do_not() {
    let of = |communicators: [u32; 2]| {
        let mut queue = Shared::new(Order::FIFO);
        for (collective, communicator) in (0u32..).zip(communicators) {
            (0..3).for_each(|chunk| queue.push(communicator, stage(collective, chunk, 5)));
        }
        served(&mut queue)
    };
    assert_eq!(of([3, 9]), [0, 1, 0, 1, 0, 1]);
    assert_eq!(of([9, 9]), [0, 0, 0, 1, 1, 1]);
}

#[test]
fn turns_are_of_equal_loads() {
    let mut queue = Shared::new(Order::FIFO);
    (0..2).for_each(|chunk| queue.push(0, stage(0, chunk, 30)));
    (0..7).for_each(|chunk| queue.push(1, stage(1, chunk, 10)));
    assert_eq!(served(&mut queue), [0, 1, 1, 1, 0, 1, 1, 1, 1]);
}

#[test]
fn a_communicator_whose_plan_has_it_wait_is_passed_by() {
    let mut queue = Shared::new(Order::PLANNED);
    let first = StageRef { chunk: 0, stage: 0 };
    queue.begin(0, 0, &[first, StageRef { chunk: 1, stage: 0 }]);
    queue.push(0, stage(0, 1, 1));
    queue.push(1, stage(1, 0, 1));
    assert_eq!(served(&mut queue), [1], "chunk 0 is next, and not here");
    queue.push(0, stage(0, 0, 1));
    assert_eq!(served(&mut queue), [0, 0]);
}

#[test]
fn what_is_withdrawn_has_no_turn() {
    let mut queue = Shared::new(Order::FIFO);
    (0..3).for_each(|chunk| queue.push(0, stage(0, chunk, 1)));
    queue.push(1, stage(1, 0, 1));
    assert_eq!(queue.withdraw(0, 0), 3);
    assert_eq!(served(&mut queue), [1]);
}

/// A stage to add (communicator, priority, load), or `None` to take one.
fn happenings() -> impl Strategy<Value = Vec<Option<(u32, u32, u64)>>> {
    prop::collection::vec(prop::option::weighted(0.6, (0..4u32, 0..5u32, 1..100u64)), 1..120)
}

proptest! {
    #[test]
    fn alone_a_communicator_has_the_queue_that_it_had(
        happenings in happenings(),
        order in prop::sample::select(Order::all().collect::<Vec<_>>()),
    ) {
        let mut plain = queues(order, 1, &[]).remove(0);
        let mut shared = Shared::new(order);
        for (chunk, happening) in (0u32..).zip(happenings) {
            match happening {
                Some((_, collective, load)) => {
                    plain.push(stage(collective, chunk, load));
                    shared.push(5, stage(collective, chunk, load));
                }
                None => prop_assert_eq!(plain.pop(), shared.pop(load)),
            }
        }
        while let Some(stage) = plain.pop() {
            prop_assert_eq!(Some(stage), shared.pop(load));
        }
        prop_assert_eq!(shared.pop(load), None);
    }

    #[test]
    fn all_that_comes_goes_once_and_who_waits_has_its_part(happenings in happenings()) {
        let mut queue = Shared::new(Order::FIFO);
        let mut left: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        // Of any two, what each has been given since both wait.
        let mut since: BTreeMap<(u32, u32), [u64; 2]> = BTreeMap::new();
        let takes = std::iter::repeat_n(None, happenings.len());
        for (chunk, happening) in (0u32..).zip(happenings.into_iter().chain(takes)) {
            if let Some((communicator, collective, load)) = happening {
                left.entry(communicator).or_default().push(chunk);
                queue.push(communicator, stage(collective, chunk, load));
                continue;
            }
            let waits: Vec<u32> =
                left.iter().filter(|(_, chunks)| !chunks.is_empty()).map(|(c, _)| *c).collect();
            let Some(gone) = queue.pop(load) else {
                prop_assert!(waits.is_empty());
                continue;
            };
            let of = waits.iter().copied().find(|c| left[c].contains(&gone.at.chunk));
            let of = of.expect("what goes has come, and has not gone");
            left.entry(of).or_default().retain(|chunk| *chunk != gone.at.chunk);
            since.retain(|(a, b), _| waits.contains(a) && waits.contains(b));
            for (place, a) in waits.iter().enumerate() {
                for b in &waits[place + 1..] {
                    let given = since.entry((*a, *b)).or_default();
                    if of == *a || of == *b {
                        given[usize::from(of == *b)] += load(&gone);
                    }
                    // A stage of each, none of which is above 99.
                    prop_assert!(given[0].abs_diff(given[1]) <= 2 * 99, "{given:?}");
                }
            }
        }
        prop_assert!(left.values().all(Vec::is_empty));
    }
}
