//! A frame on its way out of a connection: header, elements, and their checksum where frames are checked.
//!
//! The checksum is computed of what is offered to the link next, a window at a time: so elements come from
//! memory once, and the link copies them from the cache. What was offered and not taken is not computed again.

use std::io::{self, IoSlice};

use super::link::Link;
use crate::checksum::{Running, TRAILER};
use crate::frame::HEADER;
use crate::state::{Frame, Sending};

/// How many pieces of memory leave with one call.
const PIECES: usize = 64;
/// Elements that are offered to a link at once where their checksum is computed: they stay in a core's cache.
const WINDOW: usize = 256 << 10;

/// See the module.
pub(super) struct Outgoing {
    frame: Option<Frame>,
    check: Option<Check>,
}

/// The checksum of the frame that leaves.
struct Check {
    sum: Running,
    /// Bytes that were added to the sum and have not left.
    ahead: usize,
    trailer: [u8; TRAILER],
    /// How much of it has left.
    of_trailer: usize,
}

impl Outgoing {
    pub(super) fn new(checked: bool) -> Self {
        let check =
            || Check { sum: Running::new(), ahead: 0, trailer: [0; TRAILER], of_trailer: 0 };
        Self { frame: None, check: checked.then(check) }
    }

    /// The frame that leaves now.
    pub(super) fn next(&mut self, frame: Option<Frame>) {
        self.frame = frame;
        if let Some(check) = &mut self.check {
            check.sum.reset();
            (check.ahead, check.of_trailer) = (0, 0);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frame.is_none()
    }

    /// What has left, if all of it has.
    pub(super) fn sent(&self) -> Option<Sending> {
        let frame = self.frame.as_ref()?;
        let trailer = self.check.as_ref().is_none_or(|check| check.of_trailer == TRAILER);
        (frame.of_header == HEADER && frame.view.is_done() && trailer).then_some(frame.what)
    }

    /// Sends what is left of the frame, or as much of it as the link takes; how many bytes.
    pub(super) fn write(&mut self, link: &mut dyn Link) -> io::Result<usize> {
        let Self { frame: Some(frame), check } = self else { return Ok(0) };
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut first = 0;
        if frame.of_header < HEADER {
            pieces[0] = IoSlice::new(&frame.header[frame.of_header..]);
            first = 1;
        }
        let room = &mut pieces[first..PIECES - 1];
        let most = if check.is_some() { WINDOW } else { usize::MAX };
        let (mut count, whole) = frame.view.slices(room, most);
        count += first;
        let elements: usize = pieces[first..count].iter().map(|piece| piece.len()).sum();
        if let Some(check) = check {
            let mut known = check.ahead;
            for piece in &pieces[first..count] {
                let before = known.min(piece.len());
                check.sum.add(&piece[before..]);
                known -= before;
            }
            check.ahead = elements;
            if whole {
                check.trailer = check.sum.value().to_le_bytes();
                pieces[count] = IoSlice::new(&check.trailer[check.of_trailer..]);
                count += 1;
            }
        }
        let sent = link.write(&pieces[..count])?;
        let of_header = sent.min(HEADER - frame.of_header);
        let of_elements = (sent - of_header).min(elements);
        frame.of_header += of_header;
        frame.view.sent(of_elements);
        if let Some(check) = check {
            check.ahead -= of_elements;
            check.of_trailer += sent - of_header - of_elements;
        }
        Ok(sent)
    }
}
