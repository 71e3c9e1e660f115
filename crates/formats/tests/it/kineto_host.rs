//! What a trace's host says of its kernels, and traces of a host alone; in the forms that PyTorch has had.

use allrail_collective::Operation;
use allrail_core::{Bytes, FieldError};
use allrail_formats::kineto::{Imported, read};
use allrail_workload::{Peer, Work};
use serde_json::{Value, json};

use crate::kineto::{Folder, kernel, trace};

/// An event of the host.
fn host(name: &str, thread: u32, start: f64, length: f64, args: &Value) -> Value {
    let category = if name.contains("gloo") { "user_annotation" } else { "cpu_op" };
    json!({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start,
        "dur": length, "args": args})
}

fn launch(correlation: u32, thread: u32, start: f64) -> Value {
    json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": thread,
        "ts": start, "dur": 1.0, "args": {"correlation": correlation, "cbid": 211}})
}

/// A kernel that says nothing but who launched it.
fn silent(name: &str, correlation: u32, start: f64, length: f64) -> Value {
    json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 20, "ts": start, "dur": length,
        "args": {"stream": 20, "correlation": correlation, "External id": correlation}})
}

fn one(world_size: u32, events: &[Value]) -> Result<Imported, FieldError> {
    let folder = Folder::new();
    read(&[folder.put("rank0.json", &trace(0, world_size, events))], None, None)
}

fn works(read: &Imported) -> Vec<Work> {
    let communicates = |work: &Work| !matches!(work, Work::Compute { .. });
    let works = read.graph.ids().map(|id| read.graph.node(id).work);
    works.filter(communicates).collect()
}

/// As PyTorch 1.13 and 2.0 with NCCL 2.13 wrote it: every kernel has the name of another one, and
/// what it does stands with the call that launched it.
#[test]
fn a_kernel_is_what_the_call_did_that_launched_it() {
    let name = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)";
    let read = one(
        128,
        &[
            host(
                "c10d::alltoall_base_",
                5,
                10.0,
                8.0,
                &json!({
                "Input Dims": [[3000], [2000], [], [], [], []],
                "Input type": ["float", "float", "", "", "", "Scalar"]}),
            ),
            host(
                "record_param_comms",
                5,
                11.0,
                6.0,
                &json!({
                "Input Dims": [[2000], [], []], "Input type": ["float", "Scalar", ""]}),
            ),
            host(
                "nccl:all_to_all",
                5,
                12.0,
                4.0,
                &json!({
                "Input Dims": [[2000]], "Input type": ["float"]}),
            ),
            launch(77, 5, 13.0),
            // On the thread of the backward pass; a list of tensors has no shape here.
            host(
                "c10d::allreduce_",
                9,
                20.0,
                8.0,
                &json!({
                "Input Dims": [[], []], "Input type": ["TensorList", ""]}),
            ),
            host("record_param_comms", 9, 21.0, 6.0, &json!({"External id": 3})),
            host(
                "nccl:all_reduce",
                9,
                22.0,
                4.0,
                &json!({
                "Input Dims": [[500]], "Input type": ["c10::BFloat16"]}),
            ),
            launch(78, 9, 23.0),
            silent(name, 77, 40.0, 5.0),
            silent(name, 78, 50.0, 6.0),
            // Nobody is seen to have launched it.
            silent(name, 79, 60.0, 7.0),
        ],
    )
    .expect("a trace");
    let seen: Vec<(Operation, u64)> = works(&read)
        .into_iter()
        .map(|work| match work {
            Work::Collective { operation, bytes, .. } => (operation, bytes.count()),
            other => panic!("{other:?}"),
        })
        .collect();
    // 12,000 bytes come, and nothing says that any stay: as much as of an even exchange of 128/127 of it.
    assert_eq!(seen, [(Operation::AllToAll, 12_095), (Operation::AllReduce, 1000)]);
    assert_eq!(read.account.kept["collectives"].count, 2);
    assert_eq!(read.account.measured["communication whose collective is not known"].count, 1);
    assert!((read.account.us() - 18.0).abs() < 1e-9, "{:?}", read.account);
    assert!(read.notes[1].contains("2 communications do not say their process group"), "{read:?}");
    assert!(read.warnings[0].contains("1 of 3 communications, 39 % of their time"), "{read:?}");
}

