//! PyTorch's execution traces (`ExecutionTraceObserver`), where they are given instead of the profiler's.
//!
//! They hold every operator with its shapes and no times. What the backends of `torch.distributed` did is
//! taken from them, in order and with its sizes; all else takes no time here, and that is said aloud.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::events::{Events, HostWork};
use super::said::{Said, number, ranks, text};
use super::words::{self, Args};

/// Why operators are left out.
pub(super) const NO_TIMES: &str = "operators: an execution trace holds no times";

/// Microseconds between two communications: none that counts, so that they keep their order.
const NEXT: f64 = 1e-6;

/// A node: an operator, in any version of the schema.
#[derive(Deserialize)]
pub(super) struct Node {
    #[serde(default)]
    id: Option<u64>,
    #[serde(default)]
    name: String,
    #[serde(default, alias = "parent")]
    ctrl_deps: Option<Value>,
    #[serde(default)]
    inputs: Value,
    #[serde(default)]
    input_shapes: Option<Value>,
    #[serde(default)]
    input_types: Option<Value>,
    #[serde(default)]
    attrs: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    name: String,
    #[serde(default)]
    value: Value,
}

/// The nodes that speak of communication, until all are read.
#[derive(Default)]
pub(super) struct Nodes {
    /// By id.
    said: BTreeMap<u64, Call>,
}

/// A node that speaks of communication.
struct Call {
    parent: Option<u64>,
    name: String,
    said: Said,
    /// The higher, the more its words are worth.
    rank: u8,
}

impl Nodes {
    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.said.len()
    }

    pub(super) fn take(&mut self, node: Node, events: &mut Events) {
        if node.name.contains("process_group:init") {
            return Self::groups(&node, events);
        }
        let inputs = |name: &str| node.inputs.get(name).cloned();
        let arguments = Args::of_execution(
            inputs("shapes").or(node.input_shapes),
            inputs("types").or(node.input_types),
            inputs("values").or(Some(node.inputs.clone())),
            &node.attrs.into_iter().map(|attribute| (attribute.name, attribute.value)).collect(),
        );
        let said = words::of_host(&node.name, &arguments);
        match (node.id, said) {
            (Some(id), Some((said, rank))) => {
                let parent = number(node.ctrl_deps.as_ref());
                self.said.insert(id, Call { parent, name: node.name, said, rank });
            }
            _ => *events.dropped.entry(NO_TIMES).or_default() += 1,
        }
    }

    /// `[{"pg_name": "0", "ranks": [], "group_size": 2}]`, as text; no ranks are all.
    fn groups(node: &Node, events: &mut Events) {
        let values = node.inputs.get("values").unwrap_or(&node.inputs);
        let listed = values.get(0).and_then(Value::as_str).unwrap_or_default();
        let Ok(Value::Array(groups)) = serde_json::from_str(listed) else { return };
        for group in groups {
            let size = number(group.get("group_size"));
            let (ranks, _) = ranks(group.get("ranks"), size);
            if ranks.is_empty() {
                let size = size.and_then(|size| u32::try_from(size).ok());
                events.world_size = events.world_size.max(size);
            } else {
                events.groups.insert(text(group.get("pg_name")), ranks);
            }
        }
    }

    /// Communications in the order of the file: what the backend did, with what the calls around it say.
    pub(super) fn finish(self, events: &mut Events) {
        for (id, call) in &self.said {
            if words::backend(&call.name).is_none() {
                continue;
            }
            let mut around = vec![call];
            let mut below = *id;
            // A parent comes before its children; a file that says otherwise is not followed.
            while let Some(above) = around[around.len() - 1].parent.filter(|above| *above < below)
                && let Some(next) = self.said.get(&above)
            {
                around.push(next);
                below = above;
            }
            around.sort_by_key(|call| std::cmp::Reverse(call.rank));
            let said = around.iter().map(|call| call.said.clone()).reduce(Said::or);
            let said = said.unwrap_or_default();
            let name = &call.name;
            #[expect(clippy::cast_precision_loss, reason = "an order")]
            let start = events.own.len() as f64 * NEXT;
            let thread = "the backend".to_owned();
            events.own.push((HostWork { name: name.clone(), thread, start, end: start }, said));
        }
    }
}
