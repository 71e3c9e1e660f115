//! What the first words of two ranks go over, before it is a link: a TCP connection, one inside TLS, or a
//! socket of this host.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use socket2::Socket;

use crate::port::link::{Link, Tls};

/// See the module.
pub(super) enum Stream {
    Tcp(Socket),
    Tls(Box<Tls>),
    /// A socket of this host, beside which memory is handed over.
    Local(Socket),
}

impl Stream {
    pub(super) fn socket(&self) -> &Socket {
        match self {
            Self::Tcp(socket) | Self::Local(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) | Self::Local(socket) => (&*socket).read(into),
            Self::Tls(tls) => tls.read(&mut [IoSliceMut::new(into)]),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) | Self::Local(socket) => (&*socket).write(bytes),
            Self::Tls(tls) => tls.write(&[IoSlice::new(bytes)]),
        }
    }

    /// Of what was written.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.has_unsent())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(tls) => tls.flush(),
            Self::Tcp(_) | Self::Local(_) => Ok(()),
        }
    }

    /// Whether what only this connection has is known.
    pub(super) fn is_ready(&self) -> bool {
        !matches!(self, Self::Tls(tls) if tls.is_handshaking())
    }

    /// What only this connection has.
    pub(super) fn binding(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Tls(tls) => Ok(tls.binding()?.to_vec()),
            Self::Tcp(_) | Self::Local(_) => Ok(Vec::new()),
        }
    }
}
