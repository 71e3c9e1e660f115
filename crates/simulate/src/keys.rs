//! The keys of a scenario: names, types, defaults, ranges and descriptions, as JSON schemas.
//!
//! The structs that scenarios are read into are the one place where these are written. Whoever checks
//! a scenario before it comes here reads them from this: Python's models are generated from it.
//!
//! Beside JSON schema's own words: `x-what` says what a choice is one of, `x-table` which of the core's
//! tables names it, `x-hint` what to write instead, `x-positive` that a quantity is above zero, and
//! `x-order` in which order a struct has its keys, which the schemas, being sorted, do not.

use allrail_fabric::{Dimension, Fabric};
use allrail_workload::spec::{
    CompressionSpec, Compute, Jitter, Parallelism, SlowLinks, SparseGradient, Straggler, Target,
    Workload,
};
use schemars::SchemaGenerator;
use serde::de::value::Error;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde_json::{Map, Value};

use crate::read::Form;
use crate::scenario::{
    Algorithms, Collective, Compat, GroupSchedule, MessageSettings, Schedule, Traffic,
};

/// The schema of everything that a scenario is made of, by the name of its type.
#[must_use]
pub fn keys() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    generator.subschema_for::<Form>();
    let mut definitions = generator.take_definitions(true);
    for (name, keys) in [
        ("Dimension", order::<Dimension>()),
        ("Fabric", order::<Fabric>()),
        ("Collective", order::<Collective>()),
        ("Compat", order::<Compat>()),
        ("GroupSchedule", order::<GroupSchedule>()),
        ("Schedule", order::<Schedule>()),
        ("Parallelism", order::<Parallelism>()),
        ("Compute", order::<Compute>()),
        ("Straggler", order::<Straggler>()),
        ("Jitter", order::<Jitter>()),
        ("CompressionSpec", order::<CompressionSpec>()),
        ("SlowLinks", order::<SlowLinks>()),
        ("SparseGradient", order::<SparseGradient>()),
        ("Target", order::<Target>()),
        ("Workload", order::<Workload>()),
        ("Algorithms", order::<Algorithms>()),
        ("MessageSettings", order::<MessageSettings>()),
        ("Traffic", order::<Traffic>()),
    ] {
        if let Some(definition) = definitions.get_mut(name) {
            definition["x-order"] = Value::from(keys);
        }
    }
    definitions
}

/// The keys of a struct, in its own order: what it asks a reader for.
fn order<'de, T: Deserialize<'de>>() -> Vec<&'static str> {
    let mut keys = Vec::new();
    // It is given nothing, so it fails; by then it has asked.
    let _ = T::deserialize(Asked(&mut keys));
    keys
}

/// A reader that has nothing to read and notes what it is asked for.
struct Asked<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.extend(fields);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
