//! Strangers at the door of a job that starts: they learn nothing, and neither stop nor delay it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::addresses::dial_locally;
use super::*;
use crate::port::link::Link;
use crate::settings::tests::local;

/// What a stranger does with a connection.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Silent,
    /// It shuts its side, and waits.
    HalfOpen,
    /// A byte now and then.
    Drips,
    Garbage,
    /// Asks as a web browser, or begins TLS.
    Foreign,
}

const KINDS: [Kind; 5] = [Kind::Silent, Kind::HalfOpen, Kind::Drips, Kind::Garbage, Kind::Foreign];

impl Kind {
    fn begin(self, stream: &mut TcpStream) {
        let _ = match self {
            Self::Silent => Ok(()),
            Self::HalfOpen => stream.shutdown(std::net::Shutdown::Write),
            Self::Drips => stream.write_all(b"a"),
            Self::Garbage => stream.write_all(&[0xff; 4096]),
            Self::Foreign => stream.write_all(b"\x16\x03\x01\x02\x00GET / HTTP/1.1\r\n\r\n"),
        };
    }
}

/// A start takes milliseconds, and seconds on a machine that is busy; a stranger has a minute for its first words,
/// so whatever waits for any of them takes longer.
const WAITS_FOR_NONE: Duration = Duration::from_secs(45);

struct Start {
    settings: Settings,
    listening: Listening,
}

fn starts(change: impl Fn(&mut Settings)) -> Vec<Start> {
    let one = |rank| {
        let mut settings = local(rank, &[2]);
        settings.secret = Some("5a".repeat(32));
        change(&mut settings);
        let listening = Listening::new(&settings).expect("a free port");
        Start { settings, listening }
    };
    (0..2).map(one).collect()
}

/// How long this thread has run or was ready to, which a busy machine makes longer; zero where Linux does not tell.
fn awake() -> Duration {
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    said.split_whitespace()
        .take(2)
        .filter_map(|one| one.parse().ok())
        .map(Duration::from_nanos)
        .sum()
}

/// How a start went.
struct Meeting {
    /// How long it took.
    took: Duration,
    /// Of that, how long all threads slept, at least: a second that two were awake counts twice.
    idle: Duration,
    connected: Vec<Connected>,
}

/// All meet.
fn meet(all: Vec<Start>) -> Meeting {
    let table: Vec<Vec<String>> =
        all.iter().map(|one| vec![one.listening.addresses()[0].to_string()]).collect();
    let table = &table;
    let (begun, before) = (Instant::now(), awake());
    let (connected, theirs): (Vec<Connected>, Vec<Duration>) = std::thread::scope(|scope| {
        let start = |one: Start| {
            let end = one.listening.connect(&one.settings, table, &mut || true);
            (end.expect("it meets"), awake())
        };
        let threads: Vec<_> = all.into_iter().map(|one| scope.spawn(move || start(one))).collect();
        threads.into_iter().map(|one| one.join().expect("no panic")).unzip()
    });
    let took = begun.elapsed();
    let awake = awake().saturating_sub(before) + theirs.into_iter().sum();
    Meeting { took, idle: took.saturating_sub(awake), connected }
}

/// So many strangers are there before the ranks are, and each that is hung up on comes again.
fn flood(to: SocketAddr, count: usize, kinds: &[Kind], ends: &AtomicBool, is_there: &AtomicBool) {
    let connect = |place: usize| {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_millis(200)).ok()?;
        kinds[place % kinds.len()].begin(&mut stream);
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut open: Vec<Option<TcpStream>> = (0..count).map(connect).collect();
    is_there.store(true, Ordering::Release);
    while !ends.load(Ordering::Acquire) {
        for (place, stream) in open.iter_mut().enumerate() {
            let is_open = stream.as_mut().is_some_and(|stream| {
                if matches!(kinds[place % kinds.len()], Kind::Drips) {
                    let _ = stream.write(b"b");
                }
                matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == ErrorKind::WouldBlock)
            });
            if !is_open && !ends.load(Ordering::Acquire) {
                *stream = connect(place);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How long a start takes with so many strangers at rank 0; its notes.
fn start(count: usize, kinds: &[Kind], change: impl Fn(&mut Settings)) -> (Duration, Vec<String>) {
    let all = starts(change);
    let to = all[0].listening.addresses()[0];
    let (ends, is_there) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| flood(to, count, kinds, &ends, &is_there));
        while !is_there.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Meeting { took, connected, .. } = meet(all);
        ends.store(true, Ordering::Release);
        (took, connected.into_iter().next().map_or_else(Vec::new, |one| one.notes))
    })
}

#[test]
fn strangers_neither_stop_nor_delay_a_start_and_cost_a_note() {
    for tls in [false, true] {
        let change = |one: &mut Settings| (one.tls, one.shared_memory) = (tls, !tls);
        for kinds in KINDS.iter().map(std::slice::from_ref).chain([KINDS.as_slice()]) {
            for count in [0, 70, 1000] {
                let (took, notes) = start(count, kinds, change);
                assert!(took < WAITS_FOR_NONE, "{count} {kinds:?} {tls}: {took:?}");
                assert_eq!(notes.len(), usize::from(count > 0), "{count} {kinds:?}: {notes:?}");
            }
        }
    }
}

