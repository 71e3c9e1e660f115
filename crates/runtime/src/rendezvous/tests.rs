use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::stream::Stream;
use super::*;
use crate::port::link::Identity;
use crate::settings::tests::local;

type Ends = Vec<Result<Connected, RuntimeError>>;

/// All ranks meet, each in a thread, after `change` has changed what each is given.
fn meet(sizes: &[u32], change: impl Fn(&mut Settings)) -> Ends {
    let ranks: u32 = sizes.iter().product();
    let all: Vec<(Settings, Listening)> = (0..ranks)
        .map(|rank| {
            let mut settings = local(rank, sizes);
            change(&mut settings);
            let listening = Listening::new(&settings).expect("a free port");
            (settings, listening)
        })
        .collect();
    let text = |one: &Listening| one.addresses().iter().map(ToString::to_string).collect();
    let table: Vec<Vec<String>> = all.iter().map(|(_, listening)| text(listening)).collect();
    let table = &table;
    std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .into_iter()
            .map(|(settings, listening)| {
                scope.spawn(move || listening.connect(&settings, table, &mut || true))
            })
            .collect();
        threads.into_iter().map(|one| one.join().expect("no panic")).collect()
    })
}

fn secret(byte: &str) -> Option<String> {
    Some(byte.repeat(32))
}

#[test]
fn every_two_ranks_have_the_connections_that_they_need() {
    let all = meet(&[2, 3], |one| one.secret = secret("5a"));
    for (rank, connected) in (0..).zip(all) {
        let connected = connected.expect("it meets the others");
        let others: Vec<u32> = (0..6).filter(|other| *other != rank).collect();
        assert_eq!(connected.control.keys().copied().collect::<Vec<_>>(), others);
        for d in 0..2 {
            let peers: Vec<u32> = connected.data[d].keys().copied().collect();
            assert_eq!(peers, line(&[2, 3], rank, d));
        }
    }
    assert_eq!(line(&[2, 3], 3, 1), [1, 5]);
}

/// Each change is made on rank 2 of three; words of the error on some rank.
#[test]
fn ranks_that_are_not_of_one_job_say_what_differs() {
    type Change = fn(&mut Settings);
    let table: [(Change, &str); 5] = [
        (|one| one.job = "other".to_owned(), "rank 2 has another job than rank"),
        (|one| one.chunks = 7, "rank 2 has another `chunks` than rank"),
        (|one| one.epoch = 3, "rank 2 has another epoch than rank"),
        (|one| one.secret = secret("5b"), "it does not have the secret of this job"),
        (|one| (one.tls, one.shared_memory) = (true, false), "it speaks TLS, and this rank does"),
    ];
    // Whoever is not told waits for that long, so all rows do at once.
    let row = |(change, wanted): (Change, &str)| {
        let all = meet(&[3], |one| {
            one.timeouts.connect = allrail_core::Time::from_us(3_000_000);
            one.secret = secret("5a");
            if one.rank == 2 {
                change(one);
            }
        });
        let texts: Vec<String> = all
            .into_iter()
            .filter_map(Result::err)
            .map(|error| {
                assert!(error.hint().is_some());
                error.to_string()
            })
            .collect();
        assert!(texts.iter().any(|text| text.contains(wanted)), "{wanted}: {texts:?}");
        assert!(texts.iter().any(|text| text.contains("rank 2")), "{wanted}: {texts:?}");
    };
    std::thread::scope(|scope| {
        table.map(|one| scope.spawn(move || row(one))).map(|one| one.join().expect("no panic"))
    });
}

#[test]
fn who_is_missing_is_named_in_time() {
    let mut settings = local(0, &[3]);
    settings.timeouts.connect = allrail_core::Time::from_us(200_000);
    let listening = Listening::new(&settings).expect("a free port");
    let mine: Vec<String> = listening.addresses().iter().map(ToString::to_string).collect();
    let begun = Instant::now();
    let Err(error) =
        listening.connect(&settings, &[mine.clone(), mine.clone(), mine], &mut || true)
    else {
        panic!("nobody is there");
    };
    // A minute is what is given where nothing else is set.
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(error.to_string().contains("rank 1, rank 2"), "{error}");
}

#[test]
fn ports_interfaces_and_tables_that_cannot_be_name_the_field() {
    let busy = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut settings = local(0, &[2]);
    settings.dimensions[0].port = busy.local_addr().expect("its address").port();
    let error = Listening::new(&settings).err().expect("taken").to_string();
    assert!(error.starts_with("`dimensions[0].port` is `127.0.0.1:"), "{error}");
    let mut settings = local(0, &[2]);
    settings.dimensions[0].interface = "192.0.2.1".to_owned();
    let error = Listening::new(&settings).err().expect("no secret").to_string();
    assert!(error.contains("without a secret"), "{error}");
    settings.secret = secret("5a");
    let error = Listening::new(&settings).err().expect("not mine").to_string();
    assert!(error.contains("does not have that address"), "{error}");

    let right = "127.0.0.1:1".to_owned();
    for (wrong, field) in [
        (vec![vec![right.clone()]], "`addresses` is `1`"),
        (vec![vec![right.clone()], vec![]], "`addresses[1]` is `0`"),
        (vec![vec![right.clone()], vec!["localhost".to_owned()]], "`addresses[1]` is `localhost`"),
        (vec![vec![right], vec!["10.0.0.1:1".to_owned()]], "`addresses[1]` is `10.0.0.1:1`"),
    ] {
        let settings = local(0, &[2]);
        let listening = Listening::new(&settings).expect("a free port");
        let error = listening.connect(&settings, &wrong, &mut || true).err().expect("wrong");
        assert!(error.to_string().starts_with(field), "{error}");
    }
}

