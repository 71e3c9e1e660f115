//! The thread of control: it hears every peer, says what the engine wants said, and is the node's clock.
//!
//! Its connections are drained whatever else happens, so a peer that is not heard is not only slow:
//!
//! | seen | meant |
//! |---|---|
//! | the connection ends without a last word | the process has died, or was killed |
//! | what was sent is not acknowledged for `timeouts.link` | the link is lost |
//! | it is acknowledged, and nothing was said for `timeouts.silent` | the process hangs |
//! | `the job ends` | the peer has found a fault, which this rank says in the same words |
//! | `this rank leaves` | the peer has closed its node, and needs nothing more |

mod words;

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allrail_coordinate::wire::Limits;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use socket2::{Socket, TcpKeepalive};

use self::words::Word;
pub(crate) use self::words::{BadWord, MOST_PROGRESS, Progress, Sign};
use crate::clock::duration;
use crate::port::link::{Link, damage_of, watch};
use crate::shared::{Me, Shared};
use crate::state::State;
use crate::{FaultKind, RuntimeError, Settings, flight};

#[cfg(test)]
pub(crate) fn end_word(fault: &crate::Fault, out: &mut Vec<u8>) {
    words::end(0, fault, out);
}

const BELL: u64 = u64::MAX;
/// How long a node that closes tries to say so.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// What is read at once.
const READ: usize = 64 << 10;
/// What a peer may leave unread: a word of the longest, and some.
const MOST_UNSENT: usize = 4 * words::LONGEST;

struct Peer {
    rank: u32,
    link: Box<dyn Link>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    heard: Instant,
    /// Its last sign of life: when it was sent, and when it came, each on its own machine's clock.
    last: (u64, u64),
    /// Whether it has said what cannot be understood: nothing more is heard of it.
    misspoke: bool,
}

/// See the module.
pub(crate) struct Control {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    /// Those that are still there.
    peers: BTreeMap<u64, Peer>,
    epoch: u32,
    limits: Limits,
    heartbeat: Duration,
    silent: Duration,
    next_beat: Instant,
    said_end: bool,
    /// With a flight recorder, until it has written.
    flies: Option<Box<Settings>>,
    said_left: Option<Instant>,
}

impl Control {
    pub(crate) fn new(
        shared: Arc<Shared>,
        links: BTreeMap<u32, Box<dyn Link>>,
        settings: &Settings,
    ) -> Result<Self, RuntimeError> {
        let failed = |error: Errno| RuntimeError::system("epoll", &std::io::Error::from(error));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let bell = epoll::EventData::new_u64(BELL);
        epoll::add(&epoll, &shared.control.fd, bell, epoll::EventFlags::IN).map_err(failed)?;
        let link = duration(settings.timeouts.link);
        let set = |socket: &Socket| {
            let second = Duration::from_secs(1);
            let alive = TcpKeepalive::new().with_time(second).with_interval(second);
            socket.set_tcp_keepalive(&alive)?;
            socket.set_tcp_user_timeout(Some(link))
        };
        // Who is still meeting others has no thread that could say anything.
        let first = Instant::now() + settings.connect_timeout();
        let mut peers = BTreeMap::new();
        for (number, (rank, link)) in (0..).zip(links) {
            set(link.socket())
                .map_err(|error| RuntimeError::system("a control connection", &error))?;
            watch(&epoll, number, link.as_ref()).map_err(failed)?;
            let (inbox, outbox, heard) = (Vec::new(), Vec::new(), first);
            let last = (0, 0);
            let misspoke = false;
            peers.insert(number, Peer { rank, link, inbox, outbox, heard, last, misspoke });
        }
        let heartbeat = duration(settings.timeouts.heartbeat);
        Ok(Self {
            shared,
            epoll,
            peers,
            epoch: settings.epoch,
            limits: Limits { ranks: settings.ranks, bytes: words::LONGEST, ..Limits::default() },
            heartbeat,
            silent: duration(settings.timeouts.silent),
            next_beat: Instant::now(),
            said_end: false,
            flies: settings.flight_recorder.is_some().then(|| Box::new(settings.clone())),
            said_left: None,
        })
    }

