//! Which chunk a place holds, and whose: names in the place of numbers.

use std::rc::Rc;

/// A chunk's name: its number among all of the operation, and the ranks that are summed in it.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) chunk: u32,
    pub(super) from: Rc<[u64]>,
    /// As [`Flow`](super::Flow) counts it.
    pub(super) number: u32,
}

/// One rank, of so many.
pub(super) fn only(rank: u32, ranks: u32) -> Rc<[u64]> {
    let mut from = vec![0u64; ranks.div_ceil(64) as usize];
    from[rank as usize / 64] |= 1 << (rank % 64);
    from.into()
}

/// The ranks of a set.
fn members(from: &[u64]) -> impl Iterator<Item = u32> + '_ {
    let all = 0..u32::try_from(from.len()).expect("few ranks") * 64;
    all.filter(|rank| from[*rank as usize / 64] >> (rank % 64) & 1 == 1)
}

/// Whether it is of one rank alone.
pub(super) fn is_of(from: &[u64], rank: u32) -> bool {
    members(from).eq([rank])
}

/// In words.
pub(super) fn ranks(from: &[u64]) -> String {
    let listed: Vec<String> = members(from).map(|rank| rank.to_string()).collect();
    format!("rank{} {}", if listed.len() == 1 { "" } else { "s" }, listed.join(", "))
}
