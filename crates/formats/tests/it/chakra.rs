//! Chakra traces: what is written is read again; alike ranks fold; traces scale; mistakes are named.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, FieldError, Rank, Time};
use allrail_formats::chakra::proto::attribute_proto::Value;
use allrail_formats::chakra::proto::{AttributeProto, GlobalMetadata, Node as Written};
use allrail_formats::chakra::{Options, Ranks, Scale, Trace, read, write};
use allrail_workload::device::Device;
use allrail_workload::spec::{Compute, Precision};
use allrail_workload::{
    Actor, ActorId, Builder, Group, Node, NodeId, Part, Pass, Peer, Purpose, StepGraph, Work,
};
use proptest::prelude::*;
use prost::Message;

/// A folder of its own, which goes when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("allrail-chakra-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn prefix(&self) -> PathBuf {
        self.0.join("trace")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn options(sizes: &[u32]) -> Options {
    Options { sizes: sizes.to_vec(), ..Options::default() }
}

/// The ranks that `rank` meets in a group, ascending: by coordinates, the plain way.
fn met(group: &Group, rank: u32, sizes: &[u32]) -> Vec<u32> {
    if group.parts.is_empty() {
        return group.ranks.iter().map(|rank| rank.0).collect();
    }
    let npus: u32 = sizes.iter().product();
    let same = |other: u32| {
        let mut below = 1;
        sizes.iter().enumerate().all(|(d, size)| {
            let place = |rank: u32| {
                let mut place = rank / below % size;
                // What the parts of this dimension leave out must agree.
                for part in group.parts.iter().filter(|part| part.dimension.index() == d) {
                    place -= place / part.stride % part.size * part.stride;
                }
                place
            };
            let same = place(rank) == place(other);
            below *= size;
            same
        })
    };
    (0..npus).filter(|other| same(*other)).collect()
}

type Seen = (String, String, Vec<usize>, Vec<usize>);

/// What each rank does, in words, whoever its actor is.
fn by_rank(graph: &StepGraph, sizes: &[u32]) -> BTreeMap<u32, Vec<Seen>> {
    let mut seen: BTreeMap<u32, Vec<Seen>> = BTreeMap::new();
    for (a, actor) in (0u32..).zip(graph.actors()) {
        let own: Vec<NodeId> =
            graph.ids().filter(|id| graph.node(*id).actor == ActorId(a)).collect();
        let place = |id: &NodeId| own.iter().position(|other| other == id).expect("its own");
        for rank in &actor.ranks {
            let nodes = own.iter().map(|id| {
                let node = graph.node(*id);
                let group =
                    |id: allrail_workload::GroupId| met(&graph.groups()[id.index()], rank.0, sizes);
                let to = |id, peer| {
                    let ranks = group(id);
                    let here = ranks.iter().position(|other| *other == rank.0).expect("it is in");
                    match peer {
                        Peer::At(at) => ranks[at as usize],
                        Peer::Next(by) => {
                            let many = i64::try_from(ranks.len()).expect("few");
                            let at = (here as i64 + i64::from(by)).rem_euclid(many);
                            ranks[usize::try_from(at).expect("few")]
                        }
                    }
                };
                let what = match node.work {
                    Work::Compute { time } => format!("compute {time:?} {}", graph.is_delay(*id)),
                    Work::Collective { operation, bytes, group: g, purpose } => format!(
                        "{operation} {bytes} {:?} {purpose:?} {} {}",
                        group(g),
                        graph.is_urgent(*id),
                        graph.priority(*id)
                    ),
                    Work::Send { bytes, group: g, peer, purpose } => {
                        format!("send {bytes} to {} {purpose:?}", to(g, peer))
                    }
                    Work::Receive { bytes, group: g, peer, purpose } => {
                        format!("receive {bytes} from {} {purpose:?}", to(g, peer))
                    }
                };
                let mut after: Vec<usize> = graph.after(*id).iter().map(place).collect();
                after.sort_unstable();
                after.dedup();
                let previous = graph
                    .carried()
                    .iter()
                    .filter(|(n, _)| n == id)
                    .map(|(_, b)| place(b))
                    .collect();
                let what = format!("{what} {:?} {:?}", node.tensor, node.pass);
                (graph.name(*id).to_owned(), what, after, previous)
            });
            seen.insert(rank.0, nodes.collect());
        }
    }
    seen
}

