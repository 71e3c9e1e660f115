//! Calls that were coalesced into one kernel, whatever PyTorch's spans say of when they end; and how many
//! ranks a trace is of that names no groups.

use allrail_collective::Operation;
use allrail_core::FieldError;
use allrail_formats::kineto::{Imported, read};
use allrail_workload::Work;
use serde_json::{Value, json};

use crate::kineto::{Folder, kernel, trace};

/// A call: `c10d::` around `record_param_comms` around the span of the backend, which ends at `until`.
fn call(name: &str, start: f64, until: f64, elements: (u64, u64), ranks: &[u32]) -> Vec<Value> {
    let said = json!({"Collective name": name, "In msg nelems": elements.0,
        "Out msg nelems": elements.1, "dtype": "BFloat16", "Process Group Ranks": ranks,
        "Group size": ranks.len()});
    let event = |category: &str, name: String, start: f64, end: f64, said: Value| {
        json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start,
            "dur": end - start, "args": said})
    };
    vec![
        event("cpu_op", format!("c10d::{name}_"), start, start + 15.0, json!({})),
        event("cpu_op", "record_param_comms".into(), start + 2.0, start + 10.0, said),
        event("user_annotation", format!("nccl:{name}"), start + 3.0, until, json!({})),
    ]
}

fn coalesced(start: f64, end: f64) -> Value {
    json!({"ph": "X", "cat": "user_annotation", "name": "nccl:coalesced", "pid": 1, "tid": 1,
        "ts": start, "dur": end - start, "args": {}})
}

/// A launch and its kernel, which says nothing of itself.
fn launched(correlation: u32, at: f64, start: f64) -> [Value; 2] {
    [
        json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 1, "tid": 1,
            "ts": at, "dur": 5.0, "args": {"correlation": correlation}}),
        json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic", "pid": 0, "tid": 20,
            "ts": start, "dur": 300.0, "args": {"correlation": correlation, "stream": 20}}),
    ]
}

fn one(events: &[Value]) -> Result<Imported, FieldError> {
    let folder = Folder::new();
    read(&[folder.put("rank0.json", &trace(0, 8, events))], None, None)
}

fn collectives(read: &Imported) -> Vec<(Operation, u64)> {
    let works = read.graph.ids().map(|id| read.graph.node(id).work);
    works
        .filter_map(|work| match work {
            Work::Collective { operation, bytes, .. } => Some((operation, bytes.count())),
            _ => None,
        })
        .collect()
}

const ALL: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];
const M: u64 = 1 << 20;

fn gathers(at: f64, until: f64, mebi: u64) -> Vec<Value> {
    call("_allgather_base", at, until, (mebi * M / 16, mebi * M / 2), &ALL)
}

/// Two groups of two calls; whenever their spans begin and end, nothing is lost and nothing melts.
#[test]
fn spans_that_outlive_their_calls_hold_no_other_calls() {
    for (span_of_call, first, second) in [
        (116.0, None, None),
        (116.0, Some((140.0, 165.0)), Some((240.0, 265.0))),
        (116.0, Some((140.0, 141.0)), Some((240.0, 241.0))),
        (116.0, Some((140.0, 900.0)), Some((240.0, 950.0))),
        (116.0, Some((99.0, 165.0)), Some((199.0, 265.0))),
        (900.0, Some((140.0, 900.0)), Some((240.0, 950.0))),
    ] {
        let mut events = [
            gathers(100.0, span_of_call, 16),
            gathers(120.0, span_of_call + 20.0, 8),
            gathers(200.0, span_of_call + 100.0, 32),
            gathers(220.0, span_of_call + 120.0, 4),
        ]
        .concat();
        for (start, end) in [first, second].into_iter().flatten() {
            events.push(coalesced(start, end));
        }
        events.extend(launched(60, 145.0, 160.0));
        events.extend(launched(61, 245.0, 470.0));
        let read = one(&events).expect("a trace");
        let gathered = [24 * M, 36 * M].map(|bytes| (Operation::AllGather, bytes));
        assert_eq!(collectives(&read), gathered, "{span_of_call} {first:?} {second:?}");
        assert!(read.account.measured.is_empty(), "{:?}", read.account);
        assert_eq!(read.account.kept["collectives"].count, 2);
    }
}

