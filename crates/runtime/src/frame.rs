//! A data frame: a header of 72 bytes, little-endian, the elements of one message, and their checksum.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 2 | `ar` |
//! | 2 | 1 | [`VERSION`] of this form |
//! | 3 | 1 | kind: 1, elements of a message |
//! | 4 | 4 | epoch: how often the job was restarted |
//! | 8 | 4 | process group |
//! | 12 | 4 | part: which partition of the tensor |
//! | 16 | 8 | key of the tensor, or number of the call |
//! | 24 | 8 | generation: how often it was exchanged before |
//! | 32 | 4 | chunk of the plan |
//! | 36 | 4 | stage of the chunk |
//! | 40 | 4 | step of the stage |
//! | 44 | 4 | from: the sender's rank |
//! | 48 | 4 | index: tells several of one sender in one step apart |
//! | 52 | 4 | CRC-32C of all the others, these four as zeros |
//! | 56 | 8 | signature of what the sender exchanges under this name |
//! | 64 | 8 | length of the elements that follow, in bytes |
//!
//! A header is whole in itself: what a frame belongs to does not depend on what came before, so frames of
//! different operations may follow each other on one connection in any order. It is read before memory is
//! taken for what follows it. Behind the elements comes their CRC-32C, four bytes, where frames are checked and
//! the link does not protect them itself ([`checksum`](crate::checksum)). Checksums tell a stream that is out of
//! step, or that has lost a bit; they are no protection against anyone who means harm (connections are
//! authenticated when they are made).
//!
//! ```
//! use allrail_runtime::frame::{Header, Limits};
//! let header = Header { signature: 7, length: 4096, ..Header::default() };
//! let bytes = header.to_bytes();
//! assert_eq!(Header::parse(&bytes, &Limits { length: 4096 }), Ok(header));
//! assert!(Header::parse(&bytes, &Limits { length: 4095 }).is_err());
//! ```

use allrail_core::counted;
use allrail_engine::{FrameAt, FrameName};
use allrail_schedule::{Key, OperationName};
use thiserror::Error;

use crate::checksum::crc32c;

/// The form that this build writes and reads.
pub const VERSION: u8 = 2;
/// Bytes of a header.
pub const HEADER: usize = 72;
/// How every frame begins, whatever its version.
pub(crate) const MAGIC: [u8; 2] = *b"ar";
const ELEMENTS: u8 = 1;

/// What a data frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it belongs to.
    pub name: FrameName,
    /// The fingerprint of what the sender exchanges under this name.
    pub signature: u64,
    /// Bytes of the elements that follow.
    pub length: u64,
}

impl Default for Header {
    fn default() -> Self {
        let at = FrameAt { stage: 0, step: 0, from: 0, index: 0 };
        let name = FrameName { operation: OperationName::default(), chunk: 0, at };
        Self { name, signature: 0, length: 0 }
    }
}

/// How much a frame may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes after the header, at most.
    pub length: u64,
}

/// Why bytes are no header. The connection cannot be read on: where the next frame begins is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadFrame {
    /// It does not begin as frames do.
    #[error("it begins with {0:02x?}, which is no frame of allrail")]
    Magic([u8; 2]),
    /// Another build wrote it.
    #[error("the frame has version {found}, this build reads version {VERSION}")]
    Version {
        /// As it says.
        found: u8,
    },
    /// No kind of frame that is known.
    #[error("frames of kind {0} are not known")]
    Kind(u8),
    /// A bit is wrong somewhere.
    #[error("its header has the checksum {found:08x}, and the bytes that came have {wanted:08x}")]
    Checksum {
        /// As it says.
        found: u32,
        /// As it should.
        wanted: u32,
    },
    /// A bit is wrong somewhere in its elements, or in their checksum.
    #[error(
        "its elements have the checksum {found:08x}, and the bytes that came have {wanted:08x}"
    )]
    Elements {
        /// As it says.
        found: u32,
        /// As it should.
        wanted: u32,
    },
    /// It announces more than any frame of this job has, or nothing.
    #[error(
        "the frame announces {length}; 1 to {most} are taken",
        length = counted(*.length, "byte")
    )]
    Length {
        /// As it says.
        length: u64,
        /// As allowed.
        most: u64,
    },
    /// Memory that is shared with a peer cannot hold what it is said to hold.
    #[error(
        "the memory shared with it holds {most}, and it says that {unread} are unread",
        most = counted(*.most, "byte")
    )]
    Ring {
        /// As it says.
        unread: u64,
        /// As there is room.
        most: u64,
    },
}

/// Where the checksum lies; it counts as zero in itself.
const CHECKSUM: std::ops::Range<usize> = 52..56;

fn checksum(bytes: &[u8; HEADER]) -> u32 {
    let mut without = *bytes;
    without[CHECKSUM].fill(0);
    crc32c(&without)
}

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (now, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        self.0 = rest;
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (now, rest) = self.0.split_first_chunk().unwrap_or((&[0; N], &[]));
        self.0 = rest;
        *now
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

impl BadFrame {
    /// Whether bits have changed on their way, or the stream is out of step: what has come is not what was sent.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Self::Checksum { .. } | Self::Elements { .. } | Self::Magic(_))
    }
}

