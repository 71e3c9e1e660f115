//! What two ranks say once both have proved that they have the secret ([`greeting`](super::greeting)): are we
//! of one job, and who are you.
//!
//! ```text
//! dials                                   answers
//!   "arhs" facts proof              ─►
//!                                   ◄─    "arhs" facts proof
//! ```
//!
//! Facts are a little JSON, 4 KiB at most. No byte beyond these is read, so that the first frame stays for
//! whoever reads frames. Where both are on one host, who has dialled then sends a byte with the memory that
//! they exchange data through ([`Mapping`]). A proof is over all that both have said before it, the first
//! words included ([`auth`](crate::auth)), and over what only their TLS session has, where there is one.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use socket2::Socket;

use super::greeting::Words;
use super::refused::Refused;
use super::stream::Stream;
use crate::Settings;
use crate::auth::{self, Secret};
use crate::port::link::{Link, Mapping, Memory, Tcp};

const MAGIC: [u8; 4] = *b"arhs";
/// Magic, and the length of the facts.
const HEAD: usize = MAGIC.len() + 2;
const MOST_FACTS: usize = 4096;
const DIALS: &str = "allrail says who dials";
const ANSWERS: &str = "allrail says who answers";
/// The byte beside which memory is handed over.
const MEMORY: u8 = 1;
/// The first byte of whoever begins to speak TLS.
const TLS_HANDSHAKE: u8 = 0x16;

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Facts {
    /// The version of its build.
    pub(crate) allrail: String,
    pub(crate) job: String,
    pub(crate) epoch: u32,
    pub(crate) ranks: u32,
    /// Of its settings, those that ranks have in common.
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) rank: u32,
    /// Whom it means to talk with.
    pub(crate) to: u32,
    /// Data of this dimension; control where there is none.
    pub(crate) dimension: Option<u32>,
}

impl Facts {
    pub(crate) fn of(settings: &Settings, to: u32, dimension: Option<u32>) -> Self {
        Self {
            allrail: env!("CARGO_PKG_VERSION").to_owned(),
            job: settings.job.clone(),
            epoch: settings.epoch,
            ranks: settings.ranks,
            settings: settings.alike(),
            rank: settings.rank,
            to,
            dimension,
        }
    }

    /// What ranks must have alike; what explains the rest comes first.
    fn named(&self) -> Vec<(String, String)> {
        let whole = [
            ("version of allrail", self.allrail.clone()),
            ("job", format!("`{}`", self.job)),
            ("epoch", self.epoch.to_string()),
            ("number of ranks", self.ranks.to_string()),
        ];
        let settings = self.settings.iter().map(|(key, value)| (format!("`{key}`"), value.clone()));
        whole.map(|(what, value)| (what.to_owned(), value)).into_iter().chain(settings).collect()
    }

    /// What of this is not as another rank has it.
    fn differs(&self, other: &Self) -> Option<String> {
        let (mine, theirs) = (self.named(), other.named());
        let of = |all: &[(String, String)], what: &str| {
            let found = all.iter().find(|(name, _)| name == what);
            found.map_or_else(|| "none".to_owned(), |(_, value)| value.clone())
        };
        let (what, mine, theirs) = mine
            .iter()
            .chain(&theirs)
            .map(|(what, _)| (what, of(&mine, what), of(&theirs, what)))
            .find(|(_, mine, theirs)| mine != theirs)?;
        let (rank, me) = (other.rank, self.rank);
        Some(format!("rank {rank} has another {what} than rank {me}: {theirs}, and not {mine}"))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Head,
    Facts,
    Proof,
    Flush,
    Memory,
}

/// See the module.
pub(crate) struct Handshake {
    stream: Stream,
    mine: Facts,
    /// The rank that is dialled; none where this side answers.
    dialled: Option<u32>,
    secret: Secret,
    /// All that both have said.
    said: Vec<u8>,
    has_spoken: bool,
    theirs: Option<Facts>,
    stage: Stage,
    /// What has come of what the stage wants.
    inbox: Vec<u8>,
    wanted: usize,
    outbox: Vec<u8>,
    memory: Option<Mapping>,
    pub(crate) until: Instant,
}

impl Handshake {
    /// On a connection that does not block, behind the first words of both. `mine` is what this side says;
    /// where it answers, `to` and `dimension` are filled in once they are known.
    pub(super) fn new(
        stream: Stream,
        first: [Words; 2],
        mine: Facts,
        dialled: Option<u32>,
        secret: Secret,
        until: Instant,
    ) -> Self {
        Self {
            stream,
            mine,
            dialled,
            secret,
            said: first.concat(),
            has_spoken: false,
            theirs: None,
            stage: Stage::Head,
            inbox: Vec::new(),
            wanted: HEAD,
            outbox: Vec::new(),
            memory: None,
            until,
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        self.stream.socket()
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self.stream, Stream::Local(_))
    }

