//! The tests of `allrail-network`, one module a subject, linked once.

mod contract;
mod flows_network_model;
mod flows_shares;
mod flows_solver;
mod links_oracle;
mod packets_common;
mod packets_flowlets;
mod packets_laws;
mod packets_oracle;
