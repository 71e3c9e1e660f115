//! The tensors that were registered, and which of them are done.

use std::collections::{BTreeSet, VecDeque};

use allrail_core::counted;
use allrail_engine::engine::{Event, Registration};
use allrail_engine::{Broken, Dtype};
use allrail_schedule::Key;

use super::State;
use super::progress::Times;
use crate::memory::Memory;
use crate::report::TensorReport;
use crate::{Fault, FaultKind, RuntimeError};

/// A tensor, and how far it is.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) elements: u64,
    pub(crate) memory: Option<Memory>,
    /// How often it was submitted, and how often its exchange is over.
    pub(crate) submitted: u64,
    pub(crate) done: u64,
    /// When it was submitted.
    pub(super) times: Times,
}

/// Tensors whose exchange is over, for whoever asks for the next: each once, however often it was.
#[derive(Default)]
pub(crate) struct Completions {
    order: VecDeque<Key>,
    there: BTreeSet<Key>,
}

impl Completions {
    fn push(&mut self, key: Key) {
        if self.there.insert(key) {
            self.order.push_back(key);
        }
    }
}

fn no_tensor(key: Key) -> RuntimeError {
    RuntimeError::Engine(Broken::UnknownTensor(key))
}

impl State {
    /// A tensor that will be submitted.
    pub(crate) fn register(&mut self, one: Registration) -> Result<Key, RuntimeError> {
        let (name, dtype) = (one.signature.name.clone(), one.signature.dtype.clone());
        let dtype = Dtype::named(&dtype).ok_or_else(|| {
            let known: Vec<&str> = Dtype::ALL.iter().map(|one| one.name()).collect();
            let why = format!("elements of tensor `{name}` cannot be summed");
            RuntimeError::setting("dtype", &dtype, why, format!("one of {}", known.join(", ")))
        })?;
        let elements = one.signature.shape.iter().product();
        let key = self.engine.register(one)?;
        let times = Times::default();
        let tensor = Tensor { name, dtype, elements, memory: None, submitted: 0, done: 0, times };
        self.tensors.insert(key, tensor);
        Ok(key)
    }

    /// All of them, by name.
    pub(crate) fn tensor_reports(&self) -> Vec<TensorReport> {
        let report = |one: &Tensor| TensorReport {
            name: one.name.clone(),
            bytes: one.elements.saturating_mul(u64::from(one.dtype.width())),
            submitted: one.submitted,
            done: one.done,
        };
        let mut all: Vec<TensorReport> = self.tensors.values().map(report).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// All bytes of all tensors.
    pub(crate) fn registered_bytes(&self) -> u64 {
        let bytes = |one: &Tensor| one.elements.saturating_mul(u64::from(one.dtype.width()));
        self.tensors.values().fold(0, |all, one| all.saturating_add(bytes(one)))
    }

    pub(crate) fn dtype_and_elements(&self, key: Key) -> Result<(Dtype, u64), RuntimeError> {
        let tensor = self.tensors.get(&key).ok_or_else(|| no_tensor(key))?;
        Ok((tensor.dtype, tensor.elements))
    }

    /// The next exchange of a tensor begins, in this memory, which a node whose data goes elsewhere never sees; returns how many there were before.
    pub(crate) fn submit(
        &mut self,
        key: Key,
        memory: Option<Memory>,
        unused: bool,
    ) -> Result<u64, RuntimeError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone().into());
        }
        let tensor = self.tensors.get_mut(&key).ok_or_else(|| no_tensor(key))?;
        let generation = tensor.submitted;
        if tensor.done < generation {
            let (name, generation) = (tensor.name.clone(), generation - 1);
            return Err(Broken::NotDone { name, generation }.into());
        }
        let name = tensor.name.clone();
        if let Some(Err(other)) = memory.map(|memory| self.in_use.take(memory, key)) {
            let other = self.tensors.get(&other).map_or("", |one| one.name.as_str());
            let why = format!("it shares memory with `{other}`, whose exchange is under way");
            return Err(RuntimeError::setting("tensor", name, why, "wait for that one first"));
        }
        if let Some(memory) = memory.filter(|_| unused) {
            // SAFETY: the caller has just given this memory, and no operation knows it yet.
            unsafe { memory.as_mut() }.fill(0);
        }
        let tensor = self.tensors.get_mut(&key).ok_or_else(|| no_tensor(key))?;
        (tensor.memory, tensor.submitted) = (memory, generation + 1);
        tensor.times.push(self.clock.machine());
        if self.peers.len() == 1 {
            self.tensor_done(key, generation);
            return Ok(generation);
        }
        let event = if unused { Event::Unused { key } } else { Event::Submit { key } };
        if let Err(broken) = self.tell(event) {
            memory.into_iter().for_each(|memory| self.in_use.give_back(memory));
            if let Some(tensor) = self.tensors.get_mut(&key) {
                (tensor.memory, tensor.submitted) = (None, generation);
                tensor.times.pop();
            }
            return Err(broken.into());
        }
        if !self.left.is_empty() && !self.is_done(key, generation) {
            self.check_left(key, generation + 1);
        }
        Ok(generation)
    }

    /// An exchange of a tensor is over.
    pub(super) fn tensor_done(&mut self, key: Key, generation: u64) {
        if let Some(tensor) = self.tensors.get_mut(&key) {
            tensor.done = generation + 1;
            if let Some(memory) = tensor.memory.take() {
                self.in_use.give_back(memory);
            }
            self.completions.push(key);
            self.wakes.waiters = true;
        }
    }

    pub(crate) fn is_done(&self, key: Key, generation: u64) -> bool {
        self.tensors.get(&key).is_some_and(|one| one.done > generation)
    }

    /// Whether an exchange is over; an error where it never will be.
    pub(crate) fn poll(&self, key: Key, generation: u64) -> Result<bool, RuntimeError> {
        let tensor = self.tensors.get(&key).ok_or_else(|| no_tensor(key))?;
        if tensor.done > generation {
            return Ok(true);
        }
        match &self.fault {
            Some(fault) if self.is_quiet() => Err(self.about(fault, &tensor.name).into()),
            None if tensor.submitted <= generation => {
                let why = format!("it was submitted {}", counted(tensor.submitted, "time"));
                let hint = "wait for what `submit` has returned";
                Err(RuntimeError::setting("generation", generation, why, hint))
            }
            Some(_) | None => Ok(false),
        }
    }

    /// The same fault, with the tensor that the caller waits for where none is named.
    fn about(&self, fault: &Fault, tensor: &str) -> Fault {
        let mut fault = fault.clone();
        if fault.tensor.is_none() && fault.kind != FaultKind::Closed {
            fault.tensor = Some(tensor.to_owned());
        }
        fault
    }

    /// Tensors whose exchange is over since this was asked last, with how many were before the last.
    pub(crate) fn take_completions(&mut self) -> Vec<(Key, u64)> {
        let order = std::mem::take(&mut self.completions.order);
        self.completions.there.clear();
        let generation = |key: &Key| self.tensors.get(key).map_or(0, |one| one.done - 1);
        let mut done: Vec<_> = order.iter().map(|key| (*key, generation(key))).collect();
        done.extend(self.calls.take_finished().map(|number| (Key::call(number), 0)));
        done
    }
}
