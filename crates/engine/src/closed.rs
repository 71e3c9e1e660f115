//! Which operations are over: of a tensor all generations before one, and parts of that; of calls all before
//! one, and some after it. So what is kept grows with the tensors and with what is under way, not with time.

use std::collections::{BTreeMap, BTreeSet};

use allrail_schedule::operation::{Key, OperationName};

#[derive(Clone, Debug, Default)]
struct OfTensor {
    generation: u64,
    parts: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
struct OfCalls {
    /// All before this one.
    next: u64,
    beyond: BTreeSet<u64>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed {
    tensors: BTreeMap<(u32, Key), OfTensor>,
    /// By group.
    calls: BTreeMap<u32, OfCalls>,
}

impl Closed {
    pub(crate) fn close(&mut self, name: OperationName) {
        if let Some(number) = name.key.number_of_call() {
            let calls = self.calls.entry(name.group).or_default();
            calls.beyond.insert(number);
            while calls.beyond.first() == Some(&calls.next) {
                calls.beyond.pop_first();
                calls.next += 1;
            }
            return;
        }
        let closed = self.tensors.entry((name.group, name.key)).or_default();
        if closed.generation < name.generation {
            closed.generation = name.generation;
            closed.parts.clear();
        }
        if let Err(place) = closed.parts.binary_search(&name.part) {
            closed.parts.insert(place, name.part);
        }
    }

    /// A name may be used again, from its first generation on.
    pub(crate) fn forget(&mut self, group: u32, key: Key) {
        self.tensors.remove(&(group, key));
    }

    pub(crate) fn contains(&self, name: OperationName) -> bool {
        if let Some(number) = name.key.number_of_call() {
            let calls = self.calls.get(&name.group);
            return calls.is_some_and(|one| number < one.next || one.beyond.contains(&number));
        }
        self.tensors.get(&(name.group, name.key)).is_some_and(|closed| {
            name.generation < closed.generation
                || (name.generation == closed.generation
                    && closed.parts.binary_search(&name.part).is_ok())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_calls_is_what_is_out_of_order() {
        let name = |count| OperationName { key: Key::call(count), ..OperationName::default() };
        let mut closed = Closed::default();
        for round in 0..10_000 {
            // Every first of three ends last.
            for count in [1, 2, 0].map(|of| 3 * round + of) {
                assert!(!closed.contains(name(count)));
                closed.close(name(count));
                assert!(closed.contains(name(count)));
            }
            assert!(closed.calls[&0].beyond.is_empty());
        }
        assert!(closed.tensors.is_empty() && !closed.contains(name(30_000)));
        assert!(!closed.contains(OperationName { group: 1, ..name(0) }));
    }
}
