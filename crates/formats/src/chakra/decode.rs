//! A message of a file as a [`Record`].
//!
//! Read with protobuf's low-level decoding, since building every attribute as an object costs several
//! allocations a node; a test holds it to the generated code. Unknown fields and attributes are skipped.

use super::attribute::attribute;
use super::record::{Kind, Record, Schema, renumbered};
use super::wire::{Field, fields, numbers};

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::chakra::proto::attribute_proto::Value as Written;
    use crate::chakra::proto::{
        AttributeProto, BoolList, GlobalMetadata, IoInfo, Node, Uint64List,
    };
    use crate::chakra::record::schema;

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