/// A random graph on 2 × 4 × 2 ranks: one actor for all, or one for each half.
#[derive(Clone, Debug)]
struct Recipe {
    halves: bool,
    /// (what, size, group, how far back it depends, tensor)
    nodes: Vec<(u8, u64, u8, usize, u32)>,
}

const SIZES: [u32; 3] = [2, 4, 2];

fn recipes() -> impl Strategy<Value = Recipe> {
    let node = (0u8..8, 0u64..100_000, 0u8..4, 0usize..4, 0u32..50);
    (any::<bool>(), prop::collection::vec(node, 1..25))
        .prop_map(|(halves, nodes)| Recipe { halves, nodes })
}

fn graph(recipe: &Recipe) -> StepGraph {
    let mut builder = Builder::default();
    let part = |dimension, size, stride| Part { dimension: DimensionId(dimension), size, stride };
    let shapes = [
        vec![part(0, 2, 1)],
        vec![part(0, 2, 1), part(1, 4, 1)],
        vec![part(1, 2, 1)],
        vec![part(1, 2, 2)],
    ];
    let ranks: [Vec<u32>; 2] = [(0..8).collect(), (8..16).collect()];
    let actors: Vec<ActorId> = if recipe.halves {
        ranks
            .iter()
            .map(|ranks| {
                let ranks = ranks.iter().copied().map(Rank).collect();
                builder.actor(Actor { name: "half".into(), ranks })
            })
            .collect()
    } else {
        vec![builder.actor(Actor { name: "all".into(), ranks: (0..16).map(Rank).collect() })]
    };
    let everyone = Group {
        name: "all".into(),
        parts: vec![part(0, 2, 1), part(1, 4, 1), part(2, 2, 1)],
        ranks: Vec::new(),
        actors: actors.clone(),
    };
    let all = builder.group(everyone);
    for (half, actor) in (0u64..).zip(&actors) {
        let own: Vec<_> = shapes
            .iter()
            .map(|parts| {
                builder.group(Group {
                    name: "some".into(),
                    parts: parts.clone(),
                    ranks: Vec::new(),
                    actors: vec![*actor],
                })
            })
            .collect();
        let mut last: Vec<NodeId> = Vec::new();
        for (i, (what, size, group, back, place)) in recipe.nodes.iter().enumerate() {
            let bytes = Bytes::new(*size);
            let purpose = Purpose::ALL[*what as usize % 6];
            let works = match what {
                0..=2 => vec![Work::Compute { time: Time::from_ps(size * 777 + half) }],
                3 => vec![Work::Collective {
                    operation: Operation::AllReduce,
                    bytes,
                    group: all,
                    purpose,
                }],
                4..=6 => vec![Work::Collective {
                    operation: Operation::ALL[*what as usize - 2],
                    // A multiple of all groups: an all-gather's input is a share of it.
                    bytes: Bytes::new(size * 16),
                    group: own[*group as usize],
                    purpose,
                }],
                _ => {
                    let by = i32::from(*group) + 1;
                    let sends = Peer::Next(by);
                    let comes = Peer::Next(-by);
                    vec![
                        Work::Send { bytes, group: all, peer: sends, purpose },
                        Work::Receive { bytes, group: all, peer: comes, purpose },
                    ]
                }
            };
            for work in works {
                let after: Vec<NodeId> = last.iter().rev().skip(*back).take(2).copied().collect();
                let gradient = matches!(work, Work::Collective { .. }) && *back == 1;
                let pass = [Pass::Forward, Pass::Backward, Pass::Update, Pass::Unknown][*back];
                let tensor = gradient.then_some(*place);
                let node = Node { actor: *actor, work, tensor, pass };
                let id = builder.node(&format!("n{i}"), node, &after);
                if *back == 3 && matches!(work, Work::Compute { .. }) {
                    builder.delay(id);
                }
                if *back == 2 && matches!(work, Work::Collective { .. }) {
                    builder.urgent(id);
                    builder.prioritise(id, i32::try_from(i % 7).expect("small") - 3);
                }
                if *back == 0 {
                    builder.carry(*last.first().unwrap_or(&id), id);
                }
                last.push(id);
            }
        }
    }
    builder.finish().expect("a graph")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read_again(recipe in recipes()) {
        let graph = graph(&recipe);
        let folder = Folder::new();
        let summary = write(&graph, &SIZES, (&folder.0, "trace"), Ranks::All).expect("it is written");
        prop_assert_eq!(summary.files, 16);
        let trace = read(&folder.prefix(), &options(&SIZES)).expect("it is read");
        prop_assert_eq!(by_rank(&trace.graph, &SIZES), by_rank(&graph, &SIZES));
        prop_assert_eq!((trace.nodes, trace.bytes), (summary.nodes, summary.bytes));
        prop_assert!(trace.graph.actors().len() <= 2, "alike ranks are folded");
        // One file for all that are alike says the same.
        let few = Folder::new();
        let whose = Ranks::Representative;
        let summary = write(&graph, &SIZES, (&few.0, "trace"), whose).expect("it is written");
        let again = read(&few.prefix(), &options(&SIZES)).expect("it is read");
        prop_assert_eq!(by_rank(&again.graph, &SIZES), by_rank(&graph, &SIZES));
        prop_assert_eq!(again.ranks, 16);
        prop_assert_eq!(again.bytes, summary.bytes);
        prop_assert!(summary.files <= 16);
    }
}

