//! A peer that has the secret and says what it should not: the job ends with an error that names it, and
//! nothing panics.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use allrail_collective::Operation;
use allrail_core::Time;
use allrail_engine::{Asked, Dtype, FrameAt, FrameName, SignatureHash};
use allrail_schedule::{Key, OperationName};
use rustix::event::epoll::EventFlags;

use crate::checksum::crc32c;
use crate::frame::{HEADER, Header, VERSION};
use crate::port::link::Link;
use crate::rendezvous::Listening;
use crate::settings::Timeouts;
use crate::settings::tests::local;
use crate::{CallOf, Fault, FaultKind, Node, Registered, Settings};

/// What ranks may have between them.
const LINKS: [(bool, bool); 3] = [(true, false), (false, false), (false, true)];

/// A peer's end of a connection, which waits.
struct End(Box<dyn Link>);

impl End {
    /// Goes on until a call says something else than that it would wait.
    fn wait<T>(&mut self, mut call: impl FnMut(&mut dyn Link) -> io::Result<T>) -> io::Result<T> {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            match call(self.0.as_mut()) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            assert!(Instant::now() < until, "it waits for ever");
            std::thread::sleep(Duration::from_micros(100));
            self.0.woken(EventFlags::IN | EventFlags::OUT);
        }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let done = self.wait(|link| link.write(&[IoSlice::new(bytes)]))?;
            bytes = &bytes[done..];
        }
        Ok(())
    }

    fn read_to_end(&mut self) -> Vec<u8> {
        let (mut all, mut some) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = self.wait(|link| link.read(&mut [IoSliceMut::new(&mut some)])) {
            all.extend_from_slice(&some[..bytes]);
        }
        all
    }
}

/// A node, and the two connections that rank 1 has with it.
fn with_peer(link: (bool, bool)) -> (Node, End, End) {
    with_checked_peer(link, true)
}

fn with_checked_peer(link: (bool, bool), checked: bool) -> (Node, End, End) {
    with_peer_of(&Settings { frame_checks: checked, ..local(0, &[2]) }, link)
}

