//! Decides what the nodes are made from, and refuses what does not go together.

use std::collections::BTreeMap;

use allrail_core::{FieldError, counted};

use super::batch::Batches;
use super::layout::Layout;
use super::order::Pipeline;
use super::plan::{Plan, Times};
use super::{compressed, pieces, tables};
use crate::device::Device;
use crate::error::wrong;
use crate::models::{self, Cut, Layer, ModelLayers};
use crate::spec::{Axis, PipelineSchedule, Recompute, Workload};

/// Of layers and microbatches: an iteration has some four nodes for each.
const MOST_PASSES: u64 = 8_000_000;
/// The ranks of every class are listed.
const MOST_NPUS: u64 = 1 << 24;
/// Decides.
///
/// # Errors
/// Anything that does not go together.
pub(crate) fn plan<'w>(workload: &'w Workload, sizes: &[u32]) -> Result<Plan<'w>, FieldError> {
    let model = models::model(workload)?;
    let npus = sizes.iter().try_fold(1u64, |product, size| product.checked_mul((*size).into()));
    if npus.is_none_or(|npus| npus == 0 || npus > MOST_NPUS) {
        let shown: Vec<String> = sizes.iter().map(u32::to_string).collect();
        let why = format!("a training step takes 1 to {MOST_NPUS} NPUs");
        let hint = "take a smaller fabric";
        return Err(FieldError::new("fabric", shown.join(" × "), why, hint));
    }
    let layout = Layout::new(&workload.parallelism, sizes)?;
    let parallelism = &workload.parallelism;
    let replicas = layout.degree(Axis::Dp) * layout.degree(Axis::Ep);
    let Batches { replica: batch, microbatches } =
        Batches::new(workload, replicas, layout.degree(Axis::Pp))?;
    if workload.iterations == 0 {
        return Err(wrong("iterations", 0, "it is zero", "at least 1"));
    }
    compressed::check_apart(workload)?;
    can_be_counted(workload, &model, &layout, microbatches)?;
    let pipeline = pipeline(workload, &layout, microbatches)?;
    let mut plan = Plan {
        pieces: pieces::cut(&model, pipeline.total_pieces(), parallelism)?,
        device: Device::new(&workload.compute, workload.precision)?,
        samples: u64::from(batch / microbatches),
        times: Vec::new(),
        gradient_precision: workload.gradient_precision.unwrap_or(workload.precision),
        compression: compressed::compression(workload)?,
        rows: BTreeMap::new(),
        workload,
        model,
        layout,
        pipeline,
    };
    plan.divides()?;
    plan.cuts_tokens()?;
    plan.experts_go_together()?;
    plan.overlaps_tensors()?;
    plan.shards_go_together()?;
    plan.goes_without_flush()?;
    plan.rows = tables::find(&plan)?;
    plan.has_what_is_recomputed()?;
    plan.times = plan.times()?;
    plan.is_run_to_its_end()?;
    Ok(plan)
}

/// Refuses an iteration of too many nodes.
fn can_be_counted(
    workload: &Workload,
    model: &ModelLayers,
    layout: &Layout,
    microbatches: u32,
) -> Result<(), FieldError> {
    let parallelism = &workload.parallelism;
    let mut parts = parallelism.context.parts(u64::from(layout.degree(Axis::Cp)));
    if parallelism.async_tp {
        parts += 2 * u64::from(layout.degree(Axis::Tp));
    }
    let passes = model.layers.len() as u64 * u64::from(microbatches) * parts;
    if passes > MOST_PASSES {
        let why = format!("{passes} passes of a layer are more than {MOST_PASSES} an iteration");
        let hint = "take fewer and larger microbatches";
        return Err(wrong("parallelism.microbatches", microbatches, &why, hint));
    }
    Ok(())
}

fn pipeline(
    workload: &Workload,
    layout: &Layout,
    microbatches: u32,
) -> Result<Pipeline, FieldError> {
    let parallelism = &workload.parallelism;
    let pieces = match (parallelism.schedule, parallelism.virtual_stages) {
        (PipelineSchedule::Interleaved, given) => given.unwrap_or(2),
        (_, None | Some(1)) => 1,
        (schedule, Some(given)) => {
            let why = format!("`{}` has one piece of the model per stage", schedule.tag());
            let hint = "take `schedule: interleaved`";
            return Err(wrong("parallelism.virtual_stages", given, &why, hint));
        }
    };
    if pieces == 0 {
        return Err(wrong("parallelism.virtual_stages", 0, "it is zero", "at least 1"));
    }
    if parallelism.zero > 3 {
        return Err(wrong("parallelism.zero", parallelism.zero, "there is no such", "0 to 3"));
    }
    let positions = layout.degree(Axis::Pp);
    let pieces = if positions == 1 { 1 } else { pieces };
    let pipeline = Pipeline { positions, microbatches, pieces, schedule: parallelism.schedule };
    pipeline.check()?;
    Ok(pipeline)
}

