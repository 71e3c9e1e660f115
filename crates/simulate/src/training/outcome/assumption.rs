//! What-ifs of the network: what each assumes, and which network model can assume it.
//!
//! | | `dims` | `links` | `flows`, `packets` |
//! |---|---|---|---|
//! | infinite bandwidth | stages take their latency | messages of no bytes | messages of no bytes |
//! | ideal | dimensions always busy | as in `dims` | as in `dims`, on the topology's dimensions |
//! | a utilisation | dimensions busy for that part | as in `dims` | as in `dims`, likewise |
//! | a dimension twice as fast | yes | yes | no: a cable may serve several dimensions |

use allrail_fabric::Fabric;
use allrail_workload::spec::Model;

use crate::SimulateError;
use crate::scenario::{NetworkModelKind, field};
use crate::scenario::{TrainingScenario, WhatIf};
use crate::training::communicator::classes::{Idealisation, WHOLE};

/// The network under the scenario's assumption; a fabric that it changes is changed.
///
/// # Errors
/// The network model cannot make it.
pub(crate) fn apply(
    scenario: &TrainingScenario,
    fabric: &mut Fabric,
) -> Result<Idealisation, SimulateError> {
    let graph = scenario.network_model.has_every_link();
    let steps = matches!(scenario.job.workload.model, Model::Steps(_));
    let refuse = |what: &str, why: &str, hint: &str| Err(field("what_if", what, why, hint));
    match scenario.job.what_if {
        Some(WhatIf::Double(dimension)) if graph => refuse(
            &format!("{}_x2", dimension.name()),
            "in this network model a topology's cables have bandwidths, and dimensions have none",
            "use `network_model: dims`, or give the topology other cables",
        ),
        Some(WhatIf::Ideal | WhatIf::Utilisation(_)) if graph && steps => refuse(
            "ideal_schedule",
            "it is said of dimensions, and those of written steps are not the topology's",
            "ask for `infinite_bandwidth`",
        ),
        Some(WhatIf::Double(dimension)) => double(fabric, dimension).map(|()| Idealisation::Real),
        Some(WhatIf::Ideal) => Ok(Idealisation::Ideal { millionths: WHOLE }),
        Some(WhatIf::Utilisation(millionths)) if (1..=WHOLE).contains(&millionths) => {
            Ok(Idealisation::Ideal { millionths })
        }
        Some(WhatIf::Utilisation(millionths)) => {
            refuse(&millionths.to_string(), "it is no part of a million", "write 1 to 1000000")
        }
        Some(WhatIf::InfiniteBandwidth) => Ok(Idealisation::Infinite),
        Some(WhatIf::NoStraggler) | None => Ok(Idealisation::Real),
    }
}

/// What a result should say where another network model has carried it.
pub(crate) fn note(scenario: &TrainingScenario) -> Option<String> {
    let ideal = matches!(scenario.job.what_if, Some(WhatIf::Ideal | WhatIf::Utilisation(_)));
    (ideal && scenario.network_model != NetworkModelKind::Dims).then(|| {
        "ideal: every dimension of a group works from its first byte to its last, as in `dims`"
            .to_owned()
    })
}

fn double(fabric: &mut Fabric, id: allrail_core::DimensionId) -> Result<(), SimulateError> {
    let dimension = &mut fabric.dimensions[id.index()];
    dimension.bandwidth = dimension.bandwidth.checked_mul(2).ok_or_else(|| {
        field(
            format!("fabric.dimensions[{}].bandwidth", id.0),
            dimension.bandwidth,
            "twice as much is beyond 2^64 B/s",
            "lower it",
        )
    })?;
    fabric.validate()?;
    Ok(())
}
