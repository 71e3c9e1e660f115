//! The tensors that were registered, and which of them are done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use allrail_engine::{Broken, Dtype};
use allrail_schedule::Key;

use super::times::Times;
use crate::error::RuntimeError;
use crate::memory::Memory;
use crate::report::TensorReport;

/// A tensor, and how far it is.
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    elements: u64,
    pub(super) memory: Option<Memory>,
    /// How often it was submitted, and how often its exchange is over.
    pub(super) submitted: u64,
    pub(super) done: u64,
    /// When it was submitted.
    pub(super) times: Times,
}

impl Tensor {
    fn bytes(&self) -> u64 {
        self.elements.saturating_mul(u64::from(self.dtype.width()))
    }
}

/// Tensors whose exchange is over, for whoever asks for the next: each once, however often it was.
#[derive(Default)]
struct Completions {
    order: VecDeque<Key>,
    there: BTreeSet<Key>,
}

/// The tensors of this rank.
#[derive(Default)]
pub(crate) struct Tensors {
    all: BTreeMap<Key, Tensor>,
    completions: Completions,
}

impl Tensors {
    pub(super) fn insert(&mut self, key: Key, name: String, (dtype, elements): (Dtype, u64)) {
        let times = Times::default();
        let tensor = Tensor { name, dtype, elements, memory: None, submitted: 0, done: 0, times };
        self.all.insert(key, tensor);
    }

    pub(super) fn get(&self, key: Key) -> Option<&Tensor> {
        self.all.get(&key)
    }

    /// One that was registered.
    pub(super) fn known(&self, key: Key) -> Result<&Tensor, RuntimeError> {
        self.get(key).ok_or(RuntimeError::Engine(Broken::UnknownTensor(key)))
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.all.contains_key(&key)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Tensor)> + '_ {
        self.all.iter().map(|(key, one)| (*key, one))
    }

    /// All of them from this one on, and round.
    pub(super) fn turn(&self, first: Key) -> impl Iterator<Item = (Key, &Tensor)> + '_ {
        let (after, before) = (self.all.range(first..), self.all.range(..first));
        after.chain(before).map(|(key, one)| (*key, one))
    }

    pub(super) fn name(&self, key: Key) -> Option<&str> {
        self.get(key).map(|one| one.name.as_str())
    }

    /// What tensors are called.
    pub(crate) fn names(&self) -> BTreeMap<Key, String> {
        self.iter().map(|(key, one)| (key, one.name.clone())).collect()
    }

    /// All of them, by name.
    pub(crate) fn reports(&self) -> Vec<TensorReport> {
        let report = |one: &Tensor| TensorReport {
            name: one.name.clone(),
            bytes: one.bytes(),
            submitted: one.submitted,
            done: one.done,
        };
        let mut all: Vec<TensorReport> = self.all.values().map(report).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// All bytes of all tensors.
    pub(crate) fn bytes(&self) -> u64 {
        self.all.values().fold(0, |all, one| all.saturating_add(one.bytes()))
    }

    pub(crate) fn dtype_and_elements(&self, key: Key) -> Result<(Dtype, u64), RuntimeError> {
        self.known(key).map(|tensor| (tensor.dtype, tensor.elements))
    }

    /// Those whose exchange is under way.
    pub(super) fn under_way(&self) -> impl Iterator<Item = (Key, &Tensor)> + '_ {
        self.iter().filter(|(_, one)| one.submitted > one.done)
    }

    /// A tensor that is under way, if any: the first by name.
    pub(super) fn waited_for(&self) -> Option<String> {
        self.under_way().map(|(_, one)| one.name.clone()).min()
    }

    /// The next exchange of a tensor begins, in this memory.
    pub(super) fn submit(&mut self, key: Key, memory: Option<Memory>, at: u64) {
        if let Some(tensor) = self.all.get_mut(&key) {
            (tensor.memory, tensor.submitted) = (memory, tensor.submitted + 1);
            tensor.times.push(at);
        }
    }

    /// The last exchange was not begun after all.
    pub(super) fn withdraw(&mut self, key: Key) {
        if let Some(tensor) = self.all.get_mut(&key) {
            (tensor.memory, tensor.submitted) = (None, tensor.submitted - 1);
            tensor.times.pop();
        }
    }

    /// An exchange of a tensor is over: the memory that it was in. None where no tensor has this key.
    pub(super) fn done(&mut self, key: Key, generation: u64) -> Option<Option<Memory>> {
        let tensor = self.all.get_mut(&key)?;
        tensor.done = generation + 1;
        if self.completions.there.insert(key) {
            self.completions.order.push_back(key);
        }
        Some(tensor.memory.take())
    }

    pub(super) fn is_done(&self, key: Key, generation: u64) -> bool {
        self.get(key).is_some_and(|one| one.done > generation)
    }

    /// Tensors whose exchange is over since this was asked last, with how many were before the last.
    pub(super) fn take_completions(&mut self) -> Vec<(Key, u64)> {
        let order = std::mem::take(&mut self.completions.order);
        self.completions.there.clear();
        let generation = |key: &Key| self.get(*key).map_or(0, |one| one.done - 1);
        order.iter().map(|key| (*key, generation(key))).collect()
    }
}
