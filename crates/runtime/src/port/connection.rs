//! One data connection: frames in, frames out, without blocking.
//!
//! What comes is read into a small buffer that stays in the cache, and combined from there; what replaces
//! whole memory, or is kept, is read straight into its place, and where the link lends what has come (memory of
//! both ranks) it is combined from where it lies, headers apart. So that the elements of a long frame do not
//! come with those before them, no more is read beyond a long frame than the header of the next. What may not be
//! combined yet is kept in memory of its own, of a length that the engine has allowed before.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};

use rustix::event::epoll::EventFlags;
use socket2::Socket;

use super::link::Link;
use crate::frame::{BadFrame, HEADER, Header, Limits};
use crate::memory::View;
use crate::shared::{Me, Shared};
use crate::state::{Frame, Intake, Kept};

/// What is read at once.
const STAGING: usize = 128 << 10;
/// What is read from one connection before others have their turn.
const SHARE: usize = 1 << 20;
/// A frame of less goes through the buffer, with whatever follows it.
const DIRECT: u64 = 16 << 10;
/// How many pieces of memory leave with one call.
const PIECES: usize = 64;

/// Why there will be no more frames.
pub(super) enum End {
    Closed(String),
    BadFrame(BadFrame),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        match error.downcast::<BadFrame>() {
            Ok(bad) => Self::BadFrame(bad),
            Err(error) => Self::Closed(error.to_string()),
        }
    }
}

/// Where the bytes go that come now.
enum Sink {
    Header,
    Combine {
        number: usize,
        view: View,
        left: u64,
    },
    /// In the first so many bytes of `data`.
    Keep {
        number: usize,
        data: Vec<u8>,
        kept: usize,
        left: u64,
    },
    Drop {
        left: u64,
    },
}

impl Sink {
    /// Gives elements to where they belong; how many bytes were taken.
    fn take(&mut self, came: &[u8]) -> usize {
        let first =
            |left: u64| &came[..came.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        let (left, taken) = match self {
            Self::Header => return 0,
            Self::Combine { view, left, .. } => {
                let taken = view.combine(first(*left));
                (left, taken)
            }
            Self::Keep { data, kept, left, .. } => {
                let now = first(*left);
                room(data, *kept, now.len()).copy_from_slice(now);
                *kept += now.len();
                (left, now.len())
            }
            Self::Drop { left } => {
                let now = first(*left).len();
                (left, now)
            }
        };
        *left -= taken as u64;
        taken
    }
}

/// So many bytes of `data` behind the first `kept` ones.
fn room(data: &mut Vec<u8>, kept: usize, bytes: usize) -> &mut [u8] {
    let end = kept + bytes;
    if data.len() < end {
        data.resize(end, 0);
    }
    &mut data[kept..end]
}

/// See the module.
pub(super) struct Connection {
    pub(super) peer: u32,
    link: Box<dyn Link>,
    limits: Limits,
    /// What was read and not taken: from the first index to the second.
    staging: Vec<u8>,
    from: usize,
    to: usize,
    sink: Sink,
    /// Whether the last frame was a long one: the next may be, too.
    long: bool,
    /// A frame for which there is no room yet: nothing is read until there is.
    stalled: Option<Header>,
    out: Option<Frame>,
    blocked: bool,
    ended: bool,
}

impl Connection {
    pub(super) fn new(peer: u32, link: Box<dyn Link>, limits: Limits) -> Self {
        let staging = vec![0; if link.lends() { HEADER } else { STAGING }];
        Self {
            peer,
            link,
            limits,
            staging,
            from: 0,
            to: 0,
            sink: Sink::Header,
            long: false,
            stalled: None,
            out: None,
            blocked: false,
            ended: false,
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        self.link.socket()
    }

    pub(super) fn into_link(self) -> Box<dyn Link> {
        self.link
    }

    /// Epoll has seen something at its socket.
    pub(super) fn woken(&mut self, seen: EventFlags) {
        self.link.woken(seen);
    }

    /// Whether something is to be sent and the link takes no more.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Whether what comes has to wait.
    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Tries again what had no room.
    pub(super) fn resume(&mut self, port: u32, shared: &Shared) -> Result<(), End> {
        if let Some(header) = self.stalled.take() {
            self.arrive(port, shared, &header);
            self.take(port, shared)?;
        }
        Ok(())
    }

    /// Reads as much as there is, or as this connection's share: whether there may be more.
    pub(super) fn read(&mut self, port: u32, shared: &Shared) -> Result<bool, End> {
        let mut all = 0;
        while all < SHARE && !self.ended && !self.is_stalled() {
            let result = self.read_once();
            match result {
                Ok(0) => {
                    self.ended = true;
                    return Err(End::Closed("its connection was closed".to_owned()));
                }
                Ok(bytes) => {
                    shared.traffic[port as usize].add_received(bytes);
                    all += bytes;
                    self.take(port, shared)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    return Err(error.into());
                }
            }
        }
        Ok(!self.ended && !self.is_stalled())
    }

    fn read_once(&mut self) -> io::Result<usize> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            if self.link.lends() && !matches!(self.sink, Sink::Header) {
                return self.read_lent();
            }
            if let Some(result) = self.read_in_place() {
                return result;
            }
        }
        let until = match &self.sink {
            Sink::Header if self.long => HEADER,
            Sink::Combine { left, .. } | Sink::Keep { left, .. } | Sink::Drop { left }
                if *left >= DIRECT =>
            {
                usize::try_from(*left).unwrap_or(usize::MAX).saturating_add(HEADER)
            }
            _ => STAGING,
        };
        let until = until.min(self.staging.len());
        let bytes = self.link.read(&mut [IoSliceMut::new(&mut self.staging[self.to..until])])?;
        self.to += bytes;
        Ok(bytes)
    }

