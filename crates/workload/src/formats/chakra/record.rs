//! A node of a trace in one form, whichever version of the schema wrote it.
//!
//! | version | first message | kinds | dependencies | attributes |
//! |---|---|---|---|---|
//! | [`Schema::Current`] (MLCommons, since 2024) | metadata with a version | as in `et_def.proto` | `ctrl_deps`, `data_deps` | named, one value each |
//! | [`Schema::Attributes`] (2023) | metadata of attributes | the same | `parent` | named and typed |
//! | [`Schema::Fields`] (2022) | none | one fewer before COMP | `parent` | fields of the node |
//!
//! The numbers of collectives differ, too. Read with protobuf's low-level decoding, since building
//! every attribute as an object costs several allocations a node; a test holds it to the generated
//! code. Unknown fields and attributes are skipped.

use super::wire::{Field, fields, numbers};

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

/// Reads a node; its dependencies go to `after`, which is emptied first.
pub(super) fn read<'a>(
    schema: Schema,
    recorded: bool,
    message: &'a [u8],
    after: &mut Vec<u64>,
) -> Result<Record<'a>, String> {
    after.clear();
    let mut node = Record::default();
    fields(message, |tag, field| {
        match (tag, schema) {
            (1, _) => node.id = field.number(),
            (2, _) => node.name = text(field)?,
            (3, _) => node.kind = kind(schema, field.number().unwrap_or_default()),
            (4, Schema::Current) if recorded => {}
            (4, _) | (5, Schema::Current) => numbers(field, |id| after.push(id))?,
            (7, Schema::Current) => node.duration = field.number().unwrap_or_default(),
            (10, Schema::Current) | (11, Schema::Attributes) => {
                if let Some(bytes) = field.bytes() {
                    attribute(schema, bytes, &mut node)?;
                }
            }
            (_, Schema::Fields) => plain(tag, field, &mut node),
            _ => {}
        }
        Ok(())
    })?;
    Ok(node)
}

fn text(field: Field<'_>) -> Result<&str, String> {
    let bytes = field.bytes().unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|_| "its name is not UTF-8".to_owned())
}

fn kind(schema: Schema, number: u64) -> Kind {
    match (schema, number) {
        (_, 0) => Kind::Invalid,
        (Schema::Fields, 1 | 2) | (_, 2) => Kind::Load,
        (_, 1) => Kind::Metadata,
        (_, 3) => Kind::Store,
        (_, 4) => Kind::Compute,
        (_, 5) => Kind::Send,
        (_, 6) => Kind::Receive,
        (_, 7) => Kind::Collective,
        (_, other) => Kind::Other(u32::try_from(other).unwrap_or(u32::MAX)),
    }
}

/// A collective's number in the current schema.
fn renumbered(schema: Schema, number: u64) -> u64 {
    const ATTRIBUTES: [u64; 5] = [0, 6, 2, 7, 5];
    const FIELDS: [u64; 5] = [u64::MAX, 0, 6, 2, 7];
    let table = match schema {
        Schema::Current => return number,
        Schema::Attributes => ATTRIBUTES,
        Schema::Fields => FIELDS,
    };
    usize::try_from(number).ok().and_then(|i| table.get(i).copied()).unwrap_or(u64::MAX)
}

/// A field of the schema without attributes.
fn plain<'a>(tag: u32, field: Field<'a>, node: &mut Record<'a>) {
    let number = field.number();
    match tag {
        6 => node.tensor_bytes = number,
        7 => node.duration = number.unwrap_or_default(),
        12 => node.operations = number,
        13 => node.collective = number.map(|number| renumbered(Schema::Fields, number)),
        14 => node.involved = field.bytes(),
        16 => node.source = number,
        17 => node.destination = number,
        18 => node.bytes = number,
        19 => node.tag = number,
        _ => {}
    }
}

/// The value of an attribute.
#[derive(Clone, Copy)]
enum Value<'a> {
    None,
    Number(u64),
    Text(&'a [u8]),
    /// A message with packed values.
    List(&'a [u8]),
}

impl<'a> Value<'a> {
    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            // Some writers give numbers as text.
            Self::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// What is beyond its range is at the end of it.
    fn signed(self) -> i32 {
        // Negative numbers are written as 64 bits.
        let number = self.number().unwrap_or_default().cast_signed();
        number.clamp(i32::MIN.into(), i32::MAX.into()) as i32
    }

    fn flag(self) -> bool {
        self.number().is_some_and(|number| number != 0)
    }

    /// The packed values of a list.
    fn packed(self) -> Option<&'a [u8]> {
        let Self::List(message) = self else { return None };
        let mut packed = None;
        fields(message, |tag, field| {
            if tag == 1 {
                packed = packed.or(field.bytes());
            }
            Ok(())
        })
        .ok()?;
        packed
    }
}

