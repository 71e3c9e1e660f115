//! One data connection: frames in, frames out, without blocking.
//!
//! What comes is read into a small buffer that stays in the cache, and combined from there; what replaces
//! whole memory, or is kept, is read straight into its place. So that the elements of a long frame do not
//! come with those before them, no more is read beyond a long frame than the header of the next. What may not be
//! combined yet is kept in memory of its own, of a length that the engine has allowed before. Where frames are
//! checked, a frame counts as combined, or kept, once its elements have the checksum that follows them.

use std::io::{self, ErrorKind, IoSliceMut};

use allrail_schedule::Key;
use rustix::event::epoll::EventFlags;
use socket2::Socket;

use super::link::{Damage, Link, damage_of};
use super::outgoing::Outgoing;
use crate::checksum::{Running, TRAILER};
use crate::frame::{BadFrame, HEADER, Header, Limits};
use crate::memory::View;
use crate::shared::{Me, Shared};
use crate::state::{Intake, Kept};

/// What is read at once.
const STAGING: usize = 128 << 10;
/// What is read from one connection before others have their turn.
const SHARE: usize = 1 << 20;
/// A frame of less goes through the buffer, with whatever follows it.
const DIRECT: u64 = 16 << 10;

/// Why there will be no more frames.
pub(super) enum End {
    Closed(String),
    /// With the key that its header names, if that was whole.
    BadFrame(Option<Key>, BadFrame),
    /// A link that protects what it carries has found it changed.
    Damaged(Damage),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        if let Some(damage) = damage_of(&error) {
            return Self::Damaged(damage);
        }
        match error.downcast::<BadFrame>() {
            Ok(bad) => Self::BadFrame(None, bad),
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
    /// All elements have come, and their checksum comes.
    Check(Whole),
    Drop {
        left: u64,
    },
}

/// A frame of which all elements have come.
enum Whole {
    Combined(usize),
    Kept(usize, Vec<u8>),
}

/// What is computed of the elements that come, and whose they are; nothing where frames are not checked.
struct Check {
    sum: Running,
    key: Key,
}

impl Check {
    fn add(check: &mut Option<Self>, bytes: &[u8]) {
        if let Some(check) = check {
            check.sum.add(bytes);
        }
    }
}

impl Sink {
    /// Gives elements to where they belong; how many bytes were taken.
    fn take(&mut self, came: &[u8], check: &mut Option<Check>) -> usize {
        let first =
            |left: u64| &came[..came.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        let (left, taken) = match self {
            Self::Header | Self::Check(_) => return 0,
            Self::Combine { view, left, .. } => {
                let taken = view.combine(first(*left));
                Check::add(check, &came[..taken]);
                (left, taken)
            }
            Self::Keep { data, kept, left, .. } => {
                let now = first(*left);
                room(data, *kept, now.len()).copy_from_slice(now);
                Check::add(check, now);
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
    check: Option<Check>,
    /// Whether the last frame was a long one: the next may be, too.
    long: bool,
    /// A frame for which there is no room yet: nothing is read until there is.
    stalled: Option<Header>,
    out: Outgoing,
    blocked: bool,
    ended: bool,
}

impl Connection {
    /// `checked` says whether all ranks check what no link protects.
    pub(super) fn new(peer: u32, link: Box<dyn Link>, limits: Limits, checked: bool) -> Self {
        let checked = checked && !link.protects();
        let check = || Check { sum: Running::new(), key: Key(0) };
        Self {
            peer,
            link,
            limits,
            staging: vec![0; STAGING],
            from: 0,
            to: 0,
            sink: Sink::Header,
            check: checked.then(check),
            long: false,
            stalled: None,
            out: Outgoing::new(checked),
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
            if let Some(result) = self.read_in_place() {
                return result;
            }
        }
        let trailer = self.trailer();
        let until = match &self.sink {
            Sink::Header if self.long => HEADER,
            Sink::Check(_) if self.long => TRAILER + HEADER,
            Sink::Combine { left, .. } | Sink::Keep { left, .. } | Sink::Drop { left }
                if *left >= DIRECT =>
            {
                usize::try_from(*left).unwrap_or(usize::MAX).saturating_add(trailer + HEADER)
            }
            _ => STAGING,
        };
        let until = until.min(self.staging.len());
        let bytes = self.link.read(&mut [IoSliceMut::new(&mut self.staging[self.to..until])])?;
        self.to += bytes;
        Ok(bytes)
    }

    /// Bytes behind the elements of a frame.
    fn trailer(&self) -> usize {
        if self.check.is_some() { TRAILER } else { 0 }
    }

    /// Elements of a long frame to where they stay, and the header that follows them; none of a frame that is
    /// combined with what is there.
    fn read_in_place(&mut self) -> Option<io::Result<usize>> {
        let most_beyond = self.trailer() + HEADER;
        let Self { sink, link, staging, check, .. } = self;
        let mut read = |memory: &mut [u8], left: u64| {
            let beyond = if memory.len() as u64 == left { most_beyond } else { 0 };
            let next = &mut staging[..beyond];
            let came = link.read(&mut [IoSliceMut::new(memory), IoSliceMut::new(next)])?;
            Check::add(check, &memory[..came.min(memory.len())]);
            Ok(came)
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

    /// A frame is announced: decides where its bytes go.
    fn arrive(&mut self, port: u32, shared: &Shared, header: &Header) {
        let (left, peer) = (header.length, self.peer);
        self.long = left >= DIRECT;
        if let Some(check) = &mut self.check {
            check.sum.reset();
            check.key = header.name.operation.key;
        }
        let trailer = self.trailer() as u64;
        self.sink = match shared.change(Me::Port(port), |one| one.arrives((port, peer), header)) {
            Intake::Combine(number, view) => Sink::Combine { number, view, left },
            Intake::Keep(number, data) => Sink::Keep { number, data, kept: 0, left },
            Intake::Wait => {
                self.stalled = Some(*header);
                Sink::Header
            }
            Intake::Drop => Sink::Drop { left: left + trailer },
        };
    }

    /// All elements of a frame have come, and it is not known yet whether they are what was sent.
    fn whole(&mut self, whole: Whole, port: u32, shared: &Shared) {
        if self.check.is_some() {
            self.sink = Sink::Check(whole);
        } else {
            self.sink = Sink::Header;
            accept(whole, port, shared);
        }
    }

    /// The checksum of a frame's elements has come, if it has: whether it is theirs.
    fn compare(&mut self) -> Option<Result<(), End>> {
        let trailer = self.staging[self.from..self.to].first_chunk::<TRAILER>()?;
        let found = u32::from_le_bytes(*trailer);
        let check = self.check.as_ref()?;
        self.from += TRAILER;
        let wanted = check.sum.value();
        let bad = BadFrame::Elements { found, wanted };
        Some(if found == wanted { Ok(()) } else { Err(End::BadFrame(Some(check.key), bad)) })
    }

    /// Gives what was read to where it belongs.
    fn take(&mut self, port: u32, shared: &Shared) -> Result<(), End> {
        while !self.is_stalled() {
            if let Sink::Check(_) = self.sink {
                let Some(compared) = self.compare() else { break };
                let sink = std::mem::replace(&mut self.sink, Sink::Header);
                compared?;
                if let Sink::Check(whole) = sink {
                    accept(whole, port, shared);
                }
                continue;
            }
            let came = &self.staging[self.from..self.to];
            if let Sink::Header = self.sink {
                let Some((header, _)) = came.split_first_chunk::<HEADER>() else { break };
                let header =
                    Header::parse(header, &self.limits).map_err(|bad| End::BadFrame(None, bad))?;
                self.from += HEADER;
                self.arrive(port, shared, &header);
                continue;
            }
            self.from += self.sink.take(came, &mut self.check);
            let trailer = self.trailer() as u64;
            match &mut self.sink {
                Sink::Header | Sink::Check(_) => {}
                Sink::Combine { number, left: 0, .. } => {
                    let whole = Whole::Combined(*number);
                    self.whole(whole, port, shared);
                }
                Sink::Combine { view, left, .. } if view.is_done() => {
                    // Less memory than the plan says: the job is over.
                    self.sink = Sink::Drop { left: *left + trailer };
                }
                Sink::Keep { number, data, kept, left: 0 } => {
                    let (number, mut data) = (*number, std::mem::take(data));
                    data.truncate(*kept);
                    self.whole(Whole::Kept(number, data), port, shared);
                }
                Sink::Drop { left: 0 } => self.sink = Sink::Header,
                Sink::Combine { .. } | Sink::Keep { .. } | Sink::Drop { .. } => break,
            }
        }
        // What is left is less than a header, an element or a checksum.
        self.staging.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        Ok(())
    }

    /// Sends what is most urgent, until there is nothing or the link takes no more.
    pub(super) fn send(&mut self, port: u32, shared: &Shared) -> Result<(), End> {
        let me = Me::Port(port);
        self.blocked = false;
        if self.ended {
            self.out.next(None);
            return Ok(());
        }
        if self.out.is_empty() {
            self.out.next(shared.change(me, |state| state.next_send(port, self.peer)));
        }
        while !self.out.is_empty() {
            match self.out.write(self.link.as_mut()) {
                Ok(bytes) => {
                    shared.traffic[port as usize].add_sent(bytes);
                    let Some(what) = self.out.sent() else { continue };
                    let peer = self.peer;
                    self.out.next(shared.change(me, |state| {
                        state.sent(what);
                        state.next_send(port, peer)
                    }));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(error) => {
                    self.ended = true;
                    self.out.next(None);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}

/// A frame has come whole, and is what was sent.
fn accept(whole: Whole, port: u32, shared: &Shared) {
    let me = Me::Port(port);
    match whole {
        Whole::Combined(number) => shared.change(me, |state| state.combined(number)),
        Whole::Kept(number, data) => {
            let kept = shared.change(me, |state| state.kept(number, data));
            if let Kept::Combine(mut view, data) = kept {
                view.combine(&data);
                shared.change(me, |state| state.combined_from(number, data));
            }
        }
    }
}
