//! How many bytes an all-to-all counts as whose ranks put in different amounts.
//!
//! An all-to-all is even in a simulation: of B bytes, a rank sends B/n to each other one. One whose split lists
//! are uneven counts as the even one that loads every port as much as the busiest port is loaded:
//!
//! ```text
//! B · (n - 1)/n = max over ranks of max(what it sends to others, what it gets from others)
//! ```
//!
//! On one switch no port carries more than that, and the busiest carries exactly that. Of ranks without split
//! lists that put in different amounts nothing is known of what stays: all of it is taken to leave.

use super::said::Said;

/// How an exchange is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Split {
    /// Every rank gets as much.
    Even,
    /// There are no lists.
    Untold,
    /// They do not: the bytes are those of the even exchange that stands for it.
    Uneven,
}

/// The bytes of an all-to-all among `members`, by one rank's words, of which it puts in `sent` and gets
/// `received`; `own` is its place in the group.
pub(super) fn bytes(
    said: &Said,
    (sent, received): (u64, u64),
    members: usize,
    own: Option<usize>,
) -> (u64, Split) {
    let most = sent.max(received);
    match &said.splits {
        Some([into, out]) if is_even(into) && is_even(out) => (most, Split::Even),
        Some([into, out]) => {
            let own = said.place.map(|place| place as usize).or(own);
            let load = leaves(sent, into, members, own).max(leaves(received, out, members, own));
            (bound(load, members), Split::Uneven)
        }
        None if sent == received || sent == 0 || received == 0 => (most, Split::Untold),
        None => (bound(most, members), Split::Uneven),
    }
}

/// The even exchange whose ranks send `load` to others each.
pub(super) fn bound(load: u64, members: usize) -> u64 {
    let members = members.max(2) as u128;
    let bytes = (u128::from(load) * members).div_ceil(members - 1);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn is_even(parts: &[u64]) -> bool {
    parts.windows(2).all(|pair| pair[0] == pair[1])
}

/// What of `bytes` goes to others, or comes from them.
fn leaves(bytes: u64, parts: &[u64], members: usize, own: Option<usize>) -> u64 {
    let all: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    let share = |part: u64| {
        let stays = (u128::from(bytes) * u128::from(part)).checked_div(all).unwrap_or_default();
        u64::try_from(stays).unwrap_or(u64::MAX)
    };
    match own.and_then(|own| parts.get(own)) {
        // Without a list it is split evenly.
        _ if parts.is_empty() => bytes - bytes / members.max(1) as u64,
        Some(part) => bytes - share(*part),
        None => bytes,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(into: &[u64], out: &[u64]) -> Said {
        Said { splits: Some([into.to_vec(), out.to_vec()]), ..Said::default() }
    }

    #[test]
    fn an_even_exchange_counts_as_what_it_is() {
        let even = said(&[512; 8], &[512; 8]);
        assert_eq!(bytes(&even, (4096, 4096), 8, Some(3)), (4096, Split::Even));
        assert_eq!(bytes(&said(&[], &[]), (4096, 4096), 8, None), (4096, Split::Even));
        assert_eq!(bytes(&Said::default(), (96, 96), 4, Some(0)), (96, Split::Untold));
    }

    #[test]
    fn of_two_ranks_that_swap_all_that_they_have_all_crosses() {
        let swaps = said(&[0, 1000], &[0, 1000]);
        // Of an even exchange of 8000 bytes among two, 4000 cross.
        assert_eq!(bytes(&swaps, (4000, 4000), 2, Some(0)), (8000, Split::Uneven));
        let keeps = said(&[1000, 0], &[1000, 0]);
        assert_eq!(bytes(&keeps, (4000, 4000), 2, Some(0)), (0, Split::Uneven));
    }

    proptest! {
        /// Whatever the matrix, the largest of the ranks' bytes loads every port of a switch at least as the
        /// matrix does, and the busiest one not a byte a member more.
        #[test]
        fn the_largest_counts_is_a_bound_that_is_met(
            matrix in (2usize..9).prop_flat_map(|n| {
                prop::collection::vec(prop::collection::vec(0u64..10_000, n), n)
            }),
        ) {
            let n = matrix.len();
            let column = |j: usize| -> Vec<u64> { matrix.iter().map(|row| row[j]).collect() };
            let counts = (0..n).map(|i| {
                let (row, column) = (&matrix[i], column(i));
                let both = (row.iter().sum(), column.iter().sum());
                bytes(&said(row, &column), both, n, Some(i)).0
            });
            let even = u128::from(counts.max().unwrap_or(0)) * (n as u128 - 1);
            let load = (0..n).map(|i| {
                let others = |list: &[u64]| -> u64 {
                    list.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, part)| part).sum()
                };
                others(&matrix[i]).max(others(&column(i)))
            });
            let load = u128::from(load.max().unwrap_or(0)) * n as u128;
            prop_assert!(even >= load);
            prop_assert!(even - load < (n as u128) * (n as u128 - 1));
        }
    }
}
