//! Which server keeps how much of which partition.
//!
//! Partitions have numbers, in the order of the forward pass, so that where they lie does not depend on what
//! travels first. One of at least `big_array` bytes is split over all servers; another lies on one of them:
//!
//! - `in_turn`: `i mod S`, as P3 gives its slices to servers (MXNet, `src/kvstore/p3store_dist.h`);
//! - `hash`: `9973 i mod S`, as MXNet its keys (`src/kvstore/kvstore_dist.h`);
//! - `byteps`: with `n` workers' machines and `k` others, of `M` bytes each other machine keeps
//!   `2(n − 1)/(n² + kn − 2k)·M` and each worker's `(n − k)/(n² + kn − 2k)·M`, which keeps all links equally
//!   busy (Jiang et al., OSDI'20, §4.1); from `k = n` on the other machines keep all. A partition goes to the
//!   server that is furthest behind its share. (BytePS draws by a hash of the key, with the same shares.)

use allrail_core::Bytes;
use allrail_schedule::tensor::PartitionPlacement;

/// Where a partition lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// On one server.
    One(u32),
    /// On all of them, by their weights.
    All,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    placement: PartitionPlacement,
    big_array: Option<Bytes>,
    /// Of each server: its part of what is split, of the sum of all.
    weights: Vec<u64>,
    /// `byteps`: what each server has so far.
    kept: Vec<u64>,
    /// `byteps`: where each partition lies.
    known: Vec<Option<u32>>,
}

impl Placed {
    /// `servers`, the first `hosted` of which are on workers' machines.
    #[must_use]
    pub(crate) fn new(
        placement: PartitionPlacement,
        big_array: Option<Bytes>,
        workers: u32,
        servers: u32,
        hosted: u32,
    ) -> Self {
        let (n, k) = (u64::from(workers), u64::from(servers - hosted));
        let (on_workers, own) = match placement {
            PartitionPlacement::InTurn | PartitionPlacement::Hash => (1, 1),
            PartitionPlacement::Byteps if k == 0 => (1, 1),
            PartitionPlacement::Byteps if k >= n => (0, 1),
            PartitionPlacement::Byteps => (n - k, 2 * (n - 1)),
        };
        let weight = |server| if server < hosted { on_workers } else { own };
        let count = servers as usize;
        Self {
            placement,
            big_array,
            weights: (0..servers).map(weight).collect(),
            kept: vec![0; count],
            known: Vec::new(),
        }
    }

    /// Where the partition with this number lies.
    pub(crate) fn share(&mut self, number: u32, bytes: Bytes) -> Share {
        let servers = self.weights.len() as u64;
        if servers > 1 && self.big_array.is_some_and(|bound| bytes >= bound) {
            return Share::All;
        }
        let key = u64::from(number);
        let server = match self.placement {
            PartitionPlacement::InTurn => key % servers,
            PartitionPlacement::Hash => key * 9973 % servers,
            PartitionPlacement::Byteps => return Share::One(self.furthest_behind(number, bytes)),
        };
        Share::One(u32::try_from(server).expect("fewer than 2^32 servers"))
    }

    /// The servers of what is split, with their parts of [`Placed::whole`].
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u32, u64)> {
        (0u32..).zip(self.weights.iter().copied()).filter(|(_, weight)| *weight > 0)
    }

    /// The sum of all weights.
    #[must_use]
    pub(crate) fn whole(&self) -> u64 {
        self.weights.iter().sum()
    }

    fn furthest_behind(&mut self, number: u32, bytes: Bytes) -> u32 {
        let index = number as usize;
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        if let Some(server) = self.known[index] {
            return server;
        }
        let after = |server: usize| u128::from(self.kept[server] + bytes.count());
        let fuller = |a: usize, b: usize| {
            let (a_kept, b_kept) = (after(a), after(b));
            let (a_weight, b_weight) = (u128::from(self.weights[a]), u128::from(self.weights[b]));
            (a_kept * b_weight).cmp(&(b_kept * a_weight))
        };
        let keeping = (0..self.weights.len()).filter(|server| self.weights[*server] > 0);
        let server = keeping.min_by(|a, b| fuller(*a, *b)).expect("some server keeps something");
        self.kept[server] += bytes.count();
        let server = u32::try_from(server).expect("fewer than 2^32 servers");
        self.known[index] = Some(server);
        server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(mut placed: Placed, partitions: u32, servers: usize) -> Vec<u64> {
        let mut kept = vec![0; servers];
        for number in 0..partitions {
            let Share::One(server) = placed.share(number, Bytes::new(1)) else {
                panic!("nothing is split")
            };
            kept[server as usize] += 1;
        }
        kept
    }

    #[test]
    fn partitions_go_round_or_by_their_hash() {
        let turn = Placed::new(PartitionPlacement::InTurn, None, 4, 3, 0);
        assert_eq!(kept(turn, 7, 3), [3, 2, 2]);
        // 9973 mod 4 is 1, mod 6 it is 1, mod 8 it is 5: keys 0 to 3 lie on 0, 5, 2, 7.
        let mut hash = Placed::new(PartitionPlacement::Hash, None, 8, 8, 8);
        let servers = [0, 1, 2, 3].map(|number| hash.share(number, Bytes::new(1)));
        assert_eq!(servers, [0, 5, 2, 7].map(Share::One));
    }

    #[test]
    fn byteps_shares_are_its_paper_s() {
        // n = 4, k = 2: 16 + 8 - 4 = 20 parts: 6 on each of two machines of their own, 2 on each worker's.
        let placed = Placed::new(PartitionPlacement::Byteps, None, 4, 6, 4);
        assert_eq!(kept(placed, 200, 6), [20, 20, 20, 20, 60, 60]);
        // k = 0: as an all-reduce. k = n: workers' machines keep nothing.
        assert_eq!(
            kept(Placed::new(PartitionPlacement::Byteps, None, 4, 4, 4), 8, 4),
            [2, 2, 2, 2]
        );
        assert_eq!(
            kept(Placed::new(PartitionPlacement::Byteps, None, 2, 4, 2), 8, 4),
            [0, 0, 4, 4]
        );
        // What is split goes by the same shares.
        let mut placed = Placed::new(PartitionPlacement::Byteps, Some(Bytes::new(8)), 4, 6, 4);
        assert_eq!(placed.share(0, Bytes::new(8)), Share::All);
        let parts: Vec<u64> = placed.parts().map(|(_, part)| part).collect();
        assert_eq!((parts, placed.whole()), (vec![2, 2, 2, 2, 6, 6], 20));
    }
}
