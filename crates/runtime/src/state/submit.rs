//! How a tensor is registered, submitted and waited for.

use allrail_core::counted;
use allrail_engine::engine::{Event, Registration};
use allrail_engine::{Broken, Dtype};
use allrail_schedule::Key;

use super::State;
use crate::error::{Fault, FaultKind, RuntimeError};
use crate::memory::Memory;

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
        self.tensors.insert(key, name, (dtype, elements));
        Ok(key)
    }

    /// The next exchange of a tensor begins, in this memory, which a node whose data goes elsewhere never sees; returns
    /// how many there were before.
    pub(crate) fn submit(
        &mut self,
        key: Key,
        memory: Option<Memory>,
        unused: bool,
    ) -> Result<u64, RuntimeError> {
        if let Some(fault) = self.fault() {
            return Err(fault.clone().into());
        }
        let tensor = self.tensors.known(key)?;
        let generation = tensor.submitted;
        if tensor.done < generation {
            let (name, generation) = (tensor.name.clone(), generation - 1);
            return Err(Broken::NotDone { name, generation }.into());
        }
        if let Some(Err(other)) = memory.map(|memory| self.in_use.take(memory, key)) {
            let other = self.tensors.name(other).unwrap_or_default();
            let why = format!("it shares memory with `{other}`, whose exchange is under way");
            return Err(RuntimeError::setting(
                "tensor",
                &tensor.name,
                why,
                "wait for that one first",
            ));
        }
        if let Some(memory) = memory.filter(|_| unused) {
            // SAFETY: the caller has just given this memory, and no operation knows it yet.
            unsafe { memory.as_mut() }.fill(0);
        }
        self.tensors.submit(key, memory, self.clock.machine());
        if self.group.is_alone() {
            self.tensor_done(key, generation);
            return Ok(generation);
        }
        let event = if unused { Event::Unused { key } } else { Event::Submit { key } };
        if let Err(broken) = self.tell(event) {
            memory.into_iter().for_each(|memory| self.in_use.give_back(memory));
            self.tensors.withdraw(key);
            return Err(broken.into());
        }
        if self.ending.has_anybody_left() && !self.tensors.is_done(key, generation) {
            self.check_left(key, generation + 1);
        }
        Ok(generation)
    }

    /// An exchange of a tensor is over.
    pub(super) fn tensor_done(&mut self, key: Key, generation: u64) {
        if let Some(memory) = self.tensors.done(key, generation) {
            memory.into_iter().for_each(|memory| self.in_use.give_back(memory));
            self.wakes.waiters = true;
        }
    }

    /// Whether an exchange is over; an error where it never will be.
    pub(crate) fn poll(&self, key: Key, generation: u64) -> Result<bool, RuntimeError> {
        let tensor = self.tensors.known(key)?;
        if tensor.done > generation {
            return Ok(true);
        }
        match self.fault() {
            Some(fault) if self.is_quiet() => Err(about(fault, &tensor.name).into()),
            None if tensor.submitted <= generation => {
                let why = format!("it was submitted {}", counted(tensor.submitted, "time"));
                let hint = "wait for what `submit` has returned";
                Err(RuntimeError::setting("generation", generation, why, hint))
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Tensors and calls that are over since this was asked last, with how many of each were before the last.
    pub(crate) fn take_completions(&mut self) -> Vec<(Key, u64)> {
        let mut done = self.tensors.take_completions();
        done.extend(self.calls.take_finished().map(|number| (Key::call(number), 0)));
        done
    }
}

/// The same fault, with the tensor that the caller waits for where none is named.
fn about(fault: &Fault, tensor: &str) -> Fault {
    let mut fault = fault.clone();
    if fault.tensor.is_none() && fault.kind != FaultKind::Closed {
        fault.tensor = Some(tensor.to_owned());
    }
    fault
}
