//! The plugins of one simulation: a snapshot of what is registered.

use std::sync::Arc;

use allrail_schedule::ChunkScheduler;
use allrail_schedule::chunk::Plugins;
use allrail_schedule::tensor::{TensorPlugins, TensorPolicy};

use crate::failures::Failures;
use crate::{plugin, tensor_plugin};

/// The plugins of one simulation, and what went wrong in them.
#[derive(Clone, Default)]
pub(crate) struct Calls {
    registered: Vec<Arc<plugin::Registered>>,
    /// Tensor schedulers.
    tensors: Vec<Arc<tensor_plugin::Registered>>,
    pub(crate) failures: Failures,
}

impl Calls {
    /// Those that are registered now.
    pub(crate) fn new() -> Self {
        let (registered, tensors) = (plugin::registered(), tensor_plugin::registered());
        Self { registered, tensors, failures: Failures::default() }
    }

    /// The same for another simulation, which is stopped with this one but fails alone.
    pub(crate) fn another(&self) -> Self {
        Self { failures: self.failures.another(), ..self.clone() }
    }

    /// For a scenario's schedule.
    pub(crate) fn plugins(&self) -> Plugins {
        let one = |which: &Arc<plugin::Registered>| {
            let plugin = plugin::Plugin::new(Arc::clone(which), self.failures.clone());
            Arc::new(plugin) as Arc<dyn ChunkScheduler>
        };
        Plugins::new(self.registered.iter().map(one).collect())
    }

    /// For a scenario's tensor scheduler.
    pub(crate) fn tensor_plugins(&self) -> TensorPlugins {
        let one = |which: &Arc<tensor_plugin::Registered>| {
            let plugin = tensor_plugin::Plugin::new(Arc::clone(which), self.failures.clone());
            Arc::new(plugin) as Arc<dyn TensorPolicy>
        };
        TensorPlugins::new(self.tensors.iter().map(one).collect())
    }
}
