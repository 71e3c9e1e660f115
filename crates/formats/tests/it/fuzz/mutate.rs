//! Random edits of an input: bytes, spans, words that the readers know, parts of another input.

use proptest::prelude::Rng;
use proptest::test_runner::TestRng;

/// Longer inputs are cut.
const LONGEST: usize = 1 << 14;

const WORDS: &[&[u8]] = &[
    b"0",
    b"-1",
    b"1",
    b"1.5",
    b"65536",
    b"4294967295",
    b"18446744073709551615",
    b"1e308",
    b"-1e308",
    b"1e-320",
    b"9223372036854775808",
    b"null",
    b"true",
    b"\"\"",
    b"[]",
    b"{}",
    b"[0, 1]",
    b"\"[0, 1, ...]\"",
    b"\"4 GiB\"",
    b"\"7 us\"",
    b"\"1e30 us\"",
    b"\"next\"",
    b"\"+4\"",
    b"\"-2147483648\"",
    b"\"even\"",
    b"\"all_reduce\"",
    b"\"all_to_all\"",
    b"\"broadcast\"",
    b"\"kernel\"",
    b"\"gpu_memcpy\"",
    b"\"ProfilerStep#1\"",
    b"\"traceEvents\"",
    b"\"distributedInfo\"",
    b"\"world_size\"",
    b"\"Collective name\"",
    b"\"send\"",
    b"\"DATA\"",
    b"\"HYBRID_DLRM\"",
    b"\"HYBRID_TRANSFORMER_FWD_IN_BCKWD\"",
    b"\"MICRO\"",
    b"\"EP\"",
    b"comm_type",
    b"comm_size",
    b"pg_name",
    b"involved_dim",
    b"comm_src",
    b"comm_dst",
    b"is_cpu_op",
    b"num_ops",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x00",
    b"\x08\x01",
    b"\x80",
    b"\x1f\x8b",
    b"\xef\xbb\xbf",
];

fn below(draws: &mut TestRng, end: usize) -> usize {
    draws.next_u64() as usize % end.max(1)
}

fn one_of<T: Copy>(draws: &mut TestRng, list: &[T]) -> T {
    list[below(draws, list.len())]
}

/// The span of a word or number near a random place.
fn word(input: &[u8], draws: &mut TestRng) -> Option<(usize, usize)> {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-".contains(byte);
    let start = below(draws, input.len());
    let from = start + input[start..].iter().position(inside)?;
    let length = input[from..].iter().position(|byte| !inside(byte)).unwrap_or(input.len() - from);
    Some((from, from + length))
}

/// A few random edits of `input`.
pub(super) fn mutate(input: &[u8], other: &[u8], draws: &mut TestRng) -> Vec<u8> {
    let mut edited = input.to_vec();
    for _ in 0..one_of(draws, &[1, 1, 1, 2, 3, 8]) {
        let at = below(draws, edited.len() + 1);
        let end = edited.len().min(at + one_of(draws, &[0, 1, 2, 8, 64]));
        let put: Vec<u8> = match below(draws, 8) {
            0 => one_of(draws, WORDS).to_vec(),
            1 => draws.next_u32().to_le_bytes()[..below(draws, 4)].to_vec(),
            2 => Vec::new(),
            3 => edited[at..end].repeat(one_of(draws, &[2, 3, 100])),
            4 => {
                let from = below(draws, other.len());
                other[from..].iter().take(below(draws, 128)).copied().collect()
            }
            5 => {
                // One bit of one byte: what lengths and tags of a binary file are made of.
                let flipped = edited.get(at).map(|byte| byte ^ (1 << below(draws, 8)));
                edited.splice(at..edited.len().min(at + 1), flipped);
                continue;
            }
            _ => {
                if let Some((from, to)) = word(&edited, draws) {
                    edited.splice(from..to, one_of(draws, WORDS).iter().copied());
                }
                continue;
            }
        };
        edited.splice(at..end, put);
    }
    edited.truncate(LONGEST);
    edited
}
