//! Which dimensions a layer's collectives span.
//!
//! | loop | forward and input gradient | weight gradient |
//! |---|---|---|
//! | `DATA`, `MICRO` | none | all |
//! | `MODEL`, `DISTRIBUTED_INFERENCE` | all | none |
//! | `HYBRID_DATA_MODEL` | the first | the others |
//! | `HYBRID_MODEL_DATA` | all but the first | the first |
//! | `HYBRID_TRANSFORMER` … | the first that make up a model's NPUs | the others |
//! | `HYBRID_DLRM` … | layer 0: all, others: none | all |
//!
//! Where a model's NPUs end within a dimension, it is cut in two parts. A model's NPU count of 1
//! means that no dimension is the model's. SimAI counts ranks in Megatron's order (tensor fastest,
//! then data with the experts inside, then pipeline), so that its groups follow from the sizes.

use allrail_core::{FieldError, counted, either};
use allrail_workload::graph::Part;

use super::file::{AstraSim, Loop, Options, Over};
use crate::ranks;

/// The parts that each kind of collective of a layer spans; empty where it does not take place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Involved {
    pub(super) forward: Vec<Part>,
    pub(super) gradient: Vec<Part>,
    pub(super) experts: Vec<Part>,
    pub(super) expert_replicas: Vec<Part>,
}

impl Involved {
    /// Of forward and input gradient, or of the weight gradient, with SimAI's exceptions.
    pub(super) fn of(&self, weight_gradient: bool, over: Option<Over>) -> &[Part] {
        match over {
            Some(Over::Experts) => &self.experts,
            Some(Over::ExpertReplicas) => &self.expert_replicas,
            None if weight_gradient => &self.gradient,
            None => &self.forward,
        }
    }
}

/// What layer `index` of a file spans on dimensions of these sizes.
pub(super) fn involved(
    file: &AstraSim,
    index: usize,
    sizes: &[u32],
) -> Result<Involved, FieldError> {
    let policy = match (file.training_loop, file.layers[index].parallelism) {
        (Loop::HybridCustomized, Some(own)) => own,
        (Loop::HybridCustomized, None) => {
            return Err(FieldError::new(
                format!("workload.model.astra_sim.layers[{index}].parallelism"),
                "",
                "a layer of `HYBRID_CUSTOMIZED` names its own parallelism",
                "write `DATA`, `MODEL`, `HYBRID_DATA_MODEL` or `HYBRID_MODEL_DATA`",
            ));
        }
        (general, _) => general,
    };
    let all = || parts(sizes, 0, sizes.len());
    let pair = |forward, gradient| Involved { forward, gradient, ..Involved::default() };
    Ok(match policy {
        Loop::HybridDlrm | Loop::HybridDlrmEnhanced if index == 0 => pair(all(), all()),
        Loop::Data | Loop::Micro | Loop::HybridDlrm | Loop::HybridDlrmEnhanced => {
            pair(Vec::new(), all())
        }
        Loop::Model | Loop::DistributedInference => pair(all(), Vec::new()),
        Loop::HybridDataModel => pair(parts(sizes, 0, 1), parts(sizes, 1, sizes.len())),
        Loop::HybridModelData => pair(parts(sizes, 1, sizes.len()), parts(sizes, 0, 1)),
        Loop::HybridTransformer | Loop::HybridTransformerFwdInBckwd => {
            transformer(&file.options, sizes)?
        }
        Loop::HybridCustomized => {
            return Err(FieldError::new(
                format!("workload.model.astra_sim.layers[{index}].parallelism"),
                "HYBRID_CUSTOMIZED",
                "a layer's own parallelism cannot be `HYBRID_CUSTOMIZED` again",
                "write `DATA`, `MODEL`, `HYBRID_DATA_MODEL` or `HYBRID_MODEL_DATA`",
            ));
        }
    })
}

/// Whole dimensions, those of one NPU left out.
fn parts(sizes: &[u32], from: usize, to: usize) -> Vec<Part> {
    (0u32..)
        .zip(sizes)
        .take(to)
        .skip(from)
        .filter(|(_, size)| **size > 1)
        .map(|(i, size)| Part { dimension: allrail_core::DimensionId(i), size: *size, stride: 1 })
        .collect()
}

fn transformer(options: &Options, sizes: &[u32]) -> Result<Involved, FieldError> {
    let npus: u64 = sizes.iter().map(|size| u64::from(*size)).product();
    let wrong = |field: &str, value: u64, why: String| {
        FieldError::new(
            format!("workload.model.astra_sim.options.{field}"),
            value,
            why,
            format!(
                "the dimensions have {} NPUs: take a divisor that cuts one evenly",
                shown(sizes)
            ),
        )
    };
    let (model, experts, stages) =
        (options.model_parallel, options.expert_parallel, options.pipeline_parallel);
    let cut = |field: &str, value: u64, stride: u64, count: u64| {
        ranks::parts(sizes, stride, count).ok_or_else(|| {
            wrong(
                field,
                value,
                format!(
                    "{count}, {stride} apart, cut no dimension evenly",
                    count = counted(count, "NPU")
                ),
            )
        })
    };
    for (field, value) in
        [("model_parallel", model), ("expert_parallel", experts), ("pipeline_parallel", stages)]
    {
        if value == 0 || !npus.is_multiple_of(value) {
            return Err(wrong(
                field,
                value,
                format!("it does not divide {npus}", npus = counted(npus, "NPU")),
            ));
        }
    }
    if !npus.is_multiple_of(model * stages) {
        let why = format!(
            "{model} a model and {stages} do not divide {npus}",
            model = counted(model, "NPU"),
            stages = counted(stages, "stage"),
            npus = counted(npus, "NPU")
        );
        return Err(wrong("pipeline_parallel", stages, why));
    }
    let replicas = npus / model / stages;
    if !replicas.is_multiple_of(experts) {
        let why = format!(
            "{replicas} {does} not make whole groups of {experts}",
            replicas = counted(replicas, "replica"),
            does = either(&replicas, "does", "do")
        );
        return Err(wrong("expert_parallel", experts, why));
    }
    Ok(Involved {
        forward: cut("model_parallel", model, 1, model)?,
        gradient: cut("model_parallel", model, model, replicas)?,
        experts: cut("expert_parallel", experts, model, experts)?,
        expert_replicas: cut("expert_parallel", experts, model * experts, replicas / experts)?,
    })
}

fn shown(sizes: &[u32]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ")
}
