//! How the ranks of a job find each other: each listens on the interfaces that it was told, all get the
//! table of addresses from whoever starts them, and the higher rank dials the lower.
//!
//! Between every two ranks there is a control connection, to the first address of the lower one (that is not
//! loopback, where there is such a one); between
//! every two that differ on one dimension only there is a data connection on it; where both are on one host
//! it is a local socket and [memory](Mapping) of both, unless `shared_memory` is off. Once all are there nobody
//! listens any more. Until then whoever connects has a few seconds to prove that it is of this job; a
//! stranger costs one note, and no more than [`MOST_STRANGERS`] are listened to at once.

mod addresses;
mod handshake;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use self::addresses::{dial, dial_locally, is_mine, listen, listen_locally, reachable, read_table};
use self::handshake::{Facts, Handshake, Refused};
use crate::auth::Secret;
use crate::port::Mapping;
use crate::{RuntimeError, Settings, interface};

/// How many connections may be at their first words at once.
pub(crate) const MOST_STRANGERS: usize = 64;
/// How long anyone has for them.
const FIRST_WORDS: Duration = Duration::from_secs(5);
/// How often a rank that does not answer yet is dialled.
const AGAIN: Duration = Duration::from_millis(50);
/// How often the caller is asked whether it still wants to wait.
const SLICE: Duration = Duration::from_millis(100);

/// For control where there is no dimension.
type Line = (u32, Option<u32>);

/// Where a node listens, before it is connected.
pub(crate) struct Listening {
    /// Those for TCP and those for ranks on this host.
    listeners: Vec<Socket>,
    addresses: Vec<SocketAddr>,
}

/// The connections of a rank.
pub(crate) struct Connected {
    pub(crate) control: BTreeMap<u32, TcpStream>,
    /// By dimension.
    pub(crate) data: Vec<BTreeMap<u32, Joined>>,
    /// What strangers did meanwhile.
    pub(crate) notes: Vec<String>,
}

/// What two ranks have between them for data.
pub(crate) enum Joined {
    Tcp(Socket),
    /// A local socket, and memory of both.
    Memory(Socket, Mapping),
}

impl Joined {
    pub(crate) fn socket(&self) -> &Socket {
        match self {
            Self::Tcp(socket) | Self::Memory(socket, _) => socket,
        }
    }
}

/// The other ranks that differ from `rank` on dimension `d` only.
pub(crate) fn line(sizes: &[u32], rank: u32, d: usize) -> Vec<u32> {
    let stride: u32 = sizes[..d].iter().product();
    let first = rank - rank / stride % sizes[d] * stride;
    (0..sizes[d]).map(|i| first + i * stride).filter(|other| *other != rank).collect()
}

