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
const BLOCKS: usize = 201;
const STEPS: usize = 10;

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

/// What this process has computed so far: unlike time on the wall, others do not lengthen it much.
fn computed() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

/// So many steps on all nodes: seconds on the wall, and of computing.
fn block(nodes: &[Rank], memory: &mut [Vec<f32>]) -> [f64; 2] {
    let (start, before) = (Instant::now(), computed());
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
    [start.elapsed().as_secs_f64(), computed() - before]
}

#[expect(clippy::print_stdout, reason = "it reports")]
fn main() -> Result<(), RuntimeError> {
    let (without, with) = (nodes(0)?, nodes(1 << 18)?);
    let mut memory = vec![vec![0.0; TENSORS * ELEMENTS]; RANKS as usize];
    let mut pairs = Vec::new();
    for number in 0..BLOCKS {
        let first = block(if number % 2 == 0 { &without } else { &with }, &mut memory);
        let second = block(if number % 2 == 0 { &with } else { &without }, &mut memory);
        pairs.push(if number % 2 == 0 { (first, second) } else { (second, first) });
    }
    for (place, what) in ["time", "computing"].into_iter().enumerate() {
        let mut ratios: Vec<f64> =
            pairs.iter().map(|(without, with)| with[place] / without[place]).collect();
        ratios.sort_by(f64::total_cmp);
        // The interval of the median, by order.
        let half = 0.98 * (BLOCKS as f64).sqrt();
        let at = |offset: f64| ratios[(BLOCKS as f64 / 2.0 + offset) as usize];
        let (low, median, high) = (at(-half), at(0.0), at(half));
        println!("{what}, with recording / without: {median:.4} (95 %: {low:.4} to {high:.4})");
    }
    Ok(())
}