    /// What the two have between them now.
    pub(crate) fn into_link(self, settings: &Settings) -> io::Result<Box<dyn Link>> {
        let dimension = self.mine.dimension;
        Ok(match (self.stream, self.memory) {
            (Stream::Tcp(socket), _) => Box::new(Tcp::new(socket, settings, dimension)?),
            (Stream::Tls(mut tls), _) => {
                tls.set(settings, dimension)?;
                tls
            }
            (Stream::Local(socket), Some(mapping)) => Box::new(Memory::new(socket, mapping)),
            (Stream::Local(_), None) => return Err(ErrorKind::NotConnected.into()),
        })
    }

    pub(crate) fn wants_to_write(&self) -> bool {
        !self.outbox.is_empty() || self.stream.has_unsent()
    }

    /// This side's facts, and its proof.
    fn speak(&mut self) -> Result<(), Refused> {
        let facts = serde_json::to_vec(&self.mine).expect("facts are plain data");
        let from = self.said.len();
        self.said.extend(MAGIC);
        self.said.extend((facts.len() as u16).to_le_bytes());
        self.said.extend(facts);
        let who = if self.dialled.is_some() { DIALS } else { ANSWERS };
        let proof = self.secret.prove(who, [&self.said, &self.binding()?, b""]);
        self.said.extend(proof);
        self.outbox.extend_from_slice(&self.said[from..]);
        self.has_spoken = true;
        Ok(())
    }

    fn binding(&self) -> Result<Vec<u8>, Refused> {
        self.stream.binding().map_err(|error| self.ended(&error.to_string()))
    }

    fn check_proof(&self, proof: &[u8]) -> Result<(), Refused> {
        let who = if self.dialled.is_some() { ANSWERS } else { DIALS };
        match self.secret.is_proved(who, [&self.said, &self.binding()?, b""], proof) {
            true => Ok(()),
            false => Err(Refused::Secret),
        }
    }

    fn check_facts(&self) -> Result<(), Refused> {
        let theirs = self.theirs.as_ref().ok_or(Refused::Stranger)?;
        if let Some(text) = self.mine.differs(theirs) {
            return Err(Refused::Differs(text));
        }
        let expected = self.dialled.unwrap_or(theirs.rank);
        if theirs.rank != expected || theirs.to != self.mine.rank {
            let (is, me) = (theirs.rank, self.mine.rank);
            let text = match self.dialled {
                Some(_) => format!("rank {is} answers at the address of rank {expected}"),
                None => format!("rank {is} takes rank {me} for rank {}", theirs.to),
            };
            return Err(Refused::Differs(text));
        }
        Ok(())
    }

