//! What `fifo`, `ddp` and `fusion` share: operations of whole tensors, started as soon as they are
//! made up; the network serves them first come, first served.

use allrail_core::Bytes;

use super::flying::Flying;
use super::{Action, Exchange, Leg, OperationId, Piece, Pieces, Tensor};

/// Operations of whole tensors.
pub(super) struct Whole {
    sizes: Vec<Bytes>,
    exchange: Exchange,
    /// Whether a tensor is ready and not done.
    open: Vec<bool>,
    flying: Flying<(Leg, Vec<u32>)>,
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
        let leg = match self.exchange {
            Exchange::AllReduce => Leg::Whole,
            Exchange::ParameterServer => Leg::Push,
        };
        self.start(leg, list, actions);
    }

    /// Starts what a coordinator has packed as it is.
    pub(super) fn together(&mut self, tensors: &[u32], actions: &mut Vec<Action>) {
        for tensor in tensors {
            self.ready(*tensor);
        }
        self.launch(tensors, actions);
    }

    fn start(&mut self, leg: Leg, tensors: Vec<u32>, actions: &mut Vec<Action>) {
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
        let operation = self.flying.start((leg, tensors));
        actions.push(Action::Start { operation, leg, pieces, priority: 0 });
    }

    /// An operation is over: a push is followed by its pull, anything else ends its tensors.
    pub(super) fn finished(&mut self, operation: OperationId, actions: &mut Vec<Action>) {
        let (leg, tensors) = self.flying.end(operation);
        match leg {
            Leg::Push => self.start(Leg::Pull, tensors, actions),
            Leg::Whole | Leg::Pull => self.done(tensors, actions),
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
