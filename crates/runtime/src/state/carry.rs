//! Does what the engine wants, in the order in which it wants it.

use allrail_collective::StageRef;
use allrail_engine::engine::{Action, Event, Stopped};
use allrail_engine::{Broken, CollectiveId, Dtype, Refused, SignatureHash};
use allrail_schedule::coordinate::{Cause, wire};
use allrail_schedule::{Key, OperationName};

use super::outgoing::Sending;
use super::{Launch, Live, State};
use crate::memory::Buffer;
use crate::{Fault, FaultKind};

impl State {
    pub(super) fn carry_out(&mut self, todo: &mut Vec<Action>) {
        for action in todo.drain(..) {
            match action {
                Action::Send { to, payload } => {
                    let mut bytes = Vec::new();
                    if wire::encode(&payload, &mut bytes).is_ok() {
                        self.said.push_back((self.peers[to as usize], bytes));
                        self.talked += 1;
                        self.wakes.control = true;
                    }
                }
                Action::Begin { id, operation, part, .. } if self.elsewhere.is_some() => {
                    self.named.insert(id, operation);
                    self.elsewhere.iter_mut().for_each(|one| one.begin(id, part.clone()));
                }
                Action::Begin { id, operation, priority, signature, part } => {
                    self.begin(id, operation, priority, signature);
                    let opened = self.operations.open(operation, signature, part);
                    // What was kept for it makes room.
                    self.wakes.ports |= std::mem::take(&mut self.stalled);
                    if let Err(refused) = opened {
                        // A frame that came before it.
                        self.refuse_kept(operation, &refused);
                    }
                }
                Action::Run(run) => match self.named.get(&run.collective).copied() {
                    Some(operation) if self.elsewhere.is_some() => {
                        self.hand_over(&run, operation);
                    }
                    Some(operation) => self.launch(run.port, (operation, run.at)),
                    None => {}
                },
                Action::Over { id, .. } if self.elsewhere.is_some() => {
                    self.named.remove(&id);
                    self.elsewhere.iter_mut().for_each(|one| one.over(id));
                }
                Action::Over { id, operation } => {
                    self.named.remove(&id);
                    self.live.remove(&operation);
                    if let Err(refused) = self.operations.close(operation) {
                        self.note(refused.to_string());
                    }
                }
                Action::Done { key, generation } => {
                    if self.is_call(key) {
                        self.call_done(key);
                    } else {
                        self.tensor_done(key, generation);
                    }
                    let group = self.engine.settings().group;
                    if self.elsewhere.is_none()
                        && let Err(refused) = self.operations.exchanged(group, key, generation)
                    {
                        let epoch = self.engine.settings().epoch;
                        let name = OperationName { epoch, group, key, generation, part: 0 };
                        self.refuse_kept(name, &refused);
                    }
                }
                Action::Idle { keys } => {
                    let group = self.engine.settings().group;
                    keys.into_iter().for_each(|key| self.operations.forget(group, key));
                }
                Action::Warn { key, missing } => self.warn(key, &missing),
                Action::Stop(stopped) => self.stopped(&stopped),
            }
        }
    }

    /// Ranks are late; nothing is wrong yet.
    fn warn(&mut self, key: Key, missing: &[u32]) {
        let name = self.tensors.get(&key).map_or("?", |one| one.name.as_str());
        let ranks: Vec<String> =
            missing.iter().take(8).map(|place| self.peers[*place as usize].to_string()).collect();
        self.note(format!("tensor `{name}` waits for rank {}", ranks.join(", ")));
    }

    /// A frame was kept that should not have come.
    fn refuse_kept(&mut self, operation: OperationName, refused: &Refused) {
        match refused.from() {
            Some(from) => self.refuse_frame(from, operation, refused),
            None => self.note(refused.to_string()),
        }
    }

