//! Coordinators: which tensors are ready on every rank, and in which order they are launched. One file
//! a policy, one line in [`ALL`].
//!
//! Frameworks submit gradients in another order on every rank, and ranks that launch collectives in
//! different orders wait for each other for ever. So ranks talk before they launch. A coordinator is
//! the state machine of one rank in that talk: events in (a tensor is submitted, a message has come, a
//! timer has fired), actions out (send, set a timer, launch this list). It holds no clock and no
//! socket: the simulator runs 27,600 of them in virtual time.
//!
//! | policy | each cycle | what grows with the ranks |
//! |---|---|---|
//! | [`central`] | requests to rank 0, responses back | rank 0's work: ranks × tensors |
//! | [`tree`] | the same, merged on the way | levels of the tree |
//! | [`cached`] | bit vectors intersected; requests only of what is not cached | levels |
//! | [`agreed`] | no cycle: a subtree speaks when a tensor is ready in all of it | levels |
//!
//! Beside what is *ready* ranks agree on what has *finished* and on when time is *cut*, if they are told:
//! all three are events of one list, which every rank gets in one order ([`Launch::steps`]). Whoever needs
//! no common order tells neither.
//!
//! Source: Horovod (Sergeev and Del Balso 2018; Romero et al., NSDI'22). What is not modelled: devices,
//! autotuning of the settings, process sets.
//!
//! What is launched is a function of the [`ledger`] that all ranks share; channels between two ranks
//! keep the order of messages. What a peer sends that breaks the rules is an error that names it
//! ([`broken`]); [`wire`] is the form of messages as bytes.

pub mod agreed;
pub mod bits;
pub mod broken;
pub mod cached;
pub mod cause;
pub mod central;
pub mod few;
pub mod finishes;
mod fleet;
mod guard;
pub mod ledger;
mod ledgers;
mod lists;
pub mod messages;
pub mod place;
mod rank_zero;
pub mod ranks;
pub mod requests;
mod settings;
mod signatures;
mod table;
pub mod tree;
pub mod waves;
pub mod wire;

use std::sync::Arc;

use allrail_core::{FieldError, Time};
use allrail_schedule::error::ScheduleError;
use allrail_schedule::registry::{MOST_TENSORS, Registry};
use allrail_schedule::signature::Signed;

pub use bits::Bits;
pub use broken::{Breach, Broken};
pub use cause::Cause;
pub use ledger::{Consensus, Launch, Ledger, Response, Rules, Step};
pub use messages::{Payload, Reason};
pub use place::Place;
pub use requests::{Request, Trouble};
pub use settings::Settings;
pub use waves::{Ended, Waves};

/// The timer of the cycle.
pub const CYCLE: u64 = 0;
/// The timer of the guard.
pub const WATCH: u64 = 1;

/// What a coordinator is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The job begins.
    Start,
    /// This rank has a tensor ready.
    Submit(Request),
    /// From now on a tensor of this rank is this, in place of what it was registered as.
    Register {
        /// Which.
        tensor: u32,
        /// What it is now.
        signature: Signed,
    },
    /// An operation has finished on this rank. Its number is its place in the order in which all ranks
    /// start operations.
    Finished {
        /// Counted from 0.
        operation: u64,
    },
    /// This rank's clock has come to a cut. Cuts ascend; one is agreed when a first rank has come to it.
    Cut {
        /// Its number.
        number: u64,
    },
    /// A message has come.
    Message {
        /// From whom.
        from: u32,
        /// What.
        payload: Payload,
    },
    /// A timer has fired.
    Timer {
        /// Which.
        id: u64,
    },
    /// This rank has no more data: until all have joined, it takes part with zeros.
    Join,
    /// This rank wants all to stop.
    Shutdown,
}

/// What a coordinator wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message.
    Send {
        /// To whom.
        to: u32,
        /// What.
        payload: Payload,
    },
    /// Send the same to all children of a place, first child first.
    Spread {
        /// To whose children.
        below: Place,
        /// What.
        payload: Payload,
    },
    /// Set a timer, beside those of the same name.
    SetTimer {
        /// Which.
        id: u64,
        /// When it fires.
        at: Time,
    },
    /// All ranks agree on this; [`Launch::steps`] are its parts in order.
    Ready(Arc<Launch>),
    /// Tensors wait too long for ranks.
    Warn {
        /// Which tensor.
        tensor: u32,
        /// Who has not submitted it.
        missing: Vec<u32>,
    },
    /// This rank has submitted a tensor that it has submitted already.
    Refused {
        /// Which.
        tensor: u32,
    },
    /// Launch nothing more.
    Stop(Arc<Reason>),
}

/// Makes room for one action. A push that follows needs no memory, so it cannot fail half-way: the action
/// is written to its place at once, and not first put together somewhere else.
#[inline]
fn make_room(actions: &mut Vec<Action>) {
    while actions.len() == actions.capacity() {
        actions.reserve(8);
    }
}

/// The state machine of one rank.
pub trait Coordinator: Send {
    /// Takes an event in and appends what is to be done.
    ///
    /// # Errors
    /// What a peer or the caller did against the rules. The coordinator stops then: its last actions, to
    /// be carried out, tell its neighbours.
    fn on(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) -> Result<(), Broken>;
}

