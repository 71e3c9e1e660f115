//! The hash of everything that a planner's result depends on, so that plans can be kept.

use allrail_collective::Operation;
use allrail_collective::algorithm::OwnPrograms;
use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::Fabric;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::chunk::Parameters;
use crate::queue::Order;
use crate::room::ActiveChunks;

/// Every input of a planner, and its version.
#[derive(Serialize)]
pub(crate) struct Inputs<'a> {
    pub(crate) policy: &'a str,
    pub(crate) version: u32,
    pub(crate) fabric: &'a Fabric,
    /// The cables of dimensions that count over them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) wiring: Vec<String>,
    pub(crate) operation: Operation,
    pub(crate) size: Bytes,
    pub(crate) dimensions: &'a [DimensionId],
    pub(crate) algorithms: &'a [String],
    #[serde(skip_serializing_if = "OwnPrograms::is_empty")]
    pub(crate) programs: &'a OwnPrograms,
    pub(crate) chunks: u32,
    pub(crate) order: Order,
    /// Of a planned order, those that may fix it.
    #[serde(skip_serializing_if = "<[Order]>::is_empty")]
    pub(crate) fixed_by: &'a [Order],
    pub(crate) active_chunks: Option<ActiveChunks>,
    pub(crate) endpoint_delay: Time,
    pub(crate) parameters: &'a Parameters,
    pub(crate) seed: u64,
}

impl Inputs<'_> {
    /// SHA-256 of the inputs as canonical JSON, in hex. The fabric's name does not count.
    pub(crate) fn hash(&self) -> String {
        let mut value = serde_json::to_value(self).expect("the inputs are plain data");
        value["fabric"]["name"] = serde_json::Value::Null;
        hash(&value)
    }
}

/// SHA-256 of canonical JSON, in hex.
#[must_use]
pub fn hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans of an earlier version of a policy must not be found.
    #[test]
    fn the_policys_version_counts() {
        let fabric = Fabric {
            memory_bandwidth: None,
            window: None,
            name: String::new(),
            dimensions: Vec::new(),
        };
        let parameters = Parameters::default();
        let hash = |version| {
            let inputs = Inputs {
                policy: "themis",
                version,
                fabric: &fabric,
                wiring: Vec::new(),
                operation: Operation::AllReduce,
                size: Bytes::new(1),
                dimensions: &[],
                algorithms: &[],
                programs: &OwnPrograms::default(),
                chunks: 1,
                order: Order::FIFO,
                fixed_by: &[],
                active_chunks: None,
                endpoint_delay: Time::ZERO,
                parameters: &parameters,
                seed: 0,
            };
            inputs.hash()
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