    fn begin(
        &mut self,
        id: CollectiveId,
        operation: OperationName,
        priority: i64,
        signature: SignatureHash,
    ) {
        let mut buffer = Buffer::default();
        let mut dtype = Dtype::Uint8;
        if let Some((memory, of_call)) = self.calls.beginning() {
            dtype = of_call;
            buffer.push(memory);
        }
        for slice in self.engine.slices(id).unwrap_or_default() {
            let Some(tensor) = self.tensors.get(&slice.key) else { continue };
            dtype = tensor.dtype;
            let width = u64::from(dtype.width());
            let byte =
                |element: u64| usize::try_from(element.saturating_mul(width)).unwrap_or(usize::MAX);
            if let Some(memory) = tensor.memory {
                buffer.push(memory.part(byte(slice.elements.start)..byte(slice.elements.end)));
            }
        }
        self.named.insert(id, operation);
        self.live.insert(operation, Live { id, dtype, buffer, priority, signature });
    }

    fn launch(&mut self, port: u32, launch: Launch) {
        if let Some(launched) = &mut self.launched {
            launched[port as usize].push(launch);
        }
        self.ports[port as usize].taken = Some(launch);
        self.running.insert(launch, port);
        if let Err(refused) = self.operations.begin(launch.0, launch.1) {
            self.note(refused.to_string());
        }
        self.advance(launch);
    }

    /// A message that was handed out is done.
    pub(super) fn done(&mut self, Sending { operation, chunk, place }: Sending) {
        if self.fault.is_some() {
            return;
        }
        match self.operations.done(operation, chunk, place) {
            Ok(at) => self.advance((operation, at)),
            Err(refused) => self.note(refused.to_string()),
        }
    }

    /// Tells the engine of a port that is free, and of a stage that is over.
    fn advance(&mut self, launch: Launch) {
        let Some(port) = self.running.get(&launch).copied() else { return };
        let (operation, at): (OperationName, StageRef) = launch;
        let over = self.operations.is_over(operation, at);
        // With names, a link that has nothing to send serves another stage.
        let free = over || (self.is_tagged() && !self.operations.is_sending(operation, at));
        let id = self.live.get(&operation).map(|live| live.id);
        if over {
            self.running.remove(&launch);
        }
        if free && self.ports[port as usize].taken == Some(launch) {
            self.ports[port as usize].taken = None;
            self.tell_or_note(Event::PortFree { port });
        }
        if let Some(id) = id.filter(|_| over && self.fault.is_none()) {
            self.tell_or_note(Event::StageOver { id, at });
        }
    }

    pub(super) fn tell_or_note(&mut self, event: Event) {
        if let Err(broken) = self.tell_alone(event)
            && self.fault.is_none()
        {
            self.note(broken.to_string());
        }
    }

    fn stopped(&mut self, stopped: &Stopped) {
        if self.fault.is_some() {
            return;
        }
        let fault = self.cause.take().unwrap_or_else(|| self.fault_of(&stopped.error));
        self.stop(fault);
    }

    /// In the words of the engine, where nobody else has any. It counts places of the group.
    fn fault_of(&self, error: &Broken) -> Fault {
        let rank_of = |place: &u32| self.peers.get(*place as usize).copied();
        let (kind, rank, tensor) = match error {
            Broken::Fault(Cause::Lost { rank }) => (FaultKind::Died, rank_of(rank), None),
            Broken::Fault(Cause::Failed { by, about, .. }) => {
                (FaultKind::Stopped, rank_of(by), about.tensor.clone())
            }
            Broken::Fault(Cause::Frame { from, about, .. }) => {
                (FaultKind::BadFrame, rank_of(from), about.tensor.clone())
            }
            // Its words name what it is about.
            Broken::Fault(Cause::Differs { .. }) => (FaultKind::Differs, None, None),
            Broken::Fault(Cause::Word { from }) => (FaultKind::BadFrame, rank_of(from), None),
            Broken::Fault(Cause::Mismatch { tensor, .. }) => {
                (FaultKind::Differs, None, Some(tensor.clone()))
            }
            Broken::Fault(Cause::Rank { by, .. }) => (FaultKind::Stopped, rank_of(by), None),
            Broken::Silent { ranks, .. } => {
                (FaultKind::Silent, ranks.first().and_then(rank_of), None)
            }
            Broken::Stalled { name, missing } => {
                (FaultKind::Stopped, missing.first().and_then(rank_of), Some(name.clone()))
            }
            _ => (FaultKind::Stopped, None, None),
        };
        Fault { kind, rank, tensor, what: error.to_string() }
    }
}
