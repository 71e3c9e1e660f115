//! What has come: which frame is whose, and whether it may be combined as it comes or is kept.

use super::outgoing::Sending;
use crate::memory::View;

/// How much memory of frames that were kept waits for the next ones, and how much is worth it.
const MOST_SPARE: usize = 4 << 20;
const LEAST_SPARE: usize = 4 << 10;

/// A frame that was announced and is not combined.
#[derive(Default)]
pub(super) struct Arrival {
    pub(super) port: u32,
    /// Where it belongs, once it may be combined.
    pub(super) ready: Option<Sending>,
    /// All of it, once it has come.
    pub(super) data: Option<Vec<u8>>,
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
    /// A frame is announced on a port: its number.
    pub(super) fn add(&mut self, port: u32) -> usize {
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

    /// Memory for a frame that is kept.
    pub(super) fn memory(&mut self) -> Vec<u8> {
        let memory = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= memory.capacity();
        memory
    }

    /// Memory of a frame that is combined.
    pub(super) fn give_back(&mut self, memory: Vec<u8>) {
        let bytes = self.spare_bytes + memory.capacity();
        if memory.capacity() >= LEAST_SPARE && bytes <= MOST_SPARE {
            self.spare_bytes = bytes;
            self.spare.push(memory);
        }
    }

    pub(super) fn get(&mut self, number: usize) -> Option<&mut Arrival> {
        self.all.get_mut(number)?.as_mut()
    }

    pub(super) fn remove(&mut self, number: usize) -> Option<Arrival> {
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
