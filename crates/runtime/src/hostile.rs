//! A peer that has the secret and says what it should not: the job ends with an error that names it, and
//! nothing panics.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use allrail_collective::Operation;
use allrail_engine::{Dtype, FrameAt, FrameName, SignatureHash};
use allrail_schedule::{Key, OperationName};

use crate::frame::{HEADER, Header};
use crate::rendezvous::{Joined, Listening};
use crate::settings::tests::local;
use crate::{CallOf, Fault, FaultKind, Node, Registered, Settings};

/// A node, and the two connections that rank 1 has with it.
fn with_peer() -> (Node, TcpStream, TcpStream) {
    let settings = |rank| Settings { shared_memory: false, ..local(rank, &[2]) };
    let (node, settings) = (Node::bind(settings(0)).expect("a port"), settings(1));
    let listening = Listening::new(&settings).expect("a port");
    let mine = listening.addresses().iter().map(ToString::to_string).collect();
    let table = vec![node.addresses().to_vec(), mine];
    let mut peer = std::thread::scope(|scope| {
        let peer = scope.spawn(|| listening.connect(&settings, &table, &mut || true));
        node.connect(&table, &mut || true).expect("the peer is there");
        peer.join().expect("no panic").expect("the node is there")
    });
    let (name, dtype, shape) = ("weight".to_owned(), "float32".to_owned(), vec![64]);
    node.register(Registered { name, dtype, shape, ..Registered::default() }).expect("a name");
    node.start().expect("it starts");
    let Some(Joined::Tcp(data)) = peer.data[0].remove(&0) else { panic!("a data connection") };
    let data = TcpStream::from(data);
    let control = peer.control.remove(&0).expect("a control connection");
    for stream in [&data, &control] {
        stream.set_nonblocking(false).expect("it blocks");
    }
    (node, data, control)
}

fn fault(node: &Node) -> Fault {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match node.fault() {
            Some(fault) => return fault,
            None if Instant::now() > end => panic!("it goes on for ever: {:?}", node.report()),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The first frame that rank 1 sends of the tensor's first exchange.
fn header() -> Header {
    let signature = SignatureHash::new(Operation::AllReduce, 0, "float32", &[64], &[]);
    let operation = OperationName { key: Key::of("weight"), ..OperationName::default() };
    let at = FrameAt { stage: 0, step: 0, from: 1, index: 0 };
    Header { name: FrameName { operation, chunk: 0, at }, signature: signature.0, length: 128 }
}

#[test]
fn frames_that_cannot_be_name_their_sender() {
    type Change = fn(&mut Header);
    let table: [(&str, Change, usize); 6] = [
        ("says that rank 7 has sent it", |one| one.name.at.from = 7, 1),
        ("no tensor with key", |one| one.name.operation.key = Key::of("other"), 1),
        ("none of this group", |one| one.name.operation.group = 9, 1),
        ("it is of epoch 3", |one| one.name.operation.epoch = 3, 1),
        ("has come before", |_| {}, 2),
        ("announces 0 bytes", |one| one.length = 0, 1),
    ];
    for (wanted, change, times) in table {
        let (node, mut data, _control) = with_peer();
        let mut header = header();
        change(&mut header);
        for _ in 0..times {
            data.write_all(&header.to_bytes()).expect("it reads");
            data.write_all(&[0; 128]).expect("it reads");
        }
        let fault = fault(&node);
        assert_eq!((fault.kind, fault.rank), (FaultKind::BadFrame, Some(1)), "{wanted}: {fault}");
        assert!(fault.what.contains(wanted), "{wanted}: {fault}");
    }
}

#[test]
fn a_frame_that_trickles_is_a_frame() {
    let (node, mut data, _control) = with_peer();
    let call = CallOf {
        operation: Operation::Broadcast,
        root: 1,
        dtype: Dtype::Uint8,
        priority: 0,
        name: None,
    };
    let mut held = [0u8; 3];
    // SAFETY: it is waited for below.
    let number = unsafe { node.call(&call, held.as_mut_ptr(), 3) }.expect("it is taken");
    let operation = OperationName { key: Key::call(0), ..OperationName::default() };
    let signature = SignatureHash::new(Operation::Broadcast, 1, "uint8", &[3], &[]);
    let at = FrameAt { stage: 0, step: 0, from: 1, index: 0 };
    let name = FrameName { operation, chunk: 0, at };
    let header = Header { name, signature: signature.0, length: 3 };
    for byte in header.to_bytes().into_iter().chain([5, 6, 7]) {
        data.write_all(&[byte]).expect("it reads");
        std::thread::sleep(Duration::from_micros(200));
    }
    assert_eq!(node.wait_call(number, Duration::from_secs(10)), Ok(true));
    node.close();
    assert_eq!(held, [5, 6, 7]);
}

#[test]
fn noise_ends_the_job_on_either_connection() {
    let mut state = 7u64;
    for round in 0..40 {
        let (node, mut data, mut control) = with_peer();
        let mut noise = header().to_bytes().repeat(3);
        for _ in 0..1 + round / 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % HEADER;
            noise[at] ^= (state >> 20) as u8 | 1;
        }
        let stream = if round % 4 == 3 { &mut control } else { &mut data };
        let _ = stream.write_all(&noise);
        let fault = fault(&node);
        assert_eq!((fault.kind, fault.rank), (FaultKind::BadFrame, Some(1)), "{fault}");
        // It is told why.
        let mut words = Vec::new();
        node.close();
        control.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let _ = control.read_to_end(&mut words);
        let told = String::from_utf8_lossy(&words).contains("rank 1");
        assert!(told || round % 4 == 3, "{fault}");
    }
}