impl Header {
    /// As it goes before the elements.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER] {
        let Self { name: FrameName { operation, chunk, at }, signature, length } = *self;
        let mut bytes = [0; HEADER];
        let mut to = Writer(&mut bytes);
        to.put(&MAGIC);
        to.put(&[VERSION, ELEMENTS]);
        for word in [operation.epoch, operation.group, operation.part] {
            to.put(&word.to_le_bytes());
        }
        for long in [operation.key.0, operation.generation] {
            to.put(&long.to_le_bytes());
        }
        // A zero where the checksum comes.
        for word in [chunk, at.stage, at.step, at.from, at.index, 0] {
            to.put(&word.to_le_bytes());
        }
        for long in [signature, length] {
            to.put(&long.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Whatever is no header within the limits.
    pub fn parse(bytes: &[u8; HEADER], limits: &Limits) -> Result<Self, BadFrame> {
        let mut from = Reader(bytes);
        let magic = from.take();
        if magic != MAGIC {
            return Err(BadFrame::Magic(magic));
        }
        let [version, kind] = from.take();
        if version != VERSION {
            return Err(BadFrame::Version { found: version });
        }
        let [epoch, group, part] = [from.word(), from.word(), from.word()];
        let [key, generation] = [from.long(), from.long()];
        let [chunk, stage, step, sender, index, found] = std::array::from_fn(|_| from.word());
        let [signature, length] = [from.long(), from.long()];
        let wanted = checksum(bytes);
        if found != wanted {
            return Err(BadFrame::Checksum { found, wanted });
        }
        if kind != ELEMENTS {
            return Err(BadFrame::Kind(kind));
        }
        if length == 0 || length > limits.length {
            return Err(BadFrame::Length { length, most: limits.length });
        }
        let operation = OperationName { epoch, group, key: Key(key), generation, part };
        let at = FrameAt { stage, step, from: sender, index };
        Ok(Self { name: FrameName { operation, chunk, at }, signature, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { length: 1 << 40 };

    prop_compose! {
        fn any_header()(
            words in any::<[u32; 8]>(),
            longs in any::<[u64; 3]>(),
            length in 1..LIMITS.length,
        ) -> Header {
            let [epoch, group, part, chunk, stage, step, from, index] = words;
            let [key, generation, signature] = longs;
            let operation = OperationName { epoch, group, key: Key(key), generation, part };
            let at = FrameAt { stage, step, from, index };
            Header { name: FrameName { operation, chunk, at }, signature, length }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in any_header()) {
            prop_assert_eq!(Header::parse(&header.to_bytes(), &LIMITS), Ok(header));
        }

        #[test]
        fn one_wrong_bit_is_seen(header in any_header(), bit in 0..8 * HEADER) {
            let mut bytes = header.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::parse(&bytes, &LIMITS).is_err());
        }

        #[test]
        fn any_bytes_are_a_header_within_limits_or_an_error(
            bytes in any::<[u8; HEADER]>(),
            kept in 0usize..5,
            most in any::<u64>(),
        ) {
            // With a right beginning, and a right checksum, more of it is read.
            let mut bytes = bytes;
            let begin = [MAGIC[0], MAGIC[1], VERSION, ELEMENTS];
            bytes[..kept.min(4)].copy_from_slice(&begin[..kept.min(4)]);
            if kept >= 4 {
                let sum = checksum(&bytes);
                bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
            }
            if let Ok(header) = Header::parse(&bytes, &Limits { length: most }) {
                prop_assert!((1..=most).contains(&header.length));
                prop_assert_eq!(header.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_header_lies_as_documented() {
        let operation = OperationName {
            epoch: 1,
            group: 2,
            key: Key(0x0102_0304_0506_0708),
            generation: 4,
            part: 3,
        };
        let at = FrameAt { stage: 6, step: 7, from: 8, index: 9 };
        let name = FrameName { operation, chunk: 5, at };
        let bytes = Header { name, signature: 10, length: 11 }.to_bytes();
        assert_eq!(bytes[..16], [b'a', b'r', 2, 1, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes[16..32], [8, 7, 6, 5, 4, 3, 2, 1, 4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..48], [5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!((bytes[48], bytes[56], bytes[64]), (9, 10, 11));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let limits = Limits { length: 100 };
        let good = Header { length: 100, ..Header::default() };
        let parse = |change: &dyn Fn(&mut [u8; HEADER])| {
            let mut bytes = good.to_bytes();
            change(&mut bytes);
            let sum = checksum(&bytes);
            bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
            Header::parse(&bytes, &limits)
        };
        assert_eq!(parse(&|_| {}), Ok(good));
        assert_eq!(parse(&|bytes| bytes[0] = b'G'), Err(BadFrame::Magic(*b"Gr")));
        assert_eq!(parse(&|bytes| bytes[2] = 9), Err(BadFrame::Version { found: 9 }));
        assert_eq!(parse(&|bytes| bytes[3] = 9), Err(BadFrame::Kind(9)));
        let length = |length| Err(BadFrame::Length { length, most: 100 });
        assert_eq!(parse(&|bytes| bytes[64] = 101), length(101));
        assert_eq!(parse(&|bytes| bytes[64] = 0), length(0));
        assert_eq!(parse(&|bytes| bytes[71] = 255), length(255 << 56 | 100));
        let mut bytes = good.to_bytes();
        bytes[52] ^= 1;
        assert!(matches!(Header::parse(&bytes, &limits), Err(BadFrame::Checksum { .. })));
    }
}
