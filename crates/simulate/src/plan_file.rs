//! A file of plans, and whether they were made for a scenario.

use allrail_collective::CollectivePlan;
use allrail_core::{DimensionId, counted};
use allrail_fabric::{Dimension, Fabric};
use allrail_schedule::Order;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SimulateError;
use crate::scenario::{AcceptPlan, CollectiveScenario, NETWORK_MODELS, NetworkModelKind, field};

/// A file of plans, one per collective of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// 1.
    pub schema_version: u32,
    /// The plans.
    pub plans: Vec<CollectivePlan>,
    /// Of one plan: the order in which dimensions serve its stages under `schedule.order: planned`, where its ranks
    /// are not alike and no common order is as quick as this one; in the network model that the plan was made in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_order: Option<Order>,
}

impl PlanFile {
    /// From JSON, checked.
    ///
    /// # Errors
    /// [`SimulateError::Form`] where it is not one; the chunk and the stage that are wrong.
    pub fn from_json(text: &str) -> Result<Self, SimulateError> {
        let file: Self = serde_json::from_str(text)
            .map_err(|error| SimulateError::Form(format!("the plan is malformed: {error}")))?;
        if file.schema_version != 1 {
            return Err(field(
                "plan.schema_version",
                file.schema_version,
                "this version reads 1",
                "make the plan anew with `allrail plan`",
            ));
        }
        for plan in &file.plans {
            plan.check()?;
            if NetworkModelKind::named(&plan.order_made_in).is_none() {
                let known: Vec<&str> = NETWORK_MODELS.iter().map(|model| model.tag).collect();
                return Err(field(
                    "plan.order_made_in",
                    &plan.order_made_in,
                    "it is not a network model",
                    format!("it is one of {}", known.join(", ")),
                ));
            }
        }
        Ok(file)
    }

    /// The plans for `scenario`, each cut for the size of its collective.
    ///
    /// # Errors
    /// As [`Self::check_for`].
    pub(crate) fn for_scenario(
        &self,
        scenario: &CollectiveScenario,
    ) -> Result<Self, SimulateError> {
        self.check_for(scenario)?;
        let plans = self.plans.iter().zip(&scenario.job);
        let plans = plans.map(|(plan, collective)| plan.for_size(collective.size));
        Ok(Self { plans: plans.collect::<Result<_, _>>()?, ..self.clone() })
    }

    /// The order in which dimensions serve stages, where a scenario asks for `order`.
    #[must_use]
    pub(crate) fn order(&self, order: Order, network_model: NetworkModelKind) -> Order {
        let made_here = |made_in: &str| NetworkModelKind::named(made_in) == Some(network_model);
        let here = self.plans.iter().all(|plan| made_here(&plan.order_made_in));
        self.free_order.filter(|_| here && order.keeps_to_plans()).unwrap_or(order)
    }

    /// Refuses plans that were not made for `scenario`.
    ///
    /// # Errors
    /// Names what differs.
    pub fn check_for(&self, scenario: &CollectiveScenario) -> Result<(), SimulateError> {
        const HINT: &str = "make the plan anew with `allrail plan`";
        if self.plans.len() != scenario.job.len() {
            return Err(field(
                "plan",
                counted(self.plans.len(), "collective"),
                format!("the scenario has {}", scenario.job.len()),
                HINT,
            ));
        }
        for (plan, collective) in self.plans.iter().zip(&scenario.job) {
            let other = |what: &str, value: String, ours: String| {
                field(
                    format!("plan.{what}"),
                    value,
                    format!("the plan was made for it; in the scenario it is {ours}"),
                    HINT,
                )
            };
            let (theirs, ours) = (&plan.fabric.dimensions, &scenario.fabric.dimensions);
            let shape = |dimensions: &[Dimension]| {
                dimensions.iter().map(|d| (d.kind, d.size)).collect::<Vec<_>>()
            };
            let same = match scenario.schedule.accept_plan {
                AcceptPlan::SameFabric => {
                    theirs.iter().eq(&ours.iter().map(Dimension::written).collect::<Vec<_>>())
                }
                AcceptPlan::SameShape => shape(theirs) == shape(ours),
            };
            if !same {
                return Err(other("fabric", describe(&plan.fabric), describe(&scenario.fabric)));
            }
            if plan.operation != collective.kind {
                return Err(other(
                    "operation",
                    plan.operation.to_string(),
                    collective.kind.to_string(),
                ));
            }
            if plan.endpoint_delay != scenario.schedule.endpoint_delay {
                return Err(other(
                    "endpoint_delay",
                    plan.endpoint_delay.to_string(),
                    scenario.schedule.endpoint_delay.to_string(),
                ));
            }
            if let Some(ours) = &scenario.schedule.algorithms
                && !ours.allow(&plan.algorithms)
            {
                return Err(other("algorithms", plan.algorithms.join(", "), ours.to_string()));
            }
            let own = &scenario.schedule.programs;
            let differs = |name: &&String| {
                own.get(name).is_some_and(|one| plan.programs.get(name) != Some(one))
            };
            if let Some(name) = plan.algorithms.iter().find(differs) {
                return Err(other("programs", name.clone(), "another of this name".to_owned()));
            }
            if plan.check_size(collective.size).is_err() {
                let holds_for = plan.holds_for().to_string();
                return Err(other("size", holds_for, collective.size.to_string()));
            }
            if plan.dimensions != scenario.request(collective).spanned() {
                let names = |ids: &[DimensionId]| {
                    ids.iter().map(|id| id.name()).collect::<Vec<_>>().join(", ")
                };
                return Err(other(
                    "dimensions",
                    names(&plan.dimensions),
                    names(&scenario.request(collective).spanned()),
                ));
            }
        }
        Ok(())
    }
}

/// A fabric in one line.
fn describe(fabric: &Fabric) -> String {
    let dimensions: Vec<String> = fabric
        .dimensions
        .iter()
        .map(|d| {
            let kind = serde_json::to_value(d.kind).unwrap_or_default();
            let kind = kind.as_str().unwrap_or_default();
            format!("{kind} of {}, {} x {}, {}", d.size, d.links, d.bandwidth, d.latency)
        })
        .collect();
    format!("{} [{}]", fabric.name, dimensions.join("; ")).trim().to_owned()
}