/// With some settings of rank 0; its timeouts and its checks of frames are both ranks'.
fn with_peer_of(of: &Settings, (shared_memory, tls): (bool, bool)) -> (Node, End, End) {
    let secret = Some("5a".repeat(32));
    let settings = |rank| Settings {
        shared_memory,
        tls,
        secret: secret.clone(),
        frame_checks: of.frame_checks,
        timeouts: of.timeouts,
        ..local(rank, &[2])
    };
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
    let data = peer.data[0].remove(&0).expect("a data connection");
    assert_eq!(data.protects(), shared_memory || tls);
    let control = peer.control.remove(&0).expect("a control connection");
    (node, End(data), End(control))
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

/// A frame as rank 1 sends it over such a link.
fn frame(header: &Header, elements: &[u8], (shared_memory, tls): (bool, bool)) -> Vec<u8> {
    let sum = crc32c(elements).to_le_bytes();
    let trailer = if shared_memory || tls { &[][..] } else { &sum };
    [&header.to_bytes()[..], elements, trailer].concat()
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
    for ((wanted, change, times), link) in
        table.into_iter().flat_map(|row| LINKS.map(|link| (row, link)))
    {
        let (node, mut data, _control) = with_peer(link);
        let mut header = header();
        change(&mut header);
        for _ in 0..times {
            data.write_all(&frame(&header, &[0; 128], link)).expect("it reads");
        }
        let fault = fault(&node);
        assert_eq!((fault.kind, fault.rank), (FaultKind::BadFrame, Some(1)), "{wanted}: {fault}");
        assert!(fault.what.contains(wanted), "{wanted}: {fault}");
    }
}

/// A frame of a call that this rank has not begun, and its sender has not: it may come yet, so it is kept. Whatever
/// waits meanwhile says of it, and the sender is named.
#[test]
fn a_frame_of_a_future_call_is_named_with_its_sender_where_something_waits() {
    for link in LINKS {
        let timeouts = Timeouts { warn: Time::from_us(2_000_000), ..Timeouts::default() };
        let (node, mut data, _control) =
            with_peer_of(&Settings { timeouts, ..local(0, &[2]) }, link);
        let (call, mut header) = broadcast();
        header.name.operation.key = Key::call(7);
        data.write_all(&frame(&header, &[5, 6, 7], link)).expect("it reads");
        let mut held = [0u8; 3];
        // SAFETY: the node is closed before its memory goes.
        unsafe { node.call(&call, held.as_mut_ptr(), 3) }.expect("it is taken");
        let end = Instant::now() + Duration::from_secs(30);
        let text = loop {
            match node.take_warnings().first() {
                Some(one) => break one.to_string(),
                None => assert!(Instant::now() < end, "nobody warns: {:?}", node.report()),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let said = "rank 1 has sent frames of call 7, which this rank has not begun";
        assert!(
            text.contains("call 0 (broadcast of 3 elements of uint8)") && text.contains(said),
            "{text}"
        );
        assert_eq!(node.fault(), None, "rank 1 may be ahead");
        node.close();
    }
}

/// A peer whose build writes frames of another form: it is named, with both versions.
#[test]
fn frames_of_another_version_name_their_sender_and_both_versions() {
    for link in LINKS {
        let (node, mut data, _control) = with_peer(link);
        let mut bytes = header().to_bytes();
        bytes[2] = VERSION + 1;
        data.write_all(&bytes).expect("it reads");
        let fault = fault(&node);
        assert_eq!((fault.kind, fault.rank), (FaultKind::BadFrame, Some(1)), "{fault}");
        let wanted = format!("has version {}, this build reads version {VERSION}", VERSION + 1);
        assert!(fault.what.contains(&wanted), "{fault}");
    }
}

#[test]
fn a_frame_that_trickles_is_a_frame() {
    LINKS.into_iter().for_each(trickles_over);
}

fn trickles_over(link: (bool, bool)) {
    let (node, mut data, _control) = with_peer(link);
    let (call, header) = broadcast();
    let mut held = [0u8; 3];
    // SAFETY: it is waited for below.
    let number = unsafe { node.call(&call, held.as_mut_ptr(), 3) }.expect("it is taken");
    for byte in frame(&header, &[5, 6, 7], link) {
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
        let (node, mut data, mut control) = with_peer(LINKS[round % 3]);
        let mut noise = header().to_bytes().repeat(3);
        for _ in 0..1 + round / 4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % HEADER;
            noise[at] ^= (state >> 20) as u8 | 1;
        }
        let stream = if round % 4 == 3 { &mut control } else { &mut data };
        let _ = stream.write_all(&noise);
        let fault = fault(&node);
        let kinds = [FaultKind::BadFrame, FaultKind::Damaged];
        assert!(kinds.contains(&fault.kind) && fault.rank == Some(1), "{fault}");
        // It is told why, whichever connection it was.
        node.close();
        let words = control.read_to_end();
        assert!(String::from_utf8_lossy(&words).contains(&fault.what), "{fault}");
    }
}

/// Whatever bit of a frame or of a control message changes on its way over TCP, the job ends with an error that
/// names both ranks, and the sender is told the same words.
#[test]
fn one_flipped_bit_ends_the_job_and_names_both_ranks() {
    let tcp = LINKS[1];
    let mut state = 11u64;
    for round in 0..120 {
        let (node, mut data, mut control) = with_peer(tcp);
        let mut bytes = frame(&header(), &[3; 128], tcp);
        let on_control = round % 3 == 2;
        if on_control {
            bytes.clear();
            let fault = Fault {
                kind: FaultKind::Stopped,
                rank: Some(1),
                tensor: None,
                what: "a reason that is as long as one".to_owned(),
            };
            crate::control::end_word(&fault, &mut bytes);
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bit = (state >> 33) as usize % (8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        let stream = if on_control { &mut control } else { &mut data };
        stream.write_all(&bytes).expect("it reads");
        let fault = fault(&node);
        // Another version is one that may be meant.
        let version = bit / 8 == 2;
        let kind = if version { FaultKind::BadFrame } else { FaultKind::Damaged };
        assert_eq!((fault.kind, fault.rank), (kind, Some(1)), "bit {bit}: {fault}");
        assert!(fault.what.contains("from rank 1 to rank 0 is "), "bit {bit}: {fault}");
        node.close();
        let words = control.read_to_end();
        assert!(String::from_utf8_lossy(&words).contains(&fault.what), "{fault}");
    }
}

/// A broadcast of three bytes by rank 1, and the header of its frame.
fn broadcast() -> (CallOf<'static>, Header) {
    let (operation, dtype) = (Operation::Broadcast, Dtype::Uint8);
    let call =
        CallOf { operation, root: 1, dtype, priority: 0, name: None, asked: Asked::default() };
    let operation = OperationName { key: Key::call(0), ..OperationName::default() };
    let signature = SignatureHash::new(Operation::Broadcast, 1, "uint8", &[3], &[]);
    let at = FrameAt { stage: 0, step: 0, from: 1, index: 0 };
    let name = FrameName { operation, chunk: 0, at };
    (call, Header { name, signature: signature.0, length: 3 })
}

/// A flipped bit in elements is found before the exchange is over with them, in a frame that is combined as it
/// comes and in one that is kept until it may be.
#[test]
fn no_exchange_is_over_with_elements_that_are_damaged() {
    for called_before in [true, false] {
        let tcp = LINKS[1];
        let (node, mut data, _control) = with_peer(tcp);
        let (call, header) = broadcast();
        let mut held = [0u8; 3];
        // SAFETY: the node is closed before its memory goes.
        let mut begin = || unsafe { node.call(&call, held.as_mut_ptr(), 3) };
        let mut bytes = frame(&header, &[5, 6, 7], tcp);
        bytes[HEADER + 1] ^= 4;
        if called_before {
            begin().expect("it is taken");
        }
        data.write_all(&bytes).expect("it reads");
        let fault = fault(&node);
        let error = match called_before {
            true => node.wait_call(0, Duration::from_secs(10)).expect_err("it is damaged"),
            false => begin().expect_err("the job is over"),
        };
        assert_eq!(error, fault.clone().into());
        assert_eq!((fault.kind, fault.rank), (FaultKind::Damaged, Some(1)), "{fault}");
        assert!(fault.what.contains("its elements have the checksum"), "{fault}");
        node.close();
    }
}

/// The switch does something: without checks the same frame has no trailer, and nobody notices.
#[test]
fn frames_that_are_not_checked_have_no_trailer() {
    let tcp = LINKS[1];
    let (node, mut data, _control) = with_checked_peer(tcp, false);
    let (call, header) = broadcast();
    let mut held = [0u8; 3];
    // SAFETY: it is waited for below.
    let number = unsafe { node.call(&call, held.as_mut_ptr(), 3) }.expect("it is taken");
    data.write_all(&[&header.to_bytes()[..], &[5, 6, 7]].concat()).expect("it reads");
    assert_eq!(node.wait_call(number, Duration::from_secs(10)), Ok(true));
    node.close();
    assert_eq!(held, [5, 6, 7]);
}
