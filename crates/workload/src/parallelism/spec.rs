//! `workload.parallelism`: how the model is cut, over which dimensions, and in which order stages run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::recompute::Recompute;

/// How the model is cut. The product of all degrees is the number of NPUs that are used.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parallelism {
    /// Data: replicas; what remains of the NPUs if left out.
    #[schemars(range(min = 1))]
    pub dp: Option<u32>,
    /// Tensor: each layer cut as Megatron does.
    #[schemars(range(min = 1))]
    pub tp: u32,
    /// Context: the tokens of a sample are cut; keys and values of attention travel.
    #[schemars(range(min = 1))]
    pub cp: u32,
    /// How they travel over `cp`: in a `ring`, block by block beside attention to the block before, or in an
    /// `all_gather` before attention.
    pub context: Context,
    /// Pipeline: stages.
    #[schemars(range(min = 1))]
    pub pp: u32,
    /// Expert: replicas that share one set of experts; the rest is replicated.
    #[schemars(range(min = 1))]
    pub ep: u32,
    /// An expert has room for so many times its even share of tokens, and computes as much; none is dropped and
    /// nothing padded if left out.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 1.25)]
    pub capacity_factor: Option<f64>,
    /// With `ep`: on how many nodes (places of the first dimension) a token visits experts at most.
    #[schemars(range(min = 1))]
    pub expert_nodes: Option<u32>,
    /// Operator: shards of the space of an image, with halos.
    #[schemars(range(min = 1))]
    pub op: u32,
    /// Sequence: with `tp`, reduce-scatter and all-gather instead of all-reduce.
    pub sp: bool,
    /// With `sp`: products of matrices and their gathers and scatters in parts, beside each other
    /// (`--tp-comm-overlap`).
    pub async_tp: bool,
    /// With `tp`: whether gradients of inputs are summed beside the gradient of the weights, as Megatron-LM does it,
    /// or behind it (PyTorch's DTensor, without `async_tp`).
    pub overlap_sums: bool,
    /// ZeRO: 1 cuts the optimizer's state over replicas, 2 the gradients too, 3 the parameters too.
    #[schemars(range(min = 0, max = 3))]
    #[schemars(extend("x-hint" = "ZeRO has the stages 0 to 3"))]
    pub zero: u8,
    /// With `zero`: over how many replicas, the nearest, states are cut; the rest holds copies (HSDP). Over all
    /// if left out.
    #[schemars(range(min = 1))]
    pub shard: Option<u32>,
    /// `zero: 3`: parameters are given back after the forward pass and gathered again for the backward pass;
    /// `false` keeps them until gradients have travelled.
    pub reshard: bool,
    /// `zero: 3`: how many blocks ahead parameters are gathered; 1 if left out.
    pub prefetch: Option<u32>,
    /// `zero: 3`: whether each parameter is cut for itself, as FSDP2 does it, so that a unit's are copied out of what
    /// was gathered, and its gradients into what is scattered; else a unit is one flat tensor.
    pub by_parameter: bool,
    /// Whether gradients travel once a step or after every microbatch; `microbatch` with `zero: 2` and 3 where
    /// there is no pipeline, else `step`, if left out.
    pub reduce: Option<Reduce>,
    /// Whether gradients travel beside the backward pass, or when it is over.
    pub overlap_gradients: bool,
    /// Whether a backward pass leaves its gradient, in the precision of parameters, beside the sum that it is
    /// added to (DeepSpeed's `bf16` optimizer), and not in it: memory holds both.
    pub separate_sums: bool,
    /// `zero: 1` and 2: whether updated parameters are gathered beside the next forward pass, or before it.
    pub overlap_parameters: bool,
    /// Whether a stage computes on while its output travels to the next one, or waits until it is there: only
    /// interleaved schedules of Megatron-LM overlap it (`--overlap-p2p-communication`).
    pub overlap_messages: bool,
    /// Without `sp`: the ranks of a tensor group send a share of a stage's output each, and the next stage's
    /// gather it (Narayanan et al., SC'21, §4.1).
    pub scatter_messages: bool,
    /// Into how many parts the batch is cut; the number of stages if left out.
    #[schemars(range(min = 1))]
    pub microbatches: Option<u32>,
    /// In which order a stage runs its microbatches.
    pub schedule: PipelineSchedule,
    /// `interleaved`: pieces of the model per stage; 2 if left out.
    #[schemars(range(min = 1))]
    pub virtual_stages: Option<u32>,
    /// How many layers each stage has, the first one first (of `interleaved` each piece); as even as it goes
    /// if left out.
    #[schemars(length(min = 1))]
    pub stages: Option<Vec<u32>>,
    /// Whether the embedding and the head count as a layer each where layers are shared out.
    pub ends_as_layers: bool,
    /// Which activations the backward pass computes again instead of keeping them.
    pub recompute: Recompute,
    /// Over which dimensions, from 0, each degree lies. `1[0:8]` is the inner 8 of dimension 1,
    /// `1[8:]` the rest; parts of a dimension share its bandwidth.
    pub map: Map,
}

impl Default for Parallelism {
    fn default() -> Self {
        Self {
            dp: None,
            tp: 1,
            cp: 1,
            context: Context::default(),
            pp: 1,
            ep: 1,
            capacity_factor: None,
            expert_nodes: None,
            op: 1,
            sp: false,
            async_tp: false,
            overlap_sums: true,
            zero: 0,
            shard: None,
            reshard: true,
            prefetch: None,
            by_parameter: false,
            reduce: None,
            overlap_gradients: true,
            separate_sums: false,
            overlap_parameters: true,
            overlap_messages: true,
            scatter_messages: false,
            microbatches: None,
            schedule: PipelineSchedule::default(),
            virtual_stages: None,
            stages: None,
            ends_as_layers: false,
            recompute: Recompute::default(),
            map: Map::new(),
        }
    }
}

