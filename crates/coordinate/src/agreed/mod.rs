//! `agreed`: ours. Ranks agree on events, and each decides for itself what follows (the ledger). There
//! is no cycle: a node of the tree speaks to its parent when a tensor has become ready in its whole
//! subtree, rank 0 when it is ready everywhere, and that event goes down to all. Nobody speaks while
//! nothing happens, and a tensor is launched two times the height of the tree after its last
//! submission, not at the end of a cycle.
//!
//! - A tensor with a slot is one bit; one without is a request, held back until the whole subtree has
//!   made it. Events come down in one order, so all ledgers take the same steps.
//! - A report says how many events its sender had taken in, and its bits mean what they meant then: a bit
//!   that is under way while its slot is given to another tensor means nothing later.
//! - With a `cycle`, a node waits that long before it speaks again, and what comes meanwhile goes
//!   together: fewer messages, later launches.
//! - A rank that waits longer than `stall` complains to its parent, which passes it on; rank 0 then asks
//!   down the tree who lacks the tensor, and names them. Who does not answer stops the job.
//!
//! Messages a step: at most two for each rank and tensor, and none for a subtree that is not ready.

mod complaints;
mod events;
mod machine;
mod reports;
mod search;

use std::sync::Arc;

use allrail_core::Time;

use super::broken::{Breach, Broken};
use super::fleet::{self, Alone, Shared, Together};
use super::lists;
use super::messages::{Missing, Payload, Reason};
use super::ranks::Ranks;
use super::requests::{Asks, Request};
use super::{
    Action, CoordinationPolicy, CoordinationSpec, Coordinator, Event, Fleet, Settings, WATCH,
};
use machine::Machine;

/// The policy.
pub struct AgreedPolicy;

impl CoordinationPolicy for AgreedPolicy {
    fn tag(&self) -> &'static str {
        "agreed"
    }

    fn about(&self) -> &'static str {
        "no cycle: a subtree speaks when a tensor is ready in all of it; every rank decides"
    }

    fn version(&self) -> u32 {
        1
    }

    fn reads(&self) -> &'static [&'static str] {
        &["cycle", "fan_out"]
    }

    fn slots(&self, _: &Settings) -> usize {
        usize::MAX
    }

    fn defaults(&self) -> Settings {
        Settings { cycle: Time::ZERO, ..Settings::default() }
    }

    fn coordinator(&self, job: &CoordinationSpec, rank: u32) -> Box<dyn Coordinator> {
        Box::new(Alone::new(job, |shared| Machine::new(shared, rank)))
    }

    fn fleet(&self, job: &CoordinationSpec) -> Box<dyn Fleet> {
        Box::new(Together::new(job, Machine::new))
    }
}

impl Machine {
    /// This rank has a tensor.
    fn submitted(
        &mut self,
        shared: &Shared,
        now: Time,
        request: Request,
        actions: &mut Vec<Action>,
    ) -> Result<(), Breach> {
        shared.check_tensor(request.tensor)?;
        shared.check_rank(request.root)?;
        let tensor = request.tensor as usize;
        if self.open.contains(tensor) {
            actions.push(Action::Refused { tensor: request.tensor });
            return Ok(());
        }
        self.open.insert(tensor);
        self.note(shared, now, request);
        self.watch_soon(shared, now, actions);
        Ok(())
    }

    /// A message of a peer.
    fn hear(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: u32,
        payload: Payload,
        actions: &mut Vec<Action>,
    ) -> Result<(), Breach> {
        shared.check_rank(from)?;
        let kind = payload.kind();
        match payload {
            Payload::Report(report) => {
                self.report(shared, now, from, *report)?;
                self.watch_soon(shared, now, actions);
            }
            Payload::Agreed(event) => {
                if self.place.parent() != Some(from) {
                    return Err(Breach::NotItsPart { kind });
                }
                self.take_in(shared, now, &event, actions)?;
            }
            Payload::Probe(probe) => {
                shared.check_rank(probe.origin)?;
                probe.tensors.iter().try_for_each(|tensor| shared.check_tensor(*tensor))?;
                self.probed(shared, now, probe.origin, &probe.tensors, actions);
            }
            Payload::Missing(missing) => {
                let Missing { tensors, passed } = *missing;
                tensors.iter().try_for_each(|tensor| shared.check_tensor(*tensor))?;
                passed.iter().try_for_each(|rank| shared.check_rank(*rank))?;
                if let Some(search) = &mut self.search
                    && search.asked.insert(from, true) != Some(true)
                {
                    passed.into_iter().for_each(|rank| {
                        search.asked.entry(rank).or_insert(false);
                    });
                    search.missing.extend(tensors.into_iter().map(|tensor| (tensor, from)));
                }
                self.conclude(shared, now, actions);
            }
            Payload::Stop(reason) => {
                fleet::Machine::stop(self, Some(from), &reason, actions);
            }
            Payload::Asks(_)
            | Payload::Vote(_)
            | Payload::Verdict(_)
            | Payload::Decision(_)
            | Payload::Waits(_)
            | Payload::Idle(_)
            | Payload::Thaw(_) => {
                return Err(Breach::NotItsPart { kind });
            }
        }
        Ok(())
    }
}

impl fleet::Machine for Machine {
    const ACTS_ON_SUBMISSION: bool = true;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn on(
        &mut self,
        shared: &mut Shared,
        now: Time,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        if self.is_stopped {
            return Ok(());
        }
        let rank = self.rank;
        let own = |breach: Breach| breach.by(rank);
        match event {
            Event::Submit(request) => {
                self.submitted(shared, now, request, actions).map_err(own)?;
            }
            Event::Register { tensor, signature } => {
                shared.check_tensor(tensor).map_err(own)?;
                self.signatures.change(tensor, signature);
            }
            Event::Finished { operation } => {
                let over = shared.ledger(self.seen).over();
                self.finished.finish(operation, over).map_err(own)?;
            }
            Event::Cut { number } => {
                // Another rank's clock may have come to it before.
                if Some(number) > shared.ledger(self.seen).cut() {
                    let news = self.news.asks.get_or_insert_default();
                    news.cut = news.cut.max(Some(number));
                }
            }
            Event::Join if !self.joined => {
                self.joined = true;
                let joined = Ranks::span(rank..rank + 1);
                self.news.asks.get_or_insert_default().joined.unite(&joined);
                self.table.add(now, Asks { joined, ..Asks::default() });
            }
            Event::Shutdown => {
                self.news.asks.get_or_insert_default().shutdown = true;
                self.shuts_down = true;
            }
            Event::Message { from, payload } => {
                let heard = self.hear(shared, now, from, payload, actions);
                heard.map_err(|breach| breach.by(from))?;
            }
            Event::Timer { id: WATCH } => self.look(shared, now, actions),
            Event::Start | Event::Timer { .. } | Event::Join => {}
        }
        self.speak(shared, now, actions)
    }

    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>) {
        self.is_stopped = true;
        lists::stop(&[&self.place], from, reason, actions);
    }

    fn repeats_until(&self, _: &Shared) -> Option<Time> {
        None
    }

    fn skip(&mut self, _: Time) {}
}
