//! Functions of Python that are known by name.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What has a name.
pub(crate) trait Named {
    fn name(&self) -> &str;
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is kept under a lock here can be left half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All that are registered, in the order in which their names came. No lock is held while Python runs, as it may
/// when one of them is dropped.
pub(crate) struct Registry<T>(Mutex<Vec<Arc<T>>>);

impl<T: Named> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Those that are registered now.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        lock(&self.0).clone()
    }

    /// Registers one, in place of one of the same name.
    pub(crate) fn register(&self, one: T) {
        let one = Arc::new(one);
        let mut registry = lock(&self.0);
        let replaced = match registry.iter_mut().find(|other| other.name() == one.name()) {
            Some(other) => Some(std::mem::replace(other, one)),
            None => {
                registry.push(one);
                None
            }
        };
        drop(registry);
        drop(replaced);
    }

    /// Forgets one that was registered.
    pub(crate) fn forget(&self, name: &str) {
        let mut registry = lock(&self.0);
        let place = registry.iter().position(|other| other.name() == name);
        let forgotten = place.map(|place| registry.remove(place));
        drop(registry);
        drop(forgotten);
    }
}
