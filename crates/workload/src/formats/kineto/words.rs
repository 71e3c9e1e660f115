//! The words of events: which of them speak of communication, and what their arguments say of it.

use serde::Deserialize;
use serde_json::Value;

use super::said::{
    Kind, Said, Whom, evenly, kind, number, of_outputs_and_inputs, peer_of_name, rank, ranks,
    shapes, text,
};

/// Why operators of the host are left out, where kernels stand for them.
pub(super) const OPERATORS: &str = "operators of the host: their kernels stand for them";

/// Backends of `torch.distributed`, by what their events begin with: those of accelerators, whose
/// communication is kernels, and those of the host, whose communication is these events.
const BACKENDS: [(&str, bool); 7] = [
    ("nccl:", true),
    ("rccl:", true),
    ("xccl:", true),
    ("hccl:", true),
    ("gloo:", false),
    ("mpi:", false),
    ("ucc:", false),
];

/// The arguments of an event that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Args {
    pub(super) stream: Option<Value>,
    #[serde(alias = "Correlation")]
    pub(super) correlation: Option<Value>,
    dtype: Option<Value>,
    #[serde(rename = "Collective name")]
    collective: Option<Value>,
    #[serde(rename = "In msg nelems")]
    in_elements: Option<Value>,
    #[serde(rename = "Out msg nelems")]
    out_elements: Option<Value>,
    #[serde(rename = "Group size")]
    size: Option<Value>,
    #[serde(rename = "Process Group Name")]
    group: Option<Value>,
    #[serde(rename = "Process Group Description")]
    about: Option<Value>,
    #[serde(rename = "Process Group Ranks")]
    ranks: Option<Value>,
    #[serde(rename = "Global rank start")]
    first: Option<Value>,
    #[serde(rename = "Global rank stride")]
    apart: Option<Value>,
    #[serde(rename = "Src Rank")]
    source: Option<Value>,
    #[serde(rename = "Dst Rank")]
    destination: Option<Value>,
    #[serde(rename = "Input Dims")]
    dims: Option<Value>,
    #[serde(rename = "Input type")]
    types: Option<Value>,
    #[serde(rename = "Concrete Inputs")]
    inputs: Option<Value>,
}

/// Whether an event is a backend's, and if so, whether of a backend of accelerators.
pub(super) fn backend(name: &str) -> Option<bool> {
    BACKENDS.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, on)| *on)
}

/// What a kernel says of its communication; `None` if it is no kernel of NCCL.
pub(super) fn of_kernel(name: &str, args: &Args) -> Option<Said> {
    let known = ["nccl", "ncclDevKernel", "ncclKernel", "rccl", "void nccl", "mscclKernel"];
    let is = args.collective.is_some() || known.iter().any(|prefix| name.starts_with(prefix));
    is.then(|| of_arguments(args))
}

/// What an event of the host says of a communication, and how much that is worth; `None` if it is
/// not about one.
pub(super) fn of_host(name: &str, args: &Args) -> Option<(Said, u8)> {
    let shapes = shapes(args.dims.as_ref());
    let types = args.types.as_ref().and_then(Value::as_array).into_iter().flatten();
    let dtype = types
        .filter_map(Value::as_str)
        .find(|word| !word.is_empty() && *word != "Scalar" && !word.ends_with("List"));
    let dtype = dtype.unwrap_or_default().to_owned();
    // Shapes are those of the inputs; what comes out, `c10d` says or follows from the collective.
    let inputs = (!shapes.is_empty())
        .then(|| (shapes.iter().fold(0u64, |sum, one| sum.saturating_add(*one)), 0));
    if name == "record_param_comms" {
        let said = of_arguments(args);
        let rank = if args.collective.is_some() { 3 } else { 1 };
        let elements = said.elements.or(inputs);
        let dtype = if said.dtype.is_empty() { dtype } else { said.dtype.clone() };
        return Some((Said { elements, dtype, ..said }, rank));
    }
    if let Some(operation) = name.strip_prefix("c10d::") {
        let operation = operation.to_owned();
        let values = args.inputs.as_ref().and_then(Value::as_array);
        let peer = match kind(&operation) {
            Some(Kind::Send | Kind::Receive) => {
                rank(values.and_then(|values| values.get(2))).map(Whom::Place)
            }
            _ => None,
        };
        let elements = of_outputs_and_inputs(&operation, &shapes);
        return Some((Said { name: operation, elements, dtype, peer, ..Said::default() }, 0));
    }
    backend(name)?;
    let operation = name.split_once(':').map_or("", |(_, operation)| operation).to_owned();
    let peer = peer_of_name(&operation);
    Some((Said { name: operation, elements: inputs, dtype, peer, ..Said::default() }, 2))
}

/// What stands in the arguments themselves.
fn of_arguments(args: &Args) -> Said {
    let (sent, received) = (number(args.in_elements.as_ref()), number(args.out_elements.as_ref()));
    let elements = (sent.is_some() || received.is_some())
        .then(|| (sent.unwrap_or_default(), received.unwrap_or_default()));
    let size = number(args.size.as_ref());
    let (mut listed, mut cut) = ranks(args.ranks.as_ref(), size);
    if let (true, Some(first), Some(apart), Some(size)) = (
        listed.is_empty() || cut,
        rank(args.first.as_ref()),
        rank(args.apart.as_ref()).filter(|apart| *apart > 0),
        size,
    ) {
        (listed, cut) = (evenly(first, apart, size), false);
    }
    let name = text(args.collective.as_ref());
    let ends = [rank(args.destination.as_ref()), rank(args.source.as_ref())];
    let receives = kind(&name) == Some(Kind::Receive);
    let peer = if receives { ends[1].or(ends[0]) } else { ends[0].or(ends[1]) };
    Said {
        name,
        elements,
        dtype: text(args.dtype.as_ref()),
        size,
        group: text(args.group.as_ref()),
        about: text(args.about.as_ref()),
        ranks: listed,
        cut,
        peer: peer.map(Whom::Rank),
    }
}
