//! What carries the bytes between two ranks, one file each: a [`Tcp`] connection, or [`Memory`] that both
//! processes have where they run on one host.
//!
//! A link is a stream of bytes each way that never blocks. Epoll watches its socket for edges, so whoever
//! has had bytes from it comes again until it says `WouldBlock`; only then it will be woken.

mod mapping;
mod memory;
mod ring;
mod tcp;

use std::io::{self, IoSlice};

use rustix::event::epoll;
use socket2::Socket;

pub(crate) use self::mapping::Mapping;
use self::memory::Memory;
use self::tcp::Tcp;
use crate::rendezvous::Joined;
use crate::{RuntimeError, Settings};

/// See the module. Called by the thread of a port, for one connection.
pub(super) trait Link: Send {
    /// What epoll watches; its end is the end of the link.
    fn socket(&self) -> &Socket;

    /// Epoll has seen something there.
    fn woken(&mut self, seen: epoll::EventFlags);

    /// Takes bytes that have come; none where nothing comes any more.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Whether [`lend`](Self::lend) shows what has come where it lies.
    fn lends(&self) -> bool {
        false
    }

    /// As `read`, without a copy: `take` looks at bytes and says how many it needs no more. A link that
    /// has only part of what `take` needs waits for the rest.
    fn lend(&mut self, take: &mut dyn FnMut(&[u8]) -> usize) -> io::Result<usize> {
        let _ = take;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sends as much as the link takes.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// The link over what the rendezvous has made.
pub(super) fn of(joined: Joined, settings: &Settings) -> Result<Box<dyn Link>, RuntimeError> {
    Ok(match joined {
        Joined::Tcp(socket) => Box::new(
            Tcp::new(socket, settings)
                .map_err(|error| RuntimeError::system("a data connection", &error))?,
        ),
        Joined::Memory(socket, mapping) => Box::new(Memory::new(socket, mapping)),
    })
}
