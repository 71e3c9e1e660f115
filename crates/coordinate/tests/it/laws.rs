//! Laws of every coordinator, alone in its process, talking in bytes: all ranks see the same events in the
//! same order, finishes and cuts among them; a mismatch says what differs; and whatever a peer sends, a rank
//! answers with an error that names it and all stop.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Speech, Talk, seeds};
use allrail_collective::Operation;
use allrail_coordinate::{
    ALL, Breach, CoordinationPolicy, CoordinationSpec, Event, Launch, Reason, Request, Settings,
    Step,
};
use allrail_core::{Bytes, Time};
use allrail_schedule::registry::Registry;
use allrail_schedule::signature::Signature;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const TENSORS: u32 = 6;

fn weight(name: &str) -> Signature {
    let (dtype, strides) = ("float32".to_owned(), Vec::new());
    Signature { name: name.to_owned(), dtype, shape: vec![4, 8], strides }
}

fn job(policy: &dyn CoordinationPolicy, ranks: u32, draw: &mut Pcg64Mcg) -> CoordinationSpec {
    let settings = Settings {
        cycle: Time::from_us(draw.random_range(100..1_000)),
        cache: draw.random_range(2..9),
        fan_out: draw.random_range(1..5),
        ..Settings::default()
    };
    let names: Vec<String> = (0..TENSORS).map(|tensor| format!("t{tensor}")).collect();
    let tensors = names.iter().map(|name| weight(name)).collect();
    let registry = Registry::new(tensors).expect("they differ");
    CoordinationSpec::new(policy, &settings, ranks, &[vec![0, 1]])
        .expect("a job")
        .over(Arc::new(registry))
}

fn steps(launches: &[Arc<Launch>]) -> Vec<Step<'_>> {
    launches.iter().flat_map(|launch| launch.steps()).collect()
}

/// Steps of submissions in another order on every rank; meanwhile operations finish at other times on each
/// rank, and clocks come to cuts.
#[test]
fn all_see_what_is_ready_finished_and_cut_in_one_order() {
    for seed in seeds() {
        let mut draw = Pcg64Mcg::seed_from_u64(seed);
        for policy in ALL {
            let ranks = draw.random_range(1..12);
            let job = job(*policy, ranks, &mut draw);
            let mut talk = Talk::new(*policy, &job, seed);
            let rounds = 4u64;
            for round in 0..rounds {
                let mut told = Vec::new();
                for rank in 0..ranks {
                    // Two operations a round, and a cut on some ranks.
                    for tensor in 0..TENSORS {
                        // A tensor changes its size now and then.
                        let bytes = 8 + u64::from(tensor == 5) * (round / 2);
                        let request = Request::all_reduce(tensor, Bytes::new(bytes));
                        told.push((rank, Event::Submit(request)));
                    }
                    for operation in [2 * round, 2 * round + 1] {
                        told.push((rank, Event::Finished { operation }));
                    }
                    if rank == 0 || draw.random_bool(0.3) {
                        told.push((rank, Event::Cut { number: round }));
                    }
                }
                told.shuffle(&mut draw);
                for (rank, event) in told {
                    talk.tell(rank, event);
                    talk.run(draw.random_range(0..6));
                }
                let whole = |talk: &Talk| {
                    let is_over = |launches: &Vec<Arc<Launch>>| {
                        let steps = steps(launches);
                        let ready = steps.iter().filter_map(|step| match step {
                            Step::Ready(response) => Some(response.tensors.len()),
                            _ => None,
                        });
                        let ready = ready.sum::<usize>() as u64;
                        let others = [Step::Finished(2 * round), Step::Finished(2 * round + 1)];
                        let others = others.iter().all(|other| steps.contains(other));
                        let cut = steps.contains(&Step::Cut(round));
                        ready == (round + 1) * u64::from(TENSORS) && others && cut
                    };
                    talk.launches.iter().all(is_over)
                };
                for _ in 0..20_000 {
                    if whole(&talk) {
                        break;
                    }
                    talk.run(5);
                }
                let tag = policy.tag();
                assert!(whole(&talk), "{tag} seed {seed} round {round}: {:?}", talk.launches[0]);
                assert_eq!(talk.broken, [], "{tag} seed {seed}");
            }
            let first = steps(&talk.launches[0]);
            for launches in &talk.launches {
                assert_eq!(steps(launches), first, "{} seed {seed}", policy.tag());
            }
            let finished = first.iter().filter(|step| matches!(step, Step::Finished(_))).count();
            assert_eq!(finished as u64, 2 * rounds, "once each");
            let cuts: Vec<_> = first.iter().filter(|step| matches!(step, Step::Cut(_))).collect();
            assert_eq!(cuts.len() as u64, rounds, "once each: {cuts:?}");
            // A group goes at once.
            for step in &first {
                if let Step::Ready(response) = step {
                    let group = [0, 1].map(|tensor| response.tensors.contains(&tensor));
                    assert_eq!(group[0], group[1], "{response:?}");
                }
            }
        }
    }
}