pub(crate) fn attribute(name: &str, value: Value) -> AttributeProto {
    AttributeProto { name: name.into(), doc_string: String::new(), value: Some(value) }
}

pub(crate) fn compute(id: u64, micros: u64, after: &[u64]) -> Written {
    Written {
        id,
        name: format!("compute {id}"),
        r#type: 4,
        data_deps: after.to_vec(),
        duration_micros: micros,
        ..Written::default()
    }
}

pub(crate) fn collective(
    id: u64,
    kind: i64,
    bytes: i64,
    group: Option<&str>,
    after: &[u64],
) -> Written {
    let mut attr = vec![
        attribute("comm_type", Value::Int64Val(kind)),
        attribute("comm_size", Value::Int64Val(bytes)),
    ];
    attr.extend(group.map(|name| attribute("pg_name", Value::StringVal(name.into()))));
    Written {
        id,
        name: format!("collective {id}"),
        r#type: 7,
        ctrl_deps: after.to_vec(),
        attr,
        ..Written::default()
    }
}

fn message(id: u64, sends: bool, source: i32, destination: i32, bytes: i64) -> Written {
    Written {
        id,
        name: format!("message {id}"),
        r#type: if sends { 5 } else { 6 },
        attr: vec![
            attribute("comm_src", Value::Int32Val(source)),
            attribute("comm_dst", Value::Int32Val(destination)),
            attribute("comm_size", Value::Int64Val(bytes)),
        ],
        ..Written::default()
    }
}

fn bytes_of(nodes: &[Written]) -> Vec<u8> {
    let head = GlobalMetadata { version: "0.0.4".into(), attr: Vec::new() };
    let mut bytes = head.encode_length_delimited_to_vec();
    for node in nodes {
        bytes.extend(node.encode_length_delimited_to_vec());
    }
    bytes
}

/// Puts ranks' nodes into files, with groups.
fn put(folder: &Folder, ranks: &[Vec<Written>], groups: &str) {
    for (rank, nodes) in ranks.iter().enumerate() {
        fs::write(folder.0.join(format!("trace.{rank}.et")), bytes_of(nodes)).expect("a file");
    }
    if !groups.is_empty() {
        fs::write(folder.0.join("comm_group.json"), groups).expect("a file");
    }
}

