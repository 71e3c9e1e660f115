//! The form of messages as bytes: what is written is read again, and what nobody wrote is an error that
//! takes little memory, whatever it claims.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::common::{Speech, seeds};
use allrail_coordinate::Payload;
use allrail_coordinate::wire::{Limits, VERSION, WireError, decode, encode};
use rand::Rng;

/// Counts what this thread has taken.
struct Counting;

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const LIMITS: Limits = Limits { ranks: 40, tensors: 300, entries: 64, bytes: 1 << 16 };

fn bytes_of(payload: &Payload) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(payload, &mut bytes).expect("a message");
    bytes
}

/// Decodes, and sees to it that memory was in proportion: all that was taken in the course of it, growing
/// lists included. A list may claim as many entries as bytes are left, and an entry has up to 120 bytes in
/// memory; lists lie in lists.
fn bounded(bytes: &[u8], limits: &Limits) -> Result<Payload, WireError> {
    let before = TAKEN.with(Cell::get);
    let decoded = decode(bytes, limits);
    let taken = TAKEN.with(Cell::get) - before;
    assert!(taken <= 256 * bytes.len() + 4096, "{taken} bytes of memory for {}", bytes.len());
    decoded
}

#[test]
fn what_is_written_is_read_again() {
    for seed in seeds() {
        let mut speech = Speech::new(seed, LIMITS.ranks, LIMITS.tensors);
        for _ in 0..20 {
            let payload = speech.payload();
            let mut bytes = vec![7; 3];
            encode(&payload, &mut bytes).expect("a message");
            assert_eq!(bytes[..3], [7; 3], "what was there stays");
            assert_eq!(bounded(&bytes[3..], &LIMITS), Ok(payload), "seed {seed}");
        }
    }
}

#[test]
fn no_part_of_a_message_is_one() {
    for seed in seeds().take(50) {
        let bytes = bytes_of(&Speech::new(seed, LIMITS.ranks, LIMITS.tensors).payload());
        for end in 0..bytes.len() {
            assert!(bounded(&bytes[..end], &LIMITS).is_err(), "{end} of {bytes:?}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(bounded(&longer, &LIMITS), Err(WireError::Trailing { bytes: 1 }));
    }
}

/// Bytes are changed, left out, put in, swapped with another message's, or drawn.
#[test]
fn whatever_comes_ends_in_a_message_or_an_error() {
    for seed in seeds() {
        let mut speech = Speech::new(seed, LIMITS.ranks, LIMITS.tensors);
        for _ in 0..40 {
            let (mut bytes, other) = (bytes_of(&speech.payload()), bytes_of(&speech.payload()));
            let draw = &mut speech.draw;
            for _ in 0..draw.random_range(1..4) {
                let place = draw.random_range(0..=bytes.len());
                match draw.random_range(0..5) {
                    0 if place < bytes.len() => bytes[place] ^= 1 << draw.random_range(0..8),
                    1 if place < bytes.len() => drop(bytes.remove(place)),
                    2 => bytes.insert(place, [0, 1, 0x7f, 0x80, 0xff][draw.random_range(0..5)]),
                    3 => {
                        bytes.truncate(place);
                        bytes.extend(&other[draw.random_range(0..other.len())..]);
                    }
                    _ => bytes.splice(place..place, [0xff; 9]).for_each(drop),
                }
            }
            let Ok(payload) = bounded(&bytes, &LIMITS) else { continue };
            // What is read can be written, and means the same.
            assert_eq!(bounded(&bytes_of(&payload), &LIMITS), Ok(payload), "seed {seed}");
        }
    }
}

#[test]
fn another_version_is_refused_with_both() {
    let mut bytes = bytes_of(&Speech::new(0, 2, 2).payload());
    bytes[0] = VERSION + 1;
    let error = decode(&bytes, &LIMITS).expect_err("another version");
    assert_eq!(error, WireError::Version { found: VERSION + 1, known: VERSION });
    assert_eq!(error.to_string(), "the message has version 5, this build reads version 4");
    assert_eq!(decode(&[], &LIMITS), Err(WireError::Empty));
}

#[test]
fn what_is_beyond_the_limits_is_refused() {
    let narrow = [
        Limits { ranks: 1, ..LIMITS },
        Limits { tensors: 1, ..LIMITS },
        Limits { entries: 0, ..LIMITS },
        Limits { bytes: 8, ..LIMITS },
    ];
    let mut refused = [0; 4];
    for seed in 0..200 {
        let payload = Speech::new(seed, LIMITS.ranks, LIMITS.tensors).payload();
        let bytes = bytes_of(&payload);
        for (limits, refused) in narrow.iter().zip(&mut refused) {
            match bounded(&bytes, limits) {
                Ok(same) => assert_eq!(same, payload),
                Err(WireError::Beyond { .. } | WireError::TooLong { .. }) => *refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(refused.iter().all(|count| *count > 50), "{refused:?}");
}

/// The messages of version 4, byte by byte: whoever changes the form raises the version.
#[test]
fn the_form_stays() {
    let corpus = include_str!("corpus/wire.txt");
    let mut lines = 0;
    for line in corpus.lines().filter(|line| !line.starts_with('#')) {
        let (is, hex) = line.split_once(' ').expect("what it is, and its bytes");
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(digit).collect();
        match bounded(&bytes, &LIMITS) {
            Ok(payload) => {
                assert_eq!(format!("{:?}", payload.kind()), is, "{hex}");
                assert_eq!(bytes_of(&payload), bytes, "{hex}");
            }
            Err(_) => assert_eq!(is, "error", "{hex}"),
        }
        lines += 1;
    }
    assert!(lines >= 20, "{lines} lines");
}

/// Writes the corpus anew, when the version was raised.
#[test]
#[ignore = "writes `tests/it/corpus/wire.txt`"]
fn write_the_corpus() {
    let mut text = "# What each line is, and its bytes.\n".to_owned();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for seed in 0..18 {
        let payload = Speech::new(seed, 6, 9).payload();
        text += &format!("{:?} {}\n", payload.kind(), hex(&bytes_of(&payload)));
    }
    let claims: [&[u8]; 5] = [
        &[VERSION, 0, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[VERSION, 1, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[VERSION, 6, 0, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[VERSION, 99],
        &[0, 8, 0],
    ];
    claims.iter().for_each(|claim| text += &format!("error {}\n", hex(claim)));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/corpus/wire.txt");
    std::fs::write(path, text).expect("a folder");
}
