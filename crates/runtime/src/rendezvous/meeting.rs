//! All connections of a rank while they are made: whom it dials, who has dialled it, and who is missing.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use allrail_core::{counted, either};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::addresses::{dial, dial_locally, is_mine, reachable};
use super::connected::{Connected, line};
use super::door::{Door, Source};
use super::greeting::{Greeted, Greeting};
use super::handshake::{Facts, Handshake};
use super::lines::{Line, Lines};
use super::listening::Listening;
use super::refused::Refused;
use super::stream::Stream;
use crate::auth::Secret;
use crate::port::link::Identity;
use crate::{RuntimeError, Settings, files};

/// How long who has the secret has to say who it is.
const WORDS: Duration = Duration::from_secs(5);
/// How often a rank that does not answer yet is dialled.
const AGAIN: Duration = Duration::from_millis(50);
/// How often the caller is asked whether it still wants to wait.
const SLICE: Duration = Duration::from_millis(100);
/// How many connections are taken in before others are looked after.
const MAX_ACCEPTED: usize = 1024;
/// How often a rank is tried on this host before it is reached over TCP.
const LOCAL_TRIES: u32 = 8;

enum Dial {
    /// Until then nothing is tried.
    Later(Instant),
    /// The first packet is on its way.
    Connecting(Socket),
    /// Nothing is proved yet.
    Greeting(Box<Greeting>),
    Talking(Box<Handshake>),
    Done,
}

struct Dialled {
    line: Line,
    to: SocketAddr,
    from: IpAddr,
    /// How often it is still tried on this host.
    local: u32,
    dial: Dial,
    /// Why it has not worked so far.
    last: Option<String>,
}

/// All that is to be connected, and how far it is.
pub(super) struct Meeting<'a> {
    settings: &'a Settings,
    secret: Secret,
    /// Where all goes inside TLS.
    tls: Option<Identity>,
    listening: Listening,
    dialled: Vec<Dialled>,
    /// Whoever has connected and proved nothing.
    door: Door,
    /// Whoever has the secret and has not said who it is.
    talking: Vec<(String, Handshake)>,
    lines: Lines,
    deadline: Instant,
}

impl<'a> Meeting<'a> {
    pub(super) fn new(
        listening: Listening,
        settings: &'a Settings,
        table: &[Vec<SocketAddr>],
    ) -> Result<Self, RuntimeError> {
        let sizes: Vec<u32> = settings.dimensions.iter().map(|one| one.size).collect();
        let me = settings.rank;
        let control = (0..settings.ranks).filter(|rank| *rank != me).map(|rank| (rank, None));
        let with_data = if settings.elsewhere { 0 } else { sizes.len() };
        let data = (0..with_data)
            .flat_map(|d| line(&sizes, me, d).into_iter().map(move |rank| (rank, Some(d as u32))));
        let (mut dialled, mut awaited) = (Vec::new(), BTreeSet::new());
        for (rank, dimension) in control.chain(data) {
            if rank > me {
                awaited.insert((rank, dimension));
                continue;
            }
            let d = dimension.map_or_else(|| reachable(&table[rank as usize]), |d| d as usize);
            let (to, from) = (table[rank as usize][d], listening.addresses[d].ip());
            let dial = Dial::Later(Instant::now());
            let local = if settings.shared_memory && dimension.is_some() { LOCAL_TRIES } else { 0 };
            dialled.push(Dialled { line: (rank, dimension), to, from, local, dial, last: None });
        }
        let secret = settings.secret()?;
        let ranks = table.iter().flatten().map(SocketAddr::ip).collect();
        Ok(Self {
            settings,
            door: Door::new(secret.clone(), ranks),
            secret,
            tls: if settings.tls { Some(Identity::new()?) } else { None },
            listening,
            dialled,
            talking: Vec::new(),
            lines: Lines::new(awaited, sizes.len()),
            deadline: Instant::now() + settings.connect_timeout(),
        })
    }