pub(crate) fn traced(
    ranks: &[Vec<Written>],
    groups: &str,
    options: &Options,
) -> Result<Trace, FieldError> {
    let folder = Folder::new();
    put(&folder, ranks, groups);
    read(&folder.prefix(), options)
}

/// Two tensor-parallel pairs `t0`, `t1`, whose replicas meet in `d0`, `d1`.
fn hybrid() -> (Vec<Vec<Written>>, &'static str) {
    let rank = |pair: u32, replica: u32| {
        vec![
            compute(10, 5, &[]),
            collective(11, 0, 4096, Some(&format!("t{pair}")), &[10]),
            compute(12, 7, &[11]),
            collective(13, 2, 512, Some(&format!("d{replica}")), &[12]),
        ]
    };
    let ranks = vec![rank(0, 0), rank(0, 1), rank(1, 0), rank(1, 1)];
    (ranks, r#"{"t0": [0, 1], "t1": [2, 3], "d0": [0, 2], "d1": [1, 3]}"#)
}

#[test]
fn alike_ranks_with_groups_of_their_own_are_one_actor() {
    let (ranks, groups) = hybrid();
    let trace = traced(&ranks, groups, &options(&[2, 2])).expect("a trace");
    assert_eq!(trace.graph.actors().len(), 1);
    assert_eq!(trace.graph.actors()[0].name, "ranks 0, … (4)");
    assert_eq!(trace.graph.len(), 4);
    assert_eq!((trace.ranks, trace.nodes), (4, 16));
    let names: Vec<&str> = trace.graph.groups().iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["`d0`, 2 ranks on dim2", "`t0`, 2 ranks on dim1"]);
    let gathered = trace.graph.node(NodeId(3)).work;
    assert!(
        matches!(gathered, Work::Collective { operation: Operation::AllGather, bytes, .. } if bytes == Bytes::new(1024)),
        "{gathered:?}"
    );
}

#[test]
fn ranks_that_compute_otherwise_are_actors_of_their_own() {
    let (mut ranks, groups) = hybrid();
    ranks[2][0].duration_micros = 6;
    let trace = traced(&ranks, groups, &options(&[2, 2])).expect("a trace");
    // Rank 0's like meet rank 2 or not: nothing is folded.
    assert_eq!(trace.graph.actors().len(), 4);
    assert_eq!(trace.graph.groups().len(), 4);
}

#[test]
fn a_trace_of_four_ranks_runs_on_a_thousand() {
    let (ranks, groups) = hybrid();
    let scaled = Options { scale: Some(Scale::default()), ..options(&[2, 512]) };
    let trace = traced(&ranks, groups, &scaled).expect("a trace");
    assert_eq!(trace.graph.actors().len(), 1);
    assert_eq!(trace.graph.actors()[0].ranks.len(), 1024);
    let sizes: Vec<u32> = trace
        .graph
        .groups()
        .iter()
        .map(|group| group.parts.iter().map(|part| part.size).product())
        .collect();
    assert_eq!(sizes, [512, 2], "the replicas' group grows, the pairs stay pairs");
    let gathered = trace.graph.node(NodeId(3)).work;
    assert!(
        matches!(gathered, Work::Collective { bytes, .. } if bytes == Bytes::new(512 * 512)),
        "every replica puts in what it did: {gathered:?}"
    );
}

#[test]
fn ids_may_come_in_any_order() {
    let nodes = vec![compute(40, 1, &[7]), compute(7, 2, &[]), compute(u64::MAX, 3, &[40, 7])];
    let trace = traced(&[nodes.clone(), nodes], "", &options(&[2])).expect("a trace");
    let after: Vec<Vec<u32>> = trace
        .graph
        .ids()
        .map(|id| trace.graph.after(id).iter().map(|before| before.0).collect())
        .collect();
    assert_eq!(after, [vec![1], vec![], vec![1, 0]]);
    assert_eq!(trace.graph.actors().len(), 1);
}

