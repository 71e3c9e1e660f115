//! What `allrail place` asks and is told, with `run`: the first mix's jobs run at once.

use std::any::Any;
use std::ops::ControlFlow;

use allrail_core::FieldError;
use allrail_fabric::topologies::{self, hammingmesh::HammingMesh};
use allrail_simulate::SimulateError;
use allrail_simulate::traffic::result::Distribution;
use serde_json::{Value, json};

use super::steady::{JobShare, Shares, shares};
use super::work::Work;
use crate::placement::{Placed, place_mixes};

/// Places mixes; with `run` (`all_reduce` or `all_to_all`), runs the jobs of the first one, too. `None`
/// if `observe` has stopped it.
///
/// # Errors
/// Something in the request is wrong.
pub fn place(
    mut request: Value,
    observe: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<Value>, SimulateError> {
    let run = request.as_object_mut().and_then(|keys| keys.remove("run"));
    let Some(run) = run.filter(|run| !run.is_null()) else {
        return Ok(place_mixes(request, observe)?);
    };
    let shown = run.as_str().map_or_else(|| run.to_string(), str::to_owned);
    let refuse = |why: String, hint: &str| {
        SimulateError::Field(FieldError::new("run", shown.clone(), why, hint))
    };
    let work: Work = serde_json::from_value(run).map_err(|_| {
        refuse("jobs cannot run that".to_owned(), "run `all_reduce` or `all_to_all`")
    })?;
    let fabric = request["fabric"].clone();
    let told = place_mixes(request, observe)?;
    let topology = topologies::read(fabric)?;
    let any: &dyn Any = topology.as_ref();
    let Some(mesh) = any.downcast_ref::<HammingMesh>() else {
        let why = format!("jobs run on a `hammingmesh`, not on a `{}`", topology.tag());
        return Err(refuse(why, "leave it out, or take a `hammingmesh`"));
    };
    let Some(mut told) = told else { return Ok(None) };
    let (mesh, jobs) = placed(mesh, &told["map"]);
    let Shares { jobs, above_leaves } = shares(&mesh, &jobs, work)?;
    let of = |value: fn(&JobShare) -> f64| {
        Distribution::of(&jobs.iter().map(value).collect::<Vec<f64>>())
    };
    let Some(of_all) = of(|job| job.share) else {
        let why = "no job that was placed has more than one NPU".to_owned();
        return Err(refuse(why, "leave it out, or take larger jobs or boards"));
    };
    let mut told_shares = json!(of_all);
    let rest = json!({
        "run": work,
        "network_model": "flows",
        "paths": "ecmp",
        "alone": of(|job| job.alone),
        "in_place": of(|job| job.in_place),
        "together": of(|job| job.together),
        "above_leaves": above_leaves,
        "jobs": jobs,
    });
    if let (Some(all), Value::Object(rest)) = (told_shares.as_object_mut(), rest) {
        all.extend(rest);
    }
    told["shares"] = told_shares;
    Ok(Some(told))
}

/// The mesh with the boards that failed in a mix, and the mix's jobs.
fn placed(mesh: &HammingMesh, map: &Value) -> (HammingMesh, Vec<Placed>) {
    let failed: Vec<[u32; 2]> = read(&map["failed"]);
    let failed_boards = failed.into_iter().map(|[row, column]| [column, row]).collect();
    (HammingMesh { failed_boards, ..mesh.clone() }, read(&map["jobs"]))
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("the placement has read and written it")
}
