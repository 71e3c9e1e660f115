//! Coordinators alone and together: one rank of a job in its process, or all of them in one, as a simulator
//! has them. Both run the same state machine; what all ranks know alike stands beside it, once.

use std::sync::Arc;

use allrail_core::Time;
use allrail_schedule::registry::Registry;
use allrail_schedule::signature::Signed;

use super::broken::{Breach, Broken};
use super::ledger::Ledger;
use super::ledgers::Ledgers;
use super::messages::{Payload, Reason, Vote};
use super::requests::Request;
use super::{Action, CoordinationSpec, Coordinator, Event, Fleet, Settings, Waves};

/// What the machines of a process share.
pub(super) struct Shared {
    pub(super) ranks: u32,
    /// How many tensors may be spoken of.
    pub(super) tensors: u32,
    pub(super) settings: Settings,
    pub(super) ledgers: Ledgers,
    registry: Arc<Registry>,
    /// Votes that were counted: the places of the next ones.
    pub(super) papers: Papers,
}

impl Shared {
    fn new(job: &CoordinationSpec, here: u32) -> Self {
        Self {
            ranks: job.ranks,
            tensors: job.tensors,
            settings: Settings::clone(&job.settings),
            ledgers: Ledgers::new(job.rules.clone(), here),
            registry: job.registry.clone(),
            papers: Papers::default(),
        }
    }

    /// The ledger of a rank that has seen so many outcomes.
    #[inline]
    pub(super) fn ledger(&self, seen: u64) -> &Ledger {
        self.ledgers.at(seen)
    }

    /// Refuses a rank that the job does not have.
    pub(super) fn check_rank(&self, rank: u32) -> Result<(), Breach> {
        let ranks = self.ranks;
        if rank < ranks { Ok(()) } else { Err(Breach::Rank { rank, ranks }) }
    }

    /// Refuses a tensor that nobody registered.
    #[inline]
    pub(super) fn check_tensor(&self, tensor: u32) -> Result<(), Breach> {
        let tensors = self.tensors;
        if tensor < tensors { Ok(()) } else { Err(Breach::Tensor { tensor, tensors }) }
    }

    /// What a tensor was registered as.
    pub(super) fn signature(&self, tensor: u32) -> Option<Signed> {
        self.registry.signature(tensor).cloned()
    }
}

/// Places of votes that were counted, for the next ones.
#[derive(Default)]
pub(super) struct Papers(
    #[expect(clippy::vec_box, reason = "what is kept is the place of each, to be sent on")]
    Vec<Box<Vote>>,
);

impl Papers {
    /// How many are kept: those of a few nodes of the tree, which are counted together.
    const MOST: usize = 64;

    #[inline]
    pub(super) fn take(&mut self) -> Box<Vote> {
        self.0.pop().unwrap_or_default()
    }

    #[inline]
    pub(super) fn keep(&mut self, vote: Box<Vote>) {
        if self.0.len() < Self::MOST {
            self.0.push(vote);
        }
    }
}

/// The state machine of one rank, but for what all know alike.
pub(super) trait Machine: Send {
    /// Whether a submission alone may lead to an action.
    const ACTS_ON_SUBMISSION: bool;

    fn rank(&self) -> u32;

    fn on(
        &mut self,
        shared: &mut Shared,
        now: Time,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken>;

    fn submit(
        &mut self,
        shared: &mut Shared,
        now: Time,
        requests: &[Request],
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        requests
            .iter()
            .try_for_each(|request| self.on(shared, now, Event::Submit(*request), actions))
    }

    /// A message that many get.
    fn hear_shared(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: u32,
        payload: &Payload,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        self.on(shared, now, Event::Message { from, payload: payload.clone() }, actions)
    }

    /// Tells its neighbours that all stop, and does nothing more.
    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>);

    fn repeats_until(&self, shared: &Shared) -> Option<Time>;

    fn skip(&mut self, by: Time);

    /// These as voters, if their cycles can be run as waves.
    fn waves(_: &mut Together<Self>) -> Option<&mut dyn Waves>
    where
        Self: Sized,
    {
        None
    }
}

/// Ends the part of a machine that has met a breach.
#[cold]
pub(super) fn broken<M: Machine>(
    machine: &mut M,
    broken: Broken,
    actions: &mut Vec<Action>,
) -> Broken {
    let reason = Reason::Broken { broken: broken.clone(), by: machine.rank() };
    machine.stop(None, &Arc::new(reason), actions);
    broken
}

/// One rank.
pub(super) struct Alone<M> {
    machine: M,
    shared: Shared,
}

impl<M: Machine> Alone<M> {
    pub(super) fn new(job: &CoordinationSpec, machine: impl FnOnce(&Shared) -> M) -> Self {
        let shared = Shared::new(job, 1);
        Self { machine: machine(&shared), shared }
    }
}

impl<M: Machine> Coordinator for Alone<M> {
    fn on(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) -> Result<(), Broken> {
        let told = self.machine.on(&mut self.shared, now, event, actions);
        told.map_err(|one| broken(&mut self.machine, one, actions))
    }
}

/// All ranks of a job.
pub(super) struct Together<M> {
    pub(super) machines: Vec<M>,
    pub(super) shared: Shared,
}

impl<M: Machine> Together<M> {
    pub(super) fn new(job: &CoordinationSpec, machine: impl Fn(&Shared, u32) -> M) -> Self {
        let shared = Shared::new(job, job.ranks);
        Self { machines: (0..job.ranks).map(|rank| machine(&shared, rank)).collect(), shared }
    }
}

impl<M: Machine> Fleet for Together<M> {
    #[inline]
    fn on(
        &mut self,
        rank: u32,
        now: Time,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let machine = &mut self.machines[rank as usize];
        let told = machine.on(&mut self.shared, now, event, actions);
        told.map_err(|one| broken(machine, one, actions))
    }

    #[inline]
    fn hear(
        &mut self,
        rank: u32,
        now: Time,
        from: u32,
        payload: &Payload,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let machine = &mut self.machines[rank as usize];
        let told = machine.hear_shared(&mut self.shared, now, from, payload, actions);
        told.map_err(|one| broken(machine, one, actions))
    }

    fn submit(
        &mut self,
        rank: u32,
        now: Time,
        requests: &[Request],
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let machine = &mut self.machines[rank as usize];
        let told = machine.submit(&mut self.shared, now, requests, actions);
        told.map_err(|one| broken(machine, one, actions))
    }

    fn acts_on_submission(&self) -> bool {
        M::ACTS_ON_SUBMISSION
    }

    fn repeats_until(&self, rank: u32) -> Option<Time> {
        self.machines[rank as usize].repeats_until(&self.shared)
    }

    fn skip(&mut self, by: Time) {
        self.machines.iter_mut().for_each(|machine| machine.skip(by));
    }

    fn waves(&mut self) -> Option<&mut dyn Waves> {
        M::waves(self)
    }
}
