//! The thread of a port: it owns the data connections of one dimension, waits in epoll, and does all that
//! touches tensors: combines what comes, sends what may leave.
//!
//! It reads a connection until it has nothing more, or its share; then it sends to every peer the most
//! urgent first, until the link has as much as it takes ahead. It never blocks and never spins.

mod connection;
pub(crate) mod link;
mod outgoing;
mod pin;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

pub(crate) use self::pin::check as check_pins;

use self::connection::{Connection, End};
use self::link::Link;
use crate::frame::Limits;
use crate::shared::{Me, Shared};
use crate::{RuntimeError, Settings};

/// No connection has this number.
const BELL: u64 = u64::MAX;

/// See the module.
pub(crate) struct Port {
    number: u32,
    shared: Arc<Shared>,
    epoll: OwnedFd,
    /// The CPU that the thread runs on, where that is said.
    cpu: Option<u32>,
    connections: Vec<Connection>,
    places: BTreeMap<u32, usize>,
    /// Peers for which something has come into their heap, and places that could go on.
    fresh: Vec<u32>,
    flush: Vec<usize>,
    /// Places that have had their share, and may have more to read.
    again: Vec<usize>,
}

struct Leaves {
    shared: Arc<Shared>,
    port: u32,
}

impl Drop for Leaves {
    fn drop(&mut self) {
        self.shared.change(Me::Port(self.port), |state| state.port_runs(self.port, false));
    }
}

fn system(what: &str) -> impl Fn(Errno) -> RuntimeError {
    move |error| RuntimeError::system(what, &std::io::Error::from(error))
}

impl Port {
    pub(crate) fn new(
        number: u32,
        shared: Arc<Shared>,
        links: BTreeMap<u32, Box<dyn Link>>,
        settings: &Settings,
    ) -> Result<Self, RuntimeError> {
        let failed = system("epoll");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(&failed)?;
        let bell = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &shared.ports[number as usize].fd, bell, epoll::EventFlags::IN)
            .map_err(&failed)?;
        let (mut connections, mut places) = (Vec::new(), BTreeMap::new());
        for (peer, link) in links {
            let place = connections.len();
            link::watch(&epoll, place as u64, link.as_ref()).map_err(&failed)?;
            places.insert(peer, place);
            let limits = Limits { length: u64::MAX >> 16 };
            connections.push(Connection::new(peer, link, limits, settings.frame_checks));
        }
        let (fresh, flush, again) = (Vec::new(), Vec::new(), Vec::new());
        let cpu = settings.pin.get(number as usize).copied().flatten();
        Ok(Self { number, shared, epoll, cpu, connections, places, fresh, flush, again })
    }

    /// Marks that this thread touches no memory any more, however it ends.
    fn leaves(&self) -> Leaves {
        Leaves { shared: Arc::clone(&self.shared), port: self.number }
    }

    /// Until the job is over; the links, so that peers do not take their end for a death.
    pub(crate) fn run(mut self) -> impl Sized {
        let me = Me::Port(self.number);
        let _leaves = self.leaves();
        if let Some(cpu) = self.cpu
            && let Err(error) = pin::pin(cpu)
        {
            let what = format!("the thread of dimension {} is not on CPU {cpu}", self.number);
            self.shared.change(me, |state| state.log.note(format!("{what}: {error}")));
        }
        let mut events = [const {
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
        }; 64];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let timeout = if self.again.is_empty() { None } else { Some(&at_once) };
            let count = match epoll::wait(&self.epoll, &mut events, timeout) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                // Nothing can be waited for any more.
                Err(_) => break,
            };
            let mut reads = std::mem::take(&mut self.again);
            for event in &events[..count] {
                let (flags, data) = (event.flags, event.data.u64());
                if data == BELL {
                    self.shared.ports[self.number as usize].hear();
                    continue;
                }
                let place = data as usize;
                let connection = &mut self.connections[place];
                connection.woken(flags);
                if connection.is_blocked() {
                    self.flush.push(place);
                }
                if !reads.contains(&place) {
                    reads.push(place);
                }
            }
            for place in reads {
                self.read(place);
                self.send();
            }
            // What is sent may free what waits to be combined, and the other way round.
            loop {
                self.send();
                let combined = self.combine();
                if !self.resume() && !combined {
                    break;
                }
            }
            if self.shared.change(me, |state| state.fault().is_some() || state.closing) {
                break;
            }
        }
        self.connections.into_iter().map(Connection::into_link).collect::<Vec<_>>()
    }

    fn read(&mut self, place: usize) {
        match self.connections[place].read(self.number, &self.shared) {
            Err(end) => self.end(place, end),
            Ok(true) => self.again.push(place),
            Ok(false) => {}
        }
    }

    /// Goes on with connections that had to wait for room; whether one could.
    fn resume(&mut self) -> bool {
        let mut any = false;
        for place in 0..self.connections.len() {
            let connection = &mut self.connections[place];
            if !connection.is_stalled() {
                continue;
            }
            match connection.resume(self.number, &self.shared) {
                Err(end) => self.end(place, end),
                Ok(()) if connection.is_stalled() => {}
                Ok(()) => {
                    any = true;
                    self.again.push(place);
                }
            }
        }
        any
    }

    /// A connection has no more to say. Whether its rank has left, or died, its control connection knows.
    fn end(&mut self, place: usize, end: End) {
        let connection = &self.connections[place];
        let peer = connection.peer;
        let _ = epoll::delete(&self.epoll, connection.socket());
        self.shared.change(Me::Port(self.number), |state| match end {
            End::Closed(how) => state.suspect(peer, how),
            End::BadFrame(key, bad) => state.bad_frame(peer, key, &bad),
            End::Damaged(whose) => state.damaged(peer, whose),
        });
    }

    /// Combines what has waited for others; whether there was anything.
    fn combine(&mut self) -> bool {
        let me = Me::Port(self.number);
        let mut any = false;
        while let Some((number, mut view, data)) =
            self.shared.change(me, |state| state.next_combine(self.number))
        {
            view.combine(&data);
            self.shared.change(me, |state| state.combined_from(number, data));
            any = true;
        }
        any
    }

    /// Sends to every peer for which there is something, as much as its link takes.
    fn send(&mut self) {
        let me = Me::Port(self.number);
        loop {
            self.shared.change(me, |state| state.ports.take_fresh(self.number, &mut self.fresh));
            for peer in self.fresh.drain(..) {
                self.flush.extend(self.places.get(&peer));
            }
            let Some(place) = self.flush.pop() else { break };
            if let Err(end) = self.connections[place].send(self.number, &self.shared) {
                self.end(place, end);
            }
        }
    }
}
