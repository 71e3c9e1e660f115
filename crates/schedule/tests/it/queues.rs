//! Which waiting stage a dimension serves next.

use allrail_collective::{Operation, StageRef};
use allrail_core::Bytes;
use allrail_schedule::queue::{
    AstraSim, Fifo, GatherLate, Lifo, Planned, SmallestFirst, named, queues,
};
use allrail_schedule::{DimensionQueue, Order, Waiting};
use proptest::prelude::*;

fn at(chunk: u32, stage: u32) -> StageRef {
    StageRef { chunk, stage }
}

/// The first stage of a chunk of collective 0 with so many bytes.
fn waiting(chunk: u32, buffer: u64) -> Waiting {
    Waiting {
        collective: 0,
        at: at(chunk, 0),
        priority: 0,
        operation: Operation::AllReduce,
        buffer: Bytes::new(buffer),
        brought: Bytes::new(buffer),
    }
}

/// (Collective, chunk) in the order in which they are served.
fn served(queue: &mut dyn DimensionQueue) -> Vec<(u32, u32)> {
    std::iter::from_fn(|| queue.pop()).map(|stage| (stage.collective, stage.at.chunk)).collect()
}

fn chunks(queue: &mut dyn DimensionQueue) -> Vec<u32> {
    served(queue).into_iter().map(|(_, chunk)| chunk).collect()
}

fn filled<Q: DimensionQueue>(mut queue: Q, stages: &[Waiting]) -> Q {
    for stage in stages {
        queue.push(*stage);
    }
    queue
}

const FOUR: [(u32, u64); 4] = [(3, 40), (0, 10), (2, 10), (1, 30)];

fn four() -> Vec<Waiting> {
    FOUR.map(|(chunk, buffer)| waiting(chunk, buffer)).to_vec()
}

#[test]
fn fifo_serves_the_stage_that_has_waited_longest() {
    assert_eq!(chunks(&mut filled(Fifo::default(), &four())), [3, 0, 2, 1]);
}

#[test]
fn lifo_serves_the_stage_that_came_last() {
    let mut queue = filled(Lifo::default(), &four());
    assert_eq!(queue.pop().map(|stage| stage.at.chunk), Some(1));
    queue.push(waiting(9, 1));
    assert_eq!(chunks(&mut queue), [9, 2, 0, 3]);
}

#[test]
fn smallest_first_serves_the_smallest_buffer_whatever_came_first() {
    let mut queue = filled(SmallestFirst::default(), &four());
    assert_eq!(queue.pop().map(|stage| stage.at.chunk), Some(0));
    queue.push(waiting(7, 1));
    assert_eq!(chunks(&mut queue), [7, 2, 1, 3]);
}

#[test]
fn of_equal_buffers_the_chunk_issued_first_goes_first() {
    let stages = [5, 1, 4, 0, 3].map(|chunk| waiting(chunk, 64));
    assert_eq!(chunks(&mut filled(SmallestFirst::default(), &stages)), [0, 1, 3, 4, 5]);
}

#[test]
fn planned_waits_for_its_turn_even_if_the_dimension_idles() {
    let mut queue = Planned::new(vec![vec![at(1, 0), at(0, 0), at(2, 0)]]);
    queue.push(waiting(0, 1));
    queue.push(waiting(2, 1));
    assert_eq!(queue.pop(), None, "chunk 1 is next and not here");
    assert_eq!(queue.waiting().len(), 2);
    queue.push(waiting(1, 1));
    assert_eq!(chunks(&mut queue), [1, 0, 2]);
    assert!(queue.waiting().is_empty());
}

/// A chunk may visit a dimension twice: it is the stage that has a turn.
#[test]
fn planned_tells_the_stages_of_a_chunk_apart() {
    let mut queue = Planned::new(vec![vec![at(0, 0), at(0, 3)]]);
    queue.push(Waiting { at: at(0, 3), ..waiting(0, 1) });
    assert_eq!(queue.pop(), None);
    queue.push(waiting(0, 1));
    assert_eq!(queue.pop().map(|stage| stage.at), Some(at(0, 0)));
    assert_eq!(queue.pop().map(|stage| stage.at), Some(at(0, 3)));
}

/// Collective 1 has the higher priority and comes last, with the larger buffer.
#[test]
fn the_higher_priority_goes_first_whatever_the_order() {
    let low = [waiting(0, 1), waiting(1, 1)];
    let high = low.map(|stage| Waiting {
        collective: 1,
        priority: 3,
        buffer: Bytes::new(1_000_000),
        ..stage
    });
    let stages = [low, high].concat();
    let planned = vec![vec![vec![at(0, 0), at(1, 0)]]; 2];
    for order in Order::all() {
        let mut queue = filled(queues(order, 1, &planned).remove(0), &stages);
        let collectives: Vec<u32> = served(&mut queue).iter().map(|(c, _)| *c).collect();
        // What is strict goes by the order of issue, so that priorities change nothing on one rank alone.
        let expected = if order.is_strict() { [0, 0, 1, 1] } else { [1, 1, 0, 0] };
        assert_eq!(collectives, expected, "{order:?}");
    }
}

#[test]
fn all_gathers_yield_to_every_reduce_scatter_and_go_by_priority() {
    let one = |collective, operation, priority| Waiting {
        collective,
        operation,
        priority,
        ..waiting(0, 1)
    };
    let (scatter, gather) = (Operation::ReduceScatter, Operation::AllGather);
    let stages =
        [one(0, gather, 1), one(1, gather, 7), one(2, scatter, -3), one(3, scatter, i64::MAX)];
    let mut queue = filled(GatherLate::default(), &stages);
    let mut next = || queue.pop().map(|stage| stage.collective);
    assert_eq!([next(), next(), next()], [Some(2), Some(3), Some(1)]);
    queue.push(one(4, scatter, 0));
    assert_eq!(served(&mut queue), [(4, 0), (0, 0)]);
    // Where stages share a link, their messages go alike.
    let order = named("gather_late").expect("known");
    assert!(order.urgency(scatter, 0) > order.urgency(gather, i64::MAX));
    assert!(Order::FIFO.urgency(scatter, 0) < Order::FIFO.urgency(gather, 1));
}