fn attribute<'a>(schema: Schema, message: &'a [u8], node: &mut Record<'a>) -> Result<(), String> {
    let mut name: &[u8] = &[];
    let mut value = Value::None;
    fields(message, |tag, field| {
        match (schema, tag, field) {
            (_, 1, Field::Bytes(bytes)) => name = bytes,
            (Schema::Current, 15 | 17, Field::Varint(number)) => {
                value = Value::Number((number >> 1) ^ (number & 1).wrapping_neg());
            }
            (Schema::Current, 3, Field::Fixed64(bits)) => {
                value = Value::Number(whole(f64::from_bits(bits)));
            }
            (Schema::Current, 5, Field::Fixed32(bits))
            | (Schema::Attributes, 5, Field::Fixed32(bits)) => {
                value = Value::Number(whole(f64::from(f32::from_bits(bits))));
            }
            (Schema::Current, 29, Field::Bytes(bytes))
            | (Schema::Attributes, 8, Field::Bytes(bytes)) => value = Value::Text(bytes),
            (Schema::Current, 14 | 28, Field::Bytes(bytes)) => value = Value::List(bytes),
            (Schema::Current, 7..=25 | 27, _) | (Schema::Attributes, 4 | 6 | 7, _) => {
                if let Some(number) = field.number() {
                    value = Value::Number(number);
                }
            }
            (Schema::Attributes, 9, Field::Bytes(_)) => {
                node.involved = node.involved.or(field.bytes());
            }
            _ => {}
        }
        Ok(())
    })?;
    match name {
        b"comm_type" => node.collective = value.number().map(|number| renumbered(schema, number)),
        b"comm_size" => node.bytes = value.number(),
        b"comm_src" => node.source = value.number(),
        b"comm_dst" => node.destination = value.number(),
        b"comm_tag" => node.tag = value.number(),
        b"comm_priority" => node.priority = value.signed(),
        b"pg_name" | b"comm_group" => node.group = value.text().filter(|name| !name.is_empty()),
        b"involved_dim" => node.involved = value.packed().or(node.involved),
        b"is_cpu_op" => node.on_cpu = value.flag(),
        b"stream" => node.stream = value.number(),
        b"num_ops" => node.operations = value.number(),
        b"tensor_size" => node.tensor_bytes = value.number(),
        b"runtime" => node.duration = value.number().unwrap_or_default(),
        b"allrail_ps" => node.picoseconds = value.number(),
        b"allrail_purpose" => node.ours.purpose = value.text(),
        b"allrail_pass" => node.ours.pass = value.text(),
        b"allrail_tensor" => node.ours.tensor = value.number(),
        b"allrail_delay" => node.ours.delay = value.flag(),
        b"allrail_measured" => node.ours.measured = value.flag(),
        b"allrail_urgent" => node.ours.urgent = value.flag(),
        b"allrail_second" => node.ours.second = value.flag(),
        b"allrail_previous" => node.ours.previous = value.packed(),
        _ => {}
    }
    Ok(())
}

