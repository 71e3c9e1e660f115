//! The executor: which ports are awaited.

use std::sync::Arc;

use allrail_collective::{Operation, StageRef};
use allrail_core::Bytes;
use allrail_engine::{Broken, Executor, StageTask, Stages};
use allrail_schedule::Order;
use allrail_schedule::room::Share;

/// Chunks of one stage each on a port.
fn on_port(port: u32, chunks: u32) -> Arc<Stages> {
    let (operation, buffer, share) = (Operation::AllReduce, Bytes::new(64), Share::default());
    let mut stages = Stages::new(Vec::new());
    for _ in 0..chunks {
        stages.push([StageTask {
            stage: 0,
            port,
            operation,
            buffer,
            brought: buffer,
            load: 64,
            share,
        }]);
    }
    Arc::new(stages)
}

#[test]
fn a_taken_port_is_awaited_once_until_it_is_free() -> Result<(), Broken> {
    let mut executor = Executor::new(Order::FIFO, 2, None);
    executor.issue(on_port(1, 3), 0, 0)?;
    assert_eq!(executor.awaited(), None, "the port is free");
    assert!(executor.choose().is_some());
    assert_eq!(executor.choose(), None);
    assert_eq!(executor.awaited(), Some(1), "two chunks wait for it");
    executor.issue(on_port(1, 1), 0, 0)?;
    assert_eq!(executor.awaited(), None, "that was said");
    executor.port_free(1)?;
    assert!(executor.choose().is_some());
    assert_eq!(executor.choose(), None);
    assert_eq!(executor.awaited(), Some(1), "it is taken anew");
    Ok(())
}

#[test]
fn a_port_is_not_awaited_for_nothing() -> Result<(), Broken> {
    let mut executor = Executor::new(Order::FIFO, 1, Some(1.into()));
    let (id, _) = executor.issue(on_port(0, 2), 0, 0)?;
    let run = executor.choose().expect("a free port and a stage for it");
    assert_eq!(executor.choose(), None);
    assert_eq!(executor.awaited(), None, "it runs one stage at most, and one is under way");
    executor.stage_over(id, run.at)?;
    assert_eq!(executor.awaited(), Some(0), "now only that it is taken keeps the other");
    executor.port_free(0)?;
    let run = executor.choose().expect("a free port and a stage for it");
    assert_eq!((run.at, executor.choose()), (StageRef { chunk: 1, stage: 0 }, None));
    assert_eq!(executor.awaited(), None, "nothing waits");
    Ok(())
}

/// A driver that does not ask keeps no list that grows.
#[test]
fn a_port_that_became_free_is_awaited_no_more() -> Result<(), Broken> {
    let mut executor = Executor::new(Order::FIFO, 1, None);
    executor.issue(on_port(0, 2), 0, 0)?;
    assert!(executor.choose().is_some());
    assert_eq!(executor.choose(), None);
    executor.port_free(0)?;
    assert_eq!(executor.awaited(), None);
    Ok(())
}

/// The backward pass brings the second collective while the first one's gather waits.
#[test]
fn under_gather_late_what_is_gathered_waits_for_what_is_scattered() -> Result<(), Broken> {
    let order = allrail_schedule::queue::named("gather_late").expect("known");
    let halves = || {
        let (buffer, share) = (Bytes::new(64), Share::default());
        let half = |stage, operation| StageTask {
            stage,
            port: 0,
            operation,
            buffer,
            brought: buffer,
            load: 64,
            share,
        };
        let mut stages = Stages::new(Vec::new());
        stages.push([half(0, Operation::ReduceScatter), half(1, Operation::AllGather)]);
        Arc::new(stages)
    };
    let launched = |order| -> Result<Vec<(i64, u32)>, Broken> {
        let mut executor = Executor::new(order, 1, None);
        let mut launched = Vec::new();
        let (first, _) = executor.issue(halves(), 0, 1)?;
        while let Some(run) = executor.choose() {
            launched.push((i64::from(run.collective == first), run.at.stage));
            if launched.len() == 1 {
                executor.issue(halves(), 0, 0)?;
            }
            executor.stage_over(run.collective, run.at)?;
            executor.port_free(0)?;
        }
        Ok(launched)
    };
    assert_eq!(launched(order)?, [(1, 0), (0, 0), (1, 1), (0, 1)]);
    assert_eq!(launched(Order::FIFO)?, [(1, 0), (1, 1), (0, 0), (0, 1)]);
    Ok(())
}
