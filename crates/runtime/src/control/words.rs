//! What control connections carry: signs of life, what coordinators say, the end of a job.
//!
//! Each word is 20 bytes, little-endian, and what follows them. Both have a checksum: what the first one says
//! is known to be right before its length is believed.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 2 | `ar` |
//! | 2 | 1 | version |
//! | 3 | 1 | which word: 2 alive, and how far, 3 coordination, 4 the job ends, 5 this rank leaves, 6 what it waits for |
//! | 4 | 4 | epoch |
//! | 8 | 4 | bytes that follow |
//! | 12 | 4 | CRC-32C of what follows |
//! | 16 | 4 | CRC-32C of the 16 bytes before it |

use std::collections::BTreeMap;

use allrail_coordinate::Payload;
use allrail_coordinate::wire::{self, Limits};
use allrail_core::counted;
use allrail_schedule::Key;

use crate::Fault;
use crate::checksum::crc32c;
use crate::frame::{MAGIC, VERSION};

const HEAD: usize = 20;
/// How much of it the last four bytes are the checksum of.
const CHECKED: usize = 16;
const ALIVE: u8 = 2;
const SAID: u8 = 3;
const END: u8 = 4;
const LEFT: u8 = 5;
const WAITS: u8 = 6;
/// No word is longer.
pub(super) const LONGEST: usize = 16 << 20;
/// Of how many tensors one sign of life tells.
pub(crate) const MOST_PROGRESS: usize = 1024;
/// What a rank waits for, and the longest text of it.
const LONGEST_WAITS: usize = 8 << 10;
const LONGEST_TEXT: usize = 512;
/// The words of a fault.
const LONGEST_FAULT: usize = 16 << 10;

/// How often a rank has submitted something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// A tensor's, or 0 for calls.
    pub(crate) key: Key,
    /// How often.
    pub(crate) count: u64,
    /// When it did so last, on its machine's clock, in nanoseconds.
    pub(crate) at: u64,
}

/// A sign of life. With the three times of two of them each side knows how far the other's clock is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sign {
    /// When it was sent, on the sender's clock, in nanoseconds.
    pub(crate) sent: u64,
    /// The `sent` of the receiver's last sign that the sender has heard; 0 before.
    pub(crate) echo: u64,
    /// When it heard that, on its own clock.
    pub(crate) heard: u64,
    /// How far the sender is with some of its tensors.
    pub(crate) progress: Vec<Progress>,
}

/// Something that a peer says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    Alive(Sign),
    Said {
        epoch: u32,
        payload: Payload,
    },
    End(Fault),
    Left(BTreeMap<Key, u64>),
    /// What it waits for, in words.
    Waits(Vec<String>),
}

/// Why bytes are no word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadWord {
    /// They are not what was sent.
    Damaged(String),
    /// The peer has sent what no word is.
    Malformed(String),
}

impl From<String> for BadWord {
    fn from(why: String) -> Self {
        Self::Malformed(why)
    }
}

fn word(kind: u8, epoch: u32, body: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let from = out.len();
    out.extend(MAGIC);
    out.extend([VERSION, kind]);
    out.extend(epoch.to_le_bytes());
    out.extend(length.to_le_bytes());
    out.extend(crc32c(body).to_le_bytes());
    let sum = crc32c(&out[from..]);
    out.extend(sum.to_le_bytes());
    out.extend_from_slice(body);
}

pub(super) fn alive(epoch: u32, sign: &Sign, out: &mut Vec<u8>) {
    let progress = sign.progress.iter().take(MOST_PROGRESS);
    let numbers = progress.flat_map(|one| [one.key.0, one.count, one.at]);
    let head = [sign.sent, sign.echo, sign.heard];
    let body: Vec<u8> = head.into_iter().chain(numbers).flat_map(u64::to_le_bytes).collect();
    word(ALIVE, epoch, &body, out);
}

fn sign(body: &[u8]) -> Result<Sign, String> {
    let (triples, rest) = body.as_chunks::<24>();
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let triple = |all: &[u8; 24]| (number(&all[..8]), number(&all[8..16]), number(&all[16..]));
    let Some((head, progress)) = triples.split_first().filter(|_| rest.is_empty()) else {
        return Err("a sign of life ends within an entry".to_owned());
    };
    let (sent, echo, heard) = triple(head);
    let one = |all| {
        let (key, count, at) = triple(all);
        Progress { key: Key(key), count, at }
    };
    Ok(Sign { sent, echo, heard, progress: progress.iter().map(one).collect() })
}

/// What a coordinator says, as [`wire`] writes it.
pub(super) fn said(epoch: u32, payload: &[u8], out: &mut Vec<u8>) {
    word(SAID, epoch, payload, out);
}

