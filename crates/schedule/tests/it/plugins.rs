//! Chunk schedulers from outside the crate: they are found by name, and their version counts.

use std::sync::Arc;

use crate::common::*;
use allrail_collective::{Operation, Stage};
use allrail_core::FieldError;
use allrail_schedule::chunk::{self, Plugins, Problem};
use allrail_schedule::{ChunkScheduler, Request, ScheduleError, plan};

/// The baseline by another name.
struct Twin {
    tag: String,
    version: u32,
}

impl ChunkScheduler for Twin {
    fn tag(&self) -> &str {
        &self.tag
    }

    fn about(&self) -> &str {
        "what the baseline does"
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn schedule(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Stage>>, ScheduleError> {
        chunk::ALL[0].schedule(problem)
    }
}

fn asked(policy: &str, tag: &str, version: u32) -> Request {
    let twin: Arc<dyn ChunkScheduler> = Arc::new(Twin { tag: tag.to_owned(), version });
    let fabric = switches(&[(4, "12 GB/s"), (2, "4 GB/s")]);
    let plugins = Plugins::new(vec![twin]);
    Request { plugins, ..request(fabric, Operation::AllReduce, "16 MB", policy) }
}

#[test]
fn it_is_found_by_its_name() {
    let ours = planned(&asked("twin", "twin", 1));
    let theirs = planned(&asked("baseline", "twin", 1));
    assert_eq!(ours.policy, "twin");
    assert_eq!((ours.chunks, ours.dimension_order), (theirs.chunks, theirs.dimension_order));
}

#[test]
fn its_version_is_in_the_key() {
    let key = |policy, version| asked(policy, "twin", version).key().expect("it is known");
    assert_ne!(key("twin", 1), key("twin", 2));
    assert_eq!(key("baseline", 1), key("baseline", 2), "of those that are not asked it is not");
}

#[test]
fn one_of_the_crates_own_goes_before_it() {
    let theirs = planned(&asked("themis", "twin", 1));
    assert_eq!(planned(&asked("themis", "themis", 7)), theirs);
}

#[test]
fn an_unknown_name_is_told_them_all() {
    let error = plan(&asked("twins", "twin", 1)).expect_err("there is none");
    let ScheduleError::Field(FieldError { field, hint, .. }) = error else { panic!("{error}") };
    assert_eq!(field, "schedule.policy");
    assert!(hint.contains("`themis`") && hint.contains("`twin`"), "{hint}");
}