impl Listening {
    pub(crate) fn new(settings: &Settings) -> Result<Self, RuntimeError> {
        let none = settings.secret()?.is_none();
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for (d, dimension) in settings.dimensions.iter().enumerate() {
            let field = format!("dimensions[{d}].interface");
            let ip = interface::address(&field, &dimension.interface)?;
            if none && !ip.is_loopback() {
                let why = "without a secret only loopback addresses are used: anyone on the network \
                           could take part in the job";
                let hint = "give `secret`, or use 127.0.0.1";
                return Err(RuntimeError::setting(field, &dimension.interface, why, hint));
            }
            let listener = listen(ip, dimension.port).map_err(|error| {
                let field = format!("dimensions[{d}].port");
                let (why, hint) = match error.kind() {
                    ErrorKind::AddrInUse => {
                        ("another process listens there", "leave it out for any free one")
                    }
                    ErrorKind::AddrNotAvailable => {
                        ("this machine does not have that address", "an interface of this machine")
                    }
                    ErrorKind::PermissionDenied => {
                        ("this user may not listen there", "leave it out for any free one")
                    }
                    _ => return RuntimeError::system("listening", &error),
                };
                let at = SocketAddr::new(ip, dimension.port);
                RuntimeError::setting(field, at, why, hint)
            })?;
            let address = listener.local_addr();
            let address = address.map_err(|error| RuntimeError::system("listening", &error))?;
            addresses.extend(address.as_socket());
            if settings.shared_memory
                && let Some(local) = address.as_socket().and_then(|at| listen_locally(at).ok())
            {
                listeners.push(local);
            }
            listeners.push(listener);
        }
        Ok(Self { listeners, addresses })
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Finds all others; `goes_on` is asked every 100 ms.
    pub(crate) fn connect(
        self,
        settings: &Settings,
        table: &[Vec<String>],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Connected, RuntimeError> {
        let table = read_table(settings, table)?;
        let mut meeting = Meeting::new(self, settings, &table)?;
        while !meeting.is_complete() {
            if !goes_on() {
                return Err(RuntimeError::Interrupted);
            }
            meeting.step()?;
        }
        Ok(meeting.connected)
    }
}

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
struct Meeting<'a> {
    settings: &'a Settings,
    secret: Secret,
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
    fn new(
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
                self.dialled[place].dial = self.talk(place, stream, true)?;
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

    /// The first words to a rank that is dialled.
    fn talk(&self, place: usize, stream: Socket, local: bool) -> Result<Dial, RuntimeError> {
        let (rank, dimension) = self.dialled[place].line;
        let facts = Facts::of(self.settings, rank, dimension);
        let until = Instant::now() + FIRST_WORDS.max(self.settings.connect_timeout());
        let secret = self.secret.clone();
        let talk = Handshake::new((stream, local), facts, Some(rank), secret, until)?;
        Ok(Dial::Talking(Box::new(talk)))
    }

    /// Until something can go on, or a slice of time is over.
    fn wait(&self) -> Result<(), RuntimeError> {
        let (reads, both) = (PollFlags::IN, PollFlags::IN | PollFlags::OUT);
        let flags = |one: &Handshake| if one.wants_to_write() { both } else { reads };
        let listeners = self.listening.listeners.iter().map(|one| (one.as_fd(), reads));
        let talking = self.talking.iter().map(|(_, one)| (one.stream().as_fd(), flags(one)));
        let dialled = self.dialled.iter().filter_map(|one| match &one.dial {
            Dial::Connecting(stream) => Some((stream.as_fd(), PollFlags::OUT)),
            Dial::Talking(talk) => Some((talk.stream().as_fd(), flags(talk))),
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
                let (stream, secret) = ((stream, local), self.secret.clone());
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
                    self.keep((facts.rank, facts.dimension), talk.into_joined());
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

    fn keep(&mut self, line: Line, joined: Joined) {
        // Words of control go over TCP: the network's acknowledgements tell a lost link.
        let fits = line.1.is_some() || matches!(joined, Joined::Tcp(_));
        if !fits || !self.awaited.remove(&line) {
            self.strangers += 1;
            self.last_stranger = Some(format!("rank {} has connected again", line.0));
            return;
        }
        self.insert(line, joined);
    }

    fn insert(&mut self, (rank, dimension): Line, joined: Joined) {
        let Connected { control, data, .. } = &mut self.connected;
        match (dimension, joined) {
            (Some(d), joined) => drop(data[d as usize].insert(rank, joined)),
            (None, Joined::Tcp(socket)) => drop(control.insert(rank, socket.into())),
            // Not dialled so, and not kept.
            (None, Joined::Memory(..)) => {}
        }
        if self.is_complete() && self.strangers > 0 {
            let last = self.last_stranger.as_deref().unwrap_or_default();
            let note =
                format!("{} connections were none of this job's; last {last}", self.strangers);
            self.connected.notes.push(note);
        }
    }

    /// Goes on with a rank that is dialled.
    fn go_on(&mut self, place: usize) -> Result<(), RuntimeError> {
        let one = &mut self.dialled[place];
        let (rank, dimension) = one.line;
        let now = Instant::now();
        match std::mem::replace(&mut one.dial, Dial::Done) {
            Dial::Connecting(stream) => match stream.take_error() {
                Ok(None) => match stream.peer_addr() {
                    Ok(_) => self.dialled[place].dial = self.talk(place, stream, false)?,
                    Err(_) => one.dial = Dial::Connecting(stream),
                },
                Ok(Some(error)) | Err(error) => {
                    one.last = Some(error.to_string());
                    one.dial = Dial::Later(now + AGAIN);
                }
            },
            Dial::Talking(mut talk) => match talk.advance() {
                Ok(None) => one.dial = Dial::Talking(talk),
                Ok(Some(_)) => self.insert((rank, dimension), talk.into_joined()),
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

#[cfg(test)]
mod tests;