    /// Until all are there; `goes_on` is asked every 100 ms.
    pub(super) fn hold(
        mut self,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Connected, RuntimeError> {
        while !self.is_complete() {
            if !goes_on() {
                return Err(RuntimeError::Interrupted);
            }
            self.step()?;
        }
        self.door.close();
        if let Some((count, last)) = self.door.refused() {
            let note = format!(
                "{count} {were} none of this job's; last {last}",
                count = counted(count, "connection"),
                were = either(&count, "was", "were")
            );
            self.lines.connected.notes.push(note);
        }
        Ok(self.lines.connected)
    }

    fn is_complete(&self) -> bool {
        self.lines.awaited.is_empty()
            && self.dialled.iter().all(|one| matches!(one.dial, Dial::Done))
    }

    fn step(&mut self) -> Result<(), RuntimeError> {
        let now = Instant::now();
        if now >= self.deadline {
            self.door.close();
            return Err(self.too_late());
        }
        for place in 0..self.dialled.len() {
            let one = &mut self.dialled[place];
            if !matches!(one.dial, Dial::Later(at) if at <= now) {
                continue;
            }
            if one.local > 0 {
                match dial_locally(&self.secret, one.to) {
                    Ok(socket) => {
                        self.dialled[place].dial = self.greet(place, socket, true)?;
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        one.local -= 1;
                        one.dial = Dial::Later(now + AGAIN);
                        continue;
                    }
                    // It is not there, or not on this host.
                    Err(_) => one.local = 0,
                }
            }
            one.dial = match dial(one.from, one.to) {
                Ok(stream) => Dial::Connecting(stream),
                Err(error) if files::is_exhausted(&error) => {
                    return Err(RuntimeError::system("dialling another rank", &error));
                }
                Err(error) => {
                    one.last = Some(error.to_string());
                    Dial::Later(now + AGAIN)
                }
            };
            // On this host it is there by now: what it says need not wait for what others say.
            self.go_on(place)?;
        }
        self.wait()?;
        self.accept()?;
        self.answer()?;
        for place in 0..self.dialled.len() {
            self.go_on(place)?;
        }
        Ok(())
    }

    /// A connection whose two sides have the secret, and that was dialled where an address is given.
    fn stream(&self, greeted: Greeted, dials: Option<IpAddr>) -> Result<Stream, RuntimeError> {
        let Greeted { socket, is_local, .. } = greeted;
        match &self.tls {
            _ if is_local => Ok(Stream::Local(socket)),
            None => Ok(Stream::Tcp(socket)),
            Some(tls) => {
                let tls = tls.over(socket, dials);
                let tls = tls.map_err(|error| RuntimeError::system("TLS", &error))?;
                Ok(Stream::Tls(Box::new(tls)))
            }
        }
    }

    /// The first words to a rank that is dialled.
    fn greet(
        &mut self,
        place: usize,
        socket: Socket,
        is_local: bool,
    ) -> Result<Dial, RuntimeError> {
        let (to, secret) = (self.dialled[place].to, self.secret.clone());
        let greeting = Greeting::dial(socket, is_local, to, secret, self.deadline)?;
        match greeting.begin() {
            Ok(()) => Ok(Dial::Greeting(Box::new(greeting))),
            Err(refused) => Ok(self.again(place, is_local, &refused)),
        }
    }

    /// What is said next to a rank that has the secret.
    fn talk(&self, place: usize, greeted: Greeted) -> Result<Dial, RuntimeError> {
        let Dialled { line: (rank, dimension), to, .. } = self.dialled[place];
        let (facts, words) = (Facts::of(self.settings, rank, dimension), greeted.words);
        let stream = self.stream(greeted, Some(to.ip()))?;
        let (secret, until) = (self.secret.clone(), self.deadline);
        let talk = Handshake::new(stream, words, facts, Some(rank), secret, until);
        Ok(Dial::Talking(Box::new(talk)))
    }

    /// A connection has ended before it was one.
    fn again(&mut self, place: usize, is_local: bool, refused: &Refused) -> Dial {
        let one = &mut self.dialled[place];
        one.last = Some(refused.to_string());
        one.local = one.local.saturating_sub(u32::from(is_local));
        Dial::Later(Instant::now() + AGAIN)
    }

    /// Until something can go on, or a slice of time is over.
    fn wait(&self) -> Result<(), RuntimeError> {
        let (reads, both) = (PollFlags::IN, PollFlags::IN | PollFlags::OUT);
        let flags = |one: &Handshake| if one.wants_to_write() { both } else { reads };
        let listeners = self.listening.listeners.iter().map(|(one, _)| (one.as_fd(), reads));
        let strangers = self.door.sockets().map(|one| (one.as_fd(), reads));
        let talking = self.talking.iter().map(|(_, one)| (one.socket().as_fd(), flags(one)));
        let dialled = self.dialled.iter().filter_map(|one| match &one.dial {
            Dial::Connecting(stream) => Some((stream.as_fd(), PollFlags::OUT)),
            Dial::Greeting(one) => Some((one.socket().as_fd(), reads)),
            Dial::Talking(talk) => Some((talk.socket().as_fd(), flags(talk))),
            Dial::Later(_) | Dial::Done => None,
        });
        let all = listeners.chain(strangers).chain(talking).chain(dialled);
        let mut fds: Vec<PollFd<'_>> =
            all.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
        let later = self.dialled.iter().any(|one| matches!(one.dial, Dial::Later(_)));
        let slice = if later { AGAIN } else { SLICE };
        let left = self.deadline.saturating_duration_since(Instant::now()).min(slice);
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(RuntimeError::system("waiting for connections", &error.into())),
        }
    }

