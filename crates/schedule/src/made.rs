//! Algorithms that are made for a network: [`TREES`], the spanning trees of [`crate::trees`] as a program.
//!
//! They stand among a request's programs from when its algorithms are decided, so plans carry them as they carry a
//! user's own, and every network model and the runtime carry out the same.

use std::borrow::Cow;
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_collective::algorithm::Own;
use allrail_core::{Bytes, FieldError};
use allrail_fabric::graph::Graph;

use crate::cuts::Network;
use crate::error::ScheduleError;
use crate::request::Request;
use crate::trees;

/// What `schedule.algorithms` calls them.
pub const TREES: &str = "trees";
/// One line for the docs.
pub const ABOUT: &str =
    "on a network that is no product of dimensions: spanning trees at the bound of its cuts";
/// What they do.
pub const OPERATIONS: [Operation; 3] =
    [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather];
/// Among more NPUs than this they are made only where they are named.
const UNASKED: u32 = 128;
/// Where their number is free, chunks are more than 64 while all have no more messages than this, and fewer beyond
/// the other.
const FEW_MESSAGES: u64 = 1 << 18;
const MANY_MESSAGES: u64 = 1 << 20;
/// Blocks of fewer bytes than this are not made for the sake of more chunks.
const PAGE: u64 = 4096;

/// A request with the programs that are made for its network, where an algorithm is open or names them.
///
/// # Errors
/// They are named, and there are none.
pub(crate) fn with_made(request: Cow<'_, Request>) -> Result<Cow<'_, Request>, ScheduleError> {
    let said = request.said();
    let named = said.named().any(|name| name == TREES);
    if !(named || said.is_open()) || request.programs.get(TREES).is_some() {
        return Ok(request);
    }
    match made(&request, named) {
        Ok(Some(own)) => {
            let mut request = request.into_owned();
            request.programs = request.programs.with(own);
            Ok(Cow::Owned(request))
        }
        Err(why) if named => {
            Err(FieldError::new("schedule.algorithms", TREES, why, "use `auto`").into())
        }
        Ok(None) | Err(_) => Ok(request),
    }
}

/// Whether the algorithm is left open where there is one that is made for the network.
pub(crate) fn are_open(request: &Request) -> bool {
    let there =
        || request.programs.get(TREES).is_some() || matches!(made(request, false), Ok(Some(_)));
    request.said().is_open() && there()
}

/// The same in as many chunks as its algorithm is best cut into, where nobody says how many.
pub(crate) fn in_free_chunks(request: Cow<'_, Request>) -> Cow<'_, Request> {
    let named = request.said().named().any(|name| name == TREES);
    let own = request.programs.get(TREES).filter(|_| named && request.parameters.free_chunks);
    let Some(chunks) = own.map(|own| chunks(own, request.size)) else { return request };
    Cow::Owned(Request { chunks, ..request.into_owned() })
}

/// The trees for a request's network; says why there are none.
fn made(request: &Request, named: bool) -> Result<Option<Arc<Own>>, String> {
    let operation = request.operation;
    if !OPERATIONS.contains(&operation) {
        return Err(format!("they are for reductions and gatherings, and this is `{operation}`"));
    }
    let [only] = &*request.fabric.dimensions else {
        return Err("the network has several dimensions, each with an algorithm of its own".into());
    };
    let whole = only.wiring.as_ref().and_then(|wiring| Some((wiring, wiring.whole()?)));
    let Some((wiring, (graph, planes))) = whole else {
        return Err("they join all NPUs of a network that is no product of dimensions".into());
    };
    if !named && graph.npus() > UNASKED {
        return Ok(None);
    }
    let name = format!("{TREES} {operation}");
    let kept = wiring.kept(&name, || program(graph, planes, operation).map(Arc::new));
    kept.as_ref().clone().map(Some)
}

fn program(graph: &Graph, planes: u64, operation: Operation) -> Result<Own, String> {
    let network = Network::of_graph(graph, planes);
    let program = trees::program(&network, graph.npus(), operation);
    let program = program.map_err(|none| none.to_string())?.ok_or("there are none for it")?;
    Own::new(TREES, operation, None, program).map_err(|error| error.to_string())
}

/// Into how many chunks trees are best cut. Those of `c` chunks take a part of `1/c` longer than the bound, times what a
/// tree is deep; here never much more messages than the simulator carries in a second, nor blocks below a page.
fn chunks(own: &Own, size: Bytes) -> u32 {
    let each = own.messages().max(1);
    let usual = (FEW_MESSAGES / each).clamp(64, 256).min((MANY_MESSAGES / each).max(4));
    let whole_pages = size.count() / (PAGE * u64::from(own.blocks()));
    u32::try_from(usual.min(whole_pages).max(1)).expect("at most 256")
}
