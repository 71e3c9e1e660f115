//! The tests of `allrail-workload`, one module a subject, linked once.

mod astra_sim;
mod bad_input;
mod chakra;
mod common;
mod context;
mod disturbances;
mod fuzz;
mod hugging_face;
mod kineto;
mod kineto_host;
mod layout;
mod parallelism;
mod presets;
mod recompute;
mod shards;
mod steps;
