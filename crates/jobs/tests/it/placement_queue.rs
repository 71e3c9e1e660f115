//! Jobs that arrive and leave, and jobs that make room for another.

use std::ops::ControlFlow;

use allrail_core::{Bandwidth, Bytes, FieldError, Time};
use allrail_fabric::placement::{Floor, Unit};
use allrail_jobs::placement::{
    Arrival, Histogram, Mover, Options, Placement, Queue, Ran, Run, arrivals, defragment, place,
    read_floor,
};
use proptest::prelude::*;

fn mesh(side: u32) -> Floor {
    read_floor(&serde_json::json!({
        "topology": "hammingmesh", "board": [2, 2], "grid": [side, side] }))
    .expect("a mesh")
}

fn run(floor: Floor, backfill: bool, jobs: &[(u64, u64, u32)]) -> Result<Run, FieldError> {
    let jobs: Vec<Arrival> = jobs
        .iter()
        .map(|&(at, duration, boards)| Arrival {
            at: Time::from_us(at),
            duration: Time::from_us(duration),
            asks: boards.into(),
        })
        .collect();
    let queue = Queue { floor, options: Options::default(), backfill };
    Ok(queue.run(&jobs, &mut |_, _| ControlFlow::Continue(()))?.expect("nobody stops it"))
}

fn starts(run: &Run) -> Vec<u64> {
    run.jobs.iter().map(|job| job.start.as_ps() / 1_000_000).collect()
}

#[test]
fn the_head_holds_others_back_unless_they_end_before_it_can_start() {
    // 16 boards. Job 0 takes half until 10; job 1 wants all; jobs 2 and 3 want a quarter.
    let jobs = [(0, 10, 8), (1, 5, 16), (2, 8, 4), (3, 9, 4)];
    let plain = run(mesh(4), false, &jobs).expect("a run");
    assert_eq!(starts(&plain), [0, 10, 15, 15]);
    let filled = run(mesh(4), true, &jobs).expect("a run");
    assert_eq!(starts(&filled), [0, 10, 2, 15], "job 2 ends at 10, job 3 would end at 12");
    assert!((filled.utilisation() - plain.utilisation()).abs() < 1e-12, "the same work and end");
    // 80 + 80 + 32 + 36 board-microseconds in 24 of 16 boards.
    assert!((plain.utilisation() - 228.0 / (24.0 * 16.0)).abs() < 1e-12);
    assert_eq!(plain.busy.last(), Some(&(Time::from_us(24), 0)));
}

#[test]
fn jobs_leave_before_others_come() {
    let run = run(mesh(2), false, &[(0, 5, 4), (5, 5, 4)]).expect("a run");
    assert_eq!(starts(&run), [0, 5]);
}

#[test]
fn impossible_traces_are_refused() {
    let refused = |jobs: &[(u64, u64, u32)]| run(mesh(2), false, jobs).expect_err("refused").field;
    assert_eq!(refused(&[]), "trace");
    assert_eq!(refused(&[(3, 1, 1), (2, 1, 1)]), "trace[1].arrive");
    assert_eq!(refused(&[(0, 0, 1)]), "trace[0].duration");
    assert_eq!(refused(&[(0, 1, 1), (0, 1, 5)]), "trace[1].size");
    assert_eq!(refused(&[(0, 1, 0)]), "trace[0].size");
}

