//! A TCP connection. `send_ahead` is what it holds that the network has not taken
//! (`TCP_NOTSENT_LOWAT`), so that what is urgent waits for no more than that.

use std::io::{self, ErrorKind, IoSlice, Read};

use rustix::event::epoll::EventFlags;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::Socket;

use super::Link;
use crate::Settings;

/// Who gets less than this, and less than asked for, has had all that was there.
const SHORT: usize = 16 << 10;

/// See the module.
pub(super) struct Tcp {
    socket: Socket,
    /// Nothing is left: what was not there a moment ago comes with the next edge.
    dry: bool,
    /// No edge comes any more.
    hung_up: bool,
}

impl Tcp {
    pub(super) fn new(socket: Socket, settings: &Settings) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        let ahead = u32::try_from(settings.send_ahead.count()).unwrap_or(u32::MAX);
        socket.set_tcp_notsent_lowat(ahead)?;
        Ok(Self { socket, dry: false, hung_up: false })
    }
}

impl Link for Tcp {
    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn woken(&mut self, seen: EventFlags) {
        self.dry = false;
        self.hung_up |= seen.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.dry) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let bytes = (&self.socket).read(into)?;
        self.dry = bytes < into.len().min(SHORT) && !self.hung_up;
        Ok(bytes)
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(&self.socket, pieces, &mut nothing, flags)?)
    }
}
