//! What the coordinator says, and what follows from it.

use allrail_coordinate::{self as coordinate, Cause, Launch, Reason, Response, Step, Trouble};
use allrail_core::Time;
use allrail_schedule::tensor::{self, OperationId};

use super::event::Action;
use super::parts::Parts;
use super::rounds::Rounds;
use super::running::{Running, Told};
use super::tensors::TensorState;
use crate::Broken;

impl Running {
    /// Has the coordinator ask for a tensor's next generation, if it is time to.
    pub(super) fn request(&mut self, number: u32) {
        let tensor = &self.tensors.all[number as usize];
        let later = |one: &Rounds| !one.is_now(tensor.generation());
        if self.coordinator.is_some()
            && !self.rounds.as_ref().is_some_and(later)
            && let Some(request) = self.tensors.all[number as usize].tell()
        {
            self.tell(coordinate::Event::Submit(request));
        }
    }

    pub(super) fn tell(&mut self, event: coordinate::Event) {
        if self.coordinator.is_some() {
            self.told.push_back(Told::Coordinator(event));
        }
    }

    pub(super) fn coordinate(
        &mut self,
        now: Time,
        event: coordinate::Event,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let Some(coordinator) = &mut self.coordinator else { return Ok(()) };
        let mut said = std::mem::take(&mut self.said);
        let mut result = coordinator.on(now, event, &mut said).map_err(Broken::from);
        for action in said.drain(..) {
            match action {
                coordinate::Action::Send { to, payload } => out.push(Action::Send { to, payload }),
                coordinate::Action::Spread { below, payload } => {
                    let children = below.below().map(|span| span.start);
                    let send = |to| Action::Send { to, payload: payload.clone() };
                    out.extend(children.map(send));
                }
                coordinate::Action::SetTimer { id, at } => self.timers.of_coordinator(id, at),
                coordinate::Action::Warn { tensor, missing } => {
                    if let Some(key) = self.tensors.registry.key(tensor) {
                        out.push(Action::Warn { key, missing });
                    }
                }
                coordinate::Action::Ready(launch) => {
                    if !self.stopped && result.is_ok() {
                        result = self.agreed(now, &launch, parts, out);
                    }
                }
                // It is told of a generation once the one before is agreed.
                coordinate::Action::Refused { tensor } => {
                    result = result.and_then(|()| Err(self.not_asked(tensor)));
                }
                coordinate::Action::Stop(reason) => {
                    // What was agreed all see at one place of the list.
                    self.end(&reason, *reason != Reason::Asked, out);
                }
            }
        }
        self.said = said;
        result
    }

    /// The coordinator goes beyond what this rank asked for.
    fn not_asked(&self, tensor: u32) -> Broken {
        let name = self.tensors.all.get(tensor as usize).map_or("?", |tensor| &tensor.name);
        let what = format!("an exchange of `{name}` that this rank has not submitted");
        Broken::Policy { policy: "coordination".to_owned(), what }
    }

    /// Ranks have asked for different things: all of them say so alike, and so by the name that one of
    /// these two gave, not by what the number means here.
    fn mismatch(&self, tensors: &[u32], trouble: &Trouble) -> Broken {
        let said = match trouble {
            Trouble::Mismatch { one, .. } => one.signature.as_ref().map(|one| one.name.clone()),
            Trouble::RootJoined { .. } => None,
        };
        let tensor = said.unwrap_or_else(|| {
            let first = tensors.first().and_then(|one| self.tensors.all.get(*one as usize));
            first.map_or_else(String::new, |tensor| tensor.name.clone())
        });
        Broken::Fault(Cause::Mismatch { tensor, what: trouble.to_string() })
    }

    /// All ranks agree on this.
    fn agreed(
        &mut self,
        now: Time,
        launch: &Launch,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        for step in launch.steps() {
            match step {
                Step::Ready(Response { trouble: Some(trouble), tensors, .. }) => {
                    return Err(self.mismatch(tensors, trouble));
                }
                Step::Ready(response) => {
                    for number in &response.tensors {
                        let tensor = self.tensors.all.get_mut(*number as usize);
                        if !tensor.is_some_and(TensorState::agree) {
                            return Err(self.not_asked(*number));
                        }
                        self.request(*number);
                    }
                    if self.common {
                        self.ready(now, &response.tensors);
                    }
                }
                _ if !self.common => {}
                Step::Finished(operation) => {
                    let event = tensor::Event::Finished { operation: OperationId(operation) };
                    self.scheduler.on(now, event, &mut self.wanted);
                }
                Step::Cut(cut) => {
                    while let Some(timer) = self.timers.take_cut(cut) {
                        let event = tensor::Event::Timer { id: timer.id };
                        self.scheduler.on(now, event, &mut self.wanted);
                    }
                }
                Step::AllJoined => {}
            }
            self.start_wanted(parts, out)?;
        }
        self.end_round(parts, out)
    }
}
