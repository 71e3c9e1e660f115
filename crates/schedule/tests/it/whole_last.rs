//! An algorithm of whole all-reduces on the last dimension merges the two stages there, as the runtime runs it.

use crate::common::*;
use allrail_collective::Operation;
use allrail_schedule::chunk::{self, Composition};
use allrail_schedule::{Request, plan};

const WHOLE: [&str; 2] = ["parameter_server", "double_binary_tree"];

fn over_two(policy: &str, names: [&str; 2]) -> Request {
    let fabric = switches(&[(2, "10 GB/s"), (4, "1 GB/s")]);
    let mut request = request(fabric, Operation::AllReduce, "8 MB", policy);
    request.chunks = 4;
    request.algorithms = Some(names.into_iter().collect());
    request
}

#[test]
fn it_is_the_plan_that_says_so() {
    for policy in chunk::ALL {
        for name in WHOLE {
            let request = over_two(policy.tag(), ["ring", name]);
            let mut said = request.clone();
            said.parameters.composition = Composition::Merged;
            if !policy.keeps_the_order() {
                assert!(plan(&request).is_err(), "{} {name}: not all end there", policy.tag());
                continue;
            }
            match (plan(&request), plan(&said)) {
                (Ok(one), Ok(other)) => {
                    assert_eq!(one, other, "{} {name}", policy.tag());
                    let last = &one.chunks[0].stages[1];
                    let what = (last.operation, last.dimension.0);
                    assert_eq!(what, (Operation::AllReduce, 1), "{} {name}", policy.tag());
                }
                (one, other) => panic!("{} {name}: {one:?} {other:?}", policy.tag()),
            }
        }
    }
}

#[test]
fn elsewhere_it_is_refused_as_before() {
    for name in WHOLE {
        assert!(plan(&over_two("baseline", [name, "ring"])).is_err(), "{name} cannot scatter");
    }
}

#[test]
fn merged_by_name_it_is_refused_where_chunks_end_on_any_dimension() {
    for policy in chunk::ALL {
        for names in
            [["ring", WHOLE[0]], [WHOLE[0], "ring"], [WHOLE[1], "ring"], ["ring", WHOLE[1]]]
        {
            let mut said = over_two(policy.tag(), names);
            said.parameters.composition = Composition::Merged;
            let last = names[1] != "ring";
            assert_eq!(
                plan(&said).is_ok(),
                policy.keeps_the_order() && last,
                "{} {names:?}",
                policy.tag()
            );
        }
    }
}
