//! What recording costs: nodes in one process exchange the same tensors with and without, in turns.
//!
//! `cargo run --release -p allrail-runtime --example recording_cost`

use std::sync::Arc;
use std::time::{Duration, Instant};

use allrail_runtime::{Node, Registered, RuntimeError, Settings};
use allrail_schedule::Key;
use serde_json::json;

const RANKS: u32 = 2;
const TENSORS: usize = 60;
const ELEMENTS: usize = 16 << 10;
const BLOCKS: usize = 31;
const STEPS: usize = 100;

/// A rank, and its tensors.
type Rank = (Arc<Node>, Vec<Key>);

fn nodes(records: u32) -> Result<Vec<Rank>, RuntimeError> {
    let node = |rank| {
        let dimension = json!({"size": RANKS, "bandwidth": "20 Gb/s", "latency": "20 us"});
        let text = json!({
            "rank": rank, "ranks": RANKS, "dimensions": [dimension], "records": records,
        });
        Node::bind(Settings::from_json(&text.to_string())?).map(Arc::new)
    };
    let nodes: Vec<Arc<Node>> = (0..RANKS).map(node).collect::<Result<_, _>>()?;
    let table: Vec<Vec<String>> = nodes.iter().map(|node| node.addresses().to_vec()).collect();
    std::thread::scope(|scope| {
        nodes.iter().for_each(|node| {
            scope.spawn(|| node.connect(&table, &mut || true).expect("all are there"));
        });
    });
    let tensors = |node: Arc<Node>| {
        let register = |place: usize| {
            let (name, dtype) = (format!("tensor {place}"), "float32".to_owned());
            let (shape, place) = (vec![ELEMENTS as u64], place as u32);
            node.register(Registered { name, dtype, shape, place, ..Registered::default() })
        };
        let keys = (0..TENSORS).map(register).collect::<Result<_, _>>()?;
        node.start()?;
        Ok((node, keys))
    };
    nodes.into_iter().map(tensors).collect()
}

/// So many steps on all nodes.
fn block(nodes: &[Rank], memory: &mut [Vec<f32>]) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for ((node, keys), memory) in nodes.iter().zip(memory) {
            scope.spawn(|| {
                for _ in 0..STEPS {
                    let mut under_way = Vec::new();
                    for (key, tensor) in keys.iter().zip(memory.chunks_mut(ELEMENTS)).rev() {
                        let pointer = tensor.as_mut_ptr().cast();
                        // SAFETY: nobody touches it until its exchange is over.
                        let generation = unsafe { node.submit(*key, pointer, ELEMENTS as u64) };
                        under_way.push((*key, generation.expect("it is taken")));
                    }
                    for (key, generation) in under_way.into_iter().rev() {
                        let over = node.wait(key, generation, Duration::from_secs(60));
                        assert!(over.expect("no fault"));
                    }
                }
            });
        }
    });
    start.elapsed()
}

#[expect(clippy::print_stdout, reason = "it reports")]
fn main() -> Result<(), RuntimeError> {
    let (without, with) = (nodes(0)?, nodes(1 << 18)?);
    let mut memory = vec![vec![0.0; TENSORS * ELEMENTS]; RANKS as usize];
    let mut ratios: Vec<f64> = (0..BLOCKS)
        .map(|number| {
            let mut time = |nodes: &[Rank]| block(nodes, &mut memory).as_secs_f64();
            let (first, second) = match number % 2 {
                0 => (time(&without), time(&with)),
                _ => {
                    let with = time(&with);
                    (time(&without), with)
                }
            };
            second / first
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let (low, median, high) = (ratios[BLOCKS / 4], ratios[BLOCKS / 2], ratios[BLOCKS * 3 / 4]);
    println!("with recording / without: {median:.4} (quartiles {low:.4}, {high:.4})");
    Ok(())
}
