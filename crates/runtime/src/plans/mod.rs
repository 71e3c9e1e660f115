//! The plans of a node: given with its settings or made from them, alike on every rank, for every size.
//!
//! Algorithms are chosen for each size as a scenario's `auto` does it (`allrail_schedule::algorithms`): what was
//! measured to be the fastest, else what the stage model predicts to be the quickest: few steps for little data,
//! few bytes for much. Sizes are tried from 1 KiB to 4 GiB, four times as large each; between two with other
//! algorithms those of the larger hold from where they overtake the others. Where the settings name none (so,
//! too, for operations that the one that is named does not do), the one that is usual on the links of each
//! dimension is left only for what is a tenth quicker, as the model does not know what it costs to talk with
//! many at once; among at most four ranks, who are not many, for whatever is quicker. There a direct exchange, of
//! the fewest steps, was measured to take an eighth less of the CPU's time than halving and doubling, and 3-7 %
//! less time for 25 MB at 1 Gb/s: each step costs its threads a wake-up. Chunks are as many as at the next of
//! these sizes from half of it on.
//!
//! A plan that is given and names no sizes holds from half its own on, up to the next one's; the largest holds for
//! all that is larger. Where no given plan holds, the node makes its own.

mod given;
mod made;
mod one_order;

use allrail_collective::rank::Plans;
use allrail_collective::{CollectiveError, CollectivePlan, DimensionSet, Operation, SizeRange};
use allrail_core::{Bytes, DimensionId};
use allrail_engine::Ordering;
use allrail_engine::engine;

pub(crate) use self::given::{check_given, largest_all_reduce};
pub(crate) use self::made::time;

use self::given::given;
use self::made::made;
use self::one_order::in_one_order;
use crate::error::RuntimeError;
use crate::settings::Settings;

/// How many parts of plans, one a size, are kept.
const ROOM: usize = 1024;

/// What the engine of a node is made with.
pub(crate) fn decider(settings: &Settings) -> Result<(engine::Settings, Plans), RuntimeError> {
    let operation = Operation::AllReduce;
    let mut all = Vec::new();
    let is_had = |one: &Operation| !settings.elsewhere || *one == operation;
    let operations = Operation::ALL.into_iter().filter(is_had);
    for operation in operations.filter(|_| settings.ranks > 1) {
        all.extend(of(settings, operation)?);
    }
    let engine = engine::Settings {
        rank: settings.rank,
        ranks: settings.ranks,
        epoch: settings.epoch,
        group: settings.group,
        operation,
        dimensions: (0..settings.dimensions.len() as u32)
            .fold(DimensionSet::default(), |set, d| set.with(DimensionId(d))),
        ports: settings.dimensions.len(),
        order: settings.order,
        tensor: settings.tensor_parameters(),
        ordering: Ordering::Tagged,
        named_calls: settings.named_calls,
        forget_after: settings.forget_after,
        ..engine::Settings::default()
    };
    let engine = match settings.elsewhere {
        true => in_one_order(engine, settings.coordination.as_ref())?,
        false => engine,
    };
    Ok((engine, table(settings.rank, all)?))
}

/// The plans for an operation over all dimensions.
pub(crate) fn of(
    settings: &Settings,
    operation: Operation,
) -> Result<Vec<CollectivePlan>, RuntimeError> {
    let given = given(settings, operation)?;
    let mut all = Vec::new();
    for plan in made(settings, operation)? {
        let mut rest = vec![plan.holds_for()];
        for other in given.iter().map(CollectivePlan::holds_for) {
            rest = rest.into_iter().flat_map(|range| without(range, other)).collect();
        }
        let cut = |sizes: SizeRange| {
            // A plan's own size is one that it holds for.
            let size = plan.size.clamp(sizes.from, sizes.to);
            let whole = CollectivePlan { sizes: Some(plan.holds_for()), ..plan.clone() };
            Ok(CollectivePlan { sizes: Some(sizes), ..whole.for_size(size)? })
        };
        let cut: Result<Vec<_>, CollectiveError> = rest.into_iter().map(cut).collect();
        all.extend(cut.map_err(|error| RuntimeError::schedule(&error.into()))?);
    }
    all.extend(given);
    all.sort_by_key(|plan| plan.holds_for().from);
    Ok(all)
}

/// What of `range` is not in `other`.
fn without(range: SizeRange, other: SizeRange) -> impl Iterator<Item = SizeRange> {
    let below = Bytes::new(other.from.count().saturating_sub(1)).min(range.to);
    let above = Bytes::new(other.to.count().saturating_add(1)).max(range.from);
    let last = other.to == Bytes::new(u64::MAX);
    let rest = [(range.from, below, other.from <= range.from), (above, range.to, last)];
    rest.into_iter()
        .filter(|(from, to, nothing)| from <= to && !nothing)
        .map(|(from, to, _)| SizeRange { from, to })
}

