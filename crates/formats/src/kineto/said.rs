//! What a trace says of one communication, and how it is read: names, types, sizes, peers.
//!
//! It is said in up to four places, each complete in some versions only:
//!
//! | where | since | what |
//! |---|---|---|
//! | arguments of NCCL's kernel | PyTorch 2.2 | collective, elements, type, group and its ranks |
//! | `record_param_comms` on the host | 2.1; before, with shapes alone | the same, for what launched the kernel |
//! | `nccl:all_reduce`, `gloo:all_reduce` on the host | 1.8 | collective; the input's shape and type with `record_shapes` |
//! | `c10d::allreduce_` on the host | 1.13 | collective, shapes of outputs and inputs, the peer of a message |
//!
//! The *name* of NCCL's kernel is not among them: one kernel runs whatever it is handed, and in some versions
//! all are called `ncclKernel_SendRecv`. It is asked for the type of an element where it names the
//! collective, too, and for nothing else.

use allrail_collective::Operation;
use allrail_core::dtype::width_in_traces;
use allrail_workload::graph::Purpose;
use serde_json::Value;

/// What is said of a communication. What is not said is empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// PyTorch's word for it: `allreduce`, `_allgather_base`, `send 0->1`.
    pub(super) name: String,
    /// Put in and got, per rank.
    pub(super) elements: Option<(u64, u64)>,
    /// PyTorch's word for the type of an element.
    pub(super) dtype: String,
    /// How many ranks the group has.
    pub(super) size: Option<u64>,
    /// The group's name, and what it is for.
    pub(super) group: String,
    pub(super) about: String,
    /// Its ranks in the job.
    pub(super) ranks: Vec<u32>,
    /// Whether the list of ranks was cut, and went on as it had begun.
    pub(super) cut: bool,
    /// The other end of a message.
    pub(super) peer: Option<Whom>,
    /// Of an all-to-all: how what is put in, and what is got, is split over the group, in any unit.
    /// Both empty: evenly.
    pub(super) splits: Option<[Vec<u64>; 2]>,
    /// This rank's place in the group.
    pub(super) place: Option<u32>,
}

/// How a peer is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// A rank of the job.
    Rank(u32),
    /// A place in the group.
    Place(u32),
}

/// What a communication does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Operation(Operation),
    Barrier,
    Send,
    Receive,
}

impl Said {
    /// What is missing here, from `other`.
    pub(super) fn or(mut self, other: Self) -> Self {
        let word = |mine: &mut String, theirs: String| {
            if mine.is_empty() {
                *mine = theirs;
            }
        };
        if kind(&self.name).is_none() {
            self.name = other.name;
        }
        if width_in_traces(&self.dtype).is_none() {
            self.dtype = other.dtype;
        }
        word(&mut self.group, other.group);
        word(&mut self.about, other.about);
        self.elements = match (self.elements, other.elements) {
            // The backend tells what goes in, `c10d` also what comes out.
            (Some((sent, 0)), Some((same, received))) if same == sent => Some((sent, received)),
            (mine, theirs) => mine.or(theirs),
        };
        self.size = self.size.or(other.size);
        self.splits = self.splits.or(other.splits);
        self.place = self.place.or(other.place);
        self.peer = self.peer.or(other.peer);
        if self.ranks.is_empty() {
            (self.ranks, self.cut) = (other.ranks, other.cut);
        }
        self
    }

    /// What it does, if that is known.
    pub(super) fn kind(&self) -> Option<Kind> {
        kind(&self.name)
    }

    /// Whether it speaks of the end of a group of calls, or of waiting, and not of a call of its own.
    pub(super) fn is_mark(&self) -> bool {
        let name = self.name.trim_start_matches('_').to_lowercase().replace('_', "");
        MARKS.iter().any(|mark| name.starts_with(mark))
    }

    /// Whether both speak of the same call.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.elements == other.elements
    }

    /// How many ranks the group has, where any of its words tells: its size, its ranks, how many parts an
    /// all-to-all has, how many times as large the result of a gather is.
    pub(super) fn members(&self) -> Option<u64> {
        let listed = (!self.ranks.is_empty() && !self.cut).then_some(self.ranks.len() as u64);
        let parts = self.splits.iter().flatten().map(|list| list.len() as u64).max();
        let times = |large: u64, small: u64| {
            (small > 0 && large > small && large.is_multiple_of(small)).then(|| large / small)
        };
        let ratio = match (self.kind(), self.elements) {
            (Some(Kind::Operation(Operation::AllGather)), Some((sent, got))) => times(got, sent),
            (Some(Kind::Operation(Operation::ReduceScatter)), Some((sent, got))) => {
                times(sent, got)
            }
            _ => None,
        };
        self.size.or(listed).or(parts.filter(|parts| *parts > 0)).or(ratio)
    }

    /// Bytes put in and got, per rank, if that is known. `kernel` is the name of NCCL's kernel.
    pub(super) fn bytes(&self, kernel: &str) -> Option<(u64, u64)> {
        let (sent, received) = self.elements?;
        let width = width_in_traces(&self.dtype).or_else(|| width_of_kernel(&self.name, kernel))?;
        let width = u64::from(width);
        Some((sent.checked_mul(width)?, received.checked_mul(width)?))
    }
}