/// A rank has another tensor under a number, or the same with another dtype, shape or strides.
#[test]
fn a_mismatch_says_what_differs() {
    let changes: [(&str, Signature); 4] = [
        ("name differs: `t3` on rank", weight("t3x")),
        ("dtype differs: float32 on rank", Signature { dtype: "int8".to_owned(), ..weight("t3") }),
        ("shape differs: [4, 8] on rank", Signature { shape: vec![8, 4], ..weight("t3") }),
        ("strides differs: contiguous on rank", Signature { strides: vec![1, 4], ..weight("t3") }),
    ];
    for policy in ALL {
        for (seed, (text, changed)) in (0..).zip(&changes) {
            for warm in [false, true] {
                let mut draw = Pcg64Mcg::seed_from_u64(seed);
                let ranks = 5;
                let job = job(*policy, ranks, &mut draw);
                let mut talk = Talk::new(*policy, &job, seed);
                let submit = |talk: &mut Talk, other: Option<&Signature>| {
                    for rank in 0..ranks {
                        let mut signature = weight("t3");
                        if let Some(other) = other.filter(|_| rank == 3) {
                            signature = other.clone();
                            let signature = Arc::new(other.clone());
                            talk.tell(rank, Event::Register { tensor: 3, signature });
                        }
                        let signature = signature.fingerprint(false);
                        let request = Request::all_reduce(3, Bytes::new(128));
                        talk.tell(rank, Event::Submit(Request { signature, ..request }));
                    }
                    talk.run(3_000);
                };
                if warm {
                    submit(&mut talk, None);
                }
                submit(&mut talk, Some(changed));
                for launches in &talk.launches {
                    assert_eq!(launches.len(), 1 + usize::from(warm), "{}", policy.tag());
                    let last = launches.last().expect("it was launched");
                    let trouble = last.responses[0].trouble.as_ref().expect("they differ");
                    let said = trouble.to_string();
                    let turned = said.contains("on rank 3,") || said.contains("on rank 3;");
                    let part = text.split(' ').next().expect("a part");
                    assert!(said.starts_with(&format!("{part} differs: ")), "{said}");
                    assert!(said.starts_with(text) || turned, "{}: {said}", policy.tag());
                }
            }
        }
    }
}

/// Whatever comes from a peer at whatever time: no panic, and after an error all stop and know why.
#[test]
fn what_a_peer_may_not_say_ends_in_an_error_that_names_it() {
    let mut kinds = BTreeSet::new();
    for seed in seeds() {
        let mut draw = Pcg64Mcg::seed_from_u64(seed);
        for policy in ALL {
            let ranks = draw.random_range(2..9);
            let job = job(*policy, ranks, &mut draw);
            let mut talk = Talk::new(*policy, &job, seed);
            // Some of it is out of range.
            let mut speech = Speech::new(seed, ranks + 2, TENSORS + 3);
            for _ in 0..60 {
                let rank = draw.random_range(0..ranks);
                let request = Request::all_reduce(draw.random_range(0..TENSORS), Bytes::new(8));
                talk.tell(rank, Event::Submit(request));
                talk.run(draw.random_range(0..8));
                if draw.random_bool(0.1) {
                    let from = draw.random_range(0..ranks + 1);
                    talk.tell(rank, Event::Message { from, payload: speech.payload() });
                }
            }
            talk.run(5_000);
            let Some((by, broken)) = talk.broken.first() else { continue };
            kinds.insert(format!("{:?}", broken.breach).split(' ').next().map(str::to_owned));
            assert!(!broken.to_string().is_empty() && *by < ranks);
            let stopped = talk.stops.iter().flatten().count();
            assert_eq!(stopped as u32, ranks, "{} seed {seed}: {:?}", policy.tag(), talk.broken);
        }
    }
    assert!(kinds.len() >= 6, "{kinds:?}");
}

/// What each policy takes from whom: one wrong message at a time, and who is named.
#[test]
fn a_breach_names_the_sender() {
    for policy in ALL {
        let mut draw = Pcg64Mcg::seed_from_u64(7);
        let job = job(*policy, 4, &mut draw);
        let mut told = Talk::new(*policy, &job, 7);
        told.run(50);
        let none = CoordinationSpec { ranks: 9, ..job.clone() };
        let mut speech = Speech::new(3, none.ranks, TENSORS);
        // Rank 9 is nobody.
        told.tell(2, Event::Message { from: 9, payload: speech.payload() });
        let (by, broken) = told.broken.first().expect("nobody speaks");
        assert_eq!((*by, broken.peer), (2, 9), "{broken}");
        told.run(500);
        let named = told.stops.iter().filter(|stop| match stop.as_deref() {
            Some(Reason::Broken { broken, by }) => (broken.peer, *by) == (9, 2),
            _ => false,
        });
        assert_eq!(named.count(), 4, "{}: {:?}", policy.tag(), told.stops);
    }
}

#[test]
fn the_callers_mistakes_are_named_too() {
    for policy in ALL {
        let mut draw = Pcg64Mcg::seed_from_u64(1);
        let job = job(*policy, 3, &mut draw);
        let submit = |request| Event::Submit(request);
        let far = Request::all_reduce(TENSORS, Bytes::new(8));
        let root = Request {
            operation: Operation::Broadcast,
            root: 3,
            ..Request::all_reduce(0, Bytes::new(8))
        };
        for (events, breach) in [
            (vec![submit(far)], Breach::Tensor { tensor: TENSORS, tensors: TENSORS }),
            (vec![submit(root)], Breach::Rank { rank: 3, ranks: 3 }),
            (
                vec![Event::Finished { operation: 4 }, Event::Finished { operation: 4 }],
                Breach::Finished { operation: 4 },
            ),
        ] {
            let mut talk = Talk::new(*policy, &job, 1);
            events.into_iter().for_each(|event| talk.tell(1, event));
            assert_eq!(talk.broken, [(1, breach.by(1))], "{}", policy.tag());
        }
    }
}
