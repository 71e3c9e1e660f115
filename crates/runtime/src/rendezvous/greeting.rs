//! The first words on a connection: random bytes, and the proof that whoever draws them has the secret.
//!
//! ```text
//! dials                                   answers
//!   nonce proof                     ─►
//!                                   ◄─    nonce proof
//! ```
//!
//! 64 bytes each way, outside of TLS. To whoever lacks the secret they are random: a stranger is told
//! nothing, and is sent nothing before its own words are proved. The first proof covers the address that
//! was dialled, so that nobody else's address leads to this rank; the second covers the first.
//! The proofs of the [handshake](super::handshake) cover both.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use socket2::Socket;

use super::refused::{Refused, VERSION};
use crate::RuntimeError;
use crate::auth::{self, Secret};

/// Bytes of either side's first words.
pub(super) const LENGTH: usize = 2 * auth::LENGTH;
pub(super) type Words = [u8; LENGTH];

/// How builds up to version 2 began, before their version.
const OLD_MAGIC: &[u8] = b"arhs";

/// A connection on which nothing is proved yet.
pub(super) struct Greeting {
    socket: Socket,
    is_local: bool,
    secret: Secret,
    /// The address that was dialled.
    at: SocketAddr,
    /// What this side has said, where it dials.
    said: Option<Words>,
    inbox: Words,
    count: usize,
    pub(super) until: Instant,
}

/// A connection whose two sides have the secret.
pub(super) struct Greeted {
    pub(super) socket: Socket,
    pub(super) is_local: bool,
    /// The first words of both.
    pub(super) words: [Words; 2],
}

fn words(nonce: [u8; auth::LENGTH], proof: [u8; auth::LENGTH]) -> Words {
    let mut all = [0; LENGTH];
    all[..auth::LENGTH].copy_from_slice(&nonce);
    all[auth::LENGTH..].copy_from_slice(&proof);
    all
}

fn dials(version: u8) -> String {
    format!("allrail dials {version}")
}

fn answers(version: u8) -> String {
    format!("allrail answers {version}")
}

/// What the dialling side says first.
pub(super) fn hello(secret: &Secret, at: SocketAddr, version: u8) -> Result<Words, RuntimeError> {
    let nonce = auth::nonce()?;
    let proof = secret.prove(&dials(version), [&nonce, at.to_string().as_bytes(), b""]);
    Ok(words(nonce, proof))
}

/// What the answering side says to `hello`.
fn answer(secret: &Secret, hello: &Words) -> Result<Words, RuntimeError> {
    let nonce = auth::nonce()?;
    Ok(words(nonce, secret.prove(&answers(VERSION), [hello, &nonce, b""])))
}

fn check_hello(secret: &Secret, at: SocketAddr, words: &Words) -> Result<(), Refused> {
    let (nonce, proof) = words.split_at(auth::LENGTH);
    let at = at.to_string();
    let speaks = |version| secret.is_proved(&dials(version), [nonce, at.as_bytes(), b""], proof);
    if speaks(VERSION) {
        return Ok(());
    }
    if words.starts_with(OLD_MAGIC) {
        return Err(Refused::Version(words[OLD_MAGIC.len()]));
    }
    match (VERSION + 1..VERSION + 8).find(|version| speaks(*version)) {
        Some(version) => Err(Refused::Version(version)),
        None => Err(Refused::Secret),
    }
}

impl Greeting {
    /// Of the side that dials `at`, on a connection that is made and does not block.
    pub(super) fn dial(
        socket: Socket,
        is_local: bool,
        at: SocketAddr,
        secret: Secret,
        until: Instant,
    ) -> Result<Self, RuntimeError> {
        let said = Some(hello(&secret, at, VERSION)?);
        Ok(Self { said, ..Self::new(socket, is_local, at, secret, until) })
    }

    /// Of the side that listens `at`.
    pub(super) fn new(
        socket: Socket,
        is_local: bool,
        at: SocketAddr,
        secret: Secret,
        until: Instant,
    ) -> Self {
        if !is_local {
            // What is said next is little, and does not wait for more; without it, it is only later.
            let _ = socket.set_tcp_nodelay(true);
        }
        let (inbox, count) = ([0; LENGTH], 0);
        Self { socket, is_local, secret, at, said: None, inbox, count, until }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    /// A new connection takes so few bytes at once.
    fn send(&self, words: &Words) -> Result<(), Refused> {
        match (&self.socket).write(words) {
            Ok(LENGTH) => Ok(()),
            Ok(_) => Err(Refused::Io("it takes no bytes".to_owned())),
            Err(error) => Err(Refused::Io(error.to_string())),
        }
    }

    /// Says this side's first words, where it dials.
    pub(super) fn begin(&self) -> Result<(), Refused> {
        self.said.as_ref().map_or(Ok(()), |said| self.send(said))
    }

    /// The other side's first words, once they are there and right.
    pub(super) fn advance(&mut self) -> Result<Option<Words>, Refused> {
        while self.count < LENGTH {
            match (&self.socket).read(&mut self.inbox[self.count..]) {
                Ok(0) => return Err(Refused::Io("the connection was closed".to_owned())),
                Ok(count) => self.count += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Refused::Io(error.to_string())),
            }
        }
        let heard = self.inbox;
        let Some(said) = self.said else {
            check_hello(&self.secret, self.at, &heard)?;
            return Ok(Some(heard));
        };
        let (nonce, proof) = heard.split_at(auth::LENGTH);
        match self.secret.is_proved(&answers(VERSION), [&said, nonce, b""], proof) {
            true => Ok(Some(heard)),
            false => Err(Refused::Secret),
        }
    }

    /// The other side has proved the secret: so does this one, where it listens.
    pub(super) fn into_greeted(self, heard: Words) -> Result<Greeted, Refused> {
        let words = if let Some(said) = self.said {
            [said, heard]
        } else {
            let said = answer(&self.secret, &heard);
            let said = said.map_err(|error| Refused::Io(error.to_string()))?;
            self.send(&said)?;
            [heard, said]
        };
        Ok(Greeted { socket: self.socket, is_local: self.is_local, words })
    }
}