/// In which order a stage runs its microbatches.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a schedule of a pipeline"))]
pub enum PipelineSchedule {
    /// All forward, then all backward.
    #[serde(rename = "gpipe")]
    GPipe,
    /// One forward, one backward, once the pipeline is full.
    #[default]
    #[serde(rename = "1f1b")]
    OneForwardOneBackward,
    /// The same with several pieces of the model per stage.
    Interleaved,
    /// Two pipelines in opposite directions.
    Chimera,
    /// 1F1B whose gradients of weights fill what would be idle (ZB-H1).
    ZeroBubble,
    /// Two pipelines in opposite directions, forward and backward passes side by side.
    DualPipe,
    /// 1F1B that is never flushed, with an update after every microbatch. A stage keeps the weights of every
    /// microbatch in flight (PipeDream).
    #[serde(rename = "pipedream")]
    PipeDream,
    /// 1F1B that is never flushed, with an update a step and two versions of the weights (PipeDream-2BW).
    #[serde(rename = "pipedream_2bw")]
    PipeDream2Bw,
    /// The same with one version: a backward pass finds other weights than its forward pass (PipeMare).
    #[serde(rename = "pipemare")]
    PipeMare,
}

impl PipelineSchedule {
    /// The tag in files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::GPipe => "gpipe",
            Self::OneForwardOneBackward => "1f1b",
            Self::Interleaved => "interleaved",
            Self::Chimera => "chimera",
            Self::ZeroBubble => "zero_bubble",
            Self::DualPipe => "dual_pipe",
            Self::PipeDream => "pipedream",
            Self::PipeDream2Bw => "pipedream_2bw",
            Self::PipeMare => "pipemare",
        }
    }

    /// Whether a step ends with an empty pipeline: all its passes are over before the next one's begin.
    #[must_use]
    pub const fn flushes(self) -> bool {
        !matches!(self, Self::PipeDream | Self::PipeDream2Bw | Self::PipeMare)
    }

    /// Whether a stage updates its parameters after every microbatch, and not once a step.
    #[must_use]
    pub const fn updates_each_microbatch(self) -> bool {
        matches!(self, Self::PipeDream)
    }

    /// How many versions of its weights a stage with so many behind it keeps: `PipeDream` one for each
    /// microbatch in flight (Narayanan et al., SOSP'19, §3.3), `PipeDream`-2BW two (ICML'21, §3.1), `PipeMare`
    /// one (Yang et al., `MLSys`'21).
    #[must_use]
    pub const fn versions(self, behind: u32) -> u64 {
        match self {
            Self::PipeDream => behind as u64 + 1,
            Self::PipeDream2Bw => 2,
            _ => 1,
        }
    }

    /// Whether each position has a stage of either direction.
    #[must_use]
    pub const fn goes_both_ways(self) -> bool {
        matches!(self, Self::Chimera | Self::DualPipe)
    }
}

/// How keys and values travel between the ranks that share a sample.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a way of keys and values"))]
pub enum Context {
    /// Block by block, beside attention to the block before.
    #[default]
    Ring,
    /// All at once, before attention.
    AllGather,
}

impl Context {
    /// The tag in files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::AllGather => "all_gather",
        }
    }

    /// In how many parts a layer runs over so many ranks.
    pub(crate) const fn parts(self, ranks: u64) -> u64 {
        match self {
            Self::Ring => ranks,
            Self::AllGather => 1,
        }
    }
}

/// When gradients travel.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a time at which gradients are reduced"))]
pub enum Reduce {
    /// Once, summed over all microbatches.
    Step,
    /// After every microbatch.
    Microbatch,
}

impl Reduce {
    /// The tag in files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Microbatch => "microbatch",
        }
    }
}

/// Degree to places: `{tp: [0], dp: ["1[8:]", 2]}`.
pub type Map = BTreeMap<Axis, Vec<Place>>;

impl Parallelism {
    /// How many ranks the degrees make; `None` where `dp` takes what remains.
    #[must_use]
    pub fn ranks(&self) -> Option<u64> {
        let degrees = [self.tp, self.cp, self.op, self.ep, self.pp, self.dp?];
        let product = degrees.into_iter().map(u64::from).try_fold(1u64, u64::checked_mul);
        Some(product.unwrap_or(u64::MAX))
    }
}

/// A degree of parallelism.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Tensor.
    Tp,
    /// Context.
    Cp,
    /// Operator.
    Op,
    /// Expert.
    Ep,
    /// Pipeline.
    Pp,
    /// Data.
    Dp,
}

impl Axis {
    /// All, innermost first where nothing else is said.
    pub const ALL: [Self; 6] = [Self::Tp, Self::Cp, Self::Op, Self::Ep, Self::Pp, Self::Dp];

    /// The tag in files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Cp => "cp",
            Self::Op => "op",
            Self::Ep => "ep",
            Self::Pp => "pp",
            Self::Dp => "dp",
        }
    }
}

/// A dimension, or a factor of one as text: of 64, `"1[0:8]"` is the inner 8 and `"1[8:]"` the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Place {
    /// A whole dimension, from 0.
    Dimension(u32),
    /// `"D[A:B]"`: coordinates on D that differ by multiples of A (1 where 0) below B.
    Factor(String),
}