/// `batch_isend_irecv`: the calls launch nothing, the end of their group does.
#[test]
fn a_group_of_messages_is_one_kernel() {
    let folder = Folder::new();
    let files: Vec<_> = (0..2u32)
        .map(|rank| {
            let other = (1 - rank).to_string();
            let shape = json!({"Input Dims": [[[64, 4]], [], [], []],
                "Input type": ["TensorList", "", "Scalar", "Scalar"],
                "Concrete Inputs": ["", "", other, "0"]});
            let call = |name: &str| {
                json!({"Collective name": name, "In msg nelems": 256,
                "Out msg nelems": 256, "dtype": "Float", "Group size": 2,
                "Process Group Name": "3", "Process Group Ranks": "[0, 1]"})
            };
            let events = [
                host("c10d::send", 5, 10.0, 3.0, &shape),
                host("record_param_comms", 5, 11.0, 1.0, &call("send")),
                host("c10d::recv_", 5, 14.0, 3.0, &shape),
                host("record_param_comms", 5, 15.0, 1.0, &call("recv")),
                launch(7, 5, 20.0),
                silent("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 7, 30.0, 9.0),
            ];
            folder.put(&format!("rank{rank}.json"), &trace(rank, 2, &events))
        })
        .collect();
    let read = read(&files, None, None).expect("traces");
    let works = works(&read);
    let sends = |by| {
        works.iter().filter(move |work| matches!(work,
        Work::Send { bytes, peer: Peer::Next(next), .. } if *bytes == Bytes::new(1024) && *next == by))
    };
    assert_eq!((sends(1).count(), sends(-1).count(), works.len()), (1, 1, 4), "{works:?}");
    assert_eq!(read.account.kept["messages"].count, 2, "one kernel a rank");
    assert!(read.warnings.is_empty());
}

#[test]
fn a_message_that_nobody_takes_and_a_collective_that_others_lack_keep_their_time() {
    let folder = Folder::new();
    let nccl = |name: &str, start: f64| {
        json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic",
        "pid": 0, "tid": 20, "ts": start, "dur": 2.0, "args": {"stream": 20, "Collective name": name,
        "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float", "Group size": 2,
        "Process Group Ranks": "[0, 1]", "Dst Rank": 1}})
    };
    let early = [nccl("allgather", 1.0), nccl("allreduce", 4.0), nccl("send", 7.0)];
    let files = [
        folder.put("a.json", &trace(0, 2, &early)),
        folder.put("b.json", &trace(1, 2, &[nccl("allreduce", 4.0)])),
    ];
    let read = read(&files, None, None).expect("traces");
    assert_eq!(read.account.kept["collectives"].count, 2, "the all-reduces meet");
    assert_eq!(
        read.account.measured.keys().copied().collect::<Vec<_>>(),
        ["collectives that another rank's trace lacks", "messages whose other end is in no trace"]
    );
    assert!((read.account.us() - 8.0).abs() < 1e-9);
}

#[test]
fn a_trace_without_most_of_its_communication_is_refused() {
    let calls = |count: u32| -> Vec<Value> {
        (0..count)
            .map(|i| {
                let shape = json!({"Input Dims": [[8]], "Input type": ["float"]});
                host("nccl:all_reduce", 5, 10.0 * f64::from(i), 5.0, &shape)
            })
            .collect()
    };
    let with = |count, kernels: &[Value]| one(8, &[calls(count), kernels.to_vec()].concat());
    let error = with(12, &[]).expect_err("no kernel of it");
    assert!(error.why.contains("called for 12 communications"), "{error}");
    let error =
        with(12, &[kernel("gemm", 7, 0.0, 1.0), silent("ncclDevKernel_Generic", 1, 2.0, 1.0)]);
    assert!(error.expect_err("one kernel").why.contains("1 of their kernels"));
    with(1, &[silent("ncclDevKernel_Generic", 1, 2.0, 1.0)]).expect("its kernel is there");
    let error = one(1, &[launch(1, 5, 2.0)]).expect_err("no kernel at all");
    assert!(error.why.contains("none of that is in it"), "{error}");
}

#[test]
fn a_lone_trace_of_a_later_rank_stands_for_itself() {
    let folder = Folder::new();
    let tree = json!({"distributedInfo": {"rank": 3}, "traceEvents": [kernel("k", 7, 0.0, 1.0)]});
    let read =
        read(&[folder.put("r.json", tree.to_string().as_bytes())], None, None).expect("a trace");
    assert_eq!((read.world_size, read.account.kept["kernels"].count), (1, 1));
}

