//! What must be alike on all ranks of a job, by key.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Job;
use super::here::{Here, malformed};
use crate::error::RuntimeError;

/// Keys that each host may have otherwise.
const OF_A_HOST: [&str; 6] = ["interfaces", "port", "secret", "pin", "flight_recorder", "trace"];

impl Job {
    /// What must be alike on all ranks, by the name of the key: the file with its defaults, but for what each
    /// host has otherwise; the fabric and the plans that it names; the version of this build.
    ///
    /// # Errors
    /// None in practice: all of it is plain data.
    pub fn alike(&self, here: &Here) -> Result<BTreeMap<String, Value>, RuntimeError> {
        let mut tree = serde_json::to_value(self).map_err(|error| malformed(&error))?;
        if let Some(keys) = tree.as_object_mut() {
            keys.retain(|key, _| !OF_A_HOST.contains(&key.as_str()));
            keys.insert(
                "fabric".to_owned(),
                json!(here.fabric.as_ref().map(|one| &one.dimensions)),
            );
            let plans = (!here.plans.is_empty()).then(|| digest(&here.plans)).transpose()?;
            keys.insert("plan".to_owned(), json!(plans));
            if let Some(programs) = keys.get_mut("schedule").and_then(|one| one.get_mut("programs"))
            {
                *programs = json!(digest(&*programs)?);
            }
            keys.insert("allrail".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        }
        let mut flat = BTreeMap::new();
        flatten(String::new(), tree, &mut flat);
        Ok(flat)
    }
}

/// What long values are compared by.
fn digest(value: &impl Serialize) -> Result<String, RuntimeError> {
    let text = serde_json::to_string(value).map_err(|error| malformed(&error))?;
    Ok(Sha256::digest(text)[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Every value by its path, such as `timeouts.link`.
fn flatten(path: String, value: Value, into: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                flatten(path, value, into);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (i, value) in items.into_iter().enumerate() {
                flatten(format!("{path}[{i}]"), value, into);
            }
        }
        other => drop(into.insert(path, other)),
    }
}
