//! Max-min fair sharing as equations: the incremental solver against the plain one, and laws.

use std::sync::Arc;

use allrail_network::flows::oracle;
use allrail_network::flows::solver::{Entry, Solver};
use proptest::prelude::*;

/// What happens between two updates, and after which of them an update follows.
#[derive(Clone, Debug)]
enum Step {
    Add(Vec<Entry>),
    /// One more over the entries of the n-th of those that are there.
    Again(usize),
    /// The n-th of those that are there.
    Remove(usize),
    Update,
}

const RESOURCES: u32 = 7;

fn entries(weights: impl Strategy<Value = f64> + Clone) -> impl Strategy<Value = Vec<Entry>> {
    let used = prop::collection::btree_map(0..RESOURCES, weights, 1..5);
    used.prop_map(|used| used.into_iter().collect())
}

fn steps(
    weights: impl Strategy<Value = f64> + Clone + 'static,
) -> impl Strategy<Value = (Vec<f64>, Vec<Step>)> {
    // Few values: equal levels are the rule in networks, and the hard case.
    let capacity = prop_oneof![Just(1.0), Just(2.0), Just(50e9), 0.1..9.0f64];
    let step = prop_oneof![
        4 => entries(weights).prop_map(Step::Add),
        2 => (0..64usize).prop_map(Step::Again),
        3 => (0..64usize).prop_map(Step::Remove),
        2 => Just(Step::Update),
    ];
    let capacities = prop::collection::vec(capacity, RESOURCES as usize);
    (capacities, prop::collection::vec(step, 1..60))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

/// No resource above its capacity, and each flow has one that is full and on which nobody has more:
/// which is what max-min fair means.
fn check_laws(capacities: &[f64], flows: &[Vec<Entry>], rates: &[f64]) -> Result<(), String> {
    let used = |resource: u32| -> f64 {
        let of = |(flow, rate): (&Vec<Entry>, &f64)| {
            flow.iter().filter(|e| e.0 == resource).map(|e| e.1 * rate).sum::<f64>()
        };
        flows.iter().zip(rates).map(of).sum()
    };
    for resource in 0..RESOURCES {
        if used(resource) > capacities[resource as usize] * (1.0 + 1e-6) {
            return Err(format!("resource {resource} carries {}", used(resource)));
        }
    }
    for (number, flow) in flows.iter().enumerate() {
        let bottleneck = flow.iter().any(|&(resource, _)| {
            let on = |flow: &Vec<Entry>| flow.iter().any(|e| e.0 == resource);
            let greatest =
                flows.iter().zip(rates).filter(|(flow, _)| on(flow)).map(|(_, rate)| *rate);
            close(used(resource), capacities[resource as usize])
                && greatest.fold(0.0, f64::max) <= rates[number] * (1.0 + 1e-6)
        });
        if !bottleneck {
            return Err(format!("flow {number} of rate {} has no bottleneck", rates[number]));
        }
    }
    Ok(())
}

fn run(capacities: &[f64], steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut solver = Solver::new(capacities);
    let mut there: Vec<(u32, Arc<[Entry]>)> = Vec::new();
    for step in steps.into_iter().chain([Step::Update]) {
        match step {
            Step::Add(entries) => {
                let entries: Arc<[Entry]> = entries.into();
                there.push((solver.add(Arc::clone(&entries)), entries));
            }
            Step::Again(place) if !there.is_empty() => {
                let (id, entries) = there[place % there.len()].clone();
                prop_assert_eq!(solver.add(Arc::clone(&entries)), id);
                there.push((id, entries));
            }
            Step::Remove(place) if !there.is_empty() => {
                let (id, _) = there.swap_remove(place % there.len());
                solver.remove(id);
            }
            Step::Again(_) | Step::Remove(_) => {}
            Step::Update => {
                solver.update();
                let flows: Vec<Vec<Entry>> = there.iter().map(|(_, e)| e.to_vec()).collect();
                let expected = oracle::rates(capacities, &flows);
                let rates: Vec<f64> = there.iter().map(|(id, _)| solver.rate(*id)).collect();
                for ((a, b), flow) in rates.iter().zip(&expected).zip(&flows) {
                    prop_assert!(close(*a, *b), "{a} is not {b}, of {flow:?} in {flows:?}");
                }
                let laws = check_laws(capacities, &flows, &rates);
                prop_assert!(laws.is_ok(), "{laws:?}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn single_paths_share_as_the_oracle_says((capacities, steps) in steps(Just(1.0))) {
        run(&capacities, steps)?;
    }

    #[test]
    fn split_messages_share_as_the_oracle_says((capacities, steps) in steps(0.01..1.0f64)) {
        run(&capacities, steps)?;
    }
}

/// What an update touches: a flow that shares nothing with the change keeps its rate unasked.
#[test]
fn an_update_tells_only_of_rates_that_changed() {
    let mut solver = Solver::new(&[6.0, 6.0]);
    let ids: Vec<u32> = [0, 0, 1].map(|resource| solver.add([(resource, 1.0)].into())).to_vec();
    solver.update();
    assert_eq!(solver.changed().len(), 3);
    let third = solver.add([(0, 1.0)].into());
    solver.update();
    let mut changed = solver.changed().to_vec();
    changed.sort_unstable();
    assert_eq!(changed, [ids[0], ids[1], third]);
    assert_eq!([ids[0], ids[2], third].map(|id| solver.rate(id)), [2.0, 6.0, 2.0]);
    solver.remove(third);
    let again = solver.add([(0, 1.0)].into());
    solver.update();
    assert_eq!(solver.changed(), [again]);
}
