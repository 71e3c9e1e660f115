//! Memory that both ranks have, on one host: a [`ring`](super::ring) each way, and the socket over which
//! they have met, on which a byte means "look again". Its end is the end of the link, once what lies in the
//! ring is read. What may wait in a ring bounds what is sent ahead; who reads it is the link.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
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
pub(crate) struct Memory {
    socket: Socket,
    reader: Reader,
    writer: Writer,
    ended: bool,
}

fn bad(bad: BadFrame) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, bad)
}

impl Memory {
    pub(crate) fn new(socket: Socket, mapping: Mapping) -> Self {
        let mapping = Arc::new(mapping);
        let (reader, writer) = (Reader::new(Arc::clone(&mapping)), Writer::new(mapping));
        Self { socket, reader, writer, ended: false }
    }

    /// The other side has something to do. If it has not heard the last bytes yet, it will.
    fn ring_bell(&self) {
        let _ = send(&self.socket, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
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

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(into) = into.iter_mut().find(|one| !one.is_empty()) else { return Ok(0) };
        loop {
            // What was written before the end is there once the end is seen.
            let ended = self.ended;
            let unread = self.reader.unread().map_err(bad)?;
            if unread > 0 {
                let taken = self.reader.copy(into, unread);
                if self.reader.writer_waits().map_err(bad)? {
                    self.ring_bell();
                }
                return Ok(taken);
            }
            if ended {
                return Ok(0);
            }
            if self.reader.waits().map_err(bad)? {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
    }

    /// What lies in this memory never leaves the host.
    fn protects(&self) -> bool {
        true
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

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};

    use super::*;

    /// Both ends of a link.
    fn ends() -> [Memory; 2] {
        let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None).expect("sockets");
        let memory = Mapping::create().expect("memory");
        [(one, true), (other, false)].map(|(socket, dials)| {
            Memory::new(socket, Mapping::new(&memory, dials).expect("it is mapped"))
        })
    }

    fn bells(link: &Memory) -> usize {
        recv(&link.socket, &mut [0; 64], RecvFlags::DONTWAIT).map_or(0, |(bytes, _)| bytes)
    }

    #[test]
    fn who_waits_is_woken_and_who_does_not_is_left_alone() {
        let [mut one, mut other] = ends();
        let piece = [1; 1000];
        let would_block = |result: io::Result<usize>| {
            assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
        };
        one.write(&[IoSlice::new(&piece)]).expect("there is room");
        assert_eq!(bells(&other), 0, "nobody waits");
        let read = |link: &mut Memory| link.read(&mut [IoSliceMut::new(&mut [0; 5000])]);
        assert_eq!(read(&mut other).expect("it is there"), 1000);
        would_block(read(&mut other));
        one.write(&[IoSlice::new(&piece)]).expect("there is room");
        one.write(&[IoSlice::new(&piece)]).expect("there is room");
        assert_eq!(bells(&other), 1);
        assert_eq!(read(&mut other).expect("it is there"), 2000);
        would_block(read(&mut other));
        one.write(&[IoSlice::new(&piece)]).expect("there is room");
        assert_eq!(bells(&other), 1);
        while one.write(&[IoSlice::new(&piece)]).is_ok() {}
        would_block(one.write(&[IoSlice::new(&piece)]));
        while read(&mut other).is_ok() {}
        assert_eq!(bells(&one), 1);
    }

    #[test]
    fn what_was_sent_before_the_end_is_read_before_it() {
        let [mut one, mut other] = ends();
        one.write(&[IoSlice::new(b"last")]).expect("there is room");
        drop(one);
        other.woken(EventFlags::IN);
        let mut came = [0; 4];
        let mut read = |into: &mut [u8]| other.read(&mut [IoSliceMut::new(into)]);
        assert_eq!(read(&mut came).expect("it is there"), 4);
        assert_eq!((&came, read(&mut [0]).expect("the end")), (b"last", 0));
        assert!(other.write(&[IoSlice::new(b"x")]).is_err());
    }
}
