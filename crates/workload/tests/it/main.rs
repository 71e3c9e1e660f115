//! The tests of `allrail-workload`, one module a subject, linked once.

mod bad_input;
mod common;
mod context;
mod disturbances;
mod experts;
mod halves;
mod hugging_face;
mod layout;
mod overlapped;
mod parallelism;
mod presets;
mod recompute;
mod shards;
mod steps;
