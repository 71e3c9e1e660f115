//! One data connection: frames in, frames out, without blocking.
//!
//! What comes is read into a small buffer that stays in the cache, and combined from there; what replaces
//! whole memory is read straight into it. What may not be combined yet is kept in memory of its own, of a
//! length that the engine has allowed before.

use std::io::{ErrorKind, IoSlice, Read};
use std::net::TcpStream;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::frame::{BadFrame, HEADER, Header, Limits};
use crate::memory::View;
use crate::shared::{Me, Shared};
use crate::state::{Frame, Intake, Kept};

/// What is read at once.
const STAGING: usize = 128 << 10;
/// What is read from one connection before others have their turn.
const SHARE: usize = 1 << 20;
/// Below this, bytes go through the buffer, with whatever follows them.
const DIRECT: usize = 16 << 10;
/// How many pieces of memory leave with one call.
const PIECES: usize = 64;

/// Why there will be no more frames.
pub(super) enum End {
    Closed(String),
    BadFrame(BadFrame),
}

/// Where the bytes go that come now.
enum Sink {
    Header,
    Combine { number: usize, view: View, left: u64 },
    Keep { number: usize, data: Vec<u8>, left: u64 },
    Drop { left: u64 },
}

/// See the module.
pub(super) struct Connection {
    pub(super) peer: u32,
    stream: TcpStream,
    limits: Limits,
    /// What was read and not taken: from the first index to the second.
    staging: Vec<u8>,
    from: usize,
    to: usize,
    sink: Sink,
    out: Option<Frame>,
    blocked: bool,
    ended: bool,
}

impl Connection {
    pub(super) fn new(peer: u32, stream: TcpStream, limits: Limits) -> Self {
        Self {
            peer,
            stream,
            limits,
            staging: vec![0; STAGING],
            from: 0,
            to: 0,
            sink: Sink::Header,
            out: None,
            blocked: false,
            ended: false,
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Whether something is to be sent and the link takes no more.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Reads as much as there is, or as this connection's share.
    pub(super) fn read(&mut self, port: u32, shared: &Shared) -> Result<(), End> {
        let mut all = 0;
        while all < SHARE && !self.ended {
            let result = self.read_once();
            match result {
                Ok(0) => {
                    self.ended = true;
                    return Err(End::Closed("its connection was closed".to_owned()));
                }
                Ok(bytes) => {
                    shared.traffic[port as usize].add_received(bytes);
                    all += bytes;
                    let short = self.to < self.staging.len();
                    self.take(port, shared)?;
                    // What was not there a moment ago comes with the next call of epoll.
                    if short && bytes < DIRECT {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(End::Closed(error.to_string()));
                }
            }
        }
        Ok(())
    }

    fn read_once(&mut self) -> std::io::Result<usize> {
        let mut stream = &self.stream;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            match &mut self.sink {
                Sink::Combine { view, left, .. } if *left >= DIRECT as u64 => {
                    if let Some(result) = view.put(|memory| stream.read(memory)) {
                        *left -= *result.as_ref().unwrap_or(&0) as u64;
                        return result;
                    }
                }
                Sink::Keep { data, left, .. } if *left >= DIRECT as u64 => {
                    let from = data.len();
                    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(SHARE);
                    data.resize(from + most, 0);
                    let result = stream.read(&mut data[from..]);
                    let bytes = *result.as_ref().unwrap_or(&0);
                    data.truncate(from + bytes);
                    *left -= bytes as u64;
                    return result;
                }
                _ => {}
            }
        }
        let bytes = stream.read(&mut self.staging[self.to..])?;
        self.to += bytes;
        Ok(bytes)
    }

    /// Gives what was read to where it belongs.
    fn take(&mut self, port: u32, shared: &Shared) -> Result<(), End> {
        let me = Me::Port(port);
        loop {
            let came = &self.staging[self.from..self.to];
            match &mut self.sink {
                Sink::Header => {
                    let Some((header, _)) = came.split_first_chunk::<HEADER>() else { break };
                    let header = Header::parse(header, &self.limits).map_err(End::BadFrame)?;
                    self.from += HEADER;
                    let left = header.length;
                    let peer = self.peer;
                    self.sink = match shared.change(me, |one| one.arrives((port, peer), &header)) {
                        Intake::Combine(number, view) => Sink::Combine { number, view, left },
                        Intake::Keep(number) => {
                            let most = usize::try_from(left).unwrap_or(usize::MAX).min(SHARE);
                            Sink::Keep { number, data: Vec::with_capacity(most), left }
                        }
                        Intake::Drop => Sink::Drop { left },
                    };
                }
                Sink::Combine { number, view, left } => {
                    let now = came.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let taken = view.combine(&came[..now]);
                    self.from += taken;
                    *left -= taken as u64;
                    if *left == 0 {
                        let number = *number;
                        self.sink = Sink::Header;
                        shared.change(me, |state| state.combined(number));
                    } else if view.is_done() {
                        // Less memory than the plan says: the job is over.
                        self.sink = Sink::Drop { left: *left };
                    } else {
                        break;
                    }
                }
                Sink::Keep { number, data, left } => {
                    let now = came.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    data.extend_from_slice(&came[..now]);
                    self.from += now;
                    *left -= now as u64;
                    if *left > 0 {
                        break;
                    }
                    let (number, data) = (*number, std::mem::take(data));
                    self.sink = Sink::Header;
                    if let Kept::Combine(mut view, data) =
                        shared.change(me, |state| state.kept(number, data))
                    {
                        view.combine(&data);
                        shared.change(me, |state| state.combined(number));
                    }
                }
                Sink::Drop { left } => {
                    let now = came.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    self.from += now;
                    *left -= now as u64;
                    if *left > 0 {
                        break;
                    }
                    self.sink = Sink::Header;
                }
            }
        }
        // What is left is less than a header, or an element.
        self.staging.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        Ok(())
    }

    /// Sends what is most urgent, until there is nothing or the link takes no more.
    pub(super) fn send(&mut self, port: u32, shared: &Shared) -> Result<(), End> {
        let me = Me::Port(port);
        self.blocked = false;
        if self.ended {
            self.out = None;
            return Ok(());
        }
        if self.out.is_none() {
            self.out = shared.change(me, |state| state.next_send(port, self.peer));
        }
        while let Some(frame) = &mut self.out {
            let sent = write(&self.stream, frame);
            shared.traffic[port as usize].add_sent(sent.unwrap_or(0));
            match sent {
                Ok(_) if frame.of_header == HEADER && frame.view.is_done() => {
                    let (what, peer) = (frame.what, self.peer);
                    self.out = shared.change(me, |state| {
                        state.sent(what);
                        state.next_send(port, peer)
                    });
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    break;
                }
                Err(error) => {
                    (self.ended, self.out) = (true, None);
                    return Err(End::Closed(std::io::Error::from(error).to_string()));
                }
            }
        }
        Ok(())
    }
}

/// Sends what is left of a frame, or as much of it as the link takes.
fn write(stream: &TcpStream, frame: &mut Frame) -> Result<usize, Errno> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let mut first = 0;
    if frame.of_header < HEADER {
        pieces[0] = IoSlice::new(&frame.header[frame.of_header..]);
        first = 1;
    }
    let count = first + frame.view.slices(&mut pieces[first..]);
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut nothing = SendAncillaryBuffer::default();
    let sent = sendmsg(stream, &pieces[..count], &mut nothing, flags)?;
    let of_header = sent.min(HEADER - frame.of_header);
    frame.of_header += of_header;
    frame.view.sent(sent - of_header);
    Ok(sent)
}
