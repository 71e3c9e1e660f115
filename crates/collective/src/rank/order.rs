//! Which message of a chunk waits for which: those before it that touch the same elements.
//!
//! Messages are gone through in their places. A send waits for the last receive of each of its elements
//! (a read after a write); a receive for the last receive (a write after a write) and for the sends
//! since (a write after a read: what has not left must not be overwritten). Those before wait for
//! theirs, so each element sees its messages in the order of their places.

use std::ops::Range;

use super::message::{Action, Lists, Message};

const NONE: u32 = u32::MAX;

/// The elements between two cuts that no message tells apart.
#[derive(Clone, Copy)]
struct Piece {
    /// The last receive.
    written: u32,
    /// The last send since, in `Reads`.
    read: u32,
}

/// Lists of what each message waits for, and of what waits for it.
pub(super) fn order(messages: &[Message], ranges: &[Range<u64>]) -> (Lists, Lists) {
    let mut cuts: Vec<u64> = ranges.iter().flat_map(|range| [range.start, range.end]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces = vec![Piece { written: NONE, read: NONE }; cuts.len()];
    // (message, the one before that reads the same piece)
    let mut reads: Vec<(u32, u32)> = Vec::new();
    let mut noted = vec![NONE; messages.len()];
    let mut before = Lists { starts: vec![0], places: Vec::new() };
    for message in messages {
        let mut note = |place: u32| {
            if std::mem::replace(&mut noted[place as usize], message.place) != message.place {
                before.places.push(place);
            }
        };
        for range in &ranges[message.ranges.start as usize..message.ranges.end as usize] {
            let first = cuts.partition_point(|at| *at < range.start);
            let touched = cuts[first..].iter().take_while(|at| **at < range.end).count();
            for piece in &mut pieces[first..first + touched] {
                match message.action {
                    Action::Send => {
                        if piece.written != NONE {
                            note(piece.written);
                        }
                        reads.push((message.place, piece.read));
                        piece.read = u32::try_from(reads.len() - 1).expect("fewer than 2^32 reads");
                    }
                    Action::Receive(_) => {
                        let mut read = piece.read;
                        if read == NONE && piece.written != NONE {
                            note(piece.written);
                        }
                        while read != NONE {
                            let (place, earlier) = reads[read as usize];
                            note(place);
                            read = earlier;
                        }
                        *piece = Piece { written: message.place, read: NONE };
                    }
                }
            }
        }
        let first = before.starts[message.place as usize] as usize;
        before.places[first..].sort_unstable();
        before.starts.push(u32::try_from(before.places.len()).expect("fewer than 2^32 waits"));
    }
    let after = reversed(&before);
    (before, after)
}

/// Who has each place in its list.
fn reversed(lists: &Lists) -> Lists {
    let count = lists.starts.len() - 1;
    let mut starts = vec![0u32; count + 1];
    for place in &lists.places {
        starts[*place as usize + 1] += 1;
    }
    for place in 0..count {
        starts[place + 1] += starts[place];
    }
    let mut next = starts.clone();
    let mut places = vec![0u32; lists.places.len()];
    for (waiting, list) in (0u32..).zip(lists.starts.windows(2)) {
        for place in &lists.places[list[0] as usize..list[1] as usize] {
            let at = &mut next[*place as usize];
            places[*at as usize] = waiting;
            *at += 1;
        }
    }
    Lists { starts, places }
}