fn overlaps(one: &Ran, other: &Ran) -> bool {
    let meet = |a: &[u32], b: &[u32]| a.iter().any(|line| b.contains(line));
    one.start < other.end
        && other.start < one.end
        && meet(&one.placed.rows, &other.placed.rows)
        && meet(&one.placed.columns, &other.placed.columns)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_two_jobs_share_a_board_and_nobody_starts_early(
        jobs in prop::collection::vec((0u64..5, 1u64..20, 1u32..17), 1..60), backfill: bool,
    ) {
        let mut at = 0;
        let jobs: Vec<(u64, u64, u32)> = jobs
            .into_iter()
            .map(|(gap, duration, boards)| {
                at += gap;
                // 11 and 13 have no shape of four rows and columns: they take the next size.
                (at, duration, boards)
            })
            .collect();
        let ran = run(mesh(4), backfill, &jobs).expect("every job fits");
        for (index, (one, job)) in ran.jobs.iter().zip(&jobs).enumerate() {
            prop_assert!(one.start >= Time::from_us(job.0));
            prop_assert_eq!(one.end, one.start + Time::from_us(job.1));
            prop_assert!(ran.jobs[..index].iter().all(|other| !overlaps(one, other)));
            if !backfill && index > 0 {
                prop_assert!(one.start >= ran.jobs[index - 1].start);
            }
        }
        prop_assert!(ran.utilisation() <= 1.0 + 1e-12);
    }

    #[test]
    fn room_is_made_by_moving_jobs_that_stay_whole(
        sizes in prop::collection::vec(1u32..7, 4..20),
        leaving in prop::collection::vec(any::<bool>(), 20),
        boards in 2u32..17,
    ) {
        let floor = mesh(5);
        let mut free = floor.empty();
        let mut placement = place(&floor, &mut free, &sizes, Options::default());
        for index in (0..placement.jobs.len()).rev() {
            if leaving[index] {
                free.release(&placement.jobs.remove(index).block());
            }
        }
        let (before, before_free) = (placement.clone(), free.clone());
        let mover = Mover::new(Bytes::new(1000), Bandwidth::from_bytes_per_second(1000).expect("not 0"))
            .expect("a second");
        let asked = |job: u32| {
            sizes.get(job as usize).copied().unwrap_or(boards).into()
        };
        let made = defragment(
            &floor, &mut free, &mut placement, 99, &asked, Options::default(), mover,
        );
        let Some(made) = made else {
            prop_assert_eq!((placement, free), (before, before_free));
            return Ok(());
        };
        whole(&floor, &placement, &free)?;
        prop_assert!(made.placed.boards() >= boards);
        let mut moved = 0;
        for old in &before.jobs {
            let new = placement.jobs.iter().find(|job| job.job == old.job).expect("nobody is lost");
            prop_assert_eq!(new.boards(), old.boards());
            let step = made.moves.iter().find(|step| step.job == old.job);
            prop_assert_eq!(step.is_some(), new != old);
            moved += if new == old { 0 } else { u64::from(new.boards()) };
        }
        prop_assert_eq!(made.bytes, Bytes::new(1000 * moved));
        let rounds = made.moves.iter().map(|step| u64::from(step.round) + 1).max().unwrap_or(0);
        prop_assert_eq!(made.time, Time::from_us(1_000_000 * rounds));
    }
}

fn whole(
    floor: &Floor,
    placement: &Placement,
    free: &allrail_fabric::placement::Boards,
) -> Result<(), TestCaseError> {
    let mut again = floor.empty();
    for job in &placement.jobs {
        prop_assert!(again.are_free(&job.block()), "two jobs share a board");
        again.take(&job.block());
    }
    prop_assert_eq!(&again, free);
    Ok(())
}

#[test]
fn a_board_that_takes_more_than_a_day_is_refused() {
    let slow = Bandwidth::from_bytes_per_second(1).expect("not 0");
    assert!(Mover::new(Bytes::new(86_400), slow).is_ok());
    assert_eq!(Mover::new(Bytes::new(86_401), slow).expect_err("refused").field, "memory");
}

/// Jobs on the diagonal leave no two rows with two columns in common; one move makes room.
#[test]
fn one_move_makes_room() {
    let floor = mesh(3);
    let mut free = floor.empty();
    let mut placement = place(&floor, &mut free, &[1u32; 9], Options::default());
    let keep = [(0, 0), (1, 1), (2, 2)];
    placement.jobs.retain(|job| {
        let stays = keep.contains(&(job.rows[0], job.columns[0]));
        if !stays {
            free.release(&job.block());
        }
        stays
    });
    let mover =
        Mover::new(Bytes::new(1 << 30), Bandwidth::from_bytes_per_second(1 << 30).expect("not 0"));
    let made = defragment(
        &floor,
        &mut free,
        &mut placement,
        9,
        &|job| if job == 9 { 4u32 } else { 1 }.into(),
        Options::default(),
        mover.expect("a second"),
    )
    .expect("there is room for 2 x 2 beside three boards");
    assert_eq!((made.moves.len(), made.bytes.count(), made.time.as_s()), (1, 1 << 30, 1.0));
}

#[test]
fn seeded_arrivals_ask_for_the_load() {
    let floor = mesh(8);
    let sizes = Histogram::new(&[(1u64, 60), (4, 30), (16, 10)])
        .expect("a histogram")
        .on(&floor, Unit::Boards)
        .expect("they fit");
    let hour = Time::from_us(3_600_000_000);
    let jobs = arrivals(&sizes, 64, 20_000, 0.8, hour, 7).expect("arrivals");
    assert_eq!(jobs, arrivals(&sizes, 64, 20_000, 0.8, hour, 7).expect("arrivals"));
    let area: f64 = jobs
        .iter()
        .map(|job| f64::from(job.asks.boards().expect("few")) * job.duration.as_s())
        .sum();
    let load = area / (jobs.last().expect("there are jobs").at.as_s() * 64.0);
    assert!((load - 0.8).abs() < 0.03, "{load}");
    let mean = jobs.iter().map(|job| job.duration.as_s()).sum::<f64>() / 20_000.0;
    assert!((mean / 3600.0 - 1.0).abs() < 0.03, "{mean}");
    let long = jobs.iter().filter(|job| job.duration.as_s() > 3600.0).count() as f64 / 20_000.0;
    assert!((long - (-1.0f64).exp()).abs() < 0.015, "exponential: {long}");
}
