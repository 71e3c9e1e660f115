//! Memory that both ranks have, on one host: a [`ring`](super::ring) each way, and the socket over which
//! they have met, on which a byte means "look again". Its end is the end of the link, once what lies in the
//! ring is read. What may wait in a ring bounds what is sent ahead; who reads it is the link.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;

use super::Link;
use super::mapping::Mapping;
use super::ring::{Reader, Writer};
use crate::frame::BadFrame;

/// See the module.
pub(super) struct Memory {
    socket: Socket,
    reader: Reader,
    writer: Writer,
    ended: bool,
}

fn bad(bad: BadFrame) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, bad)
}

impl Memory {
    pub(super) fn new(socket: Socket, mapping: Mapping) -> Self {
        let mapping = Arc::new(mapping);
        let (reader, writer) = (Reader::new(Arc::clone(&mapping)), Writer::new(mapping));
        Self { socket, reader, writer, ended: false }
    }

    /// The other side has something to do. If it has not heard the last bytes yet, it will.
    fn ring_bell(&self) {
        let _ = send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Has `take` take some of so many bytes, and waits for more where it takes none.
    fn fetch(&mut self, mut take: impl FnMut(&mut Reader, usize) -> usize) -> io::Result<usize> {
        loop {
            // What was written before the end is there once the end is seen.
            let ended = self.ended;
            let unread = self.reader.unread().map_err(bad)?;
            let taken = if unread == 0 { 0 } else { take(&mut self.reader, unread) };
            if taken > 0 {
                if self.reader.writer_waits().map_err(bad)? {
                    self.ring_bell();
                }
                return Ok(taken);
            }
            if ended {
                return Ok(0);
            }
            if self.reader.waits(unread).map_err(bad)? {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }
}

impl Link for Memory {
    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn woken(&mut self, _: EventFlags) {
        loop {
            match recv(&self.socket, &mut [0; 64], RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.ended = true,
                Ok((64, _)) | Err(Errno::INTR) => continue,
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(_) => self.ended = true,
            }
            break;
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.fetch(|reader, unread| {
            let now = into.len().min(unread);
            reader.copy(&mut into[..now]);
            now
        })
    }

    fn lends(&self) -> bool {
        true
    }

    fn lend(&mut self, take: &mut dyn FnMut(&[u8]) -> usize) -> io::Result<usize> {
        self.fetch(|reader, unread| reader.show(unread, take))
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.ended {
            return Err(ErrorKind::BrokenPipe.into());
        }
        loop {
            let written = self.writer.write(pieces).map_err(bad)?;
            if written > 0 {
                if self.writer.reader_waits() {
                    self.ring_bell();
                }
                return Ok(written);
            }
            if self.writer.waits().map_err(bad)? {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }
}
