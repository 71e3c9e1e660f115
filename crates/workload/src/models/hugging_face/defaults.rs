//! What the configuration classes of `transformers` fill in where a file says nothing: data, one line a type.
//!
//! `benches/hugging_face --defaults` writes the file from the classes; nothing of the library is needed to read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::{Map as Object, Value};

/// The text model of a type of several parts.
#[derive(Deserialize)]
pub(super) struct Part {
    /// Where it stands.
    pub(super) key: String,
    /// Its type, where the file leaves it out.
    pub(super) kind: String,
    /// Whether the whole ties its tables; none where its text model says it alone.
    pub(super) tied: Option<bool>,
    /// Whether the whole also does where its text model says so.
    pub(super) forwards: bool,
    /// What the whole fills in otherwise than the text model's class.
    pub(super) with: Object<String, Value>,
}

#[derive(Deserialize)]
struct Defaults {
    types: BTreeMap<String, Object<String, Value>>,
    parts: BTreeMap<String, Part>,
    /// Types of the library that no row describes.
    others: BTreeSet<String>,
}

fn all() -> &'static Defaults {
    static READ: OnceLock<Defaults> = OnceLock::new();
    READ.get_or_init(|| {
        serde_json::from_str(include_str!("defaults.json")).expect("a file of this crate")
    })
}

/// Of a type of model.
pub(super) fn of(kind: &str) -> Option<&'static Object<String, Value>> {
    all().types.get(kind)
}

/// Whether the library has the type, and no row describes its layers.
pub(super) fn is_other(kind: &str) -> bool {
    all().others.contains(kind)
}

/// Of a type of several parts.
pub(super) fn part(kind: &str) -> Option<&'static Part> {
    all().parts.get(kind)
}
