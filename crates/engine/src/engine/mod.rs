//! One rank's whole decision: from *this tensor is there* to *this stage of this part of it starts now*.
//!
//! An engine connects the deciders: the coordinator (which tensors are ready on every rank), the tensor
//! scheduler (which part of which tensor travels next) and the [executor](crate::executor) (which stage
//! of which chunk a port runs next). It opens no socket, reads no clock and touches no byte: a driver
//! brings it what happens and carries out what it wants. The simulator, a test with a hostile network and
//! a process of a real job are such drivers.
//!
//! Two kinds of transports are served, and an engine says which it runs for ([`Ordering`]):
//!
//! | | `Tagged`: every frame carries its name | `Common`: launches are paired by their order |
//! |---|---|---|
//! | *ready* | when this rank has submitted | when all ranks agree that all have |
//! | *finished* | on this rank | when all ranks agree that it is on all |
//! | a timer of the scheduler | on this rank's clock | when the first clock has come to it, agreed |
//! | credit | unlimited (what a link is given ahead is the driver's own matter) | as set, agreed |
//! | a port runs | what its queue chooses | a function of the order of issue alone |
//! | a coordinator | may watch beside | decides |
//!
//! Nothing that is agreed is decided by a local clock, and nothing that ranks count each for themselves
//! is part of a name: an [`OperationName`] is the tensor's key, how often it was exchanged, and which part of it.
//!
//! Beside tensors, which have names and are scheduled, a tagged transport takes calls, which have none
//! ([`Engine::call`]): the k-th call of every rank on a group is one operation. An engine is made for a number
//! of ranks, as its plans are: a job of another size makes other engines.
//!
//! # Frames of a tagged transport
//!
//! A driver puts a header before the bytes of each message; little-endian, and in this order:
//!
//! | field | bytes | whence |
//! |---|---|---|
//! | epoch | 4 | [`OperationName::epoch`] |
//! | group | 4 | [`OperationName::group`] |
//! | key | 8 | [`OperationName::key`]: a tensor's, or below [`Key::CALLS`] a call's number |
//! | generation | 8 | [`OperationName::generation`] |
//! | part | 4 | [`OperationName::part`] |
//! | chunk | 4 | [`Run::at`](crate::Run::at) |
//! | stage, step, index | 3 × 4 | the message's [`stage`](allrail_collective::rank::Message::stage), `step` and `index` |
//! | length | 4 | bytes that follow, at most the message's |
//! | offset | 8 | where they begin in the message: 0, but where a driver cuts messages into pieces |
//! | signature | 8 | [`Action::Begin`]'s [`SignatureHash`](crate::SignatureHash) |
//!
//! That is 64 bytes. The sender is known by its connection. The signature says what the operation is for its
//! sender (kind, root, dtype, shape, which elements), so that two ranks that take one name for two things are
//! found by the first frame between them, in [`Operations::frame`](crate::Operations::frame), and nothing of
//! it is combined. Where launches are paired by their order no header is needed: a coordinator compares.
//!
//! What becomes of a frame, as [`Engine::home`] and [`Operations`](crate::Operations) find it:
//!
//! | frame | |
//! |---|---|
//! | of an operation under way | taken |
//! | of a tensor's generation, or of a call, that this rank has not come to | kept, in bounded memory |
//! | of an earlier epoch | dropped, and counted: [`Engine::dropped`] |
//! | of a later epoch | [`Broken::Epoch`]: the sender has begun anew, and this rank was not told yet; its bytes wait for [`Event::Membership`] |
//! | of an operation that is over, or that has come before | ends the job |
//! | of a key or group that nobody has, of a part beyond the cut | ends the job |
//! | of another signature, length, chunk, stage or step than the plan has | ends the job |
//! | of more than may be kept | ends the job |
//!
//! What ends the job the driver says as [`Event::Refused`]: what peers hold is not known any more. Then, as
//! after a lost peer, every rank that is left stops with the same [`Broken::Fault`], which names the ranks, the
//! operation and its tensor: a rank tells others by [`Action::Send`], with a coordinator or without, and these
//! pass it on.
//!
//! # Calls of an engine
//!
//! By kind:
//!
//! - commands of the application: [`Engine::register`], [`Engine::call`], and as events
//!   [`Event::Start`], [`Event::Submit`], [`Event::Unused`], [`Event::Retune`], [`Event::Shutdown`];
//! - what has happened: [`Engine::on`] with [`Event::Frame`], [`Event::PortFree`], [`Event::StageOver`],
//!   [`Event::Refused`], [`Event::Misspoke`], [`Event::Failed`], [`Event::PeerLost`], [`Event::PeerLeft`], [`Event::Membership`],
//!   [`Event::Time`];
//! - what is to be done: the [`Action`]s that these append, and, once everything of one time was told,
//!   those of [`Engine::settle`]; [`Engine::deadline`] says when to come back at the latest;
//! - getters: [`Engine::slices`], [`Engine::home`], [`Engine::under_way`], [`Engine::report`],
//!   [`Engine::calls`], [`Engine::names`], [`Engine::dropped`], [`Engine::is_frozen`], [`Engine::blocked`].
//!
//! A call that returns an error has changed nothing. What ends the job is no such error, but
//! [`Action::Stop`].
//!
//! ```
//! use allrail_collective::rank::Plans;
//! use allrail_core::Time;
//! use allrail_engine::engine::{Action, Engine, Event, Registration, Settings};
//! use allrail_schedule::signature::Signature;
//! # use allrail_collective::Operation;
//! # use allrail_core::{Bandwidth, Bytes};
//! # use allrail_fabric::{Dimension, Fabric, Kind};
//! # use allrail_schedule::{Order, Request, chunk::Parameters};
//! # let dimension = Dimension::new(Kind::Switch, 2, 1, Bandwidth::from_bytes_per_second(1 << 30).unwrap(), Time::ZERO);
//! # let request = Request {
//! #     fabric: Fabric { memory_bandwidth: None, window: None, name: "pair".to_owned(), dimensions: vec![dimension] },
//! #     operation: Operation::AllReduce, size: Bytes::new(1024), dimensions: Vec::new(),
//! #     policy: "baseline".to_owned(), order: Order::FIFO, chunks: 1, algorithms: None,
//! #     active_chunks: None, endpoint_delay: Time::ZERO, parameters: Parameters::default(), seed: 1,
//! #     programs: Default::default(), plugins: Default::default(),
//! # };
//! # let plan = allrail_schedule::plan(&request)?;
//! let mut plans = Plans::new(0, 16);
//! plans.add(plan)?; // an all-reduce of 1 KiB over two ranks
//! let mut engine = Engine::new(Settings { ranks: 2, ..Settings::default() }, plans)?;
//! let (name, dtype, shape) = ("weight".to_owned(), "float32".to_owned(), vec![256]);
//! let signature = Signature { name, dtype, shape, strides: Vec::new() };
//! let key = engine.register(Registration { signature, width: 4, place: 0, group: None })?;
//!
//! let mut actions = Vec::new();
//! engine.on(Time::ZERO, Event::Start, &mut actions)?;
//! engine.on(Time::ZERO, Event::Submit { key }, &mut actions)?;
//! engine.settle(&mut actions);
//! let [Action::Begin { id, operation, part, .. }, Action::Run(run)] = &actions[..] else { panic!() };
//! assert_eq!((operation.key, operation.generation, part.ranks), (key, 0, 2));
//! assert_eq!(engine.slices(*id)?[0].elements, 0..256);
//! assert_eq!((run.collective, run.port), (*id, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call;
mod calls;
mod end;
mod event;
mod forget;
mod getters;
mod idle;
mod named;
mod operations;
mod parts;
mod replay;
mod rounds;
mod running;
mod settings;
mod start;
mod talk;
mod tensors;
mod timers;
mod tuning;

