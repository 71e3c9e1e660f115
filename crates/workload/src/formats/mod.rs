//! Workloads in other tools' words, as step graphs.
//!
//! - [`astra_sim`]: the training loops of ASTRA-sim 1.0's layer files, and SimAI's superset of them.
//! - [`ranks`]: which parts of dimensions a regular set of ranks is.

pub mod astra_sim;
pub mod ranks;
