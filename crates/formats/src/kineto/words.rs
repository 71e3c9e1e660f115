//! The words of events: which of them speak of communication, and what their arguments say of it.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use serde::Deserialize;
use serde_json::Value;

use super::said::{
    Kind, Said, Whom, evenly, kind, number, of_outputs_and_inputs, parts, peer_of_name, rank,
    ranks, shapes, text,
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
    #[serde(rename = "In split size")]
    in_splits: Option<Value>,
    #[serde(rename = "Out split size")]
    out_splits: Option<Value>,
    #[serde(skip)]
    place: Option<u32>,
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
    /// Of XLA.
    hlo_op: Option<Value>,
    hlo_module: Option<Value>,
    /// Of metadata: the name of a process.
    name: Option<Value>,
}

impl Args {
    /// Whether an event is of XLA's profiler, as JAX and TensorFlow have it.
    pub(super) fn is_of_xla(&self) -> bool {
        let named = self.name.as_ref().and_then(Value::as_str).unwrap_or_default();
        self.hlo_op.is_some() || self.hlo_module.is_some() || named.starts_with("/device:")
    }

    /// Of a node of an execution trace: shapes, types and values of its inputs, and its attributes.
    pub(super) fn of_execution(
        dims: Option<Value>,
        types: Option<Value>,
        inputs: Option<Value>,
        attributes: &BTreeMap<String, Value>,
    ) -> Self {
        let said = |name: &str| attributes.get(name).cloned();
        let listed = Listed::of(inputs.as_ref());
        Self {
            collective: said("collective_name").or(listed.collective),
            dtype: said("dtype"),
            in_elements: said("in_msg_nelems"),
            out_elements: said("out_msg_nelems"),
            size: said("pg_size").or(listed.size),
            group: said("pg_name").or(listed.group),
            about: said("pg_desc"),
            first: said("global_rank_start").or(listed.first),
            apart: said("global_rank_stride").or(listed.apart),
            in_splits: said("in_split_size").or(listed.in_splits),
            out_splits: said("out_split_size").or(listed.out_splits),
            place: listed.place,
            dims,
            types,
            inputs,
            ..Self::default()
        }
    }
}

/// What the inputs of `record_param_comms` say by their places, which its attributes say by name since
/// PyTorch 2.3: …, the group, this rank's place in it, the collective, two lists of splits, then
/// (since 2.1) the first rank and how far apart they are, and the size.
#[derive(Default)]
struct Listed {
    collective: Option<Value>,
    group: Option<Value>,
    place: Option<u32>,
    in_splits: Option<Value>,
    out_splits: Option<Value>,
    first: Option<Value>,
    apart: Option<Value>,
    size: Option<Value>,
}

impl Listed {
    fn of(inputs: Option<&Value>) -> Self {
        let list = inputs.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let of_lists = |at: &usize| {
            // `<Object>` is no word of PyTorch for a collective.
            let named = list[*at].as_str().is_some_and(|name| !name.starts_with('<'));
            named && list[at + 1].is_array() && list[at + 2].is_array()
        };
        let Some(at) = (2..list.len().saturating_sub(2)).find(of_lists) else {
            return Self::default();
        };
        let numbers: Vec<&Value> =
            list[at + 3..].iter().take_while(|one| one.is_number()).collect();
        let [first, apart, size] = match numbers[..] {
            [first, apart, size, ..] => [Some(first), Some(apart), Some(size)],
            [size] => [None, None, Some(size)],
            _ => [None; 3],
        };
        // A tuple of name and description; before, a number.
        let group = list[at - 2].get(0).unwrap_or(&list[at - 2]);
        let group = (group.is_string() || group.is_number()).then(|| text(Some(group)).into());
        Self {
            collective: Some(list[at].clone()),
            group,
            place: rank(Some(&list[at - 1])),
            in_splits: Some(list[at + 1].clone()),
            out_splits: Some(list[at + 2].clone()),
            first: first.cloned(),
            apart: apart.cloned(),
            size: size.cloned(),
        }
    }
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
    // An execution trace has `Tensor(float)`, also in lists.
    let inside = |word: &'_ str| -> Option<String> {
        let (_, rest) = word.split_once("Tensor(")?;
        Some(rest.split([')', ',']).next().unwrap_or_default().to_owned())
    };
    let dtype = types.filter_map(Value::as_str).find_map(|word| {
        let plain = !word.is_empty()
            && !["Scalar", "Int", "Bool", "Object", "String"].contains(&word)
            && !word.ends_with("List")
            && !word.contains(['[', '(']);
        inside(word).or_else(|| plain.then(|| word.to_owned()))
    });
    let dtype = dtype.unwrap_or_default();
    // Shapes are those of the inputs; what comes out, `c10d` says or follows from the collective.
    let inputs = (!shapes.is_empty())
        .then(|| (shapes.iter().fold(0u64, |sum, one| sum.saturating_add(*one)), 0));
    if name == "record_param_comms" {
        let said = of_arguments(args);
        let rank = if args.in_elements.is_some() { 3 } else { 1 };
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
        let exchanges = kind(&operation) == Some(Kind::Operation(Operation::AllToAll));
        let splits = exchanges.then(|| of_exchange(args, values)).flatten();
        let said = Said { name: operation, elements, dtype, peer, splits, ..Said::default() };
        return Some((said, 0));
    }
    backend(name)?;
    let operation = name.split_once(':').map_or("", |(_, operation)| operation).to_owned();
    let peer = peer_of_name(&operation);
    Some((Said { name: operation, elements: inputs, dtype, peer, ..Said::default() }, 2))
}

/// How `c10d::alltoall_base_` splits, by its two lists, or `c10d::alltoall_`, by its lists of tensors;
/// of both, what comes out is first.
fn of_exchange(args: &Args, values: Option<&Vec<Value>>) -> Option<[Vec<u64>; 2]> {
    let whole = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_u64));
    let lists = values.map_or(&[][..], Vec::as_slice).get(3..5);
    if let Some([out, into]) = lists.filter(|lists| lists.iter().all(whole)) {
        return Some([parts(Some(into))?, parts(Some(out))?]);
    }
    let dims = args.dims.as_ref()?.as_array()?;
    let of_list = |at: usize| {
        let list = dims.get(at)?.as_array().filter(|list| list.iter().all(Value::is_array))?;
        let sizes = shapes(Some(&Value::Array(list.clone())));
        (sizes.len() > 1 && sizes.len() == list.len()).then_some(sizes)
    };
    Some([of_list(1)?, of_list(0)?])
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
    let exchanges = kind(&name) == Some(Kind::Operation(Operation::AllToAll));
    let both = [parts(args.in_splits.as_ref()), parts(args.out_splits.as_ref())];
    let splits = match both {
        [Some(into), Some(out)] if exchanges => Some([into, out]),
        _ => None,
    };
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
        splits,
        place: args.place,
    }
}
