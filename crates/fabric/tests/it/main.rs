//! The tests of `allrail-fabric`, one module a subject, linked once.

mod common;
mod composed;
mod dimensions;
mod every_topology;
mod own_graphs;
mod routing_acyclic;
mod routing_paths;
mod routing_speed;
mod routing_walks;
mod table_ii;
mod topologies;
