//! The tests of `allrail-world`, one module a subject, linked once.

mod contract;
mod flows_shares;
mod flows_solver;
mod flows_world;
mod links_oracle;
mod packets_common;
mod packets_flowlets;
mod packets_laws;
mod packets_oracle;
