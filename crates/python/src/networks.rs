//! Networks: advice on dimensions, topologies, what they count and cost, how they are drawn.

use allrail_core::FieldError;
use allrail_fabric::advise::advise as advise_on;
use allrail_fabric::cost::Prices;
use allrail_fabric::topologies::{self, GraphTopology};
use allrail_fabric::{Fabric, show};
use allrail_simulate::SimulateError;
use allrail_simulate::scenario::Topology;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::{Watch, parsed, raise, to_json};

/// The packets of known networks: name, payload and header in bytes, about.
#[pyfunction]
fn packets() -> String {
    to_json(&allrail_fabric::packet::KNOWN)
}

/// Which dimensions are over- and under-provisioned (Themis §6.3).
#[pyfunction]
fn advise(fabric: &str) -> PyResult<String> {
    let fabric: Fabric = serde_json::from_str(fabric)
        .map_err(|error| raise(SimulateError::Form(format!("the fabric is malformed: {error}"))))?;
    fabric.validate().map_err(raise)?;
    Ok(to_json(&advise_on(&fabric)))
}

/// What `look` finds of a fabric with `topology` (JSON), as JSON. Large networks take seconds to build, in
/// which other threads of Python run and one of them may hear of Ctrl-C.
fn of_topology<T: serde::Serialize>(
    py: Python<'_>,
    fabric: &str,
    prices: Option<&str>,
    look: impl FnOnce(&dyn GraphTopology, &Prices) -> Result<T, FieldError> + Send,
) -> PyResult<String> {
    let found = py.detach(|| {
        let topology = topologies::read(parsed(fabric)?)?;
        let prices = match prices {
            Some(text) => Prices::read(&parsed(text)?)?,
            None => Prices::default(),
        };
        look(&*topology, &prices).map(|found| to_json(&found)).map_err(SimulateError::from)
    });
    found.map_err(raise)
}

/// Counts, price, diameter and half-plane cut of a fabric with `topology`; builds and searches it.
#[pyfunction]
#[pyo3(signature = (fabric, prices=None, progress=None))]
fn graph_show(
    py: Python<'_>,
    fabric: &str,
    prices: Option<&str>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut watch = Watch::new(progress);
    let found = of_topology(py, fabric, prices, |topology, prices| {
        show::show(topology, prices, &mut |done, total| watch.observe(done, total))
    });
    match watch.raised {
        Some(error) => Err(error),
        None => found,
    }
}

/// The same from closed forms alone, without building it.
#[pyfunction]
#[pyo3(signature = (fabric, prices=None))]
fn graph_count(py: Python<'_>, fabric: &str, prices: Option<&str>) -> PyResult<String> {
    of_topology(py, fabric, prices, |topology, prices| Ok(show::count(topology, prices)))
}

/// One plane of a fabric with `topology`, to be drawn: NPUs, nodes, cables with their kinds.
#[pyfunction]
fn graph_cables(py: Python<'_>, fabric: &str) -> PyResult<String> {
    of_topology(py, fabric, None, |topology, _| show::draw(topology))
}

/// One plane of a fabric with `topology` for other tools (JSON): how many NPUs, nodes, their names where they
/// have some, and the cables, each with its two nodes, its rate in Gb/s and its latency in ns.
#[pyfunction]
fn graph_links(py: Python<'_>, fabric: &str) -> PyResult<String> {
    of_topology(py, fabric, None, |topology, _| {
        let drawn = show::draw(topology)?;
        let graph = topology.build()?;
        let links: Vec<_> = graph
            .cables()
            .iter()
            .map(|cable| {
                let gbps = cable.wire.bandwidth.bytes_per_second() as f64 * 8.0 / 1e9;
                (cable.ends[0].0, cable.ends[1].0, gbps, cable.wire.latency.as_us() * 1e3)
            })
            .collect();
        let (npus, nodes, names) = (drawn.npus, drawn.nodes, drawn.names);
        Ok(json!({"npus": npus, "nodes": nodes, "names": names, "links": links}))
    })
}

/// What else a fabric with `topology` says of itself: whether its nodes have names, whether its
/// dimensions share ports, the keys of a network that is small enough to be drawn.
#[pyfunction]
#[pyo3(signature = (fabric, prices=None))]
fn graph_facts(py: Python<'_>, fabric: &str, prices: Option<&str>) -> PyResult<String> {
    of_topology(py, fabric, prices, |topology, _| Ok(show::facts(topology)))
}

/// What planners see of a fabric with `topology`: its dimensions, as a fabric (JSON). With `counted`, one
/// that is no product of dimensions has those that a scenario counts over its cables.
#[pyfunction]
#[pyo3(signature = (fabric, counted=false))]
fn graph_dimensions(py: Python<'_>, fabric: &str, counted: bool) -> PyResult<String> {
    // Counting over the cables of a large network takes seconds, in which Python may end it.
    let found = py.detach(|| {
        let topology = Topology::read(parsed(fabric)?)?;
        match counted {
            true => topology.fabric(),
            false => topology.product(),
        }
        .map(|fabric| to_json(&fabric))
    });
    found.map_err(raise)
}

/// Prices (JSON) with the defaults filled in.
#[pyfunction]
fn check_prices(prices: &str) -> PyResult<String> {
    let tree: Value = parsed(prices).map_err(raise)?;
    Prices::read(&tree).map(|prices| to_json(&prices)).map_err(raise)
}

/// The topologies of graph fabrics: name, about, the JSON schema of their keys, whether they may stand
/// in a file.
#[pyfunction]
#[pyo3(name = "topologies")]
fn topologies_table() -> String {
    let rows = topologies::ALL.iter().map(
        |t| json!({ "name": t.tag, "about": t.about, "schema": (t.schema)(), "file": t.in_a_file }),
    );
    Value::from_iter(rows).to_string()
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(packets, module)?)?;
    module.add_function(wrap_pyfunction!(advise, module)?)?;
    module.add_function(wrap_pyfunction!(check_prices, module)?)?;
    module.add_function(wrap_pyfunction!(graph_show, module)?)?;
    module.add_function(wrap_pyfunction!(graph_count, module)?)?;
    module.add_function(wrap_pyfunction!(graph_dimensions, module)?)?;
    module.add_function(wrap_pyfunction!(graph_cables, module)?)?;
    module.add_function(wrap_pyfunction!(graph_links, module)?)?;
    module.add_function(wrap_pyfunction!(graph_facts, module)?)?;
    module.add_function(wrap_pyfunction!(topologies_table, module)?)
}