/// Old versions have the backend's spans alone: each is a call until the next begins.
#[test]
fn spans_alone_are_calls() {
    let span = |start: f64, end: f64, elements: u64| {
        json!({"ph": "X", "cat": "cpu_op", "name": "nccl:all_reduce", "pid": 1, "tid": 1, "ts": start,
            "dur": end - start, "args": {"Input Dims": [[elements]], "Input type": ["float"]}})
    };
    let mut events = vec![span(10.0, 500.0, 100), span(50.0, 600.0, 200)];
    events.extend(launched(1, 12.0, 100.0));
    events.extend(launched(2, 52.0, 450.0));
    let reduced = [400, 800].map(|bytes| (Operation::AllReduce, bytes));
    assert_eq!(collectives(&one(&events).expect("a trace")), reduced);
}

#[test]
fn a_group_of_several_kinds_is_all_of_them_at_once() {
    let mut events = [
        gathers(100.0, 110.0, 16),
        call("_reduce_scatter_base", 120.0, 130.0, (M, M / 8), &ALL),
        gathers(140.0, 150.0, 8),
    ]
    .concat();
    events.push(coalesced(160.0, 170.0));
    events.extend(launched(7, 165.0, 200.0));
    let read = one(&events).expect("a trace");
    let both = [(Operation::AllGather, 24 * M), (Operation::ReduceScatter, 2 * M)];
    assert_eq!(collectives(&read), both);
    assert_eq!(read.account.kept["collectives"].count, 1, "one kernel");
    let timed = read.timed.expect("times");
    assert!(timed.collectives.is_empty(), "neither has a time of its own");
}

/// A group too large for one kernel has several; among one rank there is none.
#[test]
fn a_group_of_several_kernels_is_one() {
    let mut events = [
        call("_allgather_base", 80.0, 90.0, (9, 9), &[0]),
        gathers(100.0, 110.0, 16),
        gathers(120.0, 130.0, 8),
    ]
    .concat();
    events.extend(launched(7, 165.0, 200.0));
    events.extend(launched(8, 171.0, 500.0));
    events.push(kernel("gemm", 20, 800.0, 50.0));
    let read = one(&events).expect("a trace");
    assert_eq!(collectives(&read), [(Operation::AllGather, 24 * M)]);
    assert!(read.account.measured.is_empty(), "{:?}", read.account);
    assert!((read.account.kept["collectives"].us - 600.0).abs() < 1e-9, "both kernels' time");
}

/// Ten calls and one kernel: nothing is lost. Of calls without any kernel it is said how many.
#[test]
fn calls_of_a_group_are_not_lost_and_lost_ones_are_counted() {
    let mut events: Vec<Value> =
        (0..10u32).flat_map(|i| gathers(100.0 + 20.0 * f64::from(i), 1000.0, 1)).collect();
    events.extend(launched(7, 400.0, 500.0));
    let read = one(&events).expect("a trace");
    assert_eq!(collectives(&read), [(Operation::AllGather, 10 * M)]);
    assert!(!read.dropped.keys().any(|why| why.contains("whose kernels")), "{:?}", read.dropped);
    events.extend(gathers(1000.0, 1010.0, 1));
    let read = one(&events).expect("a trace");
    let lost = read.dropped.iter().find(|(why, _)| why.contains("whose kernels"));
    assert_eq!(lost.map(|(_, count)| *count), Some(1));
}

/// An execution trace of 2023, without a word of groups but in the lists of a split.
fn split(into: &[u64], out: &[u64]) -> Value {
    let elements: u64 = into.iter().sum();
    json!({"schema": "1.0.1", "pid": 1, "nodes": [
        {"name": "record_param_comms", "id": 10, "parent": 1, "inputs": [
            [1, 2, 0, elements, 4, "cuda:0"], 21, 94594, 0, "all_to_allv", into, out],
         "input_shapes": [[elements], [], [], [], [], into.iter().map(|_| json!([])).collect::<Vec<_>>(), []],
         "input_types": ["Tensor(float)", "Int", "Int", "Int", "String", "", ""]},
        {"name": "nccl:all_to_all", "id": 11, "parent": 10, "inputs": [],
         "input_shapes": [[elements]], "input_types": ["Tensor(float)"]},
        {"name": "record_param_comms", "id": 20, "parent": 1, "inputs": [
            [[5, 6, 0, 1000, 4, "cuda:0"]], 22, 94594, 0, "allreduce", [], []],
         "input_shapes": [[[1000]], [], [], [], [], [], []],
         "input_types": ["GenericList[Tensor(float)]", "Int", "Int", "Int", "String", "", ""]},
        {"name": "nccl:all_reduce", "id": 21, "parent": 20, "inputs": [],
         "input_shapes": [[1000]], "input_types": ["Tensor(float)"]}]})
}

