//! The tests of `allrail-collective`, one module a subject, linked once.

mod closed_forms;
mod composition;
mod grid;
mod grid_group;
mod in_network;
mod msccl;
mod mutations;
mod rank;
