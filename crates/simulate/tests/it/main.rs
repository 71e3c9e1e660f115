//! The tests of `allrail-simulate`, one module a subject, linked once.

mod agreement;
mod broadcast_and_all_to_all;
mod common;
mod concurrent_collectives;
mod coordination;
mod expected_in_links;
mod job_loads;
mod jobs;
mod laws;
mod models_agree;
mod over_cables;
mod parity;
mod planned_in_messages;
mod send_ahead;
mod servers_oracle;
mod stall;
mod traffic;
mod training;
mod training_communicators;
mod training_coordination;
mod training_layouts;
mod training_messages;
mod training_network;
mod training_part;
mod training_servers;
mod training_slow_links;