#[test]
fn a_trace_that_names_no_group_is_of_as_many_ranks_as_its_splits() {
    let folder = Folder::new();
    let ask =
        |tree: &Value, npus| read(&[folder.put("e.json", tree.to_string().as_bytes())], None, npus);
    let even = ask(&split(&[512; 8], &[512; 8]), None).expect("a trace");
    assert_eq!(even.world_size, 8);
    let exchanged = [(Operation::AllToAll, 4096 * 4), (Operation::AllReduce, 4000)];
    assert_eq!(collectives(&even), exchanged);
    // Rank 0 keeps 1 of 8 parts and sends the rest: as much leaves an even one of 4/3 of that.
    let uneven = ask(&split(&[100, 300, 300, 100], &[100, 300, 300, 100]), None).expect("a trace");
    assert_eq!((uneven.world_size, collectives(&uneven)[0]), (4, (Operation::AllToAll, 3734)));
    assert!(uneven.notes.iter().any(|note| note.contains("1 all-to-all is uneven")));
    let error = ask(&split(&[512; 8], &[512; 8]), Some(4)).expect_err("too few");
    assert!(error.why.contains("8 ranks"), "{error}");
    assert_eq!(ask(&split(&[], &[]), Some(16)).expect("a trace").world_size, 16);
    let error = ask(&split(&[], &[]), None).expect_err("nothing says it");
    assert!(error.hint.contains("--npus"), "{error}");
}

#[test]
fn how_much_larger_a_gather_is_and_sizes_of_groups_say_it_too() {
    let nccl = |name: &str, elements: (u64, u64)| {
        json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic", "pid": 0, "tid": 20,
            "ts": 1.0, "dur": 2.0, "args": {"stream": 20, "Collective name": name,
            "In msg nelems": elements.0, "Out msg nelems": elements.1, "dtype": "Float"}})
    };
    let folder = Folder::new();
    let ask = |event: Value, npus| {
        let tree = json!({"traceEvents": [event]});
        read(&[folder.put("r.json", tree.to_string().as_bytes())], None, npus)
    };
    assert_eq!(ask(nccl("_allgather_base", (8, 128)), None).expect("a trace").world_size, 16);
    assert_eq!(ask(nccl("_reduce_scatter_base", (96, 8)), None).expect("a trace").world_size, 12);
    let error = ask(nccl("allreduce", (8, 8)), None).expect_err("it says nothing");
    assert!(error.why.contains("among how many ranks"), "{error}");
    let given = ask(nccl("allreduce", (8, 8)), Some(32)).expect("a trace");
    assert_eq!((given.world_size, collectives(&given)), (32, vec![(Operation::AllReduce, 32)]));
}

/// Ranks of one exchange: what the busiest sends or gets counts, and half as much crosses between two.
#[test]
fn an_uneven_exchange_is_what_its_busiest_rank_carries() {
    let folder = Folder::new();
    let exchange = |rank: u32, into: [u64; 2], out: [u64; 2]| {
        let event = json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "pid": 0,
            "tid": 20, "ts": 1.0, "dur": 2.0, "args": {"stream": 20, "Collective name": "all_to_allv",
            "In msg nelems": into.iter().sum::<u64>(), "Out msg nelems": out.iter().sum::<u64>(),
            "dtype": "Float", "Group size": 2, "Process Group Ranks": "[0, 1]",
            "In split size": format!("{into:?}"), "Out split size": format!("{out:?}")}});
        folder.put(&format!("rank{rank}.json"), &trace(rank, 2, &[event]))
    };
    let files = [exchange(0, [0, 1000], [0, 10]), exchange(1, [10, 0], [1000, 0])];
    let read = read(&files, None, None).expect("traces");
    // 4,000 bytes cross one way: as of an even exchange of 8,000.
    assert_eq!(collectives(&read), [(Operation::AllToAll, 8000); 2]);
    assert!(read.notes.iter().any(|note| note.contains("an upper bound")), "{:?}", read.notes);
}

#[test]
fn a_trace_of_jax_is_told_as_one() {
    let folder = Folder::new();
    let tree = json!({"traceEvents": [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "X", "pid": 1, "tid": 14, "ts": 10, "dur": 900, "name": "loop_fusion_12",
         "args": {"hlo_module": "jit_train_step", "hlo_op": "loop_fusion.12"}}]});
    let error = read(&[folder.put("j.json", tree.to_string().as_bytes())], None, None);
    assert!(error.expect_err("it is of JAX").why.contains("XLA's profiler (JAX"));
}
