//! A pass of a microbatch, as one entry of the order in which a position of a pipeline runs them.

/// What a pass does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// Forward.
    Forward,
    /// The gradients of inputs and weights.
    Backward,
    /// The gradients of inputs alone.
    Inputs,
    /// Those of weights, some time after.
    Weights,
}

/// A pass of one microbatch through one piece of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What it does.
    pub turn: Turn,
    /// Which microbatch.
    pub microbatch: u32,
    /// Which piece of the model, along the forward pass.
    pub piece: u32,
    /// 1 of the pipeline that goes up the positions.
    pub direction: u32,
    /// Whether it runs side by side with the next one in order.
    pub beside: bool,
    /// Whether its gradient was sent in the iteration before.
    pub carried: bool,
}

impl Slot {
    /// Whether gradients of weights are there after it, and activations are no longer needed.
    #[must_use]
    pub fn ends(self) -> bool {
        matches!(self.turn, Turn::Backward | Turn::Weights)
    }
}
