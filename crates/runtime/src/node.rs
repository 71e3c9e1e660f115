//! One rank of one process group: what a caller holds.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use allrail_collective::rank::Plans;
use allrail_core::{Bytes, counted};
use allrail_engine::Broken;
use allrail_engine::engine::{self, Engine};
use allrail_schedule::Key;
use socket2::Socket;

use crate::clock::Clock;
use crate::control::Control;
use crate::port::{Port, check_pins};
use crate::record::Record;
use crate::rendezvous::{Connected, Listening, line};
use crate::shared::{Me, Shared};
use crate::state::{Elsewhere, State};
use crate::tensor::memory_at;
use crate::timeline::Timeline;
use crate::warning::Warning;
use crate::{CallOf, Fault, FaultKind, Registered, Report, RuntimeError, Settings, files, plans};

/// The most ports of a node.
const MOST_PORTS: usize = 64;

enum Phase {
    Bound(Listening),
    Connected(Box<Connected>),
    Started,
    Closed,
    /// A call that moves on has failed half-way.
    Broken,
}

/// How far it is, and its threads.
struct Life {
    phase: Phase,
    threads: Vec<JoinHandle<()>>,
}

/// One rank of one process group.
///
/// The calls come in this order: [`bind`](Self::bind), [`connect`](Self::connect),
/// [`register`](Self::register) for every tensor, [`start`](Self::start); then
/// [`submit`](Self::submit) and [`wait`](Self::wait) from any thread, and [`close`](Self::close).
pub struct Node {
    pub(crate) settings: Settings,
    pub(crate) shared: Arc<Shared>,
    addresses: Vec<String>,
    life: Mutex<Life>,
    /// The sockets that threads own, by number: for a child made by `fork`, which has neither.
    sockets: Mutex<Vec<RawFd>>,
    /// Whose threads it has: a child made by `fork` has none of them.
    process: u32,
}

impl Node {
    /// Listens on the interfaces that the settings name; nobody is talked to yet.
    ///
    /// # Errors
    /// Settings that cannot be, a port that is taken, an interface that is not there.
    pub fn bind(settings: Settings) -> Result<Self, RuntimeError> {
        settings.check()?;
        let (engine, plans) = plans::decider(&settings)?;
        let peers = (0..settings.ranks).collect();
        Self::with_engine(settings, engine, plans, peers)
    }