/// A float as a whole number; what is negative or too large is the nearest that there is.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::formats::chakra::proto::attribute_proto::Value as Written;
    use crate::formats::chakra::proto::{
        AttributeProto, BoolList, GlobalMetadata, IoInfo, Node, Uint64List,
    };

    fn attribute(name: &str, value: Written) -> AttributeProto {
        AttributeProto { name: name.to_owned(), doc_string: "said".to_owned(), value: Some(value) }
    }

    fn numbers_of() -> impl Strategy<Value = Written> {
        prop_oneof![
            (0..i32::MAX).prop_map(Written::Int32Val),
            (0..i64::MAX).prop_map(Written::Int64Val),
            any::<u32>().prop_map(Written::Uint32Val),
            any::<u64>().prop_map(Written::Uint64Val),
            (0..i32::MAX).prop_map(Written::Sint32Val),
            (0..i64::MAX).prop_map(Written::Sint64Val),
            any::<u32>().prop_map(Written::Fixed32Val),
            any::<u64>().prop_map(Written::Fixed64Val),
            (0u32..1 << 20).prop_map(|value| Written::DoubleVal(f64::from(value))),
            (0u16..1000).prop_map(|value| Written::FloatVal(f32::from(value))),
            any::<u64>().prop_map(|value| Written::StringVal(value.to_string())),
        ]
    }

    fn number(value: &Written) -> Option<u64> {
        Some(match value {
            Written::Int32Val(value) | Written::Sint32Val(value) => u64::try_from(*value).ok()?,
            Written::Int64Val(value) | Written::Sint64Val(value) => u64::try_from(*value).ok()?,
            Written::Uint32Val(value) | Written::Fixed32Val(value) => u64::from(*value),
            Written::Uint64Val(value) | Written::Fixed64Val(value) => *value,
            Written::DoubleVal(value) => *value as u64,
            Written::FloatVal(value) => *value as u64,
            Written::StringVal(value) => value.parse().ok()?,
            _ => return None,
        })
    }

    proptest! {
        /// What prost's generated code writes is what is read.
        #[test]
        fn a_node_is_read_as_prost_writes_it(
            id in any::<u64>(),
            name in "[a-zä:_/ ]{0,20}",
            kind in 0i32..8,
            control in prop::collection::vec(any::<u64>(), 0..4),
            data in prop::collection::vec(any::<u64>(), 0..4),
            duration in any::<u64>(),
            bytes in numbers_of(),
            collective in numbers_of(),
            peers in (0..i32::MAX, 0..i32::MAX),
            group in "[a-z0-9]{1,4}",
            involved in prop::collection::vec(any::<bool>(), 1..5),
            previous in prop::collection::vec(any::<u64>(), 1..4),
            on_cpu in any::<bool>(),
        ) {
            let written = Node {
                id,
                name: name.clone(),
                r#type: kind,
                ctrl_deps: control.clone(),
                data_deps: data.clone(),
                start_time_micros: 7,
                duration_micros: duration,
                inputs: Some(IoInfo { values: "[1]".into(), ..IoInfo::default() }),
                outputs: None,
                attr: vec![
                    attribute("unknown", Written::StringVal("x".into())),
                    attribute("comm_size", bytes.clone()),
                    attribute("comm_type", collective.clone()),
                    attribute("comm_src", Written::Int32Val(peers.0)),
                    attribute("comm_dst", Written::Int32Val(peers.1)),
                    attribute("pg_name", Written::StringVal(group.clone())),
                    attribute("involved_dim", Written::BoolList(BoolList { values: involved.clone() })),
                    attribute("is_cpu_op", Written::BoolVal(on_cpu)),
                    attribute("allrail_previous", Written::Uint64List(Uint64List { values: previous.clone() })),
                ],
            }
            .encode_to_vec();
            let mut after = Vec::new();
            let node = read(Schema::Current, false, &written, &mut after).expect("a node");
            prop_assert_eq!(node.id.unwrap_or_default(), id);
            prop_assert_eq!(node.name, name);
            prop_assert_eq!(node.kind, super::kind(Schema::Current, kind as u64));
            prop_assert_eq!(&after, &[control, data.clone()].concat());
            // Recorded from PyTorch, it waits for data alone.
            read(Schema::Current, true, &written, &mut after).expect("a node");
            prop_assert_eq!(&after, &data);
            prop_assert_eq!(node.duration, duration);
            prop_assert_eq!(node.bytes, number(&bytes));
            prop_assert_eq!(node.collective, number(&collective));
            prop_assert_eq!(node.source, Some(peers.0 as u64));
            prop_assert_eq!(node.destination, Some(peers.1 as u64));
            prop_assert_eq!(node.group, Some(group.as_str()));
            let flags: Vec<u8> = involved.iter().map(|flag| u8::from(*flag)).collect();
            prop_assert_eq!(node.involved, Some(flags.as_slice()));
            prop_assert_eq!(node.on_cpu, on_cpu);
            let mut packed = node.ours.previous.expect("a list");
            for id in previous {
                prop_assert_eq!(prost::encoding::decode_varint(&mut packed).expect("a number"), id);
            }
        }

        /// Whatever the bytes are, reading ends with a node or an error.
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut after = Vec::new();
            for version in [Schema::Current, Schema::Attributes, Schema::Fields] {
                let _ = read(version, false, &bytes, &mut after);
            }
            let _ = schema(&bytes);
        }
    }

    #[test]
    fn versions_are_told_apart_by_the_first_message() {
        let metadata = GlobalMetadata { version: "0.0.4".into(), attr: Vec::new() };
        assert_eq!(schema(&metadata.encode_to_vec()), Ok(Schema::Current));
        assert_eq!(schema(&[]), Ok(Schema::Current));
        // A node whose field 1 is the number 3, and metadata whose field 1 is an attribute `a`.
        assert_eq!(schema(&[0x08, 3]), Ok(Schema::Fields));
        assert_eq!(schema(&[0x0a, 3, 0x0a, 1, b'a']), Ok(Schema::Attributes));
    }

    #[test]
    fn older_versions_number_kinds_and_collectives_otherwise() {
        // id 1, name `a`, COMM_COLL_NODE, waits for 0, ALL_TO_ALL of 5 bytes.
        let fields = [8, 1, 0x12, 1, b'a', 0x18, 7, 0x20, 0, 0x68, 2, 0x90, 1, 5];
        let mut after = Vec::new();
        let node = read(Schema::Fields, false, &fields, &mut after).expect("a node");
        assert_eq!((node.kind, node.collective, node.bytes), (Kind::Collective, Some(6), Some(5)));
        assert_eq!(after, [0]);
        // The same with attributes: `comm_type` 1 and `comm_size` 5, as INT and UINT.
        let attribute = |name: &str, tag: u8, value: u8| {
            let mut bytes = vec![0x0a, u8::try_from(name.len()).expect("short")];
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&[0x10, 3, tag, value]);
            let mut field = vec![0x5a, u8::try_from(bytes.len()).expect("short")];
            field.append(&mut bytes);
            field
        };
        let mut message = vec![8, 1, 0x12, 1, b'a', 0x18, 7, 0x20, 0];
        message.extend(attribute("comm_type", 0x38, 1));
        message.extend(attribute("comm_size", 0x30, 5));
        let node = read(Schema::Attributes, false, &message, &mut after).expect("a node");
        assert_eq!((node.kind, node.collective, node.bytes), (Kind::Collective, Some(6), Some(5)));
    }
}