/// Gloo, with PyTorch 2: the backend's threads communicate while the host computes.
#[test]
fn a_host_that_trains_computes_and_communicates() {
    let shape = json!({"Input Dims": [[131_328]], "Input type": ["float"]});
    let read = one(
        2,
        &[
            host("autograd::engine::evaluate_function: AddmmBackward0", 1, 10.0, 20.0, &json!({})),
            host("aten::mm", 1, 11.0, 5.0, &json!({})),
            host("c10d::allreduce_", 1, 20.0, 2.0, &json!({})),
            host("gloo:all_reduce", 2, 20.5, 30.0, &shape),
            host("aten::add_", 1, 51.0, 4.0, &json!({})),
        ],
    )
    .expect("a trace");
    assert!(
        matches!(works(&read)[..], [Work::Collective { operation: Operation::AllReduce, bytes, .. }]
            if bytes == Bytes::new(525_312)),
        "{read:?}"
    );
    let graph = &read.graph;
    let after = |name: &str| -> Vec<&str> {
        let id = graph.ids().find(|id| graph.name(*id) == name).expect("a node");
        graph.after(id).iter().map(|before| graph.name(*before)).collect()
    };
    assert_eq!(
        after("gloo:all_reduce"),
        ["autograd::engine::evaluate_function: AddmmBackward0"],
        "what came before its call"
    );
    assert!(after("aten::add_").contains(&"gloo:all_reduce"));
    assert!((read.account.us() - 54.0).abs() < 1e-9, "20 + 4 of the host, 30 of gloo");
}

/// `ExecutionTraceObserver`, in the forms of PyTorch 2.0 and 2.3: sizes and order, and no times.
#[test]
fn an_execution_trace_has_its_communication() {
    let newer = json!({"schema": "1.1.0-chakra.0.0.4", "pid": 1, "nodes": [
        {"id": 4, "name": "## process_group:init ##", "ctrl_deps": 3, "attrs": [],
         "inputs": {"values": ["[{\"pg_name\": \"0\", \"ranks\": [], \"group_size\": 4}]"]}},
        {"id": 6, "name": "aten::mm", "ctrl_deps": 3, "inputs": {}, "attrs": []},
        {"id": 7, "name": "c10d::allreduce_", "ctrl_deps": 3, "attrs": [], "inputs": {
            "values": [[[434, 435, 0, 100, 4, "cuda:1"]]], "shapes": [[[100]]],
            "types": ["GenericList[Tensor(float)]"]}},
        {"id": 8, "name": "record_param_comms", "ctrl_deps": 7, "inputs": {}, "attrs": [
            {"name": "collective_name", "type": "string", "value": "allreduce"},
            {"name": "dtype", "type": "string", "value": "BFloat16"},
            {"name": "in_msg_nelems", "type": "uint64", "value": 100},
            {"name": "out_msg_nelems", "type": "uint64", "value": 100},
            {"name": "global_rank_start", "type": "uint64", "value": 0},
            {"name": "global_rank_stride", "type": "uint64", "value": 2},
            {"name": "pg_size", "type": "uint64", "value": 2}]},
        {"id": 9, "name": "nccl:all_reduce", "ctrl_deps": 8, "attrs": [], "inputs": {
            "values": [], "shapes": [[100]], "types": ["Tensor(c10::BFloat16)"]}}]});
    let older = json!({"schema": "1.0.1", "pid": 1, "nodes": [
        {"id": 5, "name": "c10d::alltoall_base_", "parent": 2,
         "inputs": [], "input_shapes": [[96], [64]], "input_types": ["Tensor(float)", "Tensor(float)"]},
        {"id": 6, "name": "nccl:all_to_all", "parent": 5,
         "inputs": [], "input_shapes": [[64]], "input_types": ["Tensor(float)"]}]});
    let folder = Folder::new();
    let seen = |tree: &Value| {
        let read = read(&[folder.put("e.json", tree.to_string().as_bytes())], None, None)
            .expect("a trace");
        let [Work::Collective { operation, bytes, group, .. }] = works(&read)[..] else {
            panic!("{read:?}")
        };
        let parts = &read.graph.groups()[group.index()].parts;
        let shape = parts.first().map(|part| (part.size, part.stride));
        (operation, bytes.count(), read.world_size, shape, read.warnings)
    };
    let (operation, bytes, world_size, shape, warnings) = seen(&newer);
    assert_eq!((operation, bytes, world_size), (Operation::AllReduce, 200, 4));
    assert_eq!(shape, Some((2, 2)), "ranks 0 and 2");
    assert!(warnings[0].contains("its 1 operator takes none here"), "{warnings:?}");
    let mut two = older.clone();
    two["distributedInfo"] = json!({"world_size": 8});
    let (operation, bytes, world_size, ..) = seen(&two);
    // 96 elements of 4 bytes come, 64 leave: no even exchange.
    assert_eq!((operation, bytes, world_size), (Operation::AllToAll, 439, 8));
    let none = json!({"schema": "1.0.1", "nodes": [{"id": 1, "name": "aten::mm"}]}).to_string();
    let error =
        read(&[folder.put("n.json", none.as_bytes())], None, None).expect_err("no communication");
    assert!(error.why.contains("an execution trace, which holds no times"), "{error}");
}