    /// Elements of a long frame to where they stay, and the header that follows them; none of a frame that is
    /// combined with what is there.
    fn read_in_place(&mut self) -> Option<io::Result<usize>> {
        let Self { sink, link, staging, .. } = self;
        let mut read = |memory: &mut [u8], left: u64| {
            let beyond = if memory.len() as u64 == left { HEADER } else { 0 };
            let next = &mut staging[..beyond];
            link.read(&mut [IoSliceMut::new(memory), IoSliceMut::new(next)])
        };
        let mut room_there = 0;
        let (result, left) = match sink {
            Sink::Combine { view, left, .. } if *left >= DIRECT => {
                let all = *left;
                let result = view.put(|memory| {
                    room_there = memory.len();
                    read(memory, all)
                })?;
                (result, left)
            }
            Sink::Keep { data, kept, left, .. } if *left >= DIRECT => {
                room_there = usize::try_from(*left).unwrap_or(usize::MAX).min(SHARE);
                let result = read(room(data, *kept, room_there), *left);
                *kept += result.as_ref().map_or(0, |bytes| room_there.min(*bytes));
                (result, left)
            }
            _ => return None,
        };
        if let Ok(bytes) = &result {
            let here = room_there.min(*bytes);
            *left -= here as u64;
            self.to = bytes - here;
        }
        Some(result)
    }

    /// Elements, from where the link has them.
    fn read_lent(&mut self) -> io::Result<usize> {
        let sink = &mut self.sink;
        self.link.lend(&mut |came| sink.take(came))
    }

    /// A frame is announced: decides where its bytes go.
    fn arrive(&mut self, port: u32, shared: &Shared, header: &Header) {
        let (left, peer) = (header.length, self.peer);
        self.long = left >= DIRECT;
        self.sink = match shared.change(Me::Port(port), |one| one.arrives((port, peer), header)) {
            Intake::Combine(number, view) => Sink::Combine { number, view, left },
            Intake::Keep(number, data) => Sink::Keep { number, data, kept: 0, left },
            Intake::Wait => {
                self.stalled = Some(*header);
                Sink::Header
            }
            Intake::Drop => Sink::Drop { left },
        };
    }

    /// Gives what was read to where it belongs.
    fn take(&mut self, port: u32, shared: &Shared) -> Result<(), End> {
        let me = Me::Port(port);
        while !self.is_stalled() {
            let came = &self.staging[self.from..self.to];
            if let Sink::Header = self.sink {
                let Some((header, _)) = came.split_first_chunk::<HEADER>() else { break };
                let header = Header::parse(header, &self.limits).map_err(End::BadFrame)?;
                self.from += HEADER;
                self.arrive(port, shared, &header);
                continue;
            }
            self.from += self.sink.take(came);
            match &mut self.sink {
                Sink::Header => {}
                Sink::Combine { number, left: 0, .. } => {
                    let number = *number;
                    self.sink = Sink::Header;
                    shared.change(me, |state| state.combined(number));
                }
                Sink::Combine { view, left, .. } if view.is_done() => {
                    // Less memory than the plan says: the job is over.
                    self.sink = Sink::Drop { left: *left };
                }
                Sink::Keep { number, data, kept, left: 0 } => {
                    let (number, mut data) = (*number, std::mem::take(data));
                    data.truncate(*kept);
                    self.sink = Sink::Header;
                    if let Kept::Combine(mut view, data) =
                        shared.change(me, |state| state.kept(number, data))
                    {
                        view.combine(&data);
                        shared.change(me, |state| state.combined_from(number, data));
                    }
                }
                Sink::Drop { left: 0 } => self.sink = Sink::Header,
                Sink::Combine { .. } | Sink::Keep { .. } | Sink::Drop { .. } => break,
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
            match write(self.link.as_mut(), frame) {
                Ok(bytes) => {
                    shared.traffic[port as usize].add_sent(bytes);
                    if frame.of_header < HEADER || !frame.view.is_done() {
                        continue;
                    }
                    let (what, peer) = (frame.what, self.peer);
                    self.out = shared.change(me, |state| {
                        state.sent(what);
                        state.next_send(port, peer)
                    });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(error) => {
                    (self.ended, self.out) = (true, None);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}

/// Sends what is left of a frame, or as much of it as the link takes.
fn write(link: &mut dyn Link, frame: &mut Frame) -> io::Result<usize> {
    let mut pieces = [IoSlice::new(&[]); PIECES];
    let mut first = 0;
    if frame.of_header < HEADER {
        pieces[0] = IoSlice::new(&frame.header[frame.of_header..]);
        first = 1;
    }
    let count = first + frame.view.slices(&mut pieces[first..]);
    let sent = link.write(&pieces[..count])?;
    let of_header = sent.min(HEADER - frame.of_header);
    frame.of_header += of_header;
    frame.view.sent(sent - of_header);
    Ok(sent)
}