/// Words of PyTorch for what is no call: the end of a group of calls, which launches what they have
/// asked for (`nccl:coalesced`), and the wait for one.
const MARKS: [&str; 5] = ["coalesced", "startcoalescing", "endcoalescing", "wait", "init"];

/// By what PyTorch calls it, with or without the backend's name and underscores.
pub(super) fn kind(said: &str) -> Option<Kind> {
    let said = said.trim_start_matches('_').to_lowercase().replace('_', "");
    let is = |words: &[&str]| words.iter().any(|word| said.starts_with(word));
    Some(if is(&["allreduce"]) {
        Kind::Operation(Operation::AllReduce)
    } else if is(&["allgather", "gather"]) {
        Kind::Operation(Operation::AllGather)
    } else if is(&["reducescatter"]) {
        Kind::Operation(Operation::ReduceScatter)
    } else if is(&["alltoall", "scatter"]) {
        Kind::Operation(Operation::AllToAll)
    } else if is(&["broadcast", "reduce"]) {
        Kind::Operation(Operation::Broadcast)
    } else if is(&["barrier"]) {
        Kind::Barrier
    } else if is(&["send"]) {
        Kind::Send
    } else if is(&["recv", "receive"]) {
        Kind::Receive
    } else {
        return None;
    })
}

/// Bytes of an element, by the name of a kernel that names the collective, too.
fn width_of_kernel(name: &str, kernel: &str) -> Option<u32> {
    let word = kernel.split('_').nth(1).unwrap_or_default();
    if kind(word).is_none() || kind(word) != kind(name) {
        return None;
    }
    let kernel = kernel.split('(').next().unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| kernel.contains(word));
    Some(if has(&["bf16", "_f16", "_half", "bfloat16"]) {
        2
    } else if has(&["_f32", "_float", "_i32", "_u32", "int32"]) {
        4
    } else if has(&["_f64", "_double", "_i64", "_u64", "int64"]) {
        8
    } else if has(&["_i8", "_u8", "int8", "_f8"]) {
        1
    } else {
        return None;
    })
}

/// By what a process group is called: Megatron's names, and those of device meshes.
pub(super) fn purpose(about: &str) -> Purpose {
    let about = about.to_lowercase();
    let is = |long: &str, short: &str| {
        about.contains(long)
            || about.split(|c: char| !c.is_alphanumeric()).any(|word| word == short)
    };
    if is("expert", "ep") {
        Purpose::Expert
    } else if is("tensor", "tp") {
        Purpose::Tensor
    } else if is("pipeline", "pp") {
        Purpose::Pipeline
    } else if is("data", "dp") || is("fsdp", "fsdp") {
        Purpose::Data
    } else {
        Purpose::Other
    }
}

/// A list of how much goes to each rank, or its text; `None` where it is none, or was cut.
pub(super) fn parts(value: Option<&Value>) -> Option<Vec<u64>> {
    match value? {
        Value::Array(list) => list.iter().map(Value::as_u64).collect(),
        Value::String(text) => {
            let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
            if inner.trim().is_empty() {
                return Some(Vec::new());
            }
            inner.split(',').map(|one| one.trim().parse().ok()).collect()
        }
        _ => None,
    }
}

/// The tensors of a list of shapes: elements of each entry that is a tensor or a list of them.
pub(super) fn shapes(dims: Option<&Value>) -> Vec<u64> {
    fn elements(entry: &Value) -> Option<u64> {
        let list = entry.as_array()?;
        if list.is_empty() {
            return None;
        }
        if list.iter().all(Value::is_number) {
            return list.iter().try_fold(1u64, |all, one| all.checked_mul(one.as_u64()?));
        }
        let inner: Vec<u64> = list.iter().filter_map(elements).collect();
        (!inner.is_empty()).then(|| inner.iter().fold(0u64, |sum, one| sum.saturating_add(*one)))
    }
    dims.and_then(Value::as_array).into_iter().flatten().filter_map(elements).collect()
}

