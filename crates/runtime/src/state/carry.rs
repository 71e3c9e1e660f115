//! Does what the engine wants, in the order in which it wants it.

use allrail_collective::StageRef;
use allrail_coordinate::wire;
use allrail_engine::engine::{Action, Event};
use allrail_engine::{CollectiveId, Dtype, Refused, SignatureHash};
use allrail_schedule::{Key, OperationName};

use super::State;
use super::carrying::Live;
use super::outgoing::Sending;
use super::ports::Launch;
use crate::memory::Buffer;

impl State {
    pub(super) fn carry_out(&mut self, todo: &mut Vec<Action>) {
        for action in todo.drain(..) {
            match action {
                Action::Send { to, payload } => {
                    let mut bytes = Vec::new();
                    if wire::encode(&payload, &mut bytes).is_ok() {
                        self.talk.say(self.group.peers[to as usize], bytes);
                        self.wakes.control = true;
                    }
                }
                Action::Begin { id, operation, part, .. } if self.elsewhere.is_some() => {
                    self.carrying.named.insert(id, operation);
                    self.elsewhere.iter_mut().for_each(|one| one.begin(id, part.clone()));
                }
                Action::Begin { id, operation, priority, signature, part } => {
                    self.begin(id, operation, priority, signature);
                    let opened = self.carrying.operations.open(operation, signature, part);
                    // What was kept for it makes room.
                    self.wakes.ports |= std::mem::take(&mut self.carrying.stalled);
                    if let Err(refused) = opened {
                        // A frame that came before it.
                        self.refuse_kept(operation, &refused);
                    }
                }
                Action::Run(run) => match self.carrying.named.get(&run.collective).copied() {
                    Some(operation) if self.elsewhere.is_some() => {
                        self.hand_over(&run, operation);
                    }
                    Some(operation) => self.launch(run.port, (operation, run.at)),
                    None => {}
                },
                Action::Over { id, .. } if self.elsewhere.is_some() => {
                    self.carrying.named.remove(&id);
                    self.elsewhere.iter_mut().for_each(|one| one.over(id));
                }
                Action::Over { id, operation } => {
                    self.carrying.named.remove(&id);
                    self.carrying.live.remove(&operation);
                    if let Err(refused) = self.carrying.operations.close(operation) {
                        self.log.note(refused.to_string());
                    }
                }
                Action::Done { key, generation } => {
                    if self.calls.is_call(key) {
                        self.call_done(key);
                    } else {
                        self.tensor_done(key, generation);
                    }
                    let group = self.engine.settings().group;
                    if self.elsewhere.is_none()
                        && let Err(refused) =
                            self.carrying.operations.exchanged(group, key, generation)
                    {
                        let epoch = self.engine.settings().epoch;
                        let name = OperationName { epoch, group, key, generation, part: 0 };
                        self.refuse_kept(name, &refused);
                    }
                }
                Action::Idle { keys } => {
                    let group = self.engine.settings().group;
                    keys.into_iter().for_each(|key| self.carrying.operations.forget(group, key));
                }
                Action::Warn { key, missing } => self.warn(key, &missing),
                Action::Stop(stopped) => self.stopped(&stopped),
            }
        }
    }

    /// Ranks are late; nothing is wrong yet.
    fn warn(&mut self, key: Key, missing: &[u32]) {
        let name = self.tensors.get(key).map_or("?", |one| one.name.as_str());
        let ranks: Vec<String> = missing
            .iter()
            .take(8)
            .map(|place| self.group.peers[*place as usize].to_string())
            .collect();
        self.log.note(format!("tensor `{name}` waits for rank {}", ranks.join(", ")));
    }

    /// A frame was kept that should not have come.
    fn refuse_kept(&mut self, operation: OperationName, refused: &Refused) {
        match refused.from() {
            Some(from) => self.refuse_frame(from, operation, refused),
            None => self.log.note(refused.to_string()),
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
        if let Some((memory, of_call)) = self.calls.beginning {
            dtype = of_call;
            buffer.push(memory);
        }
        for slice in self.engine.slices(id).unwrap_or_default() {
            let Some(tensor) = self.tensors.get(slice.key) else { continue };
            dtype = tensor.dtype;
            let width = u64::from(dtype.width());
            let byte =
                |element: u64| usize::try_from(element.saturating_mul(width)).unwrap_or(usize::MAX);
            if let Some(memory) = tensor.memory {
                buffer.push(memory.part(byte(slice.elements.start)..byte(slice.elements.end)));
            }
        }
        self.carrying.begin(operation, Live { id, dtype, buffer, priority, signature });
    }

    fn launch(&mut self, port: u32, launch: Launch) {
        self.ports.take(port, launch);
        self.carrying.running.insert(launch, port);
        if let Err(refused) = self.carrying.operations.begin(launch.0, launch.1) {
            self.log.note(refused.to_string());
        }
        self.advance(launch);
    }

    /// A message that was handed out is done.
    pub(super) fn done(&mut self, Sending { operation, chunk, place }: Sending) {
        if self.ending.is_over() {
            return;
        }
        match self.carrying.operations.done(operation, chunk, place) {
            Ok(at) => self.advance((operation, at)),
            Err(refused) => self.log.note(refused.to_string()),
        }
    }

    /// Tells the engine of a port that is free, and of a stage that is over.
    fn advance(&mut self, launch: Launch) {
        let Some(port) = self.carrying.running.get(&launch).copied() else { return };
        let (operation, at): (OperationName, StageRef) = launch;
        let over = self.carrying.operations.is_over(operation, at);
        // With names, a link that has nothing to send serves another stage.
        let free =
            over || (self.is_tagged() && !self.carrying.operations.is_sending(operation, at));
        let id = self.carrying.live.get(&operation).map(|live| live.id);
        if over {
            self.carrying.running.remove(&launch);
        }
        if free && self.ports.free(port, launch) {
            self.tell_or_note(Event::PortFree { port });
        }
        if let Some(id) = id.filter(|_| over && !self.ending.is_over()) {
            self.tell_or_note(Event::StageOver { id, at });
        }
    }
}
