//! What the threads of a node have in common: the state behind its lock, and ways to wake each other.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::RuntimeError;
use crate::clock::Clock;
use crate::report::{Report, Traffic};
use crate::state::{State, Wakes};

/// Wakes one thread that waits in epoll.
pub(crate) struct Bell {
    pub(crate) fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> Result<Self, RuntimeError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags)
            .map_err(|error| RuntimeError::system("an eventfd", &std::io::Error::from(error)))?;
        Ok(Self { fd, rung: AtomicBool::new(false) })
    }

    pub(crate) fn ring(&self) {
        // Once is enough until it is heard.
        if !self.rung.swap(true, Ordering::AcqRel) {
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// The thread is awake, and will look at everything that was there when it was woken.
    pub(crate) fn hear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        self.rung.store(false, Ordering::Release);
    }
}

/// See the module.
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    pub(crate) ports: Vec<Bell>,
    pub(crate) traffic: Vec<Traffic>,
    pub(crate) control: Bell,
    pub(crate) clock: Clock,
}

impl Shared {
    pub(crate) fn new(state: State, ports: usize, clock: Clock) -> Result<Self, RuntimeError> {
        Ok(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            ports: (0..ports).map(|_| Bell::new()).collect::<Result<_, _>>()?,
            traffic: (0..ports).map(|_| Traffic::default()).collect(),
            control: Bell::new()?,
            clock,
        })
    }

    /// The state to look at only.
    pub(crate) fn look(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has not left anything half done that others could not live with: the
        // job is over then, and they only have to end.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node has done so far.
    pub(crate) fn report(&self, rank: u32) -> Report {
        let dimensions = self.traffic.iter().map(Traffic::report).collect();
        let state = self.look();
        Report {
            rank,
            time: self.clock.now().as_ps(),
            fault: state.fault().cloned(),
            dimensions,
            tensors: state.tensors.reports(),
            peers: state.peer_reports(),
            waits_for: state.waits_for(),
            coordination: state.talk.count,
            frozen: state.engine.is_frozen(),
            notes: state.log.notes().to_vec(),
        }
    }

    /// Changes the state, and wakes whoever has something to do then; `me` does it without being woken.
    pub(crate) fn change<T>(&self, me: Me, change: impl FnOnce(&mut State) -> T) -> T {
        let (result, wakes) = {
            let mut state = self.look();
            let result = change(&mut state);
            (result, state.take_wakes())
        };
        self.wake(me, wakes);
        result
    }

    fn wake(&self, me: Me, wakes: Wakes) {
        // Who waits for a result first: the others have something to do whenever they come to it.
        if wakes.waiters {
            self.changed.notify_all();
        }
        for (place, bell) in self.ports.iter().enumerate() {
            if wakes.ports >> place & 1 == 1 && me != Me::Port(place as u32) {
                bell.ring();
            }
        }
        if wakes.control && me != Me::Control {
            self.control.ring();
        }
    }

    /// Waits until `done` has an answer, or time is over.
    pub(crate) fn wait<T>(
        &self,
        timeout: Duration,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.look();
        let end = std::time::Instant::now().checked_add(timeout);
        loop {
            if let Some(result) = done(&mut state) {
                return Some(result);
            }
            let left = match end {
                Some(end) => end.saturating_duration_since(std::time::Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Whose thread it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Me {
    Caller,
    Control,
    Port(u32),
}
