//! Which message of a rank waits for which: those before it that touch the same places of its buffer.
//!
//! Messages are gone through in their order. A send waits for the last receive of each of its places (a read
//! after a write); a receive for the last receive (a write after a write) and for the sends since (a write after a
//! read: what has not left must not be overwritten). Those before wait for theirs, so each place sees its messages
//! in their order. Places are elements in a rank's part of a plan, and blocks in a program.

use std::ops::Range;

const NONE: u32 = u32::MAX;

/// A message, as far as it matters here.
pub(crate) struct Touch<'a> {
    /// Whether it only reads.
    pub(crate) sends: bool,
    /// The places that it touches.
    pub(crate) ranges: &'a [Range<u64>],
}

/// Lists of messages by their numbers, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// Where the list of each message begins; one more at the end.
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

impl Lists {
    /// The list of a message.
    pub(crate) fn of(&self, message: u32) -> &[u32] {
        let at = |message: u32| self.starts[message as usize] as usize;
        &self.numbers[at(message)..at(message + 1)]
    }
}

/// The places between two cuts that no message tells apart.
#[derive(Clone, Copy)]
struct Piece {
    /// The last receive.
    written: u32,
    /// The last send since, in `reads`.
    read: u32,
}

/// Lists of what each message waits for, and of what waits for it. `ranges` are all that messages touch.
pub(crate) fn waits<'a>(
    messages: impl ExactSizeIterator<Item = Touch<'a>>,
    ranges: &[Range<u64>],
) -> (Lists, Lists) {
    let mut cuts: Vec<u64> = ranges.iter().flat_map(|range| [range.start, range.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces = vec![Piece { written: NONE, read: NONE }; cuts.len()];
    // (message, the one before that reads the same piece)
    let mut reads: Vec<(u32, u32)> = Vec::new();
    let mut noted = vec![NONE; messages.len()];
    let mut before = Lists { starts: vec![0], numbers: Vec::new() };
    for (number, message) in (0u32..).zip(messages) {
        let mut note = |other: u32| {
            if std::mem::replace(&mut noted[other as usize], number) != number {
                before.numbers.push(other);
            }
        };
        for range in message.ranges {
            let first = cuts.partition_point(|at| *at < range.start);
            let touched = cuts[first..].iter().take_while(|at| **at < range.end).count();
            for piece in &mut pieces[first..first + touched] {
                if message.sends {
                    if piece.written != NONE {
                        note(piece.written);
                    }
                    reads.push((number, piece.read));
                    piece.read = u32::try_from(reads.len() - 1).expect("fewer than 2^32 reads");
                    continue;
                }
                let mut read = piece.read;
                if read == NONE && piece.written != NONE {
                    note(piece.written);
                }
                while read != NONE {
                    let (other, earlier) = reads[read as usize];
                    note(other);
                    read = earlier;
                }
                *piece = Piece { written: number, read: NONE };
            }
        }
        let first = before.starts[number as usize] as usize;
        before.numbers[first..].sort_unstable();
        before.starts.push(u32::try_from(before.numbers.len()).expect("fewer than 2^32 waits"));
    }
    let after = reversed(&before);
    (before, after)
}

/// Who has each message in its list.
fn reversed(lists: &Lists) -> Lists {
    let count = lists.starts.len() - 1;
    let mut starts = vec![0u32; count + 1];
    for message in &lists.numbers {
        starts[*message as usize + 1] += 1;
    }
    for message in 0..count {
        starts[message + 1] += starts[message];
    }
    let mut next = starts.clone();
    let mut numbers = vec![0u32; lists.numbers.len()];
    for (waiting, list) in (0u32..).zip(lists.starts.windows(2)) {
        for message in &lists.numbers[list[0] as usize..list[1] as usize] {
            let at = &mut next[*message as usize];
            numbers[*at as usize] = waiting;
            *at += 1;
        }
    }
    Lists { starts, numbers }
}