    /// The same with an engine of one's own: over some of the dimensions, with other plans or operations,
    /// with a coordinator. `peers` are the ranks of the fabric that its group joins, in the order of their
    /// places.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn with_engine(
        settings: Settings,
        engine: engine::Settings,
        plans: Plans,
        peers: Vec<u32>,
    ) -> Result<Self, RuntimeError> {
        settings.check()?;
        let sizes: Vec<u32> = settings.dimensions.iter().map(|one| one.size).collect();
        if sizes.len() > MOST_PORTS {
            let why = format!("a node has {MOST_PORTS} ports at most");
            return Err(RuntimeError::setting("dimensions", sizes.len(), why, "fewer dimensions"));
        }
        check_pins(&settings)?;
        let engine = Engine::new(engine, plans)?;
        files::expect(settings.open_files());
        let listening = Listening::new(&settings)?;
        let addresses = listening.addresses().iter().map(ToString::to_string).collect();
        let lines: Vec<Vec<u32>> =
            (0..sizes.len()).map(|d| line(&sizes, settings.rank, d)).collect();
        let clock = Clock::start();
        let mut state = State::new(engine, clock, (settings.rank, peers), &lines, &settings);
        state.elsewhere = settings.elsewhere.then(Elsewhere::default);
        let shared = Arc::new(Shared::new(state, sizes.len(), clock)?);
        let life = Mutex::new(Life { phase: Phase::Bound(listening), threads: Vec::new() });
        let (sockets, process) = (Mutex::new(Vec::new()), std::process::id());
        Ok(Self { settings, shared, addresses, life, sockets, process })
    }

    /// Where it listens, one a dimension: what all ranks hand round before they connect.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects with all other ranks, given the [`addresses`](Self::addresses) of every rank in the order of
    /// ranks. `goes_on` is asked ten times a second whether the caller still wants to wait.
    ///
    /// # Errors
    /// [`RuntimeError::Connect`] says who is missing within `timeouts.connect`, or what differs.
    pub fn connect(
        &self,
        table: &[Vec<String>],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), RuntimeError> {
        let mut life = self.life();
        let listening = match std::mem::replace(&mut life.phase, Phase::Broken) {
            Phase::Bound(listening) => listening,
            other => return Err(out_of_turn(&mut life, other, "`connect`")),
        };
        let mut connected = listening.connect(&self.settings, table, goes_on)?;
        let links = std::mem::take(&mut connected.control);
        self.remember(links.values().map(|link| link.socket()));
        let notes = std::mem::take(&mut connected.notes);
        self.shared
            .change(Me::Caller, |state| notes.into_iter().for_each(|one| state.log.note(one)));
        let control = Control::new(Arc::clone(&self.shared), links, &self.settings)?;
        life.threads.push(spawn("control", &self.shared, move || control.run())?);
        life.phase = Phase::Connected(Box::new(connected));
        Ok(())
    }

    /// A tensor that will be submitted.
    ///
    /// # Errors
    /// A name that is taken, a type that cannot be summed, a layout with holes; after the start.
    pub fn register(&self, tensor: Registered) -> Result<Key, RuntimeError> {
        let registration = tensor.registration()?;
        self.shared.change(Me::Caller, |state| state.register(registration))
    }

    /// How many elements a tensor was registered with, and the bytes of one.
    ///
    /// # Errors
    /// It was not registered.
    pub fn registered(&self, key: Key) -> Result<(u64, u64), RuntimeError> {
        let (dtype, elements) = self.shared.look().tensors.dtype_and_elements(key)?;
        Ok((elements, u64::from(dtype.width())))
    }

    /// All tensors are registered: from now on they may be submitted, and frames are taken in.
    ///
    /// # Errors
    /// Before `connect`, or again; settings of the engine that do not go together.
    pub fn start(&self) -> Result<(), RuntimeError> {
        let mut life = self.life();
        let connected = match std::mem::replace(&mut life.phase, Phase::Broken) {
            Phase::Connected(connected) => *connected,
            other => return Err(out_of_turn(&mut life, other, "`start`")),
        };
        let early = self.settings.early.count();
        self.shared.change(Me::Caller, |state| {
            state.allow_early(Bytes::new(early.saturating_add(state.tensors.bytes())));
            state.start()
        })?;
        let data = connected.data.into_iter().filter(|_| !self.settings.elsewhere);
        for (number, links) in (0..).zip(data) {
            self.remember(links.values().map(|link| link.socket()));
            let port = Port::new(number, Arc::clone(&self.shared), links, &self.settings)?;
            self.shared.change(Me::Caller, |state| state.port_runs(number, true));
            let shared = Arc::clone(&self.shared);
            life.threads.push(spawn(&format!("port {number}"), &self.shared, move || {
                // Peers would take the end of a data connection for trouble: it stays until all is closed.
                let links = port.run();
                shared.wait(Duration::MAX, |state| state.closing.then_some(()));
                drop(links);
            })?);
        }
        life.phase = Phase::Started;
        Ok(())
    }

    /// This rank has a tensor's next exchange ready: it is summed over all ranks, in place. Returns how
    /// often it was exchanged before, which [`wait`](Self::wait) takes.
    ///
    /// # Safety
    /// `elements` elements of the registered type lie at `pointer`, aligned or not; they stay there, and
    /// nobody else reads or writes them, until [`wait`](Self::wait) has said that the exchange is over or has
    /// failed, or until [`close`](Self::close) has returned.
    ///
    /// # Errors
    /// Not started, not registered, not done with the last exchange, another size, memory that another
    /// tensor under way has. [`RuntimeError::Fault`] where the job is over.
    pub unsafe fn submit(
        &self,
        key: Key,
        pointer: *mut u8,
        elements: u64,
    ) -> Result<u64, RuntimeError> {
        // SAFETY: as the caller promises.
        unsafe { self.submit_any(key, pointer, elements, false) }
    }

    /// This rank has nothing for a tensor's next exchange: it takes part with zeros, and gets the sum.
    ///
    /// # Safety
    /// As [`submit`](Self::submit).
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub unsafe fn unused(
        &self,
        key: Key,
        pointer: *mut u8,
        elements: u64,
    ) -> Result<u64, RuntimeError> {
        // SAFETY: as the caller promises.
        unsafe { self.submit_any(key, pointer, elements, true) }
    }

    /// # Safety
    /// As [`submit`](Self::submit).
    unsafe fn submit_any(
        &self,
        key: Key,
        pointer: *mut u8,
        elements: u64,
        unused: bool,
    ) -> Result<u64, RuntimeError> {
        self.check_process()?;
        self.shared.change(Me::Caller, |state| {
            let (dtype, registered) = state.tensors.dtype_and_elements(key)?;
            if elements != registered {
                let why = format!(
                    "the tensor was registered with {registered}",
                    registered = counted(registered, "element")
                );
                let hint = "register each tensor with the shape that is submitted";
                return Err(RuntimeError::setting("elements", elements, why, hint));
            }
            // SAFETY: as the caller promises.
            let memory = unsafe { memory_at(pointer, elements, dtype)? };
            state.submit(key, Some(memory), unused)
        })
    }

    /// An operation in place: the k-th call of every rank without a name is the same one, and must be alike; so
    /// is the k-th of each name, in whatever order a rank makes calls of several names.
    /// `elements` are those of the whole buffer: before a reduce-scatter, after an all-gather. Returns the
    /// call's number, which [`wait_call`](Self::wait_call) takes.
    ///
    /// # Safety
    /// As [`submit`](Self::submit), until [`wait_call`](Self::wait_call) has said that it is over or failed.
    ///
    /// # Errors
    /// As [`submit`](Self::submit); a type that cannot be summed, a root that is not there, an all-to-all
    /// whose elements cannot be divided.
    pub unsafe fn call(
        &self,
        call: &CallOf<'_>,
        pointer: *mut u8,
        elements: u64,
    ) -> Result<u64, RuntimeError> {
        self.check_process()?;
        let CallOf { operation, dtype, priority, name, .. } = *call;
        // SAFETY: as the caller promises.
        let memory = unsafe { memory_at(pointer, elements, dtype)? };
        let call = engine::Call {
            operation,
            root: call.root_of_plan(),
            dtype: dtype.name(),
            shape: &[elements],
            width: dtype.width(),
            priority,
            signature: call.signature(elements),
        };
        loop {
            let made =
                self.shared.change(Me::Caller, |state| state.call((&call, name), dtype, memory));
            let Err(RuntimeError::Engine(Broken::Undecided { name })) = &made else { return made };
            // Peers answer whatever their callers do, so this takes a round trip.
            self.shared.wait(Duration::MAX, |state| (!state.is_undecided(name)).then_some(()));
        }
    }

    /// The fault that has ended the job, if one has.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.shared.look().fault().cloned()
    }

    /// What it has done so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.shared.report(self.settings.rank)
    }

    /// What is recorded, from the oldest on: what [`replay`](crate::replay) takes, if none was overwritten.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.shared.look().log.records.iter().cloned().collect()
    }

    /// What is recorded, as spans of time.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.shared.look().timeline()
    }

    /// Warnings that were not taken yet: of exchanges that wait for ranks which are late.
    #[must_use]
    pub fn take_warnings(&self) -> Vec<Warning> {
        self.shared.look().take_warnings()
    }

    /// Ends this rank's part: says so to the others, ends all threads, closes all connections. Nothing
    /// touches a tensor's memory after it. May be called again.
    pub fn close(&self) {
        if self.process != std::process::id() {
            // A child of `fork`: the threads, and maybe the locks, are its parent's.
            return;
        }
        let mut life = self.life();
        life.phase = Phase::Closed;
        self.shared.change(Me::Caller, State::close);
        for thread in life.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }

    fn remember<'a>(&self, new: impl Iterator<Item = &'a Socket>) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.extend(new.map(AsRawFd::as_raw_fd));
    }

    /// In a child made by `fork`: closes its copies of the connections, which would keep them open when its
    /// parent dies, so that peers would not see the end. Elsewhere it does nothing. The child has no other
    /// use of the node: every call is an error there.
    pub fn abandon(&self) {
        if self.process == std::process::id() {
            return;
        }
        // Whoever had the lock when the process was copied is not there.
        let Ok(mut sockets) = self.sockets.try_lock() else { return };
        for socket in sockets.drain(..) {
            // SAFETY: these are owned by values on stacks of threads that the child does not have: nothing
            // in it reads, writes or closes them, and they leave the list with this.
            unsafe { libc::close(socket) };
        }
    }

    pub(crate) fn check_process(&self) -> Result<(), RuntimeError> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(RuntimeError::OutOfTurn { call: "a call of a node", when: "in a child made by `fork`" })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.close();
        files::give_back(self.settings.open_files());
    }
}

fn out_of_turn(life: &mut Life, phase: Phase, call: &'static str) -> RuntimeError {
    let when = match phase {
        Phase::Bound(_) => "before `connect`",
        Phase::Connected(_) => "after `connect`",
        Phase::Started => "after `start`",
        Phase::Closed => "after `close`",
        Phase::Broken => "after a call that has failed",
    };
    life.phase = phase;
    RuntimeError::OutOfTurn { call, when }
}

/// Ends the job if the thread that has it panics: nobody else does its work then.
struct Watched(Arc<Shared>);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "a thread of this node has panicked: a mistake in allrail".to_owned();
            let fault = Fault { kind: FaultKind::Stopped, rank: None, tensor: None, what };
            self.0.change(Me::Caller, |state| state.end(fault));
        }
    }
}

fn spawn(
    name: &str,
    shared: &Arc<Shared>,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, RuntimeError> {
    let watched = Watched(Arc::clone(shared));
    let thread = std::thread::Builder::new().name(format!("allrail {name}")).spawn(move || {
        let _watched = watched;
        body();
    });
    thread.map_err(|error| RuntimeError::system("a thread", &error))
}
