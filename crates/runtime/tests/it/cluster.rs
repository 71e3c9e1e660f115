//! Ranks of a job in one process, each a node with threads and sockets of its own.

use std::sync::Arc;
use std::time::Duration;

use allrail_engine::Dtype;
use allrail_runtime::{Node, Registered, RuntimeError, Settings};
use allrail_schedule::Key;
use serde_json::{Value, json};

/// Bytes before and behind each tensor that nobody may write.
pub(crate) const GUARD: usize = 64;
const PATTERN: u8 = 0xa5;
/// No test waits longer.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Settings of ranks of these sizes on this machine.
pub(crate) fn settings(rank: u32, sizes: &[u32], more: &Value) -> Settings {
    let dimension = |size: &u32| json!({"size": size, "bandwidth": "10 Gb/s", "latency": "20 us"});
    let mut all = json!({
        "rank": rank,
        "ranks": sizes.iter().product::<u32>(),
        "dimensions": sizes.iter().map(dimension).collect::<Vec<_>>(),
        "secret": "5a".repeat(32),
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    Settings::from_json(&all.to_string()).expect("right settings")
}

/// What ranks may have between them: every law and fault is to hold over each.
pub(crate) fn links() -> [Value; 3] {
    [
        json!({"shared_memory": true}),
        json!({"shared_memory": false}),
        json!({"shared_memory": false, "tls": true}),
    ]
}

/// One link's settings with others beside.
pub(crate) fn over(link: &Value, more: &Value) -> Value {
    let mut all = link.clone();
    for (key, value) in more.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    all
}

/// All nodes, bound and connected.
pub(crate) fn connected(sizes: &[u32], more: &Value) -> Vec<Arc<Node>> {
    let ranks: u32 = sizes.iter().product();
    let nodes: Vec<Arc<Node>> = (0..ranks).map(|rank| bind(rank, sizes, more)).collect();
    let table: Vec<Vec<String>> = nodes.iter().map(|node| node.addresses().to_vec()).collect();
    connect_with(&nodes, &table);
    nodes
}

pub(crate) fn bind(rank: u32, sizes: &[u32], more: &Value) -> Arc<Node> {
    Arc::new(Node::bind(settings(rank, sizes, more)).expect("a free port"))
}

pub(crate) fn connect_with(nodes: &[Arc<Node>], table: &[Vec<String>]) {
    std::thread::scope(|scope| {
        for node in nodes {
            scope.spawn(|| node.connect(table, &mut || true).expect("all are there"));
        }
    });
}

/// A tensor's memory, with guards.
pub(crate) struct Held {
    pub(crate) dtype: Dtype,
    bytes: Vec<u8>,
}

impl Held {
    pub(crate) fn new(dtype: Dtype, content: &[u8]) -> Self {
        let mut bytes = vec![PATTERN; GUARD];
        bytes.extend_from_slice(content);
        bytes.extend([PATTERN; GUARD]);
        Self { dtype, bytes }
    }

    pub(crate) fn elements(&self) -> u64 {
        ((self.bytes.len() - 2 * GUARD) / self.dtype.width() as usize) as u64
    }

    pub(crate) fn pointer(&mut self) -> *mut u8 {
        self.bytes[GUARD..].as_mut_ptr()
    }

    pub(crate) fn content(&self) -> &[u8] {
        let end = self.bytes.len() - GUARD;
        let mut guards = self.bytes[..GUARD].iter().chain(&self.bytes[end..]);
        assert!(guards.all(|byte| *byte == PATTERN), "written outside");
        &self.bytes[GUARD..end]
    }
}

pub(crate) fn register(node: &Node, name: &str, held: &Held, place: u32) -> Key {
    let shape = vec![held.elements()];
    let dtype = held.dtype.name().to_owned();
    let tensor = Registered { name: name.to_owned(), dtype, shape, place, ..Registered::default() };
    node.register(tensor).expect("a tensor of a new name")
}

/// # Panics
/// If the node does not take it.
pub(crate) fn submit(node: &Node, key: Key, held: &mut Held) -> u64 {
    let elements = held.elements();
    // SAFETY: every test keeps what it has submitted until it is done, or the node is closed.
    unsafe { node.submit(key, held.pointer(), elements) }.expect("it is taken")
}

/// Waits without patience for a test that hangs.
pub(crate) fn wait(node: &Node, key: Key, generation: u64) -> Result<(), RuntimeError> {
    assert!(node.wait(key, generation, LONG)?, "it takes for ever");
    Ok(())
}

/// Nodes with one tensor each, started.
pub(crate) fn started(nodes: &[Arc<Node>], elements: usize) -> Vec<(Key, Held)> {
    nodes
        .iter()
        .map(|node| {
            let held = Held::new(Dtype::Float32, &vec![0; 4 * elements]);
            let key = register(node, "weight", &held, 0);
            node.start().expect("it starts");
            (key, held)
        })
        .collect()
}
