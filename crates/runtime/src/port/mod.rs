//! The thread of a port: it owns the data connections of one dimension, waits in epoll, and does all that
//! touches tensors: combines what comes, sends what may leave.
//!
//! It reads a connection until it has nothing more, or its share; then it sends to every peer the most
//! urgent first, until the link has as much as it takes ahead. It never blocks and never spins.

mod connection;

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use socket2::SockRef;

use self::connection::{Connection, End};
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
    connections: Vec<Connection>,
    places: BTreeMap<u32, usize>,
    /// Peers for which something has come into their heap, and places that could go on.
    fresh: Vec<u32>,
    flush: Vec<usize>,
}

fn system(what: &str) -> impl Fn(Errno) -> RuntimeError {
    move |error| RuntimeError::system(what, &std::io::Error::from(error))
}

impl Port {
    pub(crate) fn new(
        number: u32,
        shared: Arc<Shared>,
        streams: BTreeMap<u32, TcpStream>,
        settings: &Settings,
    ) -> Result<Self, RuntimeError> {
        let failed = system("epoll");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(&failed)?;
        let bell = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &shared.ports[number as usize].fd, bell, epoll::EventFlags::IN)
            .map_err(&failed)?;
        let (mut connections, mut places) = (Vec::new(), BTreeMap::new());
        for (peer, stream) in streams {
            let set = |stream: &TcpStream| {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let ahead = u32::try_from(settings.send_ahead.count()).unwrap_or(u32::MAX);
                SockRef::from(stream).set_tcp_notsent_lowat(ahead)
            };
            set(&stream).map_err(|error| RuntimeError::system("a data connection", &error))?;
            let place = connections.len();
            let data = epoll::EventData::new_u64(place as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN).map_err(&failed)?;
            places.insert(peer, place);
            connections.push(Connection::new(peer, stream, Limits { length: u64::MAX >> 16 }));
        }
        let (fresh, flush) = (Vec::new(), Vec::new());
        Ok(Self { number, shared, epoll, connections, places, fresh, flush })
    }

    /// Until the job is over; the connections, so that peers do not take their end for a death.
    pub(crate) fn run(mut self) -> Vec<TcpStream> {
        let me = Me::Port(self.number);
        let mut events = [const {
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
        }; 64];
        loop {
            let count = match epoll::wait(&self.epoll, &mut events, None) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                // Nothing can be waited for any more.
                Err(_) => break,
            };
            for event in &events[..count] {
                let (flags, data) = (event.flags, event.data.u64());
                if data == BELL {
                    self.shared.ports[self.number as usize].hear();
                    continue;
                }
                let place = data as usize;
                if flags.intersects(epoll::EventFlags::OUT) {
                    self.flush.push(place);
                }
                if flags.intersects(
                    epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR,
                ) {
                    self.read(place);
                    self.send();
                }
            }
            // What is sent may free what waits to be combined, and the other way round.
            loop {
                self.send();
                if !self.combine() {
                    break;
                }
            }
            let over = self.shared.change(me, |state| {
                let over = state.fault().is_some() || state.closing;
                if over {
                    state.port_runs(self.number, false);
                }
                over
            });
            if over {
                break;
            }
        }
        self.connections.into_iter().map(Connection::into_stream).collect()
    }

    fn read(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if let Err(end) = connection.read(self.number, &self.shared) {
            self.end(place, end);
        }
    }

    /// A connection has no more to say. Whether its rank has left, or died, its control connection knows.
    fn end(&mut self, place: usize, end: End) {
        let connection = &self.connections[place];
        let peer = connection.peer;
        let _ = epoll::delete(&self.epoll, connection.stream().as_fd());
        self.shared.change(Me::Port(self.number), |state| match end {
            End::Closed(how) => state.suspect(peer, how),
            End::BadFrame(bad) => state.bad_frame(peer, &bad),
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
            self.shared.change(me, |state| state.combined(number));
            any = true;
        }
        any
    }

    /// Sends to every peer for which there is something, as much as its link takes.
    fn send(&mut self) {
        let me = Me::Port(self.number);
        loop {
            self.shared.change(me, |state| state.take_fresh(self.number, &mut self.fresh));
            for peer in self.fresh.drain(..) {
                self.flush.extend(self.places.get(&peer));
            }
            let Some(place) = self.flush.pop() else { break };
            let connection = &mut self.connections[place];
            let was_blocked = connection.is_blocked();
            match connection.send(self.number, &self.shared) {
                Ok(()) => {}
                Err(end) => {
                    self.end(place, end);
                    continue;
                }
            }
            let connection = &self.connections[place];
            if connection.is_blocked() != was_blocked {
                let mut flags = epoll::EventFlags::IN;
                flags.set(epoll::EventFlags::OUT, connection.is_blocked());
                let data = epoll::EventData::new_u64(place as u64);
                let _ = epoll::modify(&self.epoll, connection.stream(), data, flags);
            }
        }
    }
}