/// One rank's table of plans.
pub(crate) fn table(
    rank: u32,
    plans: impl IntoIterator<Item = CollectivePlan>,
) -> Result<Plans, RuntimeError> {
    let mut table = Plans::new(rank, ROOM);
    for plan in plans {
        table.add(plan).map_err(|error| RuntimeError::Engine(error.into()))?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use allrail_collective::Program;
    use allrail_collective::algorithm::Own;
    use allrail_collective::program::{Blocks, Combine};

    use allrail_schedule::planner::finish;
    use allrail_schedule::{Algorithms, Request};

    use super::made::{names, request};
    use super::*;
    use crate::settings::tests::local;

    #[test]
    fn every_size_has_a_plan_and_little_goes_in_few_steps() {
        for operation in Operation::ALL {
            for sizes in [&[4][..], &[2, 3], &[2, 2, 2]] {
                let plans = of(&local(0, sizes), operation).expect("plans");
                let (first, last) = (&plans[0], &plans[plans.len() - 1]);
                assert_eq!(first.holds_for().from, Bytes::new(1));
                assert_eq!(last.holds_for().to, Bytes::new(u64::MAX));
                let next = |pair: &[CollectivePlan]| {
                    pair[0].holds_for().to.count() + 1 == pair[1].holds_for().from.count()
                };
                assert!(plans.windows(2).all(next));
                assert!(table(0, plans).is_ok());
            }
        }
        let small = &of(&local(0, &[4]), Operation::AllReduce).expect("plans")[0];
        assert_eq!(small.algorithms, ["direct"]);
    }

    #[test]
    fn what_is_given_is_carried_out_where_it_holds() {
        let plain = local(0, &[2, 2]);
        let own = of(&plain, Operation::AllReduce).expect("plans");
        let at = |megabytes: u64| {
            let size = Bytes::new(megabytes << 20);
            let found = own.iter().find(|plan| plan.holds_for().contains(size)).expect("one");
            CollectivePlan {
                key: format!("given {megabytes}"),
                ..found.for_size(size).expect("cut")
            }
        };
        let with = |plans: Vec<CollectivePlan>| Settings { plans, ..plain.clone() };
        let all = of(&with(vec![at(64), at(4)]), Operation::AllReduce).expect("plans");
        let key = |size: u64| {
            let plan = all.iter().find(|plan| plan.holds_for().contains(Bytes::new(size)));
            plan.map(|plan| plan.key.as_str()).expect("every size has a plan")
        };
        assert_eq!([key(2 << 20), key(4 << 20), key(31 << 20)], ["given 4"; 3]);
        assert_eq!([key(32 << 20), key(64 << 20), key(1 << 40)], ["given 64"; 3]);
        assert!([1, 1 << 10, (2 << 20) - 1].iter().all(|size| !key(*size).starts_with("given")));
        assert!(all.windows(2).all(|pair| {
            pair[0].holds_for().to.count() + 1 == pair[1].holds_for().from.count()
        }));
        assert!(table(0, all).is_ok());
        // Nothing was given for the others.
        assert_eq!(
            of(&with(vec![at(4)]), Operation::AllGather).expect("plans"),
            of(&plain, Operation::AllGather).expect("plans")
        );
        let range = SizeRange { from: Bytes::new(1 << 20), to: Bytes::new(8 << 20) };
        let only = CollectivePlan { sizes: Some(range), ..at(4) };
        let all = of(&with(vec![only.clone()]), Operation::AllReduce).expect("plans");
        let held: Vec<SizeRange> =
            all.iter().filter(|one| one.key == only.key).map(CollectivePlan::holds_for).collect();
        assert_eq!(held, [range]);
        for clash in [vec![at(4), at(4)], vec![only.clone(), at(8)]] {
            let error = of(&with(clash), Operation::AllReduce).expect_err("two for one size");
            assert!(error.to_string().starts_with("`plan`"), "{error}");
        }
    }

    /// What a scenario with `algorithms: auto` takes for the same dimensions, chunks and size.
    #[test]
    fn what_is_chosen_is_what_a_scenario_chooses() {
        let points = |points: &[(&str, &str)]| {
            let point = |(from, name): &(&str, &str)| allrail_fabric::Fastest {
                from: from.parse().expect("a size"),
                algorithm: (*name).to_owned(),
            };
            BTreeMap::from([("all_reduce".to_owned(), points.iter().map(point).collect())])
        };
        let mut ring = local(0, &[8]);
        ring.dimensions[0].kind = allrail_fabric::Kind::Ring;
        let mut measured = local(0, &[2, 4]);
        measured.dimensions[1].fastest = points(&[("3 KB", "direct"), ("70001 B", "ring")]);
        for mut settings in [local(0, &[4]), local(0, &[2, 3]), ring, measured] {
            settings.algorithms = Some(Algorithms::Auto);
            for operation in Operation::ALL {
                let plans = of(&settings, operation).expect("plans");
                let holding = |size: u64| {
                    let holds =
                        |plan: &&CollectivePlan| plan.holds_for().contains(Bytes::new(size));
                    plans.iter().find(holds).expect("every size has a plan")
                };
                let starts = plans.iter().map(|plan| plan.holds_for().from.count()).skip(1);
                let around =
                    starts.flat_map(|from| [from - 1, from]).filter(|size| *size > 1 << 10);
                for size in around.chain([1 << 10, 3_000, 100_000, 7 << 20, 1 << 30]) {
                    let bytes = Bytes::new(size);
                    let chosen = names(&settings, operation, bytes).expect("one fits");
                    let plan = holding(size);
                    let time = |names: &[String]| {
                        let algorithms = Some(names.to_vec().into());
                        let request =
                            Request { algorithms, ..request(&settings, operation, bytes) };
                        finish(&request).expect("a time")
                    };
                    // Of equally fast ones, the one before stays until it is overtaken.
                    let alike = time(&plan.algorithms) == time(&chosen);
                    let kept = settings.dimensions.iter().all(|one| one.fastest.is_empty());
                    assert!(
                        plan.algorithms == chosen || alike && kept,
                        "{operation} of {size}: {:?}, not {chosen:?}",
                        plan.algorithms
                    );
                }
            }
        }
    }

    /// A swap of whole buffers between two ranks.
    fn swap(name: &str, sizes: Option<SizeRange>) -> Own {
        let mut program = Program::empty(2, 1, 1);
        for rank in 0..2 {
            let block = || Blocks::range(0..1);
            program.message(0, (rank, block()), (1 - rank, block()), Combine::Reduce);
        }
        Own::new(name, Operation::AllReduce, sizes, program).expect("it is right")
    }

    #[test]
    fn a_program_is_taken_for_its_operation_and_its_sizes() {
        let sizes = SizeRange { from: Bytes::new(3_000), to: Bytes::new(1 << 21) };
        let mut settings = local(0, &[2]);
        settings.algorithms = Some(vec!["swap.xml"].into());
        settings.programs = std::iter::once(swap("swap.xml", Some(sizes))).collect();
        let plans = of(&settings, Operation::AllReduce).expect("plans");
        assert!(table(0, plans.clone()).is_ok());
        for size in [1, 2_999, 3_000, 1 << 20, 1 << 21, (1 << 21) + 1, 1 << 40] {
            let holds = |plan: &&CollectivePlan| plan.holds_for().contains(Bytes::new(size));
            let plan = plans.iter().find(holds).expect("every size has a plan");
            let own = plan.algorithms == ["swap.xml"];
            assert_eq!(own, sizes.contains(Bytes::new(size)), "{size}");
            assert_eq!(own, plan.programs.get("swap.xml").is_some());
        }
        let others = of(&settings, Operation::AllGather).expect("plans");
        assert!(others.iter().all(|plan| plan.programs.is_empty()));
    }

    #[test]
    fn one_on_the_last_dimension_reduces_whole() {
        let mut settings = local(0, &[3, 2]);
        settings.algorithms = Some(vec!["ring", "swap.xml"].into());
        settings.programs = std::iter::once(swap("swap.xml", None)).collect();
        let plans = of(&settings, Operation::AllReduce).expect("plans");
        assert!(plans.iter().all(|plan| plan.chunks[0].stages.len() == 3));
        settings.algorithms = Some(vec!["double_binary_tree", "ring"].into());
        let error = of(&settings, Operation::AllReduce).expect_err("it scatters nothing");
        assert!(error.to_string().contains("`double_binary_tree` does not do"), "{error}");
    }

    #[test]
    fn what_the_settings_name_is_what_is_planned() {
        let mut settings = local(0, &[2, 2]);
        settings.algorithms = Some(vec!["ring", "direct"].into());
        let plans = of(&settings, Operation::AllReduce).expect("plans");
        assert!(plans.iter().all(|plan| plan.algorithms == ["ring", "direct"]));
        let chunks: Vec<usize> = plans.iter().map(|plan| plan.chunks.len()).collect();
        assert_eq!(chunks, [1, 4, 16]);
        settings.policy = "fastest".to_owned();
        let error = of(&settings, Operation::AllReduce).expect_err("no such policy");
        assert!(error.to_string().contains("fastest") && error.hint().is_some());
    }
}
