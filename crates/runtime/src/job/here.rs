//! What a job file cannot say of the rank that reads it.

use allrail_collective::CollectivePlan;
use allrail_core::Bytes;
use allrail_fabric::Fabric;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::RuntimeError;

/// What a job file cannot say: who reads it, and what the files that it names hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Here {
    /// This rank.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// Its number among those of its host.
    pub local_rank: u32,
    /// Whether all ranks reach each other over loopback.
    pub one_host: bool,
    /// The fabric that the file names.
    pub fabric: Option<Fabric>,
    /// The plans in the file that it names.
    pub plans: Vec<CollectivePlan>,
    /// The secret, in hexadecimal.
    pub secret: Option<String>,
    /// What a step exchanges, alike on all ranks.
    pub bytes: Option<Bytes>,
    /// The name of the job.
    pub job: String,
}

impl Here {
    /// Reads it.
    ///
    /// # Errors
    /// [`RuntimeError::Setting`] where it is malformed, such as a plan of another version.
    pub fn from_json(text: &str) -> Result<Self, RuntimeError> {
        serde_json::from_str(text).map_err(|error| malformed(&error))
    }
}

pub(super) fn malformed(error: &serde_json::Error) -> RuntimeError {
    let hint = "`allrail schema job` prints what is taken where";
    RuntimeError::setting("job", "...", error.to_string(), hint)
}

/// A fabric where nobody has told of any: plans depend on it, results do not.
pub(super) fn usual(here: &Here) -> Fabric {
    let (bandwidth, latency) =
        if here.one_host { ("20 Gb/s", "20 us") } else { ("10 Gb/s", "50 us") };
    let dimension = json!({
        "kind": "switch", "size": here.ranks, "bandwidth": bandwidth, "latency": latency,
    });
    let dimension = serde_json::from_value(dimension).expect("it is one");
    Fabric {
        memory_bandwidth: None,
        window: None,
        name: "usual".to_owned(),
        dimensions: vec![dimension],
    }
}
