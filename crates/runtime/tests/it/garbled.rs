//! One rank says what cannot be understood: every rank that is left ends with one cause, which names it.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allrail_runtime::{FaultKind, Node};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use socket2::SockRef;

use crate::cluster::{LONG, connected, started};

const RANKS: u32 = 4;

/// The ends of control connections in this process, by the rank that writes to them: those of a rank that
/// listens have its port, and where one rank only dials another, its end is known by the other's.
fn control_ends(nodes: &[Arc<Node>]) -> BTreeMap<u32, Vec<i32>> {
    let port = |node: &Arc<Node>| {
        node.addresses()[0].rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    };
    let ports: Vec<u16> = nodes.iter().map(port).collect();
    let mut ends: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd").expect("its files") {
        let name = entry.expect("an entry").file_name();
        let Some(fd) = name.to_str().and_then(|text| text.parse().ok()) else { continue };
        // SAFETY: whoever closes it meanwhile is this test, which does not; any number may be asked about.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let socket = SockRef::from(&socket);
        // Connections of data are not kept alive.
        if !socket.keepalive().unwrap_or(false) {
            continue;
        }
        let port = |at: std::io::Result<socket2::SockAddr>| Some(at.ok()?.as_socket()?.port());
        let (Some(mine), Some(theirs)) = (port(socket.local_addr()), port(socket.peer_addr()))
        else {
            continue;
        };
        if let Some(rank) = ports.iter().position(|port| *port == mine) {
            ends.entry(rank as u32).or_default().push(fd);
        } else if ports.iter().position(|port| *port == theirs) == Some(RANKS as usize - 2) {
            ends.entry(RANKS - 1).or_default().push(fd);
        }
    }
    ends
}

/// Of a draw: who says what to whom.
fn garbled(seed: u64) {
    let mut draw = Pcg64Mcg::seed_from_u64(seed);
    let more = json!({"shared_memory": false, "timeouts": {"connect": "20 s", "link": "10 s",
        "silent": "60 s", "heartbeat": "20 ms", "warn": "60 s", "stalled": "1800 s"}});
    let nodes = connected(&[RANKS], &more);
    let _tensors = started(&nodes, 10);
    let ends = control_ends(&nodes);
    assert_eq!(ends.len(), RANKS as usize, "{ends:?}");
    let from = (seed % u64::from(RANKS)) as u32;
    let end = ends[&from][draw.random_range(0..ends[&from].len())];
    let mut word = [0u8; 64];
    draw.fill(&mut word[..]);
    // Whatever else is drawn, it does not begin as words do.
    word[0] = b'x';
    // SAFETY: the nodes live on, and so do their sockets.
    let socket = unsafe { BorrowedFd::borrow_raw(end) };
    SockRef::from(&socket).send(&word).expect("it is sent");
    let until = Instant::now() + LONG;
    while nodes.iter().any(|node| node.fault().is_none()) {
        assert!(Instant::now() < until, "seed {seed}: some rank goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    let first = nodes[0].fault().expect("it has ended");
    assert_eq!((first.kind, first.rank), (FaultKind::Damaged, Some(from)), "seed {seed}: {first}");
    let both = format!("a control message from rank {from} to rank ");
    assert!(first.what.starts_with(&both), "seed {seed}: {first}");
    for (rank, node) in nodes.iter().enumerate() {
        assert_eq!(node.fault().as_ref(), Some(&first), "seed {seed}: rank {rank}");
    }
    nodes.iter().for_each(|node| node.close());
}

#[test]
fn a_word_that_cannot_be_understood_names_its_sender_on_every_rank() {
    let seeds = std::env::var("LAW_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    (0..seeds).for_each(garbled);
}
