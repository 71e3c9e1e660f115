//! The attributes of a node: a name and a value, whose type is in its field's number.

use super::record::{Record, Schema, renumbered};
use super::wire::{Field, fields};

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

pub(super) fn attribute<'a>(
    schema: Schema,
    message: &'a [u8],
    node: &mut Record<'a>,
) -> Result<(), String> {
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