    fn accept(&mut self) -> Result<(), RuntimeError> {
        let mut greeted = Vec::new();
        for (listener, d) in &self.listening.listeners {
            let at = self.listening.addresses[*d];
            for _ in 0..MAX_ACCEPTED {
                let (socket, from) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if files::is_exhausted(&error) => {
                        return Err(RuntimeError::system("accepting a connection", &error));
                    }
                    Err(_) => break,
                };
                let is_far = from.as_socket().is_some_and(|from| !from.ip().is_loopback());
                let (source, from) = match from.as_socket() {
                    Some(from) => (Ok(Source::Host(from.ip())), from.to_string()),
                    None => {
                        let source = is_mine(&socket).map(Source::Process);
                        (source, "a process on this host".to_owned())
                    }
                };
                match source {
                    Err(error) => self.door.refuse(&from, &error.to_string()),
                    Ok(_) if self.secret.is_none() && is_far => {
                        self.door.refuse(&from, "there is no secret, and it is on another host");
                    }
                    Ok(source) if socket.set_nonblocking(true).is_ok() => {
                        greeted.extend(self.door.enter(socket, at, source, from));
                    }
                    Ok(_) => {}
                }
            }
        }
        greeted.extend(self.door.look());
        for (from, greeted) in greeted {
            let facts = Facts::of(self.settings, 0, None);
            let words = greeted.words;
            let (stream, secret) = (self.stream(greeted, None)?, self.secret.clone());
            let talk = Handshake::new(stream, words, facts, None, secret, Instant::now() + WORDS);
            self.talking.push((from, talk));
        }
        Ok(())
    }

    /// Goes on with those who have connected.
    fn answer(&mut self) -> Result<(), RuntimeError> {
        let now = Instant::now();
        let mut place = 0;
        while place < self.talking.len() {
            let (_, talk) = &mut self.talking[place];
            let outcome = match talk.advance() {
                Ok(None) if talk.until <= now => Err(Refused::Late),
                other => other,
            };
            match outcome {
                Ok(None) => place += 1,
                Ok(Some(facts)) => {
                    let (from, talk) = self.talking.swap_remove(place);
                    let line = (facts.rank, facts.dimension);
                    if !self.lines.keep(line, from, talk, self.settings)? {
                        self.door.refuse(&format!("rank {}", facts.rank), "it has connected again");
                    }
                }
                // It has the secret: so it is of this job, or was meant to be.
                Err(Refused::Differs(what)) => return Err(differs(what, None)),
                Err(refused) => {
                    let (from, _) = self.talking.swap_remove(place);
                    self.door.refuse(&from, &refused.to_string());
                }
            }
        }
        Ok(())
    }

    /// Goes on with a rank that is dialled.
    fn go_on(&mut self, place: usize) -> Result<(), RuntimeError> {
        let one = &mut self.dialled[place];
        let (rank, dimension) = one.line;
        let now = Instant::now();
        match std::mem::replace(&mut one.dial, Dial::Done) {
            Dial::Connecting(stream) => match stream.take_error() {
                Ok(None) => match stream.peer_addr() {
                    Ok(_) => self.dialled[place].dial = self.greet(place, stream, false)?,
                    Err(_) => one.dial = Dial::Connecting(stream),
                },
                Ok(Some(error)) | Err(error) => {
                    one.last = Some(error.to_string());
                    one.dial = Dial::Later(now + AGAIN);
                }
            },
            Dial::Greeting(mut greeting) => match greeting.advance() {
                Ok(None) => one.dial = Dial::Greeting(greeting),
                Ok(Some(words)) => match greeting.into_greeted(words) {
                    Ok(greeted) => {
                        self.dialled[place].dial = self.talk(place, greeted)?;
                        // This side speaks next: nothing would wake it.
                        return self.go_on(place);
                    }
                    Err(_) => one.dial = Dial::Later(now + AGAIN),
                },
                Err(refused) => {
                    self.dialled[place].dial =
                        self.refused(place, greeting.is_local(), &refused)?;
                }
            },
            Dial::Talking(mut talk) => match talk.advance() {
                Ok(None) => one.dial = Dial::Talking(talk),
                Ok(Some(_)) => self.lines.insert((rank, dimension), *talk, self.settings)?,
                Err(Refused::Differs(what)) => return Err(differs(what, Some(rank))),
                Err(refused) => {
                    self.dialled[place].dial = self.refused(place, talk.is_local(), &refused)?;
                }
            },
            other => one.dial = other,
        }
        Ok(())
    }

    /// What comes after a connection that was not what it should be.
    fn refused(
        &mut self,
        place: usize,
        is_local: bool,
        refused: &Refused,
    ) -> Result<Dial, RuntimeError> {
        // Whoever has that name, or no memory for both: over TCP, after a while.
        if is_local || matches!(refused, Refused::Io(_) | Refused::Late) {
            return Ok(self.again(place, is_local, refused));
        }
        let Dialled { line: (rank, _), to, .. } = self.dialled[place];
        Err(RuntimeError::Connect {
            rank: Some(rank),
            what: format!("at {to}, where rank {rank} should be: {refused}"),
            hint: "give all ranks the same secret, the same build and the addresses of this start"
                .to_owned(),
        })
    }

    /// Who is missing, and what is known of why.
    fn too_late(&self) -> RuntimeError {
        let waiting = self.dialled.iter().filter(|one| !matches!(one.dial, Dial::Done));
        let mut missing: Vec<String> = waiting
            .map(|one| {
                let why = one.last.as_deref().unwrap_or("it does not answer");
                format!("rank {} at {} ({why})", one.line.0, one.to)
            })
            .collect();
        missing.extend(self.lines.awaited.iter().map(|(rank, _)| format!("rank {rank}")));
        missing.sort();
        missing.dedup();
        let rank = self.lines.awaited.first().map(|line| line.0);
        let (me, most) = (self.settings.rank, 8);
        let others = match missing.len() {
            all if all > most => format!(" and {} more", all - most),
            _ => String::new(),
        };
        missing.truncate(most);
        let stranger = self.door.refused().map_or_else(String::new, |(count, last)| {
            format!(
                "; {count} {were} none of this job's, the last from {last}",
                count = counted(count, "connection"),
                were = either(&count, "was", "were")
            )
        });
        let (list, within) = (missing.join(", "), self.settings.timeouts.connect);
        RuntimeError::Connect {
            rank,
            what: format!(
                "rank {me} has no connection within {within} with {list}{others}{stranger}"
            ),
            hint: "see whether those processes run, have this job's secret, and can be reached"
                .to_owned(),
        }
    }
}

fn differs(what: String, rank: Option<u32>) -> RuntimeError {
    let hint = "start all ranks with the same build, job and plan".to_owned();
    RuntimeError::Connect { rank, what, hint }
}
