//! What `fifo`, `ddp` and `fusion` share: operations of whole tensors, started as soon as they are
//! made up; the network serves them first come, first served.

use allrail_core::Bytes;

use super::flying::Flying;
use super::{Action, Exchange, OperationId, Phase, Piece, Pieces, Tensor};

/// Operations of whole tensors.
pub(super) struct Whole {
    sizes: Vec<Bytes>,
    exchange: Exchange,
    /// Whether a tensor is ready and not done.
    open: Vec<bool>,
    flying: Flying<(Phase, Vec<u32>)>,
    /// Lists that are over, for the next ones.
    spare: Vec<Vec<u32>>,
}

impl Whole {
    pub(super) fn new(tensors: &[Tensor], exchange: Exchange) -> Self {
        Self {
            sizes: tensors.iter().map(|tensor| tensor.bytes).collect(),
            exchange,
            open: vec![false; tensors.len()],
            flying: Flying::new(),
            spare: Vec::new(),
        }
    }

    /// How large a tensor is.
    pub(super) fn size(&self, tensor: u32) -> u64 {
        self.sizes[tensor as usize].count()
    }

    /// A tensor has become ready.
    pub(super) fn ready(&mut self, tensor: u32) {
        let open = &mut self.open[tensor as usize];
        assert!(!*open, "tensor {tensor} was ready and is not done");
        *open = true;
    }

    /// Starts one operation of these tensors; without any bytes they are done at once.
    pub(super) fn launch(&mut self, tensors: &[u32], actions: &mut Vec<Action>) {
        let mut list = self.spare.pop().unwrap_or_default();
        list.extend_from_slice(tensors);
        let phase = match self.exchange {
            Exchange::AllReduce => Phase::Whole,
            Exchange::ParameterServer => Phase::Push,
        };
        self.start(phase, list, actions);
    }

    /// Starts what a coordinator has packed as it is.
    pub(super) fn together(&mut self, tensors: &[u32], actions: &mut Vec<Action>) {
        for tensor in tensors {
            self.ready(*tensor);
        }
        self.launch(tensors, actions);
    }

    fn start(&mut self, phase: Phase, tensors: Vec<u32>, actions: &mut Vec<Action>) {
        let pieces: Pieces = tensors
            .iter()
            .filter(|tensor| self.size(**tensor) > 0)
            .map(|tensor| Piece {
                tensor: *tensor,
                offset: Bytes::new(0),
                bytes: self.sizes[*tensor as usize],
            })
            .collect();
        if pieces.is_empty() {
            self.done(tensors, actions);
            return;
        }
        let operation = self.flying.start((phase, tensors));
        actions.push(Action::Start { operation, phase, pieces, priority: 0 });
    }

    /// An operation is over: a push is followed by its pull, anything else ends its tensors.
    pub(super) fn finished(&mut self, operation: OperationId, actions: &mut Vec<Action>) {
        let (phase, tensors) = self.flying.end(operation);
        match phase {
            Phase::Push => self.start(Phase::Pull, tensors, actions),
            Phase::Whole | Phase::Pull => self.done(tensors, actions),
        }
    }

    fn done(&mut self, mut tensors: Vec<u32>, actions: &mut Vec<Action>) {
        for tensor in tensors.drain(..) {
            self.open[tensor as usize] = false;
            actions.push(Action::Done { tensor });
        }
        self.spare.push(tensors);
    }
}
