//! The tests of `allrail-workload`, one module a subject, linked once.

mod astra_sim;
mod bad_input;
mod chakra;
mod chakra_streams;
mod common;
mod context;
mod disturbances;
mod experts;
mod fuzz;
mod halves;
mod hugging_face;
mod kineto;
mod kineto_groups;
mod kineto_host;
mod layout;
mod overlapped;
mod parallelism;
mod presets;
mod recompute;
mod shards;
mod steps;