fn cut(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

pub(super) fn end(epoch: u32, fault: &Fault, out: &mut Vec<u8>) {
    let mut fault = fault.clone();
    cut(&mut fault.what, LONGEST_FAULT / 8);
    fault.tensor.iter_mut().for_each(|tensor| cut(tensor, LONGEST_FAULT / 16));
    let body = serde_json::to_vec(&fault).expect("a fault is plain data");
    word(END, epoch, &body, out);
}

/// What this rank waits for: the first few, each cut.
pub(super) fn waits(epoch: u32, waits: &[String], out: &mut Vec<u8>) {
    let mut texts: Vec<String> = waits.to_vec();
    texts.iter_mut().for_each(|text| cut(text, LONGEST_TEXT));
    let body = serde_json::to_vec(&texts).expect("texts are plain data");
    if body.len() <= LONGEST_WAITS {
        word(WAITS, epoch, &body, out);
    }
}

pub(super) fn left(epoch: u32, done: impl Iterator<Item = (Key, u64)>, out: &mut Vec<u8>) {
    let body: Vec<u8> =
        done.flat_map(|(key, count)| [key.0.to_le_bytes(), count.to_le_bytes()].concat()).collect();
    word(LEFT, epoch, &body[..body.len().min(LONGEST / 16 * 16)], out);
}

/// The next word, and how many bytes it has; none if it has not come whole.
pub(super) fn next(bytes: &[u8], limits: &Limits) -> Result<Option<(Word, usize)>, BadWord> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[..2] != MAGIC {
        return Err(BadWord::Damaged("it does not begin as messages of allrail do".to_owned()));
    }
    if head[2] != VERSION {
        let why = format!("it has version {}, this build reads version {VERSION}", head[2]);
        return Err(BadWord::Malformed(why));
    }
    let compare = |found: u32, bytes: &[u8]| match crc32c(bytes) {
        wanted if wanted == found => Ok(()),
        wanted => Err(BadWord::Damaged(format!(
            "it has the checksum {found:08x}, and the bytes that came have {wanted:08x}"
        ))),
    };
    compare(number(CHECKED), &head[..CHECKED])?;
    let (kind, epoch, length) = (head[3], number(4), number(8) as usize);
    let most = match kind {
        ALIVE => 24 * (1 + MOST_PROGRESS),
        SAID | LEFT => LONGEST,
        END => LONGEST_FAULT,
        WAITS => LONGEST_WAITS,
        other => return Err(format!("words of kind {other} are not known").into()),
    };
    if length > most {
        return Err(format!(
            "it announces {length}, at most {most} are taken",
            length = counted(length, "byte")
        )
        .into());
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    compare(number(12), body)?;
    let word = match kind {
        SAID => {
            let payload = wire::decode(body, limits).map_err(|error| error.to_string())?;
            Word::Said { epoch, payload }
        }
        END => Word::End(serde_json::from_slice(body).map_err(|error| error.to_string())?),
        WAITS => Word::Waits(serde_json::from_slice(body).map_err(|error| error.to_string())?),
        LEFT => {
            let (pairs, rest) = body.as_chunks::<16>();
            if !rest.is_empty() {
                return Err("its list ends within an entry".to_owned().into());
            }
            let pair = |pair: &[u8; 16]| {
                let (key, count) = pair.split_at(8);
                let number =
                    |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
                (Key(number(key)), number(count))
            };
            Word::Left(pairs.iter().map(pair).collect())
        }
        _ => Word::Alive(sign(body)?),
    };
    Ok(Some((word, HEAD + length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FaultKind;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_heard() {
        let mut bytes = Vec::new();
        let fault = Fault {
            kind: FaultKind::Died,
            rank: Some(3),
            tensor: Some("weight".to_owned()),
            what: "rank 3 is lost: ä".repeat(2000),
        };
        let progress = vec![Progress { key: Key(5), count: 6, at: 1 << 50 }; 3];
        let said = Sign { sent: 1, echo: 2, heard: u64::MAX, progress };
        alive(7, &said, &mut bytes);
        end(7, &fault, &mut bytes);
        let done = BTreeMap::from([(Key(5), 6), (Key(u64::MAX), 1)]);
        left(7, done.clone().into_iter(), &mut bytes);
        let waited = vec!["lo\0ss".to_owned(), "call 7".to_owned()];
        waits(7, &waited, &mut bytes);
        let mut words = Vec::new();
        let mut rest = &bytes[..];
        while let Some((word, length)) = next(rest, &Limits::default()).expect("words") {
            words.push(word);
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        let [Word::Alive(sign), Word::End(heard), Word::Left(counts), Word::Waits(texts)] =
            &words[..]
        else {
            panic!()
        };
        assert_eq!(texts, &waited);
        assert_eq!(sign, &said);
        assert!(fault.what.starts_with(&heard.what) && heard.rank == Some(3));
        assert_eq!(counts, &done);
        assert_eq!(next(&bytes[..19], &Limits::default()), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_words_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0u8..8,
            short in 0u8..64,
        ) {
            let _ = next(&bytes, &Limits::default());
            // With right checksums, more of it is read.
            let body = &bytes[..bytes.len().min(usize::from(short))];
            let mut begin = Vec::new();
            word(kind, 0, body, &mut begin);
            if let Ok(Some((_, length))) = next(&begin, &Limits::default()) {
                prop_assert_eq!(length, HEAD + body.len());
            }
        }

        #[test]
        fn one_wrong_bit_is_seen_before_more_bytes_are_waited_for(
            numbers in any::<[u64; 3]>(),
            more in proptest::collection::vec(any::<u64>(), 0..9),
            bit in any::<proptest::sample::Index>(),
        ) {
            let [sent, echo, heard] = numbers;
            let one = |at: &u64| Progress { key: Key(*at), count: 1, at: *at };
            let mut bytes = Vec::new();
            let progress = more.iter().map(one).collect();
            alive(3, &Sign { sent, echo, heard, progress }, &mut bytes);
            let bit = bit.index(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(next(&bytes, &Limits::default()).is_err());
        }
    }
}
