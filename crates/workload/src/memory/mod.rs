//! Memory per NPU: what a step holds at its fullest, by kind.
//!
//! | kind | bytes | where |
//! |---|---|---|
//! | parameters, gradients, optimizer | what is kept of them between steps | `states` |
//! | gathered | parameters of ZeRO 3 that are whole for a while | `states` |
//! | activations | what forward passes have kept for the backward passes in flight | `passes` |
//! | working | what one block's pass holds besides: what is computed again, gradients within it, inputs that tensor parallelism has gathered, gradients on their way to their shards | `passes` |
//! | loss | the words of the head and what the loss makes of them | `passes` |
//! | fragmentation | what the allocator has and cannot use: a share of what is in use, and the update's copies, which are of one piece, or what passes have given back, whichever is less | here |
//! | context | of the driver, of libraries, of communicators | here |
//!
//! So mixed-precision Adam keeps 16 bytes a parameter (Rajbhandari et al., SC'20, §3.1). The position of a
//! pipeline that needs most is given.
//!
//! **What others print.** `nvidia-smi` shows all of it; PyTorch's `max_memory_reserved` all but the context;
//! `max_memory_allocated` neither that nor fragmentation. **What fits** is judged without fragmentation: an
//! allocator that finds nothing gives back what it holds in vain, and tries again.
//!
//! Ignored: workspaces of libraries of products (some ten MB), buffers of stages' messages.

mod passes;
mod states;

use allrail_core::Bytes;

use crate::parallelism::plan::Plan;
use crate::parallelism::slot::Slot;
use crate::spec::Axis;

/// What an allocator holds beyond what is in use, as a part of that. Chosen, with torchtitan's published peaks
/// in view (Llama-3.1-8B on 8 and 128 H100s): those of compiled blocks leave 5 %, of eager ones 12 %.
const FRAGMENTATION: (u64, u64) = (1, 20);

/// Of the driver and of loaded kernels, of a GPU: what BigScience's log saw of an A100 before anything was
/// allocated (1,573 MiB). Later versions of CUDA, which load kernels when they are first used, take about a third.
const CONTEXT: u64 = 1573 << 20;

/// Of a communicator: 16 channels with a buffer each for two neighbours, of 4 MiB (`NCCL_BUFFSIZE`) and as much
/// again for its protocols of low latency.
const COMMUNICATOR: u64 = 16 * 2 * (8 << 20);

/// What one NPU holds, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Parameters, as they are between steps.
    pub parameters: Bytes,
    /// Gradients, of shards or whole.
    pub gradients: Bytes,
    /// The optimizer's state.
    pub optimizer: Bytes,
    /// Parameters that ZeRO 3 has whole at one time.
    pub gathered: Bytes,
    /// Activations that are kept of all microbatches in flight.
    pub activations: Bytes,
    /// What a pass over one block holds besides.
    pub working: Bytes,
    /// Words of the head, and the loss.
    pub loss: Bytes,
    /// What an allocator holds in vain.
    pub fragmentation: Bytes,
    /// Of the driver, libraries and communicators.
    pub context: Bytes,
    /// What the device has, where it is known.
    pub capacity: Option<Bytes>,
}

impl Memory {
    /// Its parts with their names, in the order in which they are shown.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, Bytes); 9] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("gathered", self.gathered),
            ("activations", self.activations),
            ("working", self.working),
            ("loss", self.loss),
            ("fragmentation", self.fragmentation),
            ("context", self.context),
        ]
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> Bytes {
        let add = |sum: u64, (_, part): (&str, Bytes)| sum.saturating_add(part.count());
        Bytes::new(self.parts().into_iter().fold(0, add))
    }

    /// What there has to be at least: all but fragmentation.
    #[must_use]
    pub fn needed(&self) -> Bytes {
        Bytes::new(self.total().count().saturating_sub(self.fragmentation.count()))
    }

    /// Whether the device has enough; `None` where its memory is not known.
    #[must_use]
    pub fn fits(&self) -> Option<bool> {
        self.capacity.map(|capacity| self.needed() <= capacity)
    }

    /// In words: what is needed, and whether it fits.
    #[must_use]
    pub fn words(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
        let shown = |bytes: Bytes| format!("{:.2} GB", bytes.count() as f64 / 1e9);
        let needs = format!("an NPU needs {}", shown(self.needed()));
        match self.capacity {
            None => needs,
            Some(capacity) if self.needed() <= capacity => {
                format!("{needs} of its {}", shown(capacity))
            }
            Some(capacity) => {
                format!("this layout does not fit: {needs} and has {}", shown(capacity))
            }
        }
    }
}

/// Of the position that needs most.
pub(crate) fn estimate(plan: &Plan<'_>, orders: &[Vec<Slot>]) -> Memory {
    let on = |position: u32| {
        let states = states::on(plan, position);
        let passes = passes::of(plan, position, &orders[position as usize]);
        let [parameters, gradients, optimizer, gathered, activations, working, loss] = [
            states.parameters,
            states.gradients,
            states.optimizer,
            states.gathered,
            passes.kept,
            passes.working,
            passes.loss,
        ]
        .map(Bytes::new);
        let mut memory = Memory {
            parameters,
            gradients,
            optimizer,
            gathered,
            activations,
            working,
            loss,
            capacity: plan.device.memory,
            ..Memory::default()
        };
        // A pass or the update: what one of them has given back is in parts that are of no use to the other.
        let within = working.count() + activations.count() + loss.count();
        memory.working = Bytes::new(working.count() + states.update.saturating_sub(within));
        let (part, of) = FRAGMENTATION;
        let scattered = memory.total().count() / of * part;
        memory.fragmentation = Bytes::new(scattered + states.update.min(within));
        memory.context = Bytes::new(context(plan));
        memory
    };
    (0..plan.pipeline.positions).map(on).max_by_key(Memory::total).unwrap_or_default()
}

/// Of a device whose kernels are known; of others nothing is. Each degree has a communicator, and all ranks
/// together one, for the loss and the norm of gradients; stages have one more for messages to both neighbours, and
/// one for a tied table's gradient.
fn context(plan: &Plan<'_>) -> u64 {
    if !plan.device.has_kernels {
        return 0;
    }
    let groups = Axis::ALL.into_iter().filter(|axis| plan.degree(*axis) > 1).count() as u64;
    let staged = plan.pipeline.positions > 1;
    let others = [groups > 1, staged, staged && plan.model.tied > 0];
    let others = others.into_iter().map(u64::from).sum::<u64>();
    CONTEXT + (groups + others) * COMMUNICATOR
}
