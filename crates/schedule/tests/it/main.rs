//! The tests of `allrail-schedule`, one module a subject, linked once.

mod auto;
mod bound;
mod common;
mod cuts;
mod in_network_reduction;
mod never_below_the_baseline;
mod plan_check;
mod plan_key;
mod plugins;
mod purity;
mod queues;
mod shared_queue;
mod tensor_common;
mod tensor_laws;
mod tensor_parameters;
mod tensor_policies;
mod tensor_theorem;
mod themis;
mod trees;
mod whole_last;
