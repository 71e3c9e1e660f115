//! What has come: which frame is whose, and whether it may be combined as it comes or is kept.

use allrail_engine::engine::Event;
use allrail_engine::{Refused, SignatureHash, Work};
use allrail_schedule::OperationName;

use super::State;
use super::outgoing::Sending;
use crate::frame::Header;
use crate::memory::View;
use crate::{Fault, FaultKind};

/// How much memory of frames that were kept waits for the next ones, and how much is worth it.
const MOST_SPARE: usize = 4 << 20;
const LEAST_SPARE: usize = 4 << 10;

/// A frame that was announced and is not combined.
#[derive(Default)]
struct Arrival {
    port: u32,
    /// Where it belongs, once it may be combined.
    ready: Option<Sending>,
    /// All of it, once it has come.
    data: Option<Vec<u8>>,
}

/// Frames that were announced, by number.
#[derive(Default)]
pub(super) struct Arrivals {
    all: Vec<Option<Arrival>>,
    free: Vec<usize>,
    /// Memory of frames that were kept, for the next ones: what it holds is nobody's any more.
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

impl Arrivals {
    fn add(&mut self, port: u32) -> usize {
        let arrival = Some(Arrival { port, ..Arrival::default() });
        match self.free.pop() {
            Some(number) => {
                self.all[number] = arrival;
                number
            }
            None => {
                self.all.push(arrival);
                self.all.len() - 1
            }
        }
    }

    fn memory(&mut self) -> Vec<u8> {
        let memory = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= memory.capacity();
        memory
    }

    fn give_back(&mut self, memory: Vec<u8>) {
        let bytes = self.spare_bytes + memory.capacity();
        if memory.capacity() >= LEAST_SPARE && bytes <= MOST_SPARE {
            self.spare_bytes = bytes;
            self.spare.push(memory);
        }
    }

    fn get(&mut self, number: usize) -> Option<&mut Arrival> {
        self.all.get_mut(number)?.as_mut()
    }

    fn remove(&mut self, number: usize) -> Option<Arrival> {
        let arrival = self.all.get_mut(number)?.take()?;
        self.free.push(number);
        Some(arrival)
    }
}

/// What becomes of the bytes that follow a header.
pub(crate) enum Intake {
    /// They are combined as they come.
    Combine(usize, View),
    /// They are kept, until they may be, in this memory; what it holds is of no interest.
    Keep(usize, Vec<u8>),
    /// There is no room for them until this rank is further: the peer has to wait.
    Wait,
    /// They are nobody's; the job is over.
    Drop,
}

/// What becomes of a frame that has come whole.
pub(crate) enum Kept {
    /// It is combined now.
    Combine(View, Vec<u8>),
    /// Its time comes.
    Later,
}

impl State {
    /// A frame is announced; nothing of it was kept yet.
    pub(crate) fn arrives(&mut self, (port, peer): (u32, u32), header: &Header) -> Intake {
        if self.fault.is_some() {
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
        let number = self.arrivals.add(port);
        let signature = SignatureHash(header.signature);
        let taken = self.operations.frame(header.name, signature, header.length, number);
        if let Err(refused) = taken {
            self.arrivals.remove(number);
            if let Refused::NoRoom { .. } = refused {
                self.stalled |= 1 << port;
                return Intake::Wait;
            }
            self.refuse_frame(peer, operation, &refused);
            return Intake::Drop;
        }
        self.hand_out();
        match self.arrivals.get(number).and_then(|one| one.ready) {
            Some(what) => match self.view(what) {
                Some(view) => Intake::Combine(number, view),
                None => Intake::Drop,
            },
            None => Intake::Keep(number, self.arrivals.memory()),
        }
    }

    fn view(&self, what: Sending) -> Option<View> {
        let Sending { operation, chunk, place } = what;
        let (live, run) = (self.live.get(&operation)?, self.operations.run(operation, chunk)?);
        Some(View::new(&live.buffer, live.dtype, run.chunk(), run.message(place)?))
    }

    /// A frame that is kept has come whole.
    pub(crate) fn kept(&mut self, number: usize, data: Vec<u8>) -> Kept {
        let Some(arrival) = self.arrivals.get(number) else { return Kept::Later };
        let Some(what) = arrival.ready else {
            arrival.data = Some(data);
            return Kept::Later;
        };
        self.view(what).map_or(Kept::Later, |view| Kept::Combine(view, data))
    }

    /// A frame that came whole, and may be combined now.
    pub(crate) fn next_combine(&mut self, port: u32) -> Option<(usize, View, Vec<u8>)> {
        loop {
            let number = self.ports[port as usize].combines.pop_front()?;
            let arrival = self.arrivals.get(number);
            let whole = arrival.and_then(|one| Some((one.ready?, one.data.take()?)));
            if let Some((what, data)) = whole
                && let Some(view) = self.view(what)
            {
                return Some((number, view, data));
            }
        }
    }

    /// A frame that was kept is combined.
    pub(crate) fn combined_from(&mut self, number: usize, data: Vec<u8>) {
        self.arrivals.give_back(data);
        self.combined(number);
    }

    /// A frame is combined.
    pub(crate) fn combined(&mut self, number: usize) {
        if let Some(what) = self.arrivals.remove(number).and_then(|one| one.ready) {
            self.done(what);
            self.settle();
        }
    }

    /// Gives what may be done now to whoever does it.
    pub(super) fn hand_out(&mut self) {
        while let Some((operation, chunk, work)) = self.operations.next_work() {
            if self.fault.is_some() {
                continue;
            }
            let place = work.place();
            let what = Sending { operation, chunk, place };
            match work {
                Work::Send { .. } => {
                    let Some(run) = self.operations.run(operation, chunk) else { continue };
                    let Some(message) = run.message(place) else { continue };
                    let stage = &run.chunk().stages()[message.stage as usize];
                    let to = (stage.dimension.0, message.peer);
                    let priority = self.live.get(&operation).map_or(0, |live| live.priority);
                    let order = self.engine.settings().order;
                    let priority = order.urgency(stage.operation, priority);
                    self.push(to, priority, what);
                }
                Work::Combine { frame: number, .. } => {
                    let Some(arrival) = self.arrivals.get(number) else { continue };
                    arrival.ready = Some(what);
                    if arrival.data.is_some() {
                        let port = arrival.port;
                        self.ports[port as usize].combines.push_back(number);
                        self.wakes.ports |= 1 << port;
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
        self.note(format!("a frame from rank {peer} was refused: {refused}"));
        if let Some(from) = self.place_of(peer) {
            self.tell_or_note(Event::Differs { from, operation, differs });
        }
    }

    /// A frame is not what it should be: no rank knows any more what the others hold, unless it is left from
    /// an earlier life of the job.
    pub(super) fn refuse(&mut self, peer: u32, operation: OperationName, why: &str) {
        self.note(format!("a frame from rank {peer} was refused: {why}"));
        if let Some(from) = self.place_of(peer) {
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
