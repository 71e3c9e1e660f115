//! Memory per NPU.

use allrail_core::Bytes;

/// What one NPU keeps, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Parameters.
    pub parameters: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// The optimizer's state.
    pub optimizer: Bytes,
    /// Activations of all microbatches in flight.
    pub activations: Bytes,
    /// What the device has, where it is known.
    pub capacity: Option<Bytes>,
}

impl Memory {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Bytes {
        let parts = [self.parameters, self.gradients, self.optimizer, self.activations];
        Bytes::new(parts.iter().map(|part| part.count()).sum())
    }

    /// Whether the device has enough; `None` where its memory is not known.
    #[must_use]
    pub fn fits(&self) -> Option<bool> {
        self.capacity.map(|capacity| self.total() <= capacity)
    }
}
