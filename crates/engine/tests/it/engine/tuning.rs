//! Partition and credit change at one generation of every tensor, on all ranks alike.

use allrail_coordinate as coordinate;
use allrail_core::Bytes;
use allrail_engine::Broken;
use allrail_engine::engine::{Event, Settings};
use allrail_schedule::tensor::TensorParameters;

use super::ranks::{World, common, policy, tagged, tensors};

fn cut_at(partition: u64) -> TensorParameters {
    TensorParameters { partition: Some(Bytes::new(partition)), ..policy("bytescheduler") }
}

fn parts(world: &World, rank: usize, generation: u64) -> usize {
    let of = |one: &&super::ranks::Began| one.name.generation == generation;
    world.nodes[rank].began.iter().filter(of).count()
}

#[test]
fn from_one_generation_on_tensors_are_cut_in_the_new_way_everywhere() {
    let agreed = common(cut_at(1024), coordinate::ALL[2]);
    let settings: [(Settings, Option<Bytes>); 2] =
        [(tagged(cut_at(1024)), None), (agreed, Some(Bytes::new(4096)))];
    for (settings, credit) in settings {
        let mut world = World::new(9, &[2, 2], &settings, |_| tensors(&[1024, 512]));
        // Ranks hear of it at different times: some before the first step, some after it.
        for step in 0..3 {
            if step < 2 {
                for rank in [2 * step, 2 * step + 1] {
                    let partition = Some(Bytes::new(256));
                    world.tell(rank, Event::Retune { at: 2, partition, credit }).expect("in time");
                }
            }
            world.submit_in_any_order(&["t0", "t1"]);
            world.run_until_done(2 * (step + 1));
        }
        for rank in 0..4 {
            let seen = [0, 1, 2].map(|generation| parts(&world, rank, generation));
            assert_eq!(seen, [6, 6, 24], "rank {rank}, {:?}", settings.ordering);
        }
    }
}

#[test]
fn a_change_comes_before_its_generation_is_submitted() {
    let mut world = World::new(9, &[2], &tagged(cut_at(1024)), |_| tensors(&[64, 64]));
    world.submit_in_any_order(&["t1"]);
    world.run_until_done(1);
    let (partition, credit) = (Some(Bytes::new(64)), None);
    let late = world.tell(0, Event::Retune { at: 0, partition, credit });
    assert_eq!(late, Err(Broken::TooLate { at: 0, name: "t1".to_owned(), submitted: 1 }));
    world.tell(0, Event::Retune { at: 1, partition, credit }).expect("t1 has not come to it");
    for at in 2..65 {
        world.tell(0, Event::Retune { at, partition, credit }).expect("few wait");
    }
    assert!(world.tell(0, Event::Retune { at: 65, partition, credit }).is_err(), "too many wait");
}
