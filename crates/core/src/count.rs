//! How many of something there are, in words that people read: "1 event", "2 events".

use std::fmt::Display;

/// A count and its noun, which is no plural where there is one of it.
///
/// # Examples
/// ```
/// use allrail_core::counted;
///
/// assert_eq!(counted(1_u32, "event"), "1 event");
/// assert_eq!(counted(0_u64, "event"), "0 events");
/// assert_eq!(counted(2_usize, "step of the profiler"), "2 steps of the profiler");
/// ```
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "a number")]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let (first, rest) = noun.find(" of ").map_or((noun, ""), |at| noun.split_at(at));
    let ending = if is_one(&count) { "" } else { "s" };
    format!("{count} {first}{ending}{rest}")
}

/// The word that goes with a count: the first with one, the second with any other number.
///
/// # Examples
/// ```
/// use allrail_core::either;
///
/// assert_eq!(either(&1_u32, "is", "are"), "is");
/// assert_eq!(either(&3_u32, "is", "are"), "are");
/// ```
#[must_use]
pub fn either<'a, N: PartialEq + From<u8>>(count: &N, one: &'a str, many: &'a str) -> &'a str {
    if is_one(count) { one } else { many }
}

fn is_one<N: PartialEq + From<u8>>(count: &N) -> bool {
    *count == N::from(1)
}
