//! Horovod's response cache, as its talk shows it (Romero et al., NSDI'22): every rank says which cached
//! tensors are ready there, one bit each; the bits of all ranks are intersected, and what is left is launched
//! everywhere, without rank 0's decision. A changed tensor's bit is united instead: its slot is freed everywhere.

use std::sync::Arc;

use crate::common::{Talk, seeds};
use allrail_collective::Operation;
use allrail_coordinate::cached::Cached;
use allrail_coordinate::messages::Vote;
use allrail_coordinate::{
    ALL, Bits, CoordinationPolicy, CoordinationSpec, Event, Payload, Request, Settings,
};
use allrail_core::{Bytes, Time};
use allrail_schedule::registry::Registry;
use allrail_schedule::signature::Signature;

const RANKS: u32 = 4;
const TENSORS: u32 = 5;

fn job(policy: &dyn CoordinationPolicy) -> CoordinationSpec {
    let settings = Settings {
        cycle: Time::from_us(500),
        cache: 16,
        fan_out: RANKS,
        threshold: Bytes::new(1 << 20),
        ..Settings::default()
    };
    // What a policy does not read keeps its default.
    let settings = match policy.tag() {
        "cached" => settings,
        _ => Settings { cycle: settings.cycle, ..Settings::default() },
    };
    let tensor = |name: String| Signature {
        name,
        dtype: "float32".to_owned(),
        shape: vec![2],
        strides: Vec::new(),
    };
    let tensors = (0..TENSORS).map(|number| tensor(format!("t{number}"))).collect();
    let registry = Registry::new(tensors).expect("they differ");
    CoordinationSpec::new(policy, &settings, RANKS, &[]).expect("a job").over(Arc::new(registry))
}

fn submit(talk: &mut Talk, rank: u32, tensor: u32, bytes: u64) {
    talk.tell(rank, Event::Submit(Request::all_reduce(tensor, Bytes::new(bytes))));
}

/// Which tensors each rank has launched so far, in order.
fn launched(talk: &Talk) -> Vec<Vec<u32>> {
    let tensors = |rank: &Vec<_>| -> Vec<u32> {
        let responses = rank.iter().flat_map(|launch: &Arc<_>| launch_responses(launch));
        responses.flatten().collect()
    };
    talk.launches.iter().map(tensors).collect()
}

fn launch_responses(launch: &allrail_coordinate::Launch) -> impl Iterator<Item = Vec<u32>> + '_ {
    launch.responses.iter().map(|response| response.tensors.clone())
}

fn run_until(talk: &mut Talk, tensors: usize) {
    for _ in 0..10_000 {
        if launched(talk).iter().all(|rank| rank.len() >= tensors) {
            return talk.run_to_silence();
        }
        talk.step();
    }
    panic!("{:?} launched", launched(talk));
}

/// All tensors once, in the order of their numbers: slot i is tensor i's.
fn warm(seed: u64) -> Talk {
    let mut talk = Talk::new(&Cached, &job(&Cached), seed);
    for tensor in 0..TENSORS {
        for rank in 0..RANKS {
            submit(&mut talk, rank, tensor, 8);
        }
    }
    run_until(&mut talk, TENSORS as usize);
    assert_eq!(launched(&talk), vec![(0..TENSORS).collect::<Vec<_>>(); RANKS as usize]);
    talk
}

fn bits(text: &str) -> Bits {
    text.chars().enumerate().filter(|(_, bit)| *bit == '1').map(|(place, _)| place).collect()
}

/// The last vote of each other rank before the first verdict of which `is_it` holds, and that verdict's bits:
/// what is ready, what is invalid.
fn cycle_of(
    said: &[(u32, u32, Payload)],
    is_it: impl Fn(&Bits, &Bits) -> bool,
) -> (Vec<Vote>, Bits, Bits) {
    let mut votes = vec![Vote::default(); RANKS as usize];
    for (from, to, payload) in said {
        match payload {
            Payload::Vote(vote) => {
                assert_eq!(*to, 0);
                votes[*from as usize] = (**vote).clone();
            }
            Payload::Verdict(verdict) if is_it(&verdict.outcome.ready, &verdict.invalid) => {
                return (votes, verdict.outcome.ready.clone(), verdict.invalid.clone());
            }
            _ => {}
        }
    }
    panic!("no such verdict in {said:?}");
}