/// The same of all ranks of a job in one process: for a simulator, which also leaves out cycles.
pub trait Fleet {
    /// As [`Coordinator::on`], at `rank`.
    ///
    /// # Errors
    /// As there.
    fn on(
        &mut self,
        rank: u32,
        now: Time,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken>;

    /// A message has come that many get: as [`Event::Message`], without a copy for each.
    ///
    /// # Errors
    /// As [`Coordinator::on`].
    fn hear(
        &mut self,
        rank: u32,
        now: Time,
        from: u32,
        payload: &Payload,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken>;

    /// A rank has these ready, in this order.
    ///
    /// # Errors
    /// As [`Coordinator::on`].
    fn submit(
        &mut self,
        rank: u32,
        now: Time,
        requests: &[Request],
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken>;

    /// Whether a submission alone may lead to an action. If not, it may be told late, but before the
    /// next other event.
    fn acts_on_submission(&self) -> bool;

    /// Between cycles, if a rank's last one changed nothing: until when the next ones do the same at the
    /// same distances in time, if nothing is submitted.
    fn repeats_until(&self, rank: u32) -> Option<Time>;

    /// As many cycles as that were left out on all ranks as take this long.
    fn skip(&mut self, by: Time);

    /// These ranks as voters, of a policy whose cycles can be run as waves.
    fn waves(&mut self) -> Option<&mut dyn Waves> {
        None
    }
}

/// What a coordinator is made from: alike on every rank.
#[derive(Clone, Debug)]
pub struct CoordinationSpec {
    /// How many ranks.
    pub ranks: u32,
    /// The settings.
    pub settings: Arc<Settings>,
    /// How many tensors may be spoken of.
    pub tensors: u32,
    /// What the ledgers have in common.
    pub rules: Arc<Rules>,
    /// What the tensors are, where it is known.
    pub registry: Arc<Registry>,
}

/// A policy.
pub trait CoordinationPolicy: Sync {
    /// The tag in scenario files.
    fn tag(&self) -> &'static str;

    /// The tag that it had before, which scenario files may still use.
    fn formerly(&self) -> Option<&'static str> {
        None
    }

    /// One line for the docs.
    fn about(&self) -> &'static str;

    /// Raised whenever the same events may give other actions.
    fn version(&self) -> u32;

    /// The settings that it reads, beside `stall`, `stall_shutdown`, `patience` and `threshold`.
    fn reads(&self) -> &'static [&'static str];

    /// How many tensors have a slot.
    fn slots(&self, settings: &Settings) -> usize;

    /// The settings where none are given. One whose `cycle` is no time here can do without.
    fn defaults(&self) -> Settings {
        Settings::default()
    }

    /// The state machine of a rank, below `job.ranks`.
    fn coordinator(&self, job: &CoordinationSpec, rank: u32) -> Box<dyn Coordinator>;

    /// Those of all ranks.
    fn fleet(&self, job: &CoordinationSpec) -> Box<dyn Fleet>;
}

impl std::fmt::Debug for dyn CoordinationPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tag())
    }
}

/// Every coordinator, in the order of the docs.
pub static ALL: &[&dyn CoordinationPolicy] =
    &[&central::Central, &tree::Tree, &cached::Cached, &agreed::AgreedPolicy];

/// The tag of the policy without any talk: a tensor is ready when the last rank has submitted it.
pub const NONE: &str = "none";

/// The policy with this tag.
///
/// # Errors
/// [`ScheduleError::Field`] with the known names.
pub fn named(name: &str) -> Result<&'static dyn CoordinationPolicy, ScheduleError> {
    ALL.iter().copied().find(|policy| policy.tag() == name).ok_or_else(|| {
        let known: Vec<String> = ALL.iter().map(|p| format!("`{}`", p.tag())).collect();
        ScheduleError::Field(FieldError::new(
            "schedule.coordination.policy",
            name,
            "it is not a coordination",
            format!("use one of `{NONE}`, {}", known.join(", ")),
        ))
    })
}

impl CoordinationSpec {
    /// A job of `ranks` ranks; `groups` holds the tensors of each group, which go together or not at
    /// all.
    ///
    /// # Errors
    /// A setting that is out of range; a tensor in two groups; a group of none.
    pub fn new(
        policy: &dyn CoordinationPolicy,
        settings: &Settings,
        ranks: u32,
        groups: &[Vec<u32>],
    ) -> Result<Self, ScheduleError> {
        settings.check(policy)?;
        let wrong = |number: usize, value: String, why: &str, hint: &str| {
            ScheduleError::Field(FieldError::new(
                format!("schedule.coordination.groups[{number}]"),
                value,
                why,
                hint,
            ))
        };
        let mut group_of: Vec<Option<u32>> = Vec::new();
        for (number, group) in (0u32..).zip(groups) {
            let place = number as usize;
            if group.is_empty() {
                return Err(wrong(place, "[]".to_owned(), "a group of none", "leave it out"));
            }
            for tensor in group {
                let index = *tensor as usize;
                group_of.resize(group_of.len().max(index + 1), None);
                if group_of[index].replace(number).is_some() {
                    let why = "it is in a group already, and goes with one only";
                    return Err(wrong(place, tensor.to_string(), why, "name every tensor once"));
                }
            }
        }
        let rules = Rules {
            capacity: policy.slots(settings),
            threshold: settings.threshold,
            group_of,
            group_sizes: groups.iter().map(|group| group.len() as u32).collect(),
        };
        Ok(Self {
            ranks,
            settings: Arc::new(settings.clone()),
            tensors: MOST_TENSORS as u32,
            rules: Arc::new(rules),
            registry: Arc::default(),
        })
    }

    /// The same job over these tensors: no others may be spoken of, and an error can say what they are.
    #[must_use]
    pub fn over(self, registry: Arc<Registry>) -> Self {
        Self { tensors: registry.len() as u32, registry, ..self }
    }
}
