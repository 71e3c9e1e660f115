//! PyTorch's traces: what waits for what is read off the timeline; what is left out is counted.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use allrail_collective::Operation;
use allrail_core::{Bytes, FieldError, Time};
use allrail_formats::kineto::{Imported, read};
use allrail_workload::{NodeId, Peer, Purpose, Work};
use serde_json::{Value, json};

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("allrail-kineto-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn kernel(name: &str, stream: u32, start: f64, length: f64) -> Value {
    json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start,
        "dur": length, "args": {"stream": stream, "correlation": 1}})
}

fn nccl(
    name: &str,
    start: f64,
    length: f64,
    elements: (u64, u64),
    ranks: &str,
    about: &str,
) -> Value {
    json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic", "pid": 0, "tid": 20,
        "ts": start, "dur": length, "args": {"stream": 20, "Collective name": name,
        "In msg nelems": elements.0, "Out msg nelems": elements.1, "dtype": "BFloat16",
        "Group size": 4, "Process Group Name": "1", "Process Group Description": about,
        "Process Group Ranks": ranks}})
}

pub(crate) fn trace(rank: u32, world_size: u32, events: &[Value]) -> Vec<u8> {
    json!({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank,
        "world_size": world_size}, "traceEvents": events, "traceName": "t"})
    .to_string()
    .into_bytes()
}

fn one(events: &[Value]) -> Result<Imported, FieldError> {
    let folder = Folder::new();
    read(&[folder.put("rank0.json", &trace(0, 8, events))], None, None)
}

/// (name, what it waits for by name, what it does)
fn nodes(read: &Imported) -> Vec<(&str, Vec<&str>, Work)> {
    let graph = &read.graph;
    graph
        .ids()
        .map(|id| {
            let after = graph.after(id).iter().map(|before| graph.name(*before)).collect();
            (graph.name(id), after, graph.node(id).work)
        })
        .collect()
}

#[test]
fn streams_wait_for_one_another_where_one_was_idle() {
    let read = one(&[
        kernel("forward", 7, 100.0, 50.0),
        // Starts when `forward` is over: it waited for it. `backward` goes on meanwhile.
        nccl("allreduce", 150.0, 80.0, (1000, 1000), "[0, 1, 2, 3]", "DATA_PARALLEL_GROUP"),
        kernel("backward", 7, 150.0, 60.0),
        // Idle from 210 on, and begins when the all-reduce is over: it waited for that, too.
        kernel("update", 7, 230.0, 10.0),
        // 5 µs in which nobody was waited for: the host.
        kernel("late", 7, 245.0, 1.0),
    ])
    .expect("a trace");
    let seen = nodes(&read);
    let after = |name: &str| seen.iter().find(|node| node.0 == name).expect("a node").1.clone();
    assert_eq!(after("ncclDevKernel_Generic"), ["forward"]);
    assert_eq!(after("backward"), ["forward"]);
    assert_eq!(after("update"), ["backward", "ncclDevKernel_Generic"]);
    assert_eq!(after("late"), ["host"]);
    let host = seen.iter().find(|node| node.0 == "host").expect("a gap");
    assert_eq!(host.2, Work::Compute { time: Time::from_us(5) });
    assert_eq!(host.1, ["update"]);
    assert_eq!(read.account.gaps.count, 1);
    let reduced = read.graph.node(NodeId(1)).work;
    assert!(
        matches!(reduced, Work::Collective { operation: Operation::AllReduce, bytes, purpose: Purpose::Data, .. } if bytes == Bytes::new(2000)),
        "{reduced:?}"
    );
    assert_eq!(read.graph.actors()[0].ranks.len(), 8, "one rank stands for all");
}

#[test]
fn bytes_are_ours_for_every_collective() {
    let listed = "[0, 2, 4, 6]";
    for (name, elements, operation, bytes) in [
        ("_allgather_base", (100, 400), Operation::AllGather, 800),
        ("all_gather_into_tensor_coalesced", (100, 400), Operation::AllGather, 800),
        ("_reduce_scatter_base", (400, 100), Operation::ReduceScatter, 800),
        ("all_to_allv", (400, 400), Operation::AllToAll, 800),
        ("broadcast", (400, 400), Operation::Broadcast, 800),
        ("barrier", (1, 1), Operation::AllReduce, 0),
    ] {
        let events = [nccl(name, 1.0, 2.0, elements, listed, "tp"), kernel("k", 7, 0.0, 1.0)];
        let read = one(&events).expect(name);
        let work = read
            .graph
            .ids()
            .map(|id| read.graph.node(id).work)
            .find(|work| matches!(work, Work::Collective { .. }));
        let Some(Work::Collective { operation: found, bytes: count, group, purpose }) = work else {
            panic!("{name}: {work:?}")
        };
        assert_eq!((found, count.count(), purpose), (operation, bytes, Purpose::Tensor), "{name}");
        let parts = &read.graph.groups()[group.index()].parts;
        assert_eq!((parts[0].size, parts[0].stride), (4, 2), "{name}");
    }
}