/// Neither side waits for a time to pass where the other waits for it: in the best of some starts all of them
/// never sleep at once for half the shortest of such times, 40 ms of an acknowledgement.
#[test]
fn a_start_alone_waits_for_nothing() {
    for (tls, shared_memory) in [(false, false), (false, true), (true, false)] {
        let change = |one: &mut Settings| (one.tls, one.shared_memory) = (tls, shared_memory);
        let idle: Vec<Duration> = (0..200)
            .map(|_| meet(starts(change)).idle)
            .take_while(|idle| *idle >= Duration::from_millis(20))
            .collect();
        assert!(idle.len() < 200, "{tls} {shared_memory}: {idle:?}");
    }
}

fn is_local(link: &dyn Link) -> bool {
    link.socket().local_addr().is_ok_and(|at| at.is_unix())
}

/// Connections to the local name wait as those to the port do: ranks share memory all the same.
#[test]
fn strangers_at_the_local_name_do_not_drive_ranks_from_shared_memory() {
    for count in [0, 70, 1000] {
        let all = starts(|_| {});
        let secret = all[0].settings.secret().expect("a secret");
        let to = all[0].listening.addresses()[0];
        let strangers: Vec<_> = (0..count).filter_map(|_| dial_locally(&secret, to).ok()).collect();
        assert_eq!(strangers.len(), count);
        let Meeting { took, connected, .. } = meet(all);
        assert!(took < WAITS_FOR_NONE, "{count}: {took:?}");
        for one in connected {
            assert!(one.data[0].values().all(|link| is_local(&**link)), "{count}");
        }
    }
}

/// To whoever lacks the secret the listener says nothing at all, whatever it hears, and a dialling rank
/// nothing but random bytes: no name, number or setting of the job is among them.
#[test]
fn strangers_learn_nothing() {
    let [mut first, second] = <[Start; 2]>::try_from(starts(|one| one.shared_memory = false))
        .unwrap_or_else(|_| unreachable!("two ranks"));
    first.settings.timeouts.connect = allrail_core::Time::from_us(1_500_000);
    let at = first.listening.addresses()[0];
    let other = greeting::hello(
        &crate::auth::Secret::from_hex(&"5b".repeat(32)).expect("a secret"),
        at,
        refused::VERSION,
    )
    .expect("random bytes");
    let secret = first.settings.secret().expect("a secret");
    let elsewhere = greeting::hello(&secret, second.listening.addresses()[0], refused::VERSION)
        .expect("random bytes");
    let old = [b"arhs\x02".as_slice(), &[7; 600]].concat();
    let words: [&[u8]; 5] = [b"", b"arhs\x02", &other, &elsewhere, &old];
    let mut strangers: Vec<TcpStream> = words
        .iter()
        .map(|words| {
            let mut stream = TcpStream::connect(at).expect("it listens");
            stream.write_all(words).expect("it is there");
            stream
        })
        .collect();
    let table = vec![vec![at.to_string()]; 2];
    assert!(first.listening.connect(&first.settings, &table, &mut || true).is_err());
    for (stranger, words) in strangers.iter_mut().zip(words) {
        let mut heard = Vec::new();
        let _ = stranger.read_to_end(&mut heard);
        assert!(heard.is_empty(), "{words:?}: {heard:?}");
    }

    // A stranger at a rank's address.
    let fake = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let to = fake.local_addr().expect("its address").to_string();
    let mut second = second;
    second.settings.timeouts.connect = allrail_core::Time::from_us(1_500_000);
    let table = vec![vec![to], vec![second.listening.addresses()[0].to_string()]];
    let heard = std::thread::scope(|scope| {
        let listens = scope.spawn(|| {
            let (mut stream, _) = fake.accept().expect("it dials");
            // It hangs up when it waits no more.
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard);
            heard
        });
        assert!(second.listening.connect(&second.settings, &table, &mut || true).is_err());
        listens.join().expect("no panic")
    });
    assert_eq!(heard.len(), greeting::LENGTH, "{heard:?}");
}

/// Who has overheard a rank's first words is told as much as any stranger, and holds no place.
#[test]
fn first_words_are_heard_once() {
    let all = starts(|one| one.shared_memory = false);
    let (secret, at) =
        (all[0].settings.secret().expect("a secret"), all[0].listening.addresses()[0]);
    let hello = greeting::hello(&secret, at, refused::VERSION).expect("random bytes");
    let say = |_| {
        let mut stream = TcpStream::connect(at).expect("it listens");
        stream.write_all(&hello).expect("it is there");
        stream
    };
    let mut strangers: Vec<TcpStream> = (0..20).map(say).collect();
    let connected = meet(all).connected;
    assert!(connected[0].notes[0].contains("it repeats what it has overheard"));
    drop(connected);
    let answered = strangers
        .iter_mut()
        .filter(|stranger| {
            let mut heard = Vec::new();
            let _ = (&mut &**stranger).read_to_end(&mut heard);
            !heard.is_empty()
        })
        .count();
    assert_eq!(answered, 1);
}