#[test]
fn planned_lets_a_lower_priority_pass_while_the_higher_one_is_not_here() {
    let mut queue = Planned::new(vec![vec![at(0, 0)], vec![at(0, 0), at(1, 0)]]);
    queue.push(waiting(0, 1));
    queue.push(Waiting { collective: 1, priority: 5, ..waiting(1, 1) });
    assert_eq!(queue.pop().map(|stage| stage.collective), Some(0));
    assert_eq!(queue.pop(), None, "chunk 0 of collective 1 is next");
}

#[test]
fn of_equal_priorities_planned_serves_the_collective_issued_first() {
    let mut queue = Planned::new(vec![vec![at(0, 0)]; 2]);
    queue.push(Waiting { collective: 1, ..waiting(0, 1) });
    queue.push(waiting(0, 1));
    assert_eq!(served(&mut queue), [(0, 0), (1, 0)]);
}

#[test]
fn what_waits_is_listed_in_the_order_of_service() {
    for (order, expected) in [
        (Order::FIFO, [3, 0, 2, 1]),
        (Order::LIFO, [1, 2, 0, 3]),
        (Order::SMALLEST_FIRST, [0, 2, 1, 3]),
    ] {
        let queue = filled(queues(order, 1, &[]).remove(0), &four());
        let listed: Vec<u32> = queue.waiting().iter().map(|stage| stage.at.chunk).collect();
        assert_eq!(listed, expected, "{order:?}");
    }
}

#[test]
fn every_dimension_has_a_queue_of_its_own() {
    let planned = vec![vec![vec![at(0, 0)], vec![at(1, 0)]]];
    let mut queues = queues(Order::PLANNED, 2, &planned);
    for queue in &mut queues {
        queue.push(waiting(0, 1));
    }
    assert!(queues[0].pop().is_some());
    assert_eq!(queues[1].pop(), None);
}

/// A stage of a size on its way through a reduce-scatter (or an all-reduce, which keeps to priorities).
fn bringing(chunk: u32, bytes: u64, priority: i64, operation: Operation) -> Waiting {
    let size = Bytes::new(bytes);
    Waiting { priority, operation, brought: size, ..waiting(chunk, bytes) }
}

/// `Sys::insert_stream` of ASTRA-sim, step by step: where a stage goes in a list.
fn inserted(list: &mut Vec<Waiting>, stage: Waiting) {
    let mut at = 0;
    if matches!(stage.operation, Operation::AllToAll | Operation::AllReduce) {
        while at < list.len() && list[at].priority >= stage.priority {
            at += 1;
        }
    } else {
        while at < list.len() && list[at].brought < stage.brought {
            at += 1;
        }
    }
    list.insert(at, stage);
}

proptest! {
    #[test]
    fn astra_sim_inserts_as_its_code_does(
        stages in prop::collection::vec((0u64..4, -2i64..3, 0usize..4), 1..40),
    ) {
        let kinds = [
            Operation::ReduceScatter,
            Operation::AllGather,
            Operation::AllToAll,
            Operation::AllReduce,
        ];
        let (mut queue, mut list) = (AstraSim::default(), Vec::new());
        for (chunk, (bytes, priority, kind)) in (0u32..).zip(stages) {
            let stage = bringing(chunk, bytes, priority, kinds[kind]);
            queue.push(stage);
            inserted(&mut list, stage);
        }
        prop_assert_eq!(queue.waiting(), list.clone());
        prop_assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), list);
    }
}

proptest! {
    /// The oracle looks at all that waits. `None` takes a stage out.
    #[test]
    fn smallest_first_serves_the_least_of_all_that_waits(
        steps in prop::collection::vec(prop::option::weighted(0.6, (0u64..4, -2i64..3)), 1..60),
    ) {
        let (mut queue, mut list) = (SmallestFirst::default(), Vec::<Waiting>::new());
        for (chunk, step) in (0u32..).zip(steps) {
            if let Some((bytes, priority)) = step {
                let stage = bringing(chunk, bytes, priority, Operation::AllReduce);
                queue.push(stage);
                list.push(stage);
                list.sort_by_key(|stage| (-stage.priority, stage.buffer, stage.at.chunk));
            } else {
                let expected = (!list.is_empty()).then(|| list.remove(0));
                prop_assert_eq!(queue.pop(), expected);
            }
            prop_assert_eq!(queue.waiting(), list.clone());
        }
    }
}

/// Sizes go before priorities, the last of equals first; what keeps to priorities does not pass its own.
#[test]
fn astra_sim_serves_sizes_before_priorities_and_the_last_of_equals() {
    let scatter = Operation::ReduceScatter;
    let stages = [
        bringing(0, 10, 5, scatter),
        bringing(1, 10, 0, scatter),
        bringing(2, 5, 0, scatter),
        bringing(3, 1, 5, Operation::AllToAll),
        bringing(4, 1, 0, Operation::AllToAll),
    ];
    assert_eq!(chunks(&mut filled(AstraSim::default(), &stages)), [3, 2, 1, 0, 4]);
    assert!(AstraSim::default().is_eager());
    assert!(!SmallestFirst::default().is_eager());
}
