//! Tensor schedulers: which part of which gradient travels next. One file a policy, one line in
//! [`ALL`].
//!
//! A scheduler is told when a tensor is ready (on every rank: the event is agreed) and when an
//! operation has finished, and answers with operations to start. It knows neither the network nor
//! the time an operation takes. Its driver feeds the events of one time in the order *ready,
//! finished, timer*, so that an urgent tensor that becomes ready just now is seen by the choice that
//! a finish of now allows.
//!
//! With parameter servers each worker has a scheduler of its own, which is told of this worker's tensors and
//! operations alone.
//!
//! Where coordinators have agreed on what is ready, they have packed it too: what they launch as one
//! comes as one event, and policies of whole tensors start one operation for it. Packing exists once.
//!
//! What every policy keeps, whatever the order of events: the pieces of a tensor cover each byte of
//! it once; a tensor is done once, after its last piece; nothing that is ready waits forever; the
//! same events give the same actions. With parameter servers each operation is a push, and a pull
//! of the same pieces once that has finished.
//!
//! ```
//! use allrail_core::{Bytes, Time};
//! use allrail_schedule::tensor::{Action, Event, Tensor, TensorParameters};
//!
//! let parameters = TensorParameters { policy: "bytescheduler".to_owned(), ..Default::default() };
//! let tensors = [Tensor { bytes: Bytes::new(4096), place: 0, group: None }];
//! let mut scheduler = parameters.scheduler(&tensors).unwrap();
//! let mut actions = Vec::new();
//! scheduler.on(Time::ZERO, Event::Ready { tensor: 0 }, &mut actions);
//! let Action::Start { operation, .. } = actions.remove(0) else { unreachable!() };
//! scheduler.on(Time::from_us(9), Event::Finished { operation }, &mut actions);
//! assert_eq!(actions, [Action::Done { tensor: 0 }]);
//! ```

mod bytescheduler;
mod ddp;
mod fifo;
mod flying;
mod fusion;
mod parameters;
mod pieces;
mod planned;
mod plugins;
mod priority;
mod step;
mod task;
mod tictac;
mod whole;
mod window;

use allrail_core::{Bytes, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use parameters::{LocalSum, PartitionPlacement, Servers, TensorParameters};
pub use pieces::Pieces;
pub use planned::{Choice, Chooser, Offer, Planned};
pub use plugins::TensorPlugins;
pub use step::{Computing, Outlook, StepFacts, TensorFacts};
pub use task::{CommTask, Cut, MAX_PARTITIONS};

use crate::error::ScheduleError;

/// A gradient, as the schedulers see it. It is named by its index in the list that they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// How large.
    pub bytes: Bytes,
    /// Place of its layer in the forward pass, 0 first: the lower, the sooner it is needed.
    pub place: u32,
    /// Tensors of one group are fused together, complete or not at all.
    pub group: Option<u32>,
}

/// How gradients travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// One collective per operation.
    #[default]
    AllReduce,
    /// Pushed to servers, summed and updated there, pulled from them.
    ParameterServer,
}

impl Exchange {
    /// The legs of every partition, in order.
    #[must_use]
    pub fn legs(self) -> &'static [Leg] {
        match self {
            Self::AllReduce => &[Leg::Whole],
            Self::ParameterServer => &[Leg::Push, Leg::Pull],
        }
    }
}

/// A started operation. Numbers are not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub u64);

/// What an operation does with its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// All of it: one collective.
    Whole,
    /// To the servers. It has finished once these have what every worker pushes of it; where they do not
    /// wait for others, once they have this worker's.
    Push,
    /// From the servers. It has finished once the worker has it.
    Pull,
}

/// Part of a tensor; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// Index of the tensor.
    pub tensor: u32,
    /// Where in it.
    pub offset: Bytes,
    /// How much of it.
    pub bytes: Bytes,
}

/// What a scheduler is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// All ranks have the tensor. It becomes ready again only after it was done.
    Ready {
        /// Which.
        tensor: u32,
    },
    /// All ranks have these tensors, and a coordinator has packed them: they are one operation, in this
    /// order. A policy of whole tensors packs them no second time, and waits for nothing else; one that
    /// cuts tensors goes on by tensor.
    Together {
        /// Which; each as if it became [`Event::Ready`].
        tensors: &'a [u32],
    },
    /// An operation is over on all ranks.
    Finished {
        /// Which.
        operation: OperationId,
    },
    /// What one worker pushed has arrived at its servers: it is in flight no more, and the operation
    /// finishes once all workers have pushed it. Comes before [`Event::Finished`], or not at all.
    Arrived {
        /// Which.
        operation: OperationId,
    },
    /// A timer that was set; after all other events of its time.
    Timer {
        /// As it was set.
        id: u64,
    },
}