#[test]
fn a_ring_of_messages_is_alike_around_the_ring() {
    let ranks: Vec<Vec<Written>> = (0..4)
        .map(|rank| {
            vec![
                message(0, true, rank, (rank + 1) % 4, 100),
                message(1, false, (rank + 3) % 4, rank, 100),
            ]
        })
        .collect();
    let trace = traced(&ranks, "", &options(&[4])).expect("a trace");
    assert_eq!(trace.graph.actors().len(), 1);
    let work = trace.graph.node(NodeId(0)).work;
    assert!(matches!(work, Work::Send { peer: Peer::Next(1), .. }), "{work:?}");
}

#[test]
fn operations_take_time_by_the_roofline() {
    let mut node = compute(0, 0, &[]);
    node.attr = vec![
        attribute("num_ops", Value::Int64Val(2_000_000)),
        attribute("tensor_size", Value::Uint64Val(1_000)),
    ];
    let compute = Compute {
        peak: Some("1 TFLOP/s".into()),
        memory_bandwidth: Some("1 GB/s".parse().expect("a bandwidth")),
        efficiency: Some(1.0),
        ..Compute::default()
    };
    let device = Device::new(&compute, Precision::Fp16).expect("a device");
    let timed = Options { device: Some(device), ..options(&[2]) };
    let ranks = [vec![node.clone()], vec![node]];
    let trace = traced(&ranks, "", &timed).expect("a trace");
    // 2 µs of operations, 1 µs of memory.
    assert_eq!(trace.graph.node(NodeId(0)).work, Work::Compute { time: Time::from_us(2) });
    let untimed = traced(&ranks, "", &options(&[2])).expect("a trace");
    assert_eq!(untimed.notes.values().sum::<u64>(), 1, "{:?}", untimed.notes);
}

