//! A node of a trace in one form, whichever version of the schema wrote it.
//!
//! | version | first message | kinds | dependencies | attributes |
//! |---|---|---|---|---|
//! | [`Schema::Current`] (MLCommons, since 2024) | metadata with a version | as in `et_def.proto` | `ctrl_deps`, `data_deps` | named, one value each |
//! | [`Schema::Attributes`] (2023) | metadata of attributes | the same | `parent` | named and typed |
//! | [`Schema::Fields`] (2022) | none | one fewer before COMP | `parent` | fields of the node |
//!
//! The numbers of collectives differ, too. `decode` reads a node's fields, `attribute` its
//! attributes.

use super::wire::{Field, fields};

/// A version of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schema {
    /// See the module.
    Current,
    /// See the module.
    Attributes,
    /// See the module.
    Fields,
}

/// What a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    #[default]
    Invalid,
    Metadata,
    Load,
    Store,
    Compute,
    Send,
    Receive,
    Collective,
    Other(u32),
}

/// A collective by the current schema's number.
pub(super) const KINDS_OF_COLLECTIVE: [&str; 10] = [
    "ALL_REDUCE",
    "REDUCE",
    "ALL_GATHER",
    "GATHER",
    "SCATTER",
    "BROADCAST",
    "ALL_TO_ALL",
    "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK",
    "BARRIER",
];

/// A node as it stands in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Record<'a> {
    pub(super) id: Option<u64>,
    pub(super) name: &'a str,
    pub(super) kind: Kind,
    /// Microseconds.
    pub(super) duration: u64,
    /// The rest of the time that microseconds do not say, of a trace that we wrote.
    pub(super) picoseconds: Option<u64>,
    pub(super) operations: Option<u64>,
    pub(super) tensor_bytes: Option<u64>,
    /// By the current schema's number.
    pub(super) collective: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) group: Option<&'a str>,
    /// Which dimensions, as packed booleans.
    pub(super) involved: Option<&'a [u8]>,
    pub(super) source: Option<u64>,
    pub(super) destination: Option<u64>,
    pub(super) tag: Option<u64>,
    /// Higher goes first.
    pub(super) priority: i32,
    pub(super) on_cpu: bool,
    /// Of the accelerator, in whose order it runs.
    pub(super) stream: Option<u64>,
    pub(super) ours: Ours<'a>,
}

/// What we write beside the schema's attributes, so that a graph survives the round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ours<'a> {
    pub(super) purpose: Option<&'a str>,
    pub(super) pass: Option<&'a str>,
    pub(super) tensor: Option<u64>,
    pub(super) delay: bool,
    /// Of a delay: whether it is a communication of which only the time is known.
    pub(super) measured: bool,
    pub(super) urgent: bool,
    pub(super) second: bool,
    /// Packed: nodes of the iteration before.
    pub(super) previous: Option<&'a [u8]>,
}

/// Whether the first message of a file names a process: the trace was recorded from PyTorch and
/// converted. Then `ctrl_deps` are callers, of which the converter has left some out; what is waited
/// for stands in `data_deps` alone.
pub(super) fn of_a_process(first: &[u8]) -> bool {
    let mut found = false;
    let _ = fields(first, |tag, field| {
        if let (2, Field::Bytes(attribute)) = (tag, field) {
            let _ = fields(attribute, |tag, field| {
                found |= matches!((tag, field), (1, Field::Bytes(b"pid")));
                Ok(())
            });
        }
        Ok(())
    });
    found
}

/// The version by the first message of a file, and whether that message is metadata.
pub(super) fn schema(first: &[u8]) -> Result<Schema, String> {
    let mut found = Schema::Current;
    let mut seen = false;
    fields(first, |tag, field| {
        if !seen && tag == 1 {
            found = match field {
                Field::Varint(_) => Schema::Fields,
                // An attribute begins with its name, which is field 1; a version does not.
                Field::Bytes([0x0a, ..]) => Schema::Attributes,
                _ => Schema::Current,
            };
        }
        seen = true;
        Ok(())
    })?;
    Ok(found)
}

/// A collective's number in the current schema.
pub(super) fn renumbered(schema: Schema, number: u64) -> u64 {
    const ATTRIBUTES: [u64; 5] = [0, 6, 2, 7, 5];
    const FIELDS: [u64; 5] = [u64::MAX, 0, 6, 2, 7];
    let table = match schema {
        Schema::Current => return number,
        Schema::Attributes => ATTRIBUTES,
        Schema::Fields => FIELDS,
    };
    usize::try_from(number).ok().and_then(|i| table.get(i).copied()).unwrap_or(u64::MAX)
}