/// Hands on what comes, until all is over.
fn relay(mut ends: [Stream; 2], is_over: &AtomicBool) {
    let mut bytes = [0; 4096];
    while !is_over.load(Ordering::Relaxed) {
        for from in 0..2 {
            let _ = ends[1 - from].flush();
            match ends[from].read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => {
                    if ends[1 - from].write(&bytes[..count]).ok() != Some(count) {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How rank 1 reaches rank 0 by someone who hands everything on.
#[derive(Clone, Copy, PartialEq)]
enum Relay {
    /// At rank 0's own address, as a router has it.
    OnTheWay,
    /// There, and having a session of TLS with each.
    InBetween,
    /// At another address, which stands in the table.
    InTheTable,
}

fn through_a_relay(kind: Relay) -> Ends {
    // Whoever is refused waits for as long as it may, and says what came last: of rank 0 no connection that rank 1
    // has given up. Who is not refused waits for as long as a busy machine takes.
    let seconds = if kind == Relay::OnTheWay { [120, 120] } else { [4, 8] };
    let mut all: Vec<(Settings, Listening)> = (0..2)
        .map(|rank| {
            let mut settings = local(rank, &[2]);
            settings.timeouts.connect =
                allrail_core::Time::from_us(seconds[rank as usize] * 1_000_000);
            (settings.secret, settings.tls) = (secret("5a"), true);
            settings.shared_memory = false;
            let listening = Listening::new(&settings).expect("a free port");
            (settings, listening)
        })
        .collect();
    let relays = TcpListener::bind("127.0.0.1:0").expect("a free port");
    relays.set_nonblocking(true).expect("it does not block");
    let true_table: Vec<Vec<String>> =
        all.iter().map(|(_, one)| vec![one.addresses()[0].to_string()]).collect();
    let (to, is_over) = (all[0].1.addresses()[0], &AtomicBool::new(false));
    let mut false_table = true_table.clone();
    let relay_at = relays.local_addr().expect("its address");
    false_table[0][0] = relay_at.to_string();
    if kind != Relay::InTheTable {
        all[0].1.addresses[0] = relay_at;
    }
    let identity = Identity::new().expect("a key");
    std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .into_iter()
            .zip([&true_table, &false_table])
            .map(|((settings, listening), table)| {
                scope.spawn(move || listening.connect(&settings, table, &mut || true))
            })
            .collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            if let Ok((one, _)) = relays.accept() {
                // Rank 0 may have given up before rank 1 has.
                let Ok(other) = TcpStream::connect(to) else { continue };
                let identity = &identity;
                scope.spawn(move || {
                    // The first words are outside of TLS.
                    if kind == Relay::InBetween && hand_on_the_first_words(&one, &other).is_err() {
                        return;
                    }
                    let end = |stream: TcpStream, dials| {
                        stream.set_nonblocking(true).expect("it does not block");
                        match kind {
                            Relay::InBetween => {
                                let tls = identity.over(stream.into(), dials).expect("a session");
                                Stream::Tls(Box::new(tls))
                            }
                            _ => Stream::Tcp(stream.into()),
                        }
                    };
                    relay([end(one, None), end(other, Some(to.ip()))], is_over);
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|one| one.join().expect("no panic")).collect()
    })
}

fn hand_on_the_first_words(mut one: &TcpStream, mut other: &TcpStream) -> std::io::Result<()> {
    let mut words = [0; greeting::LENGTH];
    one.read_exact(&mut words)?;
    other.write_all(&words)?;
    other.read_exact(&mut words)?;
    one.write_all(&words)
}

#[test]
fn who_is_between_two_ranks_has_no_part_in_their_session() {
    // Each takes as long as whoever is refused waits for the other.
    let kinds = [Relay::OnTheWay, Relay::InBetween, Relay::InTheTable];
    let [on_the_way, others @ ..] = std::thread::scope(|scope| {
        kinds
            .map(|kind| scope.spawn(move || through_a_relay(kind)))
            .map(|one| one.join().expect("no panic"))
    });
    assert!(on_the_way.iter().all(Result::is_ok));
    // Who has changed the table is no part of any session, with TLS or without.
    for ends in others {
        assert!(ends.iter().all(Result::is_err));
        let texts: Vec<String> =
            ends.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        let wanted = "it does not have the secret of this job";
        assert!(texts.iter().any(|text| text.contains(wanted)), "{texts:?}");
    }
}

/// A rank with a build of another handshake is told from a stranger: by the magic of old builds, and by the
/// secret of newer ones.
#[test]
fn another_version_of_the_handshake_is_named() {
    let mut settings = local(0, &[2]);
    settings.secret = secret("5a");
    settings.timeouts.connect = allrail_core::Time::from_us(2_000_000);
    settings.shared_memory = false;
    for version in [1, 2, refused::VERSION + 1] {
        let listening = Listening::new(&settings).expect("a free port");
        let mine = listening.addresses()[0];
        let words = match version {
            1 | 2 => [b"arhs".as_slice(), &[version; 64]].concat(),
            _ => {
                let secret = settings.secret().expect("a secret");
                greeting::hello(&secret, mine, version).expect("random bytes").to_vec()
            }
        };
        let table = vec![vec![mine.to_string()]; 2];
        let mut stream = TcpStream::connect(mine).expect("it listens");
        stream.write_all(&words).expect("it is there");
        let ended = listening.connect(&settings, &table, &mut || true);
        let error = ended.err().expect("they have two versions");
        assert!(error.hint().is_some());
        let text = error.to_string();
        assert!(text.contains(&format!("it speaks version {version} of the handshake")), "{text}");
    }
}