/// What a scheduler wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand these bytes to the network.
    Start {
        /// Its number.
        operation: OperationId,
        /// What it does.
        leg: Leg,
        /// Of which bytes; not empty.
        pieces: Pieces,
        /// Higher goes first, in the network too.
        priority: i64,
    },
    /// The tensor has been exchanged: whoever waits for it may go on.
    Done {
        /// Which.
        tensor: u32,
    },
    /// Say [`Event::Timer`] then.
    SetTimer {
        /// Comes back.
        id: u64,
        /// When; not before now.
        at: Time,
    },
}

/// What may change while a scheduler runs: that of tensors that become ready from now on, and of
/// operations that start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// As [`TensorParameters::partition`]; as it is where `None`.
    pub partition: Option<Bytes>,
    /// As [`TensorParameters::credit`]; as it is where `None`.
    pub credit: Option<Bytes>,
}

/// The decider of one group of ranks and one operation: events in, actions out.
pub trait TensorScheduler: Send {
    /// Takes an event and appends what it wants, in the order in which it is to be done.
    ///
    /// # Panics
    /// If the driver breaks the rules: a tensor that is ready again before it was done, an
    /// operation that finishes and does not run.
    fn on(&mut self, now: Time, event: Event<'_>, actions: &mut Vec<Action>);

    /// Changes what the policy reads of it; the rest, and a policy that reads nothing of it, stays.
    fn retune(&mut self, tuning: Tuning) {
        let _ = tuning;
    }

    /// Nothing will happen any more, though not all is done: a chooser that is asked tells why.
    fn stalled(&mut self) {}
}

/// A policy: makes schedulers.
pub trait TensorPolicy: Send + Sync {
    /// The tag in scenario files.
    fn tag(&self) -> &str;

    /// One line for the docs.
    fn about(&self) -> &str;

    /// Raised whenever the same events may give other actions.
    fn version(&self) -> u32;

    /// Whether the next iteration's layer waits for its own tensor only, and not for all of them.
    fn crosses_barrier(&self) -> bool;

    /// Whether its priorities hold in the network too: a dimension serves the stages of an urgent tensor
    /// first. Otherwise the order of issue counts there.
    fn ranks_in_the_network(&self) -> bool {
        false
    }

    /// No piece is larger. `None`: tensors travel whole.
    fn partition(&self, parameters: &TensorParameters) -> Option<Bytes> {
        let _ = parameters;
        None
    }

    /// How much may be started and not finished. `None`: nothing waits for what has started.
    fn credit(&self, parameters: &TensorParameters) -> Option<Bytes> {
        let _ = parameters;
        None
    }

    /// Whether what travels together depends on what was ready at which time: then ranks must agree on
    /// that. Else it follows from the tensors alone.
    fn packs_by_time(&self) -> bool {
        false
    }

    /// The keys of `schedule.tensor` that only some policies read, and this one does.
    fn reads(&self) -> &'static [&'static str];

    /// A scheduler of these tensors. Its caller has checked the parameters.
    ///
    /// # Errors
    /// If the parameters do not fit the tensors, such as too many partitions.
    fn scheduler(
        &self,
        parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError>;

    /// What [`TensorPolicy::in_step`] looks at; nothing if it has no answer.
    fn outlook(&self) -> Outlook {
        Outlook::Nothing
    }

    /// How it ranks and cuts these tensors once it knows their step; none where
    /// [`TensorPolicy::scheduler`] says it. Its caller has checked the parameters.
    ///
    /// # Errors
    /// As [`TensorPolicy::scheduler`].
    fn in_step(
        &self,
        parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
        facts: &StepFacts,
    ) -> Result<Option<Planned>, ScheduleError> {
        let _ = (parameters, exchange, tensors, facts);
        Ok(None)
    }
}

impl std::fmt::Debug for dyn TensorPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tag())
    }
}

/// Every tensor scheduler, in the order of the docs.
pub static ALL: &[&dyn TensorPolicy] = &[
    &fifo::Fifo,
    &ddp::Ddp,
    &fusion::Fusion,
    &priority::Priority,
    &tictac::TIC,
    &tictac::TAC,
    &bytescheduler::ByteScheduler,
];

/// The tensor scheduler with this tag, of this crate's own.
///
/// # Errors
/// [`ScheduleError::Field`] with the known names.
pub fn named(name: &str) -> Result<&'static dyn TensorPolicy, ScheduleError> {
    let all = || ALL.iter().copied();
    all().find(|policy| policy.tag() == name).ok_or_else(|| plugins::unknown(name, all()))
}
