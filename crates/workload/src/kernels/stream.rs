//! Elementwise work and normalisation: as fast as the memory.
//!
//! time = bytes / (bandwidth · part reached) + start
//!
//! How many elements are moved depends on what is fused: run one by one, operators read and write their
//! tensors each; a compiler leaves the first read and the last write.

/// Elements that one sample moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Read and written in a forward pass, operator by operator.
    pub forward: u64,
    /// In a backward pass.
    pub backward: u64,
    /// As `forward`, fused.
    pub fused_forward: u64,
    /// As `backward`, fused.
    pub fused_backward: u64,
    /// Kernels of a forward pass, operator by operator; a backward pass has as many.
    pub kernels: u32,
    /// Whether tensor parallelism cuts it; else sequence parallelism alone does.
    pub cut: bool,
}

impl Stream {
    /// One that nothing fuses.
    #[must_use]
    pub const fn plain(forward: u64, backward: u64, kernels: u32, cut: bool) -> Self {
        Self { forward, backward, fused_forward: forward, fused_backward: backward, kernels, cut }
    }
}