impl Plan<'_> {
    /// Whether the model can be cut so.
    fn divides(&self) -> Result<(), FieldError> {
        let parallelism = &self.workload.parallelism;
        let (tp, op, ep) = (self.degree(Axis::Tp), self.degree(Axis::Op), self.degree(Axis::Ep));
        let uncut = |axis: &str, degree: u64, layer: &Layer, hint: &str| {
            let why = format!("layer `{}` cannot be cut so", layer.name);
            Err(wrong(&format!("parallelism.{axis}"), degree, &why, hint))
        };
        for layer in &self.model.layers {
            if tp > 1 && !matches!(layer.cut, Cut::Tensor { .. }) {
                return uncut("tp", tp, layer, "`tp` cuts transformers alone");
            }
            if op > 1 && !matches!(layer.cut, Cut::Spatial { .. } | Cut::Gathered { .. }) {
                return uncut("op", op, layer, "give every layer a `halo` (0: none) or `gathered`");
            }
            if self.pipeline.positions > 1 && matches!(layer.cut, Cut::Tables { .. }) {
                return uncut(
                    "pp",
                    self.degree(Axis::Pp),
                    layer,
                    "tables are spread over replicas",
                );
            }
        }
        if parallelism.sp && tp == 1 {
            let hint = "leave it out, or give `tp`";
            return Err(wrong("parallelism.sp", true, "it cuts what `tp` does not", hint));
        }
        for (name, number) in &self.model.divisible {
            if !number.is_multiple_of(tp) {
                let why = format!("it does not divide the {number} {name}");
                let hint = format!("a divisor of {number}");
                return Err(wrong("parallelism.tp", tp, &why, &hint));
            }
        }
        if let Some(heads) = self.model.kv_heads
            && !heads.is_multiple_of(tp)
            && !tp.is_multiple_of(heads)
        {
            let why = format!(
                "the {heads} of keys and values are neither divided nor copied",
                heads = counted(heads, "head")
            );
            return Err(wrong("parallelism.tp", tp, &why, "a divisor or a multiple"));
        }
        if ep > 1 {
            let counts: Vec<u64> = self
                .model
                .layers
                .iter()
                .filter_map(|l| l.experts)
                .map(|experts| u64::from(experts.count))
                .collect();
            if counts.is_empty() {
                let hint = "leave `ep` out: `dp` takes the NPUs";
                return Err(wrong("parallelism.ep", ep, "the model has no experts", hint));
            }
            if let Some(count) = counts.iter().find(|count| !count.is_multiple_of(ep)) {
                let why =
                    format!("it does not divide the {count}", count = counted(*count, "expert"));
                let hint = format!("a divisor of {count}");
                return Err(wrong("parallelism.ep", ep, &why, &hint));
            }
        }
        Ok(())
    }

    /// Whether there is something of the kind.
    ///
    /// # Errors
    /// There is not.
    pub(crate) fn has_what_is_recomputed(&self) -> Result<(), FieldError> {
        let recompute = self.workload.parallelism.recompute;
        if recompute == Recompute::None || self.recomputed() > 0.0 {
            return Ok(());
        }
        let why = format!("`{}` has nothing of the kind to compute again", self.model.name);
        let hint = "`selective` and `alternate` repeat parts of attention layers and of blocks of transformers, `full` the layers of transformers and models by shape";
        Err(FieldError::new("workload.parallelism.recompute", recompute.tag(), why, hint))
    }

    /// Whether a step is neither too large to hold nor too long to count in picoseconds.
    fn is_run_to_its_end(&self) -> Result<(), FieldError> {
        const MONTH: f64 = 30.0 * 86_400.0;
        let each = |times: &Times| times.forward.as_s() + times.input.as_s() + times.weight.as_s();
        let step: f64 = self.times.iter().map(each).sum();
        let all = step
            * f64::from(self.pipeline.microbatches)
            * (f64::from(self.workload.iterations) + 1.0);
        if all > MONTH {
            let why = format!("all iterations compute for {:.1} days", all / 86_400.0);
            let hint = "30 days are counted; take fewer iterations or a faster device";
            return Err(wrong("iterations", self.workload.iterations, &why, hint));
        }
        Ok(())
    }
}