/// Rank 0 has made tensors 0, 1, 3, 4; rank 1 all; rank 2 1, 2, 3; rank 3 1, 3, 4: 1 and 3 go.
#[test]
fn what_every_rank_has_a_bit_of_is_launched_without_a_coordinator() {
    const READY: [&str; RANKS as usize] = ["11011", "11111", "01110", "01011"];
    for seed in seeds() {
        let mut talk = warm(seed);
        talk.said = Some(Vec::new());
        for (rank, ready) in (0..).zip(READY) {
            for tensor in bits(ready).iter() {
                submit(&mut talk, rank, tensor as u32, 8);
            }
        }
        run_until(&mut talk, TENSORS as usize + 2);
        let said = talk.said.take().expect("it was written down");
        let (votes, ready, invalid) = cycle_of(&said, |ready, _| !ready.is_empty());
        for (rank, vote) in votes.iter().enumerate().skip(1) {
            assert_eq!(vote.ready, bits(READY[rank]), "rank {rank}, seed {seed}");
            assert!(!vote.uncached && !vote.shutdown && vote.invalid.is_empty(), "{vote:?}");
        }
        assert_eq!((ready, invalid), (bits("01010"), Bits::default()));
        for rank in &talk.launches {
            let last = rank.last().expect("it has launched");
            let tensors: Vec<_> = launch_responses(last).collect();
            assert_eq!(tensors, [[1, 3]], "packed as one, in the order of slots");
        }
        // The others wait until the last rank has them too.
        for (rank, tensor) in [(0, 2), (2, 0), (2, 4), (3, 0), (3, 2)] {
            submit(&mut talk, rank, tensor, 8);
        }
        talk.said = Some(Vec::new());
        run_until(&mut talk, 2 * TENSORS as usize);
        let (_, ready, _) =
            cycle_of(talk.said.as_ref().expect("written"), |ready, _| !ready.is_empty());
        assert_eq!(ready, bits("10101"));
        let asked = |said: &[(u32, u32, Payload)]| {
            said.iter().any(|(_, _, one)| matches!(one, Payload::Asks(_) | Payload::Decision(_)))
        };
        assert!(!asked(&said) && !asked(talk.said.as_ref().expect("written")), "rank 0 was asked");
        assert_eq!(talk.broken, []);
    }
}

/// Rank 2's tensor 1 has another size: one rank's invalid bit frees the slot everywhere, and the tensor is
/// asked for as one that nobody knows.
#[test]
fn one_invalid_bit_frees_a_slot_everywhere() {
    for seed in seeds() {
        let mut talk = warm(seed);
        talk.said = Some(Vec::new());
        for rank in 0..RANKS {
            for tensor in [0, 1] {
                submit(&mut talk, rank, tensor, if (rank, tensor) == (2, 1) { 24 } else { 8 });
            }
        }
        // The sizes do not match: it is reported to all, and counts as launched.
        run_until(&mut talk, TENSORS as usize + 2);
        let said = talk.said.take().expect("it was written down");
        let (votes, _, invalid) = cycle_of(&said, |_, invalid| !invalid.is_empty());
        assert_eq!(invalid, bits("01000"));
        let voted: Vec<bool> = votes.iter().map(|vote| vote.invalid == bits("01000")).collect();
        assert_eq!(voted, [false, false, true, false], "seed {seed}");
        let decided = said.iter().any(|(_, _, one)| matches!(one, Payload::Decision(_)));
        assert!(decided, "rank 0 has to answer");
        let last = |rank: u32| {
            let launches = &talk.launches[rank as usize];
            launches.iter().flat_map(|one| &one.responses).rfind(|one| one.tensors == [1]).cloned()
        };
        for rank in 0..RANKS {
            let response = last(rank).expect("it was answered");
            assert!(response.trouble.is_some(), "{response:?}");
            assert_eq!(Some(response), last(0), "the same on all ranks");
        }
    }
}

/// Of an all-gather ranks may bring different sizes: the response has each rank's, alike on all, under every
/// policy, and again when a size changes.
#[test]
fn an_uneven_all_gather_has_its_sizes_from_the_response() {
    let first: [u64; RANKS as usize] = [12, 0, 40, 4];
    let then: [u64; RANKS as usize] = [12, 8, 40, 4];
    for seed in seeds() {
        for policy in ALL {
            let mut talk = Talk::new(*policy, &job(*policy), seed);
            for (round, sizes) in (1..).zip([first, first, then]) {
                for (rank, bytes) in (0..).zip(sizes) {
                    let bytes = Bytes::new(bytes);
                    let request = Request {
                        operation: Operation::AllGather,
                        ..Request::all_reduce(2, bytes)
                    };
                    talk.tell(rank, Event::Submit(request));
                }
                run_until(&mut talk, round);
                for launches in &talk.launches {
                    let last = launches.iter().flat_map(|one| &one.responses).last();
                    let last = last.expect("it was launched");
                    assert_eq!(last.operation, Operation::AllGather);
                    assert_eq!(last.trouble, None);
                    let expected = sizes.map(Bytes::new);
                    assert_eq!(last.sizes, expected, "{} seed {seed}", policy.tag());
                }
            }
            assert_eq!(talk.broken, []);
        }
    }
}
