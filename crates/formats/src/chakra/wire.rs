//! A file of length-delimited protobuf messages, one at a time.
//!
//! Each message is its length as a varint and then so many bytes. The file is read in pieces of a
//! mebibyte; a message is handed out as a slice of the piece, without a copy.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use allrail_core::{counted, either};
use prost::encoding::{WireType, decode_key, decode_varint, skip_field};

use super::error::TraceError;

const PIECE: usize = 1 << 20;

/// A message longer than this is a corrupt length.
const LONGEST: u64 = 1 << 28;

/// See the module.
pub struct Messages {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    /// The unread bytes are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Where `buffer[start]` is in the file.
    offset: u64,
}

impl Messages {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|error| TraceError::unreadable(path, &error))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            buffer: vec![0; PIECE],
            start: 0,
            end: 0,
            offset: 0,
        })
    }

    /// Where the next message begins, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next message; `None` at the end of the file.
    ///
    /// # Errors
    /// The file ends within a message, or its length is impossible.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, TraceError> {
        if self.end - self.start < 10 {
            self.fill(10)?;
        }
        if self.start == self.end {
            return Ok(None);
        }
        let mut rest = &self.buffer[self.start..self.end];
        let before = rest.len();
        let length = match decode_varint(&mut rest) {
            Ok(length) if length <= LONGEST => length,
            Ok(length) => {
                return Err(self.wrong(format!(
                    "a message of {length} is announced",
                    length = counted(length, "byte")
                )));
            }
            Err(_) if before < 10 => return Err(self.truncated("within the length of a message")),
            Err(error) => return Err(self.wrong(format!("a length is unreadable: {error}"))),
        };
        let head = before - rest.len();
        let whole = head + usize::try_from(length).expect("at most 2^28");
        if self.end - self.start < whole {
            self.fill(whole)?;
        }
        if self.end - self.start < whole {
            let there = self.end - self.start - head;
            return Err(self.truncated(&format!(
                "within a message: {there} of {length} {are} there",
                length = counted(length, "byte"),
                are = either(&length, "is", "are")
            )));
        }
        let from = self.start + head;
        self.start += whole;
        self.offset += whole as u64;
        Ok(Some(&self.buffer[from..self.start]))
    }

    /// Reads until `wanted` bytes are unread, or the file ends.
    fn fill(&mut self, wanted: usize) -> Result<(), TraceError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < wanted.max(PIECE) {
            self.buffer.resize(wanted.max(PIECE), 0);
        }
        while self.end < wanted {
            let read = self
                .file
                .read(&mut self.buffer[self.end..])
                .map_err(|error| TraceError::unreadable(&self.path, &error))?;
            if read == 0 {
                break;
            }
            self.end += read;
        }
        Ok(())
    }

    fn truncated(&self, how: &str) -> TraceError {
        TraceError::new(
            &self.path,
            format!("byte {}", self.offset),
            format!("the file ends {how}"),
            "is it copied whole?",
        )
    }

    fn wrong(&self, why: String) -> TraceError {
        TraceError::new(
            &self.path,
            format!("byte {}", self.offset),
            why,
            "a Chakra trace is a file of length-delimited protobuf messages: `NAME.<rank>.et`",
        )
    }
}

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    /// A whole number, however it is packed.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Varint(value) | Self::Fixed64(value) => Some(value),
            Self::Fixed32(value) => Some(u64::from(value)),
            Self::Bytes(_) => None,
        }
    }

    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Hands each field of a message to `take`.
///
/// # Errors
/// In words: what is malformed.
pub(super) fn fields<'a>(
    mut message: &'a [u8],
    mut take: impl FnMut(u32, Field<'a>) -> Result<(), String>,
) -> Result<(), String> {
    while !message.is_empty() {
        let (tag, wire) = decode_key(&mut message).map_err(|error| error.to_string())?;
        let field = match wire {
            WireType::Varint => {
                Field::Varint(decode_varint(&mut message).map_err(|error| error.to_string())?)
            }
            WireType::LengthDelimited => {
                let length = decode_varint(&mut message).map_err(|error| error.to_string())?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let Some((head, tail)) = message.split_at_checked(length) else {
                    return Err(format!("field {tag} is longer than its message"));
                };
                message = tail;
                Field::Bytes(head)
            }
            WireType::SixtyFourBit => {
                let Some((head, tail)) = message.split_first_chunk() else {
                    return Err(format!("field {tag} is longer than its message"));
                };
                message = tail;
                Field::Fixed64(u64::from_le_bytes(*head))
            }
            WireType::ThirtyTwoBit => {
                let Some((head, tail)) = message.split_first_chunk() else {
                    return Err(format!("field {tag} is longer than its message"));
                };
                message = tail;
                Field::Fixed32(u32::from_le_bytes(*head))
            }
            WireType::StartGroup | WireType::EndGroup => {
                skip_field(wire, tag, &mut message, prost::encoding::DecodeContext::default())
                    .map_err(|error| error.to_string())?;
                continue;
            }
        };
        take(tag, field)?;
    }
    Ok(())
}

/// The numbers of a repeated field, packed or one.
pub(super) fn numbers(field: Field<'_>, mut take: impl FnMut(u64)) -> Result<(), String> {
    match field {
        Field::Bytes(mut packed) => {
            while !packed.is_empty() {
                take(decode_varint(&mut packed).map_err(|error| error.to_string())?);
            }
            Ok(())
        }
        other => {
            take(other.number().unwrap_or_default());
            Ok(())
        }
    }
}
