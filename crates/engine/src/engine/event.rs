//! What an engine is told, and what it wants done.

use std::ops::Range;
use std::sync::Arc;

use allrail_collective::StageRef;
use allrail_collective::rank::RankPlan;
use allrail_coordinate::Payload;
use allrail_core::Bytes;
use allrail_schedule::signature::Signature;
use allrail_schedule::{Key, OperationName};

use crate::signature_hash::Differs;
use crate::{Broken, CollectiveId, Run, SignatureHash};

/// A tensor, as it is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// What it is, alike on every rank. Its shape is that of the whole buffer of the collective.
    pub signature: Signature,
    /// Bytes of an element.
    pub width: u32,
    /// Its place in the next forward pass, 0 first: the lower, the sooner it is needed.
    pub place: u32,
    /// Tensors of one group travel together, complete or not at all, where the policy packs.
    pub group: Option<u32>,
}

/// What an engine is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// All tensors are registered; the job begins.
    Start,
    /// This rank has a tensor's next generation ready.
    Submit {
        /// Which.
        key: Key,
    },
    /// This rank has nothing for a tensor's next generation: it takes part with zeros.
    Unused {
        /// Which.
        key: Key,
    },
    /// What a peer has to say: its coordinator, or of the end.
    Frame {
        /// Who.
        from: u32,
        /// The sender's epoch.
        epoch: u32,
        /// What.
        payload: Payload,
    },
    /// A port can serve another stage. With [`Ordering::Common`](super::Ordering::Common): the stage on it
    /// is over. With [`Ordering::Tagged`](super::Ordering::Tagged): all sends of its stages that may
    /// leave now have left; a send that waits for a peer must not keep the port, as that peer may wait
    /// for what this rank would run next.
    PortFree {
        /// Which.
        port: u32,
    },
    /// A stage is over on this rank: all its messages are done.
    StageOver {
        /// Whose.
        id: CollectiveId,
        /// Which.
        at: StageRef,
    },
    /// A frame has come that this rank cannot take in: [`Engine::home`](super::Engine::home) or
    /// [`Operations`](crate::Operations) has refused it. One of an earlier epoch is dropped and counted;
    /// any other ends the job, as no rank can know what its peers hold then.
    Refused {
        /// Who has sent it.
        from: u32,
        /// By its name; it may be none that this rank knows.
        operation: OperationName,
        /// What is wrong with it.
        why: String,
    },
    /// A frame has come of an operation that is another one here: all ranks end, and say what differs.
    Differs {
        /// Who has sent it.
        from: u32,
        /// By its name.
        operation: OperationName,
        /// What it is there and here.
        differs: Differs,
    },
    /// What a peer says cannot be understood.
    Misspoke {
        /// Who.
        from: u32,
    },
    /// An operation cannot be carried on.
    Failed {
        /// Which.
        operation: OperationName,
        /// Why.
        why: String,
    },
    /// A rank is no longer there.
    PeerLost {
        /// Which.
        rank: u32,
    },
    /// A rank has closed in order, and says nothing more.
    PeerLeft {
        /// Which.
        rank: u32,
    },
    /// The job begins anew with these ranks, after a loss or a restart: what was under way is dropped,
    /// and tensors are as if never submitted.
    Membership {
        /// Larger than the one before.
        epoch: u32,
        /// How many; plans are made for a number of ranks, so another one needs another engine.
        ranks: u32,
    },
    /// Tensors are cut in another way, and another credit holds, from generation `at` of every tensor on.
    /// All ranks are told the same, before they submit that generation of any tensor.
    Retune {
        /// The first generation.
        at: u64,
        /// As it is where `None`.
        partition: Option<Bytes>,
        /// As it is where `None`.
        credit: Option<Bytes>,
    },
    /// This rank wants all to stop.
    Shutdown,
    /// Time has passed; by [`Engine::deadline`](super::Engine::deadline) at the latest, and after all
    /// else of that time.
    Time,
}

/// What an engine wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Bring this to a peer's engine, as [`Event::Frame`]. Frames from one rank to another keep their
    /// order.
    Send {
        /// To whom.
        to: u32,
        /// What.
        payload: Payload,
    },
    /// An operation begins on this rank: frames of its name are at home from now on.
    /// [`Engine::slices`](super::Engine::slices) says on which elements of which tensors; of a call the
    /// buffer is the caller's.
    Begin {
        /// What it is called in the calls that follow.
        id: CollectiveId,
        /// What it is called on every rank.
        operation: OperationName,
        /// What goes first where several wait for one link: the higher.
        priority: i64,
        /// What its frames carry beside the name, so that a rank which takes it for another is found.
        signature: SignatureHash,
        /// What this rank does.
        part: Arc<RankPlan>,
    },
    /// A stage is launched; its port is taken.
    Run(Run),
    /// An operation is over on this rank.
    Over {
        /// As it began.
        id: CollectiveId,
        /// Its name.
        operation: OperationName,
    },
    /// A tensor has been exchanged, and may be submitted again; or a call is done.
    Done {
        /// Which.
        key: Key,
        /// Which generation of a tensor; 0 of a call.
        generation: u64,
    },
    /// These names may be forgotten, and used again from generation 0 on: what a driver knows of frames of
    /// them that have come before it forgets ([`Operations::forget`](crate::Operations::forget)).
    Idle {
        /// Which.
        keys: Vec<Key>,
    },
    /// A tensor waits for these ranks.
    Warn {
        /// Which.
        key: Key,
        /// Who has not submitted it.
        missing: Vec<u32>,
    },
    /// Launch nothing more; said once, and last: the [`Action::Send`]s before it must still leave, as they
    /// tell others why. Nothing but [`Event::Membership`] is taken after it.
    Stop(Box<Stopped>),
}

/// Why an engine has stopped, and where that leaves every tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Why. The same on every rank that is left, but where two ranks met two faults at once.
    pub error: Broken,
    /// By number, that is by name.
    pub tensors: Vec<TensorReport>,
    /// Of calls without a tensor.
    pub calls: CallReport,
}

/// How far calls without a tensor are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallReport {
    /// How many were made.
    pub made: u64,
    /// Those of them that are not over, by number; the buffers of all others hold their results.
    pub unfinished: Vec<u64>,
}

/// How far a tensor was when an engine stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// How often it was submitted.
    pub submitted: u64,
    /// Whether what was submitted last is finished: its buffer holds the result. Of one that was never
    /// submitted too.
    pub finished: bool,
    /// Of an exchange that is not: how many elements of it hold the result.
    pub elements: u64,
}

/// Elements of one tensor in an operation. The operation's buffer is its slices laid end to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Whose.
    pub key: Key,
    /// The tensor's number: its place among all, by name.
    pub tensor: u32,
    /// Which of its elements.
    pub elements: Range<u64>,
    /// Whether this rank takes part with zeros.
    pub unused: bool,
}

/// Where frames of an operation belong now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// To this one.
    Running(CollectiveId),
    /// To one that has not begun here: the sender is ahead, and they are kept until it does.
    Early,
}
