//! How a frame comes in: whose it is, whether it may be combined as it comes or is kept, and what may be done once
//! it is there.

use allrail_engine::engine::Event;
use allrail_engine::{Refused, SignatureHash, Work};
use allrail_schedule::OperationName;

use super::State;
use super::intake::{Intake, Kept};
use super::outgoing::Sending;
use crate::error::{Fault, FaultKind};
use crate::frame::Header;
use crate::memory::View;

impl State {
    /// A frame is announced; nothing of it was kept yet.
    pub(crate) fn arrives(&mut self, (port, peer): (u32, u32), header: &Header) -> Intake {
        if self.ending.is_over() {
            return Intake::Drop;
        }
        let operation = header.name.operation;
        if header.name.at.from != peer {
            let why = format!("it says that rank {} has sent it", header.name.at.from);
            self.refuse(peer, operation, &why);
            return Intake::Drop;
        }
        if let Err(broken) = self.engine.home(&operation) {
            self.refuse(peer, operation, &broken.to_string());
            return Intake::Drop;
        }
        let number = self.carrying.arrivals.add(port);
        let signature = SignatureHash(header.signature);
        let taken = self.carrying.operations.frame(header.name, signature, header.length, number);
        if let Err(refused) = taken {
            self.carrying.arrivals.remove(number);
            if let Refused::NoRoom { .. } = refused {
                self.carrying.stalled |= 1 << port;
                return Intake::Wait;
            }
            self.refuse_frame(peer, operation, &refused);
            return Intake::Drop;
        }
        self.hand_out();
        match self.carrying.arrivals.get(number).and_then(|one| one.ready) {
            Some(what) => match self.carrying.view(what) {
                Some(view) => Intake::Combine(number, view),
                None => Intake::Drop,
            },
            None => Intake::Keep(number, self.carrying.arrivals.memory()),
        }
    }

    /// A frame that is kept has come whole.
    pub(crate) fn kept(&mut self, number: usize, data: Vec<u8>) -> Kept {
        self.carrying.kept(number, data)
    }

    /// A frame that came whole, and may be combined now.
    pub(crate) fn next_combine(&mut self, port: u32) -> Option<(usize, View, Vec<u8>)> {
        loop {
            let number = self.ports.next_combine(port)?;
            if let Some((view, data)) = self.carrying.take_combine(number) {
                return Some((number, view, data));
            }
        }
    }

    /// A frame that was kept is combined.
    pub(crate) fn combined_from(&mut self, number: usize, data: Vec<u8>) {
        self.carrying.arrivals.give_back(data);
        self.combined(number);
    }

    /// A frame is combined.
    pub(crate) fn combined(&mut self, number: usize) {
        if let Some(what) = self.carrying.arrivals.remove(number).and_then(|one| one.ready) {
            self.done(what);
            self.settle();
        }
    }

    /// Gives what may be done now to whoever does it.
    pub(super) fn hand_out(&mut self) {
        while let Some((operation, chunk, work)) = self.carrying.operations.next_work() {
            if self.ending.is_over() {
                continue;
            }
            let place = work.place();
            let what = Sending { operation, chunk, place };
            match work {
                Work::Send { .. } => {
                    let Some(run) = self.carrying.operations.run(operation, chunk) else {
                        continue;
                    };
                    let Some(message) = run.message(place) else { continue };
                    let stage = &run.chunk().stages()[message.stage as usize];
                    let to = (stage.dimension.0, message.peer);
                    let priority =
                        self.carrying.live.get(&operation).map_or(0, |live| live.priority);
                    let order = self.engine.settings().order;
                    let priority = order.urgency(stage.operation, priority);
                    if self.ports.push(to, priority, what) {
                        self.wakes.port(to.0);
                    }
                }
                Work::Combine { frame: number, .. } => {
                    let Some(arrival) = self.carrying.arrivals.get(number) else { continue };
                    arrival.ready = Some(what);
                    if arrival.data.is_some() {
                        let port = arrival.port;
                        self.ports.push_combine(port, number);
                        self.wakes.port(port);
                    }
                }
            }
        }
    }

    /// A frame is not what it should be, or not of what this rank has under its name.
    pub(super) fn refuse_frame(&mut self, peer: u32, operation: OperationName, refused: &Refused) {
        let Refused::Signature { differs, .. } = *refused else {
            return self.refuse(peer, operation, &refused.to_string());
        };
        self.log.note(format!("a frame from rank {peer} was refused: {refused}"));
        if let Some(from) = self.group.place_of(peer) {
            self.tell_or_note(Event::Differs { from, operation, differs });
        }
    }

    /// A frame is not what it should be: no rank knows any more what the others hold, unless it is left from
    /// an earlier life of the job.
    pub(super) fn refuse(&mut self, peer: u32, operation: OperationName, why: &str) {
        self.log.note(format!("a frame from rank {peer} was refused: {why}"));
        if let Some(from) = self.group.place_of(peer) {
            let event = Event::Refused { from, operation, why: why.to_owned() };
            if let Err(broken) = self.tell_alone(event) {
                // Of a life of the job that is to come: their connections were made for this one.
                let what = format!("rank {peer} has sent a frame that cannot be: {broken}");
                let kind = FaultKind::BadFrame;
                self.end(Fault { kind, rank: Some(peer), tensor: None, what });
            }
        }
    }
}
