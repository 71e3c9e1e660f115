//! A policy of this network model by its tag: what a list, a key of files and a schema need of it.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A kind of policy: a folder with a list.
pub trait Listed: Sync + 'static {
    /// The key in files.
    const KEY: &'static str;

    /// All of the folder.
    fn all() -> &'static [&'static Self];

    /// The tag in files.
    fn tag(&self) -> &'static str;

    /// One line for the docs.
    fn about(&self) -> &'static str;
}

/// One of a list; files have its tag.
pub struct Chosen<P: ?Sized + 'static>(pub &'static P);

impl<P: ?Sized> Clone for Chosen<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Chosen<P> {}

impl<P: ?Sized> std::ops::Deref for Chosen<P> {
    type Target = P;

    fn deref(&self) -> &P {
        self.0
    }
}

impl<P: Listed + ?Sized> PartialEq for Chosen<P> {
    fn eq(&self, other: &Self) -> bool {
        self.tag() == other.tag()
    }
}

impl<P: Listed + ?Sized> fmt::Debug for Chosen<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tag())
    }
}

impl<P: Listed + ?Sized> Serialize for Chosen<P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.tag())
    }
}

impl<'de, P: Listed + ?Sized> Deserialize<'de> for Chosen<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        P::all().iter().copied().find(|policy| policy.tag() == name).map(Self).ok_or_else(|| {
            let known: Vec<String> =
                P::all().iter().map(|one| format!("`{}`", one.tag())).collect();
            D::Error::custom(format!("{} `{name}` is none of {}", P::KEY, known.join(", ")))
        })
    }
}

impl<P: Listed + ?Sized> JsonSchema for Chosen<P> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        P::KEY.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = |policy: &&P| json_schema!({ "type": "string", "const": policy.tag(), "description": policy.about() });
        let all: Vec<Schema> = P::all().iter().map(one).collect();
        json_schema!({ "oneOf": all })
    }
}