/// What `c10d::NAME` puts in and gets: outputs come first where there are both.
pub(super) fn of_outputs_and_inputs(name: &str, shapes: &[u64]) -> Option<(u64, u64)> {
    let both = matches!(
        kind(name),
        Some(Kind::Operation(
            Operation::AllGather | Operation::ReduceScatter | Operation::AllToAll
        ))
    );
    match (both, shapes) {
        (true, [out, into, ..]) => Some((*into, *out)),
        (_, [one, ..]) => Some((*one, *one)),
        _ => None,
    }
}

/// The peer in `send 0->1` and `recv 0<-1`, a place in the group.
pub(super) fn peer_of_name(name: &str) -> Option<Whom> {
    let (_, peer) = name.split_once("->").or_else(|| name.split_once("<-"))?;
    peer.trim().parse().ok().map(Whom::Place)
}

/// Jobs of more ranks are refused.
pub(super) const MOST_RANKS: u32 = 1 << 20;

/// A list of ranks, or its text, and whether it was cut. PyTorch cuts the text after 30 ranks
/// (`…, 93, ...]`): the rest goes on as it began, up to the size of the group. Of a group that no job
/// can have only its size is kept, as its last rank: a size is one number of a file, and a list of it may
/// be 16 GiB.
pub(super) fn ranks(value: Option<&Value>, size: Option<u64>) -> (Vec<u32>, bool) {
    let mut ranks: Vec<u32> = match value {
        Some(Value::Array(list)) => {
            list.iter().filter_map(|rank| u32::try_from(rank.as_u64()?).ok()).collect()
        }
        Some(Value::String(text)) => {
            text.split(|c: char| !c.is_ascii_digit()).filter_map(|rank| rank.parse().ok()).collect()
        }
        _ => Vec::new(),
    };
    let cut = matches!(value, Some(Value::String(text)) if text.contains("..."));
    if let (true, Some(size), [first, second, ..]) = (cut, size, ranks.as_slice()) {
        ranks = evenly(*first, second.saturating_sub(*first), size);
    }
    (ranks, cut)
}

/// `size` ranks from `first` on, `apart` from one another.
pub(super) fn evenly(first: u32, apart: u32, size: u64) -> Vec<u32> {
    let many = u32::try_from(size).unwrap_or(u32::MAX);
    if many > MOST_RANKS {
        return vec![first, many - 1];
    }
    (0..many).map(|i| first.saturating_add(i.saturating_mul(apart))).collect()
}

pub(super) fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

pub(super) fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

pub(super) fn rank(value: Option<&Value>) -> Option<u32> {
    number(value).and_then(|rank| u32::try_from(rank).ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_that_pytorch_cuts_go_on() {
        let text = Value::String("[64, 66, 68, ...]".into());
        assert_eq!(ranks(Some(&text), Some(5)), (vec![64, 66, 68, 70, 72], true));
        assert_eq!(ranks(Some(&Value::String("[3, 1]".into())), Some(2)), (vec![3, 1], false));
        assert_eq!(ranks(Some(&json!([0, 4])), None), (vec![0, 4], false));
        let (text, size) = (Value::String("[0, 1, ...]".into()), Some(u64::from(u32::MAX)));
        assert_eq!(ranks(Some(&text), size).0, [0, u32::MAX - 1]);
    }

    #[test]
    fn shapes_are_those_of_tensors_and_of_lists_of_tensors() {
        assert_eq!(
            shapes(Some(&json!([[8192, 384], [65536, 384], [], []]))),
            [3_145_728, 25_165_824]
        );
        assert_eq!(shapes(Some(&json!([[[131], [2, 3]], [], []]))), [137]);
        assert_eq!(shapes(Some(&json!([[], []]))), [0u64; 0]);
        assert_eq!(shapes(None), [0u64; 0]);
    }

    #[test]
    fn a_kernel_tells_the_type_only_of_the_collective_that_it_names() {
        let all_reduce =
            Said { name: "all_reduce".into(), elements: Some((10, 10)), ..Said::default() };
        assert_eq!(all_reduce.bytes("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"), Some((40, 40)));
        assert_eq!(all_reduce.bytes("ncclKernel_AllReduce_RING_LL_Sum_float(x)"), Some((40, 40)));
        assert_eq!(all_reduce.bytes("ncclKernel_AllReduce_RING_LL_Sum_half(x)"), Some((20, 20)));
        assert_eq!(all_reduce.bytes("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)"), None);
        assert_eq!(all_reduce.bytes("ncclDevKernel_Generic(x)"), None);
    }
}
