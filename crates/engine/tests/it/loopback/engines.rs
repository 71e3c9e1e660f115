//! A rank that decides with an [`Engine`].

use allrail_core::Time;
use allrail_engine::engine::{Action, Call, Engine, Event, Home, Registration};
use allrail_engine::{Broken, CollectiveId};
use allrail_schedule::operation::OperationName;
use allrail_schedule::signature::Signature;

use super::Job;
use super::decider::{Decider, Share};
use super::faults::TakenFor;

/// See the module.
pub(crate) struct OfEngine {
    engine: Engine,
    /// By the engine's numbers, those of the job.
    numbers: Vec<usize>,
    place: u32,
    peers: Vec<u32>,
}

impl OfEngine {
    pub(crate) fn new(job: &Job, rank: u32) -> Self {
        let setup = job.engine.as_ref().expect("a job for engines");
        let (settings, plans, peers) = job.engine_of(rank);
        let place = settings.rank;
        let mut engine = Engine::new(settings, plans).unwrap_or_else(|e| panic!("{e}: {job:?}"));
        // Ranks meet their tensors in any order.
        let mut numbers: Vec<usize> = (0..job.tensors.len()).collect();
        numbers.rotate_left(rank as usize % job.tensors.len());
        for number in numbers.iter().filter(|_| !job.calls) {
            let TakenFor { name, dtype, elements, .. } = job.taken_for(rank, *number);
            let signature = Signature {
                name,
                dtype: dtype.name().to_owned(),
                shape: vec![elements],
                strides: Vec::new(),
            };
            let place = u32::try_from(*number).expect("few tensors");
            let group = setup.groups[*number];
            let registration = Registration { signature, width: dtype.width(), place, group };
            engine.register(registration).expect("a tensor of a new name");
        }
        numbers.sort_by_key(|number| job.taken_for(rank, *number).name);
        Self { engine, numbers, place, peers }
    }
}

impl Decider for OfEngine {
    fn on(&mut self, now: Time, event: Event, out: &mut Vec<Action>) -> Result<(), Broken> {
        self.engine.on(now, event, out)
    }

    fn settle(&mut self, out: &mut Vec<Action>) {
        self.engine.settle(out);
    }

    fn deadline(&self) -> Option<Time> {
        self.engine.deadline()
    }

    fn shares(&self, id: CollectiveId) -> Vec<Share> {
        let slices = self.engine.slices(id).expect("under way");
        let share = |slice: &allrail_engine::Slice| {
            (self.numbers[slice.tensor as usize], slice.elements.clone())
        };
        slices.iter().map(share).collect()
    }

    fn call(
        &mut self,
        now: Time,
        call: &Call<'_>,
        out: &mut Vec<Action>,
    ) -> Result<OperationName, Broken> {
        self.engine.call(now, call, out)
    }

    fn call_named(
        &mut self,
        now: Time,
        call: (&str, &Call<'_>),
        out: &mut Vec<Action>,
    ) -> Result<OperationName, Broken> {
        self.engine.call_named(now, call, out)
    }

    fn home(&self, name: &OperationName) -> Result<Home, Broken> {
        self.engine.home(name)
    }

    fn peers(&self) -> (u32, &[u32]) {
        (self.place, &self.peers)
    }
}