    /// Until the node is closed.
    pub(crate) fn run(mut self) {
        let mut events = [const {
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }
        }; 64];
        loop {
            let until = self.settle();
            self.flush();
            self.fly();
            if self.is_over() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let count = match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                Err(_) => break,
            };
            for event in &events[..count] {
                match event.data.u64() {
                    BELL => self.shared.control.hear(),
                    number => {
                        if let Some(peer) = self.peers.get_mut(&number) {
                            peer.link.woken(event.flags);
                        }
                        self.read(number);
                    }
                }
            }
        }
    }

    /// Does what is due; when something is due again.
    fn settle(&mut self) -> Instant {
        let now = Instant::now();
        let clock = self.shared.clock;
        if now >= self.next_beat {
            self.next_beat = now + self.heartbeat;
            self.beat();
        }
        let silent = self.silent;
        let late = self.peers.values().find(|peer| now.duration_since(peer.heard) >= silent);
        let late = late.map(|peer| peer.rank);
        let shared = Arc::clone(&self.shared);
        let until = shared.change(Me::Control, |state| {
            if let Some(rank) = late {
                let how =
                    format!("its machine answers, and its process has said nothing for {silent:?}");
                state.lose(rank, FaultKind::Silent, &how);
            }
            let suspects = state.check_suspects();
            if state.engine.deadline().is_some_and(|at| at <= clock.now()) {
                state.time();
            }
            self.say(state);
            let deadline = state.engine.deadline().map(|at| now + clock.until(at));
            [suspects, deadline].into_iter().flatten().min()
        });
        let last_words = self.said_left.map(|at| at + LAST_WORDS);
        [until, last_words, Some(self.next_beat)].into_iter().flatten().min().unwrap_or(now)
    }

    /// A sign of life to everybody, and what follows from theirs.
    fn beat(&mut self) {
        let (progress, waits) = self.shared.change(Me::Control, |state| {
            state.check_stalls();
            (state.next_progress(), state.next_waits())
        });
        let mut sign = Sign { progress, ..Sign::default() };
        for peer in self.peers.values_mut().filter(|peer| peer.outbox.is_empty()) {
            (sign.echo, sign.heard) = peer.last;
            sign.sent = self.shared.clock.machine();
            words::alive(self.epoch, &sign, &mut peer.outbox);
            if let Some(waits) = &waits {
                words::waits(self.epoch, waits, &mut peer.outbox);
            }
        }
    }

    /// Takes what is to be said.
    fn say(&mut self, state: &mut State) {
        let epoch = self.epoch;
        self.say_end(state);
        for (to, bytes) in state.talk.said.drain(..) {
            if let Some(peer) = self.peers.values_mut().find(|peer| peer.rank == to)
                && peer.outbox.len() < MOST_UNSENT
            {
                words::said(epoch, &bytes, &mut peer.outbox);
            }
        }
        if state.closing && self.said_left.is_none() {
            self.said_left = Some(Instant::now());
            for peer in self.peers.values_mut().filter(|_| !self.said_end) {
                words::left(epoch, state.exchanges(), &mut peer.outbox);
            }
        }
    }

    /// Why the job ends, before what the engine says of it: every rank shall have the same words.
    fn say_end(&mut self, state: &State) {
        if let (Some(fault), false) = (state.fault(), self.said_end)
            && fault.kind != FaultKind::Closed
        {
            self.said_end = true;
            for peer in self.peers.values_mut() {
                words::end(self.epoch, fault, &mut peer.outbox);
            }
        }
    }

    /// Writes the flight recorder's file, once others know that the job is over.
    fn fly(&mut self) {
        let Some(settings) = self.flies.take_if(|_| self.said_end) else { return };
        let Some(folder) = &settings.flight_recorder else { return };
        let report = self.shared.report(settings.rank);
        let (records, names) = {
            let state = self.shared.look();
            (state.log.records.iter().cloned().collect::<Vec<_>>(), state.tensors.names())
        };
        let recorded = (self.shared.clock.origin(), records.as_slice());
        if let Err(error) = flight::write(folder, &settings, &report, recorded, &names) {
            let what = format!("nothing could be written to {}: {error}", folder.display());
            self.shared.change(Me::Control, |state| state.log.note(what));
        }
    }

    /// Whether the node is closed, and the last was said or could not be.
    fn is_over(&self) -> bool {
        let unsent = self.peers.values().any(|peer| !peer.outbox.is_empty());
        self.said_left.is_some_and(|at| !unsent || at.elapsed() >= LAST_WORDS)
    }

    fn flush(&mut self) {
        let mut ended = Vec::new();
        for (number, peer) in &mut self.peers {
            let mut sent = 0;
            while sent < peer.outbox.len() {
                match peer.link.write(&[IoSlice::new(&peer.outbox[sent..])]) {
                    Ok(bytes) => sent += bytes,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // What it has said before is read first.
                    Err(error) => {
                        ended.push((*number, error));
                        break;
                    }
                }
            }
            peer.outbox.drain(..sent);
        }
        for (number, error) in ended {
            self.read(number);
            self.ended(number, Some(&error));
        }
    }

    /// Reads all that a peer has said.
    fn read(&mut self, number: u64) {
        loop {
            let Some(peer) = self.peers.get_mut(&number) else { return };
            let from = peer.inbox.len();
            peer.inbox.resize(from + READ, 0);
            let read = peer.link.read(&mut [IoSliceMut::new(&mut peer.inbox[from..])]);
            peer.inbox.truncate(from + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return self.ended(number, None),
                Ok(_) => {
                    peer.heard = Instant::now();
                    if peer.misspoke {
                        peer.inbox.clear();
                        continue;
                    }
                    if let Err(bad) = self.hear(number) {
                        return self.misspoke(number, &bad);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return self.ended(number, Some(&error)),
            }
        }
    }

    fn hear(&mut self, number: u64) -> Result<(), BadWord> {
        let Some(peer) = self.peers.get_mut(&number) else { return Ok(()) };
        let (rank, mut taken) = (peer.rank, 0);
        while let Some((word, length)) = words::next(&peer.inbox[taken..], &self.limits)? {
            taken += length;
            let came = self.shared.clock.machine();
            self.shared.change(Me::Control, |state| match word {
                Word::Alive(sign) => {
                    peer.last = (sign.sent, came);
                    state.heard_sign(rank, &sign, came);
                }
                Word::Said { epoch, payload } => state.hear(rank, epoch, payload),
                Word::End(fault) => state.end(fault),
                Word::Left(done) => state.peer_left(rank, done),
                Word::Waits(waits) => state.heard_waits(rank, waits),
            });
        }
        peer.inbox.drain(..taken);
        Ok(())
    }

    /// Its connection stays: it has to hear why the job ends, or it would blame others for their silence.
    fn misspoke(&mut self, number: u64, bad: &BadWord) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        peer.misspoke = true;
        peer.inbox.clear();
        let rank = peer.rank;
        self.shared.change(Me::Control, |state| state.bad_word(rank, bad));
    }

    /// A connection is over.
    fn ended(&mut self, number: u64, error: Option<&std::io::Error>) {
        let Some(peer) = self.peers.remove(&number) else { return };
        let _ = epoll::delete(&self.epoll, peer.link.socket());
        if let Some(whose) = error.and_then(damage_of) {
            return self.shared.change(Me::Control, |state| state.damaged(peer.rank, whose));
        }
        let kinds =
            [ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
        let (kind, how) = match error {
            Some(error) if kinds.contains(&error.kind()) => {
                (FaultKind::Link, format!("nothing comes through to it ({error})"))
            }
            _ => (FaultKind::Died, "its process has ended without a word".to_owned()),
        };
        self.shared.change(Me::Control, |state| {
            if !state.has_left(peer.rank) && !state.closing {
                state.lose(peer.rank, kind, &how);
            }
        });
    }
}