#[test]
fn groups_that_are_no_product_are_kept_as_ranks() {
    let odd = collective(0, 0, 64, Some("odd"), &[]);
    let ranks = [vec![odd.clone()], vec![odd.clone()], vec![odd], vec![compute(0, 1, &[])]];
    let trace = traced(&ranks, r#"{"odd": [0, 1, 2]}"#, &options(&[4])).expect("a trace");
    assert_eq!(trace.graph.groups()[0].ranks, [Rank(0), Rank(1), Rank(2)]);
    assert!(trace.graph.groups()[0].parts.is_empty());
}

/// What is wrong, and what the message says.
#[test]
fn mistakes_are_named() {
    let lone = |node: Written| vec![vec![node.clone()], vec![node]];
    let plain = options(&[2]);
    let pair = [vec![collective(0, 0, 64, None, &[])], vec![collective(0, 0, 64, None, &[])]];
    let mut sized = pair.clone();
    sized[1] = vec![collective(0, 0, 65, None, &[])];
    let mut ordered = [
        vec![collective(0, 0, 64, None, &[]), collective(1, 7, 64, None, &[])],
        vec![collective(0, 7, 64, None, &[]), collective(1, 0, 64, None, &[])],
    ];
    ordered[0][0].name = "first".into();
    let mut fewer = pair.clone();
    fewer[1].push(collective(1, 0, 64, None, &[]));
    let mut nameless = compute(0, 1, &[]);
    nameless.r#type = 0;
    let mut sizeless = collective(0, 0, 64, None, &[]);
    sizeless.attr.pop();
    type Case<'a> = (&'a str, Vec<Vec<Written>>, &'a str, &'a [&'a str]);
    let cases: Vec<Case<'_>> = vec![
        (
            "a dependency ahead of all nodes",
            lone(compute(0, 1, &[9])),
            "",
            &["node 0", "node 9", "does not exist"],
        ),
        (
            "a dependency on nothing, with scattered ids",
            vec![vec![compute(5, 1, &[]), compute(3, 1, &[4])]; 2],
            "",
            &["node 3", "node 4"],
        ),
        (
            "a cycle",
            vec![vec![compute(0, 1, &[2]), compute(1, 1, &[0]), compute(2, 1, &[1])]; 2],
            "",
            &["cycle", "`compute 0`", "waits for"],
        ),
        ("a node that waits for itself", lone(compute(0, 1, &[0])), "", &["cycle"]),
        (
            "an id given twice",
            vec![vec![compute(1, 1, &[]), compute(1, 2, &[])]; 2],
            "",
            &["node 1", "two nodes"],
        ),
        (
            "a negative duration",
            lone(compute(0, u64::MAX, &[])),
            "",
            &["node 0", "negative or more than a day"],
        ),
        ("a node without a type", lone(nameless), "", &["INVALID_NODE"]),
        ("an unknown collective", lone(collective(0, 42, 64, None, &[])), "", &["comm_type"]),
        ("a negative collective", lone(collective(0, -1, 64, None, &[])), "", &["comm_type"]),
        ("a collective without a size", lone(sizeless), "", &["comm_size"]),
        ("a negative size", lone(collective(0, 0, -64, None, &[])), "", &["1 PiB"]),
        (
            "an unknown group",
            lone(collective(0, 0, 64, Some("dp"), &[])),
            r#"{"tp": [0, 1]}"#,
            &["`dp`", "knows tp"],
        ),
        (
            "a group without a file",
            lone(collective(0, 0, 64, Some("dp"), &[])),
            "",
            &["`dp`", "comm_group.json"],
        ),
        (
            "a group without the rank",
            lone(collective(0, 0, 64, Some("g"), &[])),
            r#"{"g": [0]}"#,
            &["rank 1 is not in", "`g`"],
        ),
        ("a group of an unknown rank", pair.to_vec(), r#"{"g": [0, 7]}"#, &["rank 7", "2 NPUs"]),
        ("a group with a rank twice", pair.to_vec(), r#"{"g": [0, 0]}"#, &["`g`", "twice"]),
        ("a group without ranks", pair.to_vec(), r#"{"g": []}"#, &["`g`", "no rank"]),
        ("groups that are no object", pair.to_vec(), "[1]", &["comm_group.json", "no object"]),
        ("a group that is no list", pair.to_vec(), r#"{"g": "all"}"#, &["`g`", "no list"]),
        ("sizes that disagree", sized.to_vec(), "", &["differs", "64", "65", "rank 0", "rank 1"]),
        (
            "an order that disagrees",
            ordered.to_vec(),
            "",
            &["differs", "`first`", "all_reduce", "reduce_scatter"],
        ),
        ("numbers that disagree", fewer.to_vec(), "", &["1 collective", "2"]),
        ("a message to nobody", lone(message(0, true, 0, 5, 64)), "", &["comm_dst is 5"]),
        ("a message to itself", lone(message(0, true, 0, 0, 64)), "", &["comm_dst is 0"]),
        (
            "a send of another rank",
            vec![vec![message(0, true, 1, 1, 64)], vec![]],
            "",
            &["file of rank 0"],
        ),
    ];
    for (name, ranks, groups, told) in cases {
        let error = traced(&ranks, groups, &plain).expect_err(name);
        let text = format!("{error} {}", error.hint);
        for part in told {
            assert!(text.contains(part), "{name}: {text}");
        }
    }
}

#[test]
fn broken_files_are_named_with_the_place() {
    let whole = bytes_of(&[compute(0, 1, &[]), compute(1, 1, &[0])]);
    let with = |bytes: &[u8]| {
        let folder = Folder::new();
        fs::write(folder.0.join("trace.0.et"), bytes).expect("a file");
        let error = read(&folder.prefix(), &options(&[1])).expect_err("it is broken");
        format!("{error} {}", error.hint)
    };
    assert!(with(&whole[..whole.len() - 3]).contains("the file ends within a message"));
    assert!(with(&whole[..9]).contains("the file ends within a message"));
    assert!(with(&[0x80]).contains("the file ends within the length of a message"));
    assert!(with(&whole[..8]).contains("no nodes"));
    assert!(with(&[]).contains("it is empty"));
    let mut wild = whole.clone();
    wild.extend([0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3]);
    assert!(with(&wild).contains("is announced"));
    let mut inner = bytes_of(&[]);
    // A node of 4 bytes whose name claims to be 100 long.
    inner.extend([4, 0x12, 100, b'a', b'b']);
    assert!(with(&inner).contains("field 2 is longer than its message"));
    inner = bytes_of(&[]);
    inner.extend([4, 0x12, 2, 0xff, 0xfe]);
    assert!(with(&inner).contains("not UTF-8"));
    assert!(with(&[5, 0x0b, 1, 2, 3, 4]).contains("corrupt"));
}

#[test]
fn missing_files_are_named() {
    let folder = Folder::new();
    let none = read(&folder.prefix(), &options(&[2])).expect_err("nothing there");
    assert!(none.why.contains("trace.0.et"), "{none}");
    let nodes = bytes_of(&[compute(0, 1, &[])]);
    fs::write(folder.0.join("trace.0.et"), &nodes).expect("a file");
    fs::write(folder.0.join("trace.2.et"), &nodes).expect("a file");
    let gap = read(&folder.prefix(), &options(&[3])).expect_err("rank 1 is missing");
    assert!(gap.why.contains("rank 1 is missing"), "{gap}");
    fs::remove_file(folder.0.join("trace.2.et")).expect("it was there");
    let few = read(&folder.prefix(), &options(&[4])).expect_err("one rank for four");
    assert!(few.why.contains("1 rank, and the fabric 4 NPUs"), "{few}");
    assert!(few.hint.contains("scale"), "{}", few.hint);
    let elsewhere = read(Path::new("/nowhere/trace"), &options(&[1])).expect_err("no folder");
    assert!(elsewhere.why.contains("no such file"), "{elsewhere}");
}

/// A pipeline whose stages pass keys and values round a ring, whose ends are not as the ranks in between.
#[test]
fn ranks_that_are_alike_have_one_file() {
    let value = serde_json::json!({"pp": 2, "cp": 4, "tp": 2, "microbatches": 2});
    let graph = crate::common::small(&value, &SIZES);
    let (all, few) = (Folder::new(), Folder::new());
    let every = write(&graph, &SIZES, (&all.0, "trace"), Ranks::All).expect("it is written");
    let whose = Ranks::Representative;
    let one = write(&graph, &SIZES, (&few.0, "trace"), whose).expect("it is written");
    assert_eq!(every.files, SIZES.iter().map(|size| u64::from(*size)).product::<u64>());
    // Of each stage the first of a ring, the last, and those in between.
    assert_eq!(one.files, 6);
    let [whole, again] =
        [&all, &few].map(|folder| read(&folder.prefix(), &options(&SIZES)).expect("it is read"));
    assert_eq!(whole.ranks, again.ranks);
    assert_eq!(by_rank(&again.graph, &SIZES), by_rank(&whole.graph, &SIZES));
    assert_eq!(again.graph.actors(), whole.graph.actors());
}

#[test]
fn lists_of_ranks_that_are_wrong_are_named() {
    let folder = Folder::new();
    let nodes = bytes_of(&[compute(0, 1, &[])]);
    fs::write(folder.0.join("trace.0.et"), &nodes).expect("a file");
    for (text, why) in [
        ("[]", "no object of ranks"),
        ("{}", "has no ranks"),
        (r#"{"0": [0, 0]}"#, "named twice"),
        (r#"{"0": [0, 2]}"#, "has rank 2, and there are 2 ranks"),
        (r#"{"0": [1, 2]}"#, "not the first"),
        (r#"{"0": [0], "1": [1]}"#, "there is no file"),
    ] {
        fs::write(folder.0.join("trace.ranks.json"), text).expect("a file");
        let error = read(&folder.prefix(), &options(&[2])).expect_err("it is wrong");
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
    fs::write(folder.0.join("trace.ranks.json"), r#"{"0": [0, 1]}"#).expect("a file");
    let trace = read(&folder.prefix(), &options(&[2])).expect("it is right");
    assert_eq!((trace.ranks, trace.graph.actors()[0].ranks.len()), (2, 2));
}
