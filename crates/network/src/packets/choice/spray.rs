//! `spray`: the packets of a message go over all shortest paths in turn.
//!
//! At a node with `n` hops every `n` packets of a message take each hop once, in an order that is drawn for
//! them, as NDP's senders do with paths (SIGCOMM'17): if every packet were drawn alone, queues would grow
//! with the root of their number. The order is a permutation that is computed, not kept. A packet takes the
//! least loaded of the eight hops whose turns come together. Further up, where not every packet of a message
//! comes by, it is as if drawn.

use allrail_fabric::routing::Hop;

use super::{Fork, PathChoice, keep_shortest};

pub(super) struct Spray;

/// So many packets of a message that follow each other choose among the hops whose turn it is. Chosen with
/// permutations on fat trees in view: 1 ends a hundredth later, all hops are `adaptive`.
const TOGETHER: u32 = 8;

impl PathChoice for Spray {
    fn tag(&self) -> &'static str {
        "spray"
    }

    fn about(&self) -> &'static str {
        "a message's packets over all shortest paths in turn, in an order drawn anew each round"
    }

    fn narrows(&self) -> bool {
        true
    }

    fn narrow(&self, packet: &Fork, hops: &mut Vec<Hop>) {
        keep_shortest(hops);
        let count = hops.len() as u32;
        let first = packet.sequence / TOGETHER * TOGETHER;
        for sequence in first..first + TOGETHER.min(count) {
            let hop = hops[place(packet, sequence, count) as usize];
            hops.push(hop);
        }
        hops.drain(..count as usize);
    }
}

/// The hop of `count` that is the turn of the packet with this place in the same message.
fn place(packet: &Fork, sequence: u32, count: u32) -> u32 {
    let bits = count.next_power_of_two().trailing_zeros();
    let keys = packet.draw(sequence / count);
    let mut turn = sequence % count;
    loop {
        turn = permuted(turn, bits, keys);
        // What lies beyond is permuted again, until it comes back: each turn ends at a hop of its own.
        if turn < count {
            return turn;
        }
    }
}

/// A permutation of the numbers of so many bits: one for each `keys`.
const fn permuted(mut number: u32, bits: u32, keys: u64) -> u32 {
    let mask = (1 << bits) - 1;
    let mut round = 0;
    while round < 4 {
        let key = (keys >> (16 * round)) as u32;
        number = number.wrapping_mul(key << 1 | 1).wrapping_add(key >> 5) & mask;
        number ^= number >> bits.div_ceil(2);
        round += 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_fabric::graph::NodeId;

    #[test]
    fn each_round_takes_every_hop_once_and_rounds_differ() {
        for count in [1u32, 2, 3, 7, 12, 32, 64] {
            let mut orders = std::collections::BTreeSet::new();
            for round in 0..8 {
                let order: Vec<u32> = (round * count..(round + 1) * count)
                    .map(|sequence| {
                        let [node, source, destination] = [70, 1, 2].map(NodeId);
                        place(
                            &Fork { node, source, destination, sequence, flowlet: 0, seed: 5 },
                            sequence,
                            count,
                        )
                    })
                    .collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..count).collect::<Vec<_>>());
                orders.insert(order);
            }
            assert!(count < 7 || orders.len() > 4, "{count}: {}", orders.len());
        }
    }
}
