//! A topology's line in the list of all: its tag, how its keys are read, and examples of them.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failed;
use super::topology::GraphTopology;

/// A topology's line in the list. Every topology but `graph`, which has names, takes `failed_nodes`
/// and `failed_links` beside its own keys.
pub struct Entry {
    /// The tag in fabric files.
    pub tag: &'static str,
    /// One line for help pages.
    pub about: &'static str,
    pub(super) read: fn(Value) -> Result<Box<dyn GraphTopology>, serde_json::Error>,
    /// The JSON schema of its keys, `topology` not among them.
    pub schema: fn() -> schemars::Schema,
    /// Keys of small instances, as JSON: every law of topologies is tried on them.
    pub examples: &'static [&'static str],
    /// Whether its nodes and links may stand in a file of their own, which `file` names.
    pub in_a_file: bool,
}

pub(super) const fn entry<T>(
    tag: &'static str,
    about: &'static str,
    examples: &'static [&'static str],
) -> Entry
where
    T: GraphTopology + DeserializeOwned + JsonSchema + 'static,
{
    Entry {
        tag,
        about,
        read: failed::read::<T>,
        schema: failed::schema::<T>,
        examples,
        in_a_file: false,
    }
}
