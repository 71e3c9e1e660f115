//! All connections of a rank while they are made: whom it dials, who has dialled it, and who is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::addresses::{dial, dial_locally, is_mine, reachable};
use super::handshake::{Facts, Handshake, Refused};
use super::stream::Stream;
use super::{Connected, Listening, MOST_STRANGERS, line};
use crate::auth::Secret;
use crate::port::link::Identity;
use crate::{RuntimeError, Settings};

/// How long anyone has for them.
const FIRST_WORDS: Duration = Duration::from_secs(5);
/// How often a rank that does not answer yet is dialled.
const AGAIN: Duration = Duration::from_millis(50);
/// How often the caller is asked whether it still wants to wait.
const SLICE: Duration = Duration::from_millis(100);

/// For control where there is no dimension.
type Line = (u32, Option<u32>);

enum Dial {
    /// Until then nothing is tried.
    Later(Instant),
    /// The first packet is on its way.
    Connecting(Socket),
    Talking(Box<Handshake>),
    Done,
}

struct Dialled {
    line: Line,
    to: SocketAddr,
    from: IpAddr,
    /// Whether it may be on this host.
    local: bool,
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
    /// Whoever has connected and not said all.
    talking: Vec<(String, Handshake)>,
    awaited: BTreeSet<Line>,
    connected: Connected,
    deadline: Instant,
    strangers: u64,
    last_stranger: Option<String>,
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
        let data = (0..sizes.len())
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
            let local = settings.shared_memory && dimension.is_some();
            dialled.push(Dialled { line: (rank, dimension), to, from, local, dial, last: None });
        }
        Ok(Self {
            settings,
            secret: settings.secret()?,
            tls: if settings.tls { Some(Identity::new()?) } else { None },
            listening,
            dialled,
            talking: Vec::new(),
            awaited,
            connected: Connected {
                control: BTreeMap::new(),
                data: sizes.iter().map(|_| BTreeMap::new()).collect(),
                notes: Vec::new(),
            },
            deadline: Instant::now() + settings.connect_timeout(),
            strangers: 0,
            last_stranger: None,
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
        Ok(self.connected)
    }

    fn is_complete(&self) -> bool {
        self.awaited.is_empty() && self.dialled.iter().all(|one| matches!(one.dial, Dial::Done))
    }

    fn step(&mut self) -> Result<(), RuntimeError> {
        let now = Instant::now();
        if now >= self.deadline {
            return Err(self.too_late());
        }
        for place in 0..self.dialled.len() {
            let one = &mut self.dialled[place];
            if !matches!(one.dial, Dial::Later(at) if at <= now) {
                continue;
            }
            if let Some(Ok(stream)) = one.local.then(|| dial_locally(one.to)) {
                self.dialled[place].dial = self.talk(place, Stream::Local(stream))?;
                continue;
            }
            // It is not there, or not on this host.
            one.dial = match dial(one.from, one.to) {
                Ok(stream) => Dial::Connecting(stream),
                Err(error) => {
                    one.last = Some(error.to_string());
                    Dial::Later(now + AGAIN)
                }
            };
        }
        self.wait()?;
        self.accept()?;
        self.answer()?;
        for place in 0..self.dialled.len() {
            self.go_on(place)?;
        }
        Ok(())
    }

    /// A connection that is there, and was dialled where an address is given.
    fn stream(&self, socket: Socket, dials: Option<IpAddr>) -> Result<Stream, RuntimeError> {
        let Some(tls) = &self.tls else { return Ok(Stream::Tcp(socket)) };
        let tls = tls.over(socket, dials).map_err(|error| RuntimeError::system("TLS", &error))?;
        Ok(Stream::Tls(Box::new(tls)))
    }

    /// The first words to a rank that is dialled.
    fn talk(&self, place: usize, stream: Stream) -> Result<Dial, RuntimeError> {
        let (rank, dimension) = self.dialled[place].line;
        let facts = Facts::of(self.settings, rank, dimension);
        let until = Instant::now() + FIRST_WORDS.max(self.settings.connect_timeout());
        let secret = self.secret.clone();
        let talk = Handshake::new(stream, facts, Some(rank), secret, until)?;
        Ok(Dial::Talking(Box::new(talk)))
    }

    /// Until something can go on, or a slice of time is over.
    fn wait(&self) -> Result<(), RuntimeError> {
        let (reads, both) = (PollFlags::IN, PollFlags::IN | PollFlags::OUT);
        let flags = |one: &Handshake| if one.wants_to_write() { both } else { reads };
        let listeners = self.listening.listeners.iter().map(|one| (one.as_fd(), reads));
        let talking = self.talking.iter().map(|(_, one)| (one.socket().as_fd(), flags(one)));
        let dialled = self.dialled.iter().filter_map(|one| match &one.dial {
            Dial::Connecting(stream) => Some((stream.as_fd(), PollFlags::OUT)),
            Dial::Talking(talk) => Some((talk.socket().as_fd(), flags(talk))),
            Dial::Later(_) | Dial::Done => None,
        });
        let all = listeners.chain(talking).chain(dialled);
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
        for listener in &self.listening.listeners {
            while let Ok((stream, from)) = listener.accept() {
                let local = from.is_unix();
                let far = from.as_socket().is_some_and(|from| !from.ip().is_loopback());
                let from = match from.as_socket() {
                    Some(from) => from.to_string(),
                    None => "a process on this host".to_owned(),
                };
                let room = self.talking.len() < MOST_STRANGERS + self.settings.ranks as usize;
                if !room || (self.secret.is_none() && far) {
                    self.strangers += 1;
                    self.last_stranger = Some(format!("{from}: there were too many at once"));
                    continue;
                }
                if let Some(Err(error)) = local.then(|| is_mine(&stream)) {
                    self.strangers += 1;
                    self.last_stranger = Some(format!("{from}: {error}"));
                    continue;
                }
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                let facts = Facts::of(self.settings, 0, None);
                let until = Instant::now() + FIRST_WORDS;
                let secret = self.secret.clone();
                let stream = match local {
                    true => Stream::Local(stream),
                    false => self.stream(stream, None)?,
                };
                self.talking.push((from, Handshake::new(stream, facts, None, secret, until)?));
            }
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
                    let (_, talk) = self.talking.swap_remove(place);
                    self.keep((facts.rank, facts.dimension), talk)?;
                }
                // It has the secret: so it is of this job, or was meant to be.
                Err(Refused::Differs(what)) => return Err(differs(what, None)),
                Err(refused) => {
                    let (from, _) = self.talking.swap_remove(place);
                    self.strangers += 1;
                    self.last_stranger = Some(format!("{from}: {refused}"));
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, line: Line, talk: Handshake) -> Result<(), RuntimeError> {
        // Words of control go over TCP: the network's acknowledgements tell a lost link.
        let fits = line.1.is_some() || !talk.is_local();
        if !fits || !self.awaited.remove(&line) {
            self.strangers += 1;
            self.last_stranger = Some(format!("rank {} has connected again", line.0));
            return Ok(());
        }
        self.insert(line, talk)
    }

    fn insert(&mut self, (rank, dimension): Line, talk: Handshake) -> Result<(), RuntimeError> {
        let link = talk.into_link(self.settings);
        let link = link.map_err(|error| RuntimeError::system("a connection", &error))?;
        let Connected { control, data, .. } = &mut self.connected;
        match dimension {
            Some(d) => data[d as usize].insert(rank, link),
            None => control.insert(rank, link),
        };
        if self.is_complete() && self.strangers > 0 {
            let last = self.last_stranger.as_deref().unwrap_or_default();
            let note =
                format!("{} connections were none of this job's; last {last}", self.strangers);
            self.connected.notes.push(note);
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
                    Ok(_) => {
                        let stream = self.stream(stream, Some(self.dialled[place].to.ip()))?;
                        self.dialled[place].dial = self.talk(place, stream)?;
                    }
                    Err(_) => one.dial = Dial::Connecting(stream),
                },
                Ok(Some(error)) | Err(error) => {
                    one.last = Some(error.to_string());
                    one.dial = Dial::Later(now + AGAIN);
                }
            },
            Dial::Talking(mut talk) => match talk.advance() {
                Ok(None) => one.dial = Dial::Talking(talk),
                Ok(Some(_)) => self.insert((rank, dimension), *talk)?,
                Err(Refused::Differs(what)) => return Err(differs(what, Some(rank))),
                // Whoever has that name, or no memory for both: over TCP, then.
                Err(_) if talk.is_local() => {
                    one.local = false;
                    one.dial = Dial::Later(now);
                }
                Err(refused @ (Refused::Io(_) | Refused::Late)) => {
                    one.last = Some(refused.to_string());
                    one.dial = Dial::Later(now + AGAIN);
                }
                Err(refused) => {
                    return Err(RuntimeError::Connect {
                        rank: Some(rank),
                        what: format!("at {}, where rank {rank} should be: {refused}", one.to),
                        hint:
                            "give all ranks the same secret, the same build and the addresses of \
                               this start"
                                .to_owned(),
                    });
                }
            },
            other => one.dial = other,
        }
        Ok(())
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
        missing.extend(self.awaited.iter().map(|(rank, _)| format!("rank {rank}")));
        missing.sort();
        missing.dedup();
        let rank = self.awaited.first().map(|line| line.0);
        let (me, most) = (self.settings.rank, 8);
        let others = match missing.len() {
            all if all > most => format!(" and {} more", all - most),
            _ => String::new(),
        };
        missing.truncate(most);
        let stranger = match &self.last_stranger {
            Some(last) => {
                format!(
                    "; {} connections were none of this job's, the last from {last}",
                    self.strangers
                )
            }
            None => String::new(),
        };
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