#[test]
fn what_is_not_understood_keeps_its_time_and_what_is_left_out_is_counted() {
    let read = one(&[
        kernel("k", 7, 0.0, 1.0),
        json!({"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}),
        json!({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5}),
        json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 5}),
        json!({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "ts": 0}),
        nccl("send", 2.0, 1.0, (5, 5), "[0, 1, 2, 3]", ""),
        nccl("mystery", 3.0, 1.5, (5, 5), "[0, 1, 2, 3]", "dp"),
    ])
    .expect("a trace");
    let dropped: Vec<(&str, u64)> =
        read.dropped.iter().map(|(why, count)| (*why, *count)).collect();
    assert_eq!(
        dropped,
        [
            ("flows: which launch belongs to which kernel", 1),
            ("launches by the host: gaps on the accelerator stand for them", 1),
            ("metadata: names of processes and threads", 1),
            ("operators of the host: their kernels stand for them", 1),
        ]
    );
    let measured: Vec<(&str, u64, f64)> =
        read.account.measured.iter().map(|(why, a)| (*why, a.count, a.us)).collect();
    assert_eq!(
        measured,
        [
            ("communication whose collective is not known", 1, 1.5),
            ("messages whose peer is not known", 1, 1.0),
        ]
    );
    assert!((read.account.us() - 3.5).abs() < 1e-9, "the sum is the trace's");
    assert!(read.warnings[0].starts_with("2 of 2 communications, 100 % of their time"), "{read:?}");
    let graph = &read.graph;
    let mystery =
        graph.ids().find(|id| graph.node(*id).work == Work::Compute { time: Time::from_ns(1500) });
    let mystery = mystery.expect("its time is kept");
    assert!(graph.is_delay(mystery));
    assert_eq!(graph.communication(mystery), Some(Purpose::Data), "and counts as communication");
}

#[test]
fn every_rank_may_have_its_own_trace_gzipped_too() {
    let folder = Folder::new();
    let files: Vec<PathBuf> = (0..2u32)
        .map(|rank| {
            let mut sends =
                nccl(if rank == 0 { "send" } else { "recv" }, 1.0, 1.0, (8, 8), "[0, 1]", "pp");
            sends["args"]["Group size"] = json!(2);
            sends["args"]["Src Rank"] = json!(0);
            sends["args"]["Dst Rank"] = json!(1);
            let bytes = trace(rank, 2, &[kernel("k", 7, 0.0, 1.0), sends]);
            let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            zipped.write_all(&bytes).expect("a vector grows");
            folder.put(&format!("r{rank}.json.gz"), &zipped.finish().expect("it is written"))
        })
        .collect();
    let read = read(&files, None, None).expect("traces");
    assert_eq!(read.graph.actors().len(), 2);
    let works: Vec<Work> = read.graph.ids().map(|id| read.graph.node(id).work).collect();
    assert!(matches!(works[1], Work::Send { peer: Peer::Next(1), .. }), "{works:?}");
    assert!(matches!(works[3], Work::Receive { peer: Peer::Next(-1), .. }), "{works:?}");
}

#[test]
fn a_step_is_cut_out() {
    let folder = Folder::new();
    let step = |number: u32, start: f64| {
        json!({"ph": "X", "cat": "gpu_user_annotation", "name": format!("ProfilerStep#{number}"),
            "ts": start, "dur": 100.0})
    };
    let events =
        [step(3, 0.0), step(4, 100.0), kernel("a", 7, 10.0, 1.0), kernel("b", 7, 110.0, 1.0)];
    let path = folder.put("t.json", &trace(0, 1, &events));
    let read = |step| read(std::slice::from_ref(&path), step, None);
    let names = |read: &Imported| -> Vec<String> {
        read.graph.ids().map(|id| read.graph.name(id).to_owned()).collect()
    };
    assert_eq!(names(&read(Some(4)).expect("a step")), ["b"]);
    assert_eq!(names(&read(None).expect("a trace")).len(), 3, "both kernels and the gap");
    let error = read(Some(9)).expect_err("no such step");
    assert!(error.hint.contains("3, 4"), "{error}");
}

#[test]
fn mistakes_are_named() {
    let folder = Folder::new();
    let good = |rank, world_size| trace(rank, world_size, &[kernel("k", 7, 0.0, 1.0)]);
    let a = folder.put("a.json", &good(0, 2));
    let b = folder.put("b.json", &good(0, 2));
    let c = folder.put("c.json", &good(0, 8));
    let of = |files: &[PathBuf]| {
        let error = read(files, None, None).expect_err("a mistake");
        format!("{error} {}", error.hint)
    };
    assert!(of(&[a.clone(), b]).contains("rank 0, and so is"));
    assert!(of(&[a, c.clone()]).contains("it is of 8 ranks, and"));
    let d = folder.put("d1.json", &good(1, 8));
    assert!(of(&[c.clone(), d]).contains("2 traces are given, and the job has 8 ranks"));
    assert!(of(&[folder.put("d.json", &good(9, 8))]).contains("rank 9, and there are 8"));
    assert!(of(&[folder.put("e.json", b"{\"traceEvents\": [")]).contains("no trace of Kineto"));
    let whole = good(0, 2);
    assert!(of(&[folder.put("k.json", &whole[..whole.len() - 12])]).contains("it is cut off"));
    assert!(of(&[folder.put("f.json", b"{\"a\": 1}")]).contains("no `traceEvents`"));
    assert!(
        of(&[folder.put("g.json", &trace(0, 1, &[]))]).contains("neither kernels nor operators")
    );
    assert!(of(&[folder.0.join("none.json")]).contains("file"));
    let cut = &[0x1f, 0x8b, 8, 0, 0];
    assert!(of(&[folder.put("h.json.gz", cut)]).contains("no trace of Kineto"));
    let chakra = br#"{"workload_graph": [{"Id": 216, "NodeType": 4}]}"#;
    assert!(of(&[folder.put("i.json", chakra)]).contains("it is a Chakra trace as JSON"));
    let strange = [nccl("allreduce", 0.0, 1.0, (1, 1), "[4, 5, 6, 7]", "dp")];
    assert!(of(&[folder.put("i.json", &trace(0, 8, &strange))]).contains("rank 0 is not in"));
}
