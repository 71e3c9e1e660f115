//! Reads a fabric file as the boards that jobs are placed on.

use allrail_core::FieldError;
use allrail_fabric::placement::Floor;
use allrail_fabric::topologies;
use serde_json::Value;

/// Keys of every topology that name failed parts; boards are not among them.
const PARTS: [&str; 2] = ["failed_nodes", "failed_links"];

/// Reads a mapping with `topology` and its keys.
///
/// # Errors
/// It is no such mapping, or jobs cannot be placed on that topology.
pub fn read_floor(fabric: &Value) -> Result<Floor, FieldError> {
    let topology = topologies::read(fabric.clone())?;
    for key in PARTS {
        if fabric.get(key).and_then(Value::as_array).is_some_and(|parts| !parts.is_empty()) {
            return Err(FieldError::new(
                format!("fabric.{key}"),
                &fabric[key],
                "jobs are placed on whole boards",
                "leave it out; a `hammingmesh` takes `failed_boards`",
            ));
        }
    }
    topology.floor().ok_or_else(|| {
        FieldError::new(
            "fabric.topology",
            topology.tag(),
            "it has no boards to place jobs on",
            "jobs are placed on a `hammingmesh`, a `hammingmesh_3d`, a `torus` or a `fat_tree`",
        )
    })
}
