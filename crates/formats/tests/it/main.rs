//! The tests of `allrail-formats`, one module a subject, linked once.

mod astra_sim;
mod chakra;
mod chakra_streams;
mod common;
mod fuzz;
mod kineto;
mod kineto_groups;
mod kineto_host;
mod written;
