//! How long bounds by cuts take on one core.
//!
//! ```console
//! $ cargo run --release -p allrail-schedule --example cut_speed
//! ```

use std::time::Instant;

use allrail_collective::Operation;
use allrail_core::Bytes;
use allrail_fabric::topologies::read;
use allrail_schedule::cuts::{Network, lower};
use serde_json::json;

#[expect(clippy::print_stdout, reason = "what it is for")]
fn main() {
    println!("| torus less a cable, NPUs | operation | time (ms) |\n|---:|---|---:|");
    for side in [4, 11, 32] {
        let keys = json!({"topology": "torus", "shape": [side, side], "failed_links": [[0, 1]]});
        let graph = read(keys).expect("a topology").simulated().expect("a graph");
        let network = Network::of_graph(&graph, 1);
        let members: Vec<u32> = (0..graph.npus()).collect();
        for operation in Operation::ALL {
            let begin = Instant::now();
            lower(&network, operation, &members, Bytes::new(1 << 30), false).expect("it is whole");
            let milliseconds = begin.elapsed().as_secs_f64() * 1e3;
            println!("| {} | {operation} | {milliseconds:.2} |", members.len());
        }
    }
}
