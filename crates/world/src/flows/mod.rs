//! `flows`.
mod balance;
mod best;
mod detours;
mod paths;
pub mod phase;
pub mod splitting;
mod symmetry;
mod trunk;
pub use phase::{Phase, Phases};
pub use splitting::Splitting;