#[cfg(test)]
#[path = "../../tests/it/switches.rs"]
mod switches;

use std::cmp::Ordering::{Equal, Greater, Less};

use allrail_collective::rank::Plans;
use allrail_coordinate::Cause;
use allrail_core::{FieldError, Time};
use allrail_schedule::tensor::Tuning;
use allrail_schedule::{Key, OperationName};

pub use calls::Call;
pub use event::{Action, CallReport, Event, Home, Registration, Slice, Stopped, TensorReport};
pub use settings::{Coordination, FORGET_AFTER, Ordering, Settings};

use self::parts::Parts;
use self::running::Running;
use crate::Broken;

/// See the module.
pub struct Engine {
    settings: Settings,
    parts: Parts,
    registered: Vec<Registration>,
    running: Option<Running>,
    /// Frames of earlier epochs.
    dropped: u64,
}

impl Engine {
    /// An engine that has its plans: for every size that its operations may have.
    ///
    /// # Errors
    /// [`Broken::Setting`], [`Broken::Schedule`]: settings that do not go together.
    pub fn new(settings: Settings, plans: Plans) -> Result<Self, Broken> {
        settings.check()?;
        let Settings { dimensions, granule, room, .. } = settings;
        let parts = Parts::new(plans, dimensions, granule, room);
        Ok(Self { settings, parts, registered: Vec::new(), running: None, dropped: 0 })
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A tensor that will be submitted. Ranks may register in any order, but all of them the same, before
    /// [`Event::Start`].
    ///
    /// # Errors
    /// [`Broken::Registered`]; [`Broken::OutOfTurn`] after the start; a shape of 2^64 bytes or more.
    pub fn register(&mut self, tensor: Registration) -> Result<Key, Broken> {
        let name = &tensor.signature.name;
        if let Some(known) = self.registered.iter().find(|one| one.signature.name == *name) {
            let differs = known.signature.differences(&tensor.signature);
            let differs =
                differs.iter().map(|(part, was, is)| format!(", {part} {was} and not {is}"));
            return Err(Broken::Registered { name: name.clone(), differs: differs.collect() });
        }
        if self.running.is_some() {
            return Err(Broken::OutOfTurn { call: "a registration", when: "after" });
        }
        tensors::check(&tensor)?;
        let key = Key::of(name);
        self.registered.push(tensor);
        Ok(key)
    }

    /// Takes in what has happened, and appends what is to be done.
    ///
    /// # Errors
    /// What the caller or a peer did against the rules; nothing has changed then.
    pub fn on(&mut self, now: Time, event: Event, out: &mut Vec<Action>) -> Result<(), Broken> {
        match event {
            Event::Start => return self.start(now, out),
            Event::Membership { epoch, ranks } => return self.join(now, (epoch, ranks), out),
            _ => {}
        }
        let Self { settings, parts, running, dropped, .. } = self;
        let Some(running) = running else {
            return Err(Broken::OutOfTurn { call: "an event", when: "before" });
        };
        if running.stopped {
            // Nobody can keep time from passing, or a peer from sending.
            let comes = matches!(
                event,
                Event::Frame { .. }
                    | Event::Refused { .. }
                    | Event::Differs { .. }
                    | Event::Misspoke { .. }
                    | Event::PeerLeft { .. }
                    | Event::Time
            );
            return if comes { Ok(()) } else { Err(Broken::Stopped) };
        }
        match event {
            Event::Start | Event::Membership { .. } => {}
            Event::Submit { key } => running.submit(now, (key, false), parts, out)?,
            Event::Unused { key } => running.submit(now, (key, true), parts, out)?,
            Event::Frame { from, epoch, payload } => {
                check_peer(settings, from)?;
                if is_current(settings, epoch, dropped)? {
                    running.heard(now, (from, payload), parts, out)?;
                }
            }
            Event::Refused { from, operation, why: what } => {
                check_peer(settings, from)?;
                if is_current(settings, operation.epoch, dropped)? {
                    let (by, about) = (settings.rank, running.about(operation));
                    running.fail(Cause::Frame { from, by, about, what }.into(), out);
                }
            }
            Event::Differs { from, operation, differs } => {
                check_peer(settings, from)?;
                if is_current(settings, operation.epoch, dropped)? {
                    running.fail_with(from, operation, differs, out);
                }
            }
            Event::PortFree { port } => running.executor.port_free(port)?,
            Event::StageOver { id, at } => running.stage_over(now, (id, at), parts, out)?,
            Event::Failed { operation, why } => {
                running.home(settings, &operation)?;
                let (by, about) = (settings.rank, running.about(operation));
                running.fail(Cause::Failed { by, about, why }.into(), out);
            }
            Event::PeerLost { rank } => {
                check_peer(settings, rank)?;
                running.fail(Cause::Lost { rank }.into(), out);
            }
            Event::Misspoke { from } => {
                check_peer(settings, from)?;
                running.fail(Cause::Word { from }.into(), out);
            }
            Event::PeerLeft { rank } => {
                check_peer(settings, rank)?;
                running.peer_left(rank);
            }
            Event::Retune { at, partition, credit } => {
                settings.check_tuning(Tuning { partition, credit }, &running.tensors)?;
                running.retune(at, Tuning { partition, credit })?;
            }
            Event::Shutdown => running.shut_down(now, parts, out),
            Event::Time => running.time(now, parts, out),
        }
        if running.executor.is_eager() {
            running.settle(out);
        }
        Ok(())
    }

    /// This rank's next call without a tensor: the name by which [`Action::Begin`] announces it, and, with
    /// its key, [`Action::Done`] its end. It counts if it is taken, so all ranks must make the same calls.
    ///
    /// # Errors
    /// [`Broken::Setting`] where the transport needs one order, or of a shape that cannot be;
    /// [`Broken::Collective`] without a plan for it, and of what its plan cannot do;
    /// [`Broken::OutOfTurn`] before the start; [`Broken::Stopped`]. Nothing has changed then.
    pub fn call(
        &mut self,
        now: Time,
        call: &Call<'_>,
        out: &mut Vec<Action>,
    ) -> Result<OperationName, Broken> {
        self.call_any(now, (call, None), out)
    }

    /// The next call of a name: as [`Self::call`], but the k-th of a name is the same operation on every
    /// rank, whatever others each begins before it. For groups with [`Settings::named_calls`].
    ///
    /// # Errors
    /// As [`Self::call`]; [`Broken::NotDone`] where the last call of that name is not over here;
    /// [`Broken::Undecided`] where it may just be forgotten: call again once a frame was told;
    /// [`Broken::Setting`] of a name that cannot be told from another.
    pub fn call_named(
        &mut self,
        now: Time,
        (name, call): (&str, &Call<'_>),
        out: &mut Vec<Action>,
    ) -> Result<OperationName, Broken> {
        self.call_any(now, (call, Some(name)), out)
    }

    fn call_any(
        &mut self,
        now: Time,
        call: (&Call<'_>, Option<&str>),
        out: &mut Vec<Action>,
    ) -> Result<OperationName, Broken> {
        let Some(running) = &mut self.running else {
            return Err(Broken::OutOfTurn { call: "a call", when: "before" });
        };
        if running.stopped {
            return Err(Broken::Stopped);
        }
        let name = running.call(now, call, &mut self.parts, out)?;
        if running.executor.is_eager() {
            running.settle(out);
        }
        Ok(name)
    }

    /// Lets every port that can choose what it runs. To be called when everything of one time was told.
    pub fn settle(&mut self, out: &mut Vec<Action>) {
        if let Some(running) = &mut self.running {
            running.settle(out);
        }
    }

    fn start(&mut self, now: Time, out: &mut Vec<Action>) -> Result<(), Broken> {
        if self.running.is_some() {
            return Err(Broken::OutOfTurn { call: "a start", when: "after" });
        }
        let running = self.running.insert(Running::new(&self.settings, &self.registered)?);
        running.start(now, &mut self.parts, out);
        Ok(())
    }

    fn join(
        &mut self,
        now: Time,
        (epoch, ranks): (u32, u32),
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        if epoch <= self.settings.epoch {
            return Err(Broken::Epoch { epoch, now: self.settings.epoch });
        }
        if ranks != self.settings.ranks {
            return Err(FieldError::new("ranks", ranks, format!(
                    "this engine's plans, and its place among the ranks, are for {}",
                    self.settings.ranks
                ), format!(
                    "drop this engine, and make one by `Engine::new` with `ranks: {ranks}`, its new `rank`, \
                     `epoch: {epoch}` and plans for that size; register the same tensors, then say \
                     `Event::Start`"
                )).into());
        }
        if self.running.is_none() {
            self.settings.epoch = epoch;
            return Ok(());
        }
        let settings = Settings { epoch, ..self.settings.clone() };
        let running = self.running.insert(Running::new(&settings, &self.registered)?);
        self.settings = settings;
        running.start(now, &mut self.parts, out);
        Ok(())
    }
}

/// Whether something is of this life of the job; what is left of an earlier one is counted.
fn is_current(settings: &Settings, epoch: u32, dropped: &mut u64) -> Result<bool, Broken> {
    match epoch.cmp(&settings.epoch) {
        Less => *dropped += 1,
        Equal => return Ok(true),
        Greater => return Err(Broken::Epoch { epoch, now: settings.epoch }),
    }
    Ok(false)
}

fn check_peer(settings: &Settings, rank: u32) -> Result<(), Broken> {
    let Settings { ranks, .. } = *settings;
    if rank < ranks { Ok(()) } else { Err(Broken::UnknownPeer { rank, ranks }) }
}