    /// Goes on as far as bytes do. What the peer is, once both sides are content.
    pub(crate) fn advance(&mut self) -> Result<Option<Facts>, Refused> {
        loop {
            if self.dialled.is_some() && !self.has_spoken && self.stream.is_ready() {
                self.speak()?;
            }
            self.flush()?;
            if self.stage == Stage::Flush {
                if self.wants_to_write() {
                    return Ok(None);
                }
                if !self.is_local() {
                    return Ok(self.theirs.take());
                }
                self.stage = Stage::Memory;
            }
            if self.stage == Stage::Memory {
                return Ok(if self.share()? { self.theirs.take() } else { None });
            }
            let from = self.inbox.len();
            if from < self.wanted {
                self.inbox.resize(self.wanted, 0);
                let read = self.stream.read(&mut self.inbox[from..]);
                self.inbox.truncate(from + *read.as_ref().unwrap_or(&0));
                match read {
                    Ok(0) => return Err(self.ended("the connection was closed")),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        // What was read may have made the session ready.
                        match self.dialled.is_some() && !self.has_spoken && self.stream.is_ready() {
                            true => continue,
                            false => return Ok(None),
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.ended(&error.to_string())),
                }
                if self.inbox.len() < self.wanted {
                    continue;
                }
            }
            self.hear()?;
        }
    }

    /// Gives memory to whoever was dialled, or takes it from who has dialled: whether it is there.
    fn share(&mut self) -> Result<bool, Refused> {
        let dials = self.dialled.is_some();
        let shared = if dials { self.give_memory() } else { self.take_memory() };
        let memory = match shared {
            Ok(memory) => memory,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(Refused::Io(error.to_string())),
        };
        let mapping = Mapping::new(&memory, dials);
        self.memory = Some(mapping.map_err(|error| Refused::Io(error.to_string()))?);
        Ok(true)
    }

    fn give_memory(&self) -> Result<OwnedFd, Errno> {
        let memory = Mapping::create()?;
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut room);
        let fds = [memory.as_fd()];
        beside.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(self.socket(), &[IoSlice::new(&[MEMORY])], &mut beside, flags)?;
        Ok(memory)
    }

    fn take_memory(&self) -> Result<OwnedFd, Errno> {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut room);
        let mut byte = [0];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        recvmsg(self.socket(), &mut [IoSliceMut::new(&mut byte)], &mut beside, flags)?;
        let memory = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        // Its end, or a byte with nothing beside.
        memory.ok_or(Errno::CONNRESET)
    }

    /// A peer that hangs up after it was told who this is does not accept it.
    fn ended(&self, how: &str) -> Refused {
        match self.dialled.is_some() && self.has_spoken && self.outbox.is_empty() {
            true => Refused::Io(format!("it has refused this rank after its proof: {how}")),
            false => Refused::Io(how.to_owned()),
        }
    }

    /// All that the stage wants is there.
    fn hear(&mut self) -> Result<(), Refused> {
        let inbox = std::mem::take(&mut self.inbox);
        (self.stage, self.wanted) = match self.stage {
            Stage::Head => {
                if inbox[0] == TLS_HANDSHAKE {
                    return Err(Refused::Tls);
                }
                if inbox[..MAGIC.len()] != MAGIC {
                    return Err(Refused::Stranger);
                }
                let length = usize::from(u16::from_le_bytes([inbox[HEAD - 2], inbox[HEAD - 1]]));
                if length == 0 || length > MOST_FACTS {
                    return Err(Refused::Stranger);
                }
                self.said.extend(inbox);
                (Stage::Facts, length)
            }
            Stage::Facts => {
                self.theirs = Some(serde_json::from_slice(&inbox).map_err(|_| Refused::Stranger)?);
                self.said.extend(inbox);
                (Stage::Proof, auth::LENGTH)
            }
            Stage::Proof => {
                self.check_proof(&inbox)?;
                self.said.extend(inbox);
                if let (None, Some(theirs)) = (self.dialled, &self.theirs) {
                    (self.mine.to, self.mine.dimension) = (theirs.rank, theirs.dimension);
                    // Also where they are of two jobs: the other side shall see it, too.
                    self.speak()?;
                    self.flush()?;
                }
                self.check_facts()?;
                (Stage::Flush, 0)
            }
            Stage::Flush | Stage::Memory => return Err(Refused::Stranger),
        };
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Refused> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(written) => drop(self.outbox.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.ended(&error.to_string())),
            }
        }
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => {
                Err(self.ended(&error.to_string()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
