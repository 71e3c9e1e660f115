//! What carries the bytes between two ranks, one file each: a [`Tcp`] connection, one inside [`Tls`], or
//! [`Memory`] that both processes have where they run on one host.
//!
//! A link is a stream of bytes each way that never blocks. Epoll watches its socket for edges, so whoever
//! has had bytes from it comes again until it says `WouldBlock`; only then it will be woken.

mod mapping;
mod memory;
mod ring;
mod tcp;
mod tls;

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use socket2::Socket;

pub(crate) use self::mapping::Mapping;
pub(crate) use self::memory::Memory;
pub(crate) use self::tcp::Tcp;
pub(crate) use self::tls::{Damage, Identity, Tls, damage_of};

/// See the module. Called by the thread that owns the connection: that of a port, or of control.
pub(crate) trait Link: Send {
    /// What epoll watches; its end is the end of the link.
    fn socket(&self) -> &Socket;

    /// Epoll has seen something there.
    fn woken(&mut self, seen: epoll::EventFlags);

    /// Takes bytes that have come, into one place after the other or only the first; none where nothing
    /// comes any more.
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Whether bytes come as they were sent, or not at all, so that frames need no checksum of their elements.
    fn protects(&self) -> bool;

    /// Sends as much as the link takes, which is something, or `WouldBlock`.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// What epoll is asked to look for at the socket of a link, once for all.
pub(crate) fn watch(epoll: &OwnedFd, number: u64, link: &dyn Link) -> rustix::io::Result<()> {
    use epoll::EventFlags;
    let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
    epoll::add(epoll, link.socket(), epoll::EventData::new_u64(number), edges)
}
