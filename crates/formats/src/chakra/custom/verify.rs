//! What can be proved of a collective that is a trace of its own.
//!
//! Its messages do not say which blocks they carry, so its result cannot be followed block by block as
//! that of a program is. What is proved instead, each refused with the rank's file and the node:
//!
//! - every receive has its send and every send its receive, of the same size and tag: the k-th of one
//!   rank to another takes the k-th;
//! - nothing waits in a circle, over all ranks;
//! - what every rank put in can have reached every rank: along messages, and within a rank along
//!   dependencies;
//! - no fewer bytes are sent than the operation takes: over `P` ranks `2(P − 1)` buffers for an all-reduce
//!   (each block has to be heard of by one rank, and then by all: the gossip bound of one-way calls),
//!   `P − 1` for the others; and no rank receives less than what it has to hear of.
//!
//! Not proved: that sums are made where data meets, and that blocks go where they should.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, counted};

use super::super::error::TraceError;
use super::program::{Does, Message, Rank};

/// Proves what can be.
///
/// # Errors
/// The first node that is wrong.
pub(super) fn verify(ranks: &[Rank], operation: Operation, bytes: Bytes) -> Result<(), TraceError> {
    let sender = matched(ranks)?;
    let order = in_order(ranks, &sender)?;
    reached(ranks, &sender, &order, operation)?;
    enough(ranks, operation, bytes)
}

/// A node: its rank and its place there.
type At = (usize, usize);

/// (source, destination, tag, bytes) and the places of its ends.
type Ends = BTreeMap<(usize, usize, u64, Bytes), (Vec<usize>, Vec<usize>)>;

/// The send of every receive.
fn matched(ranks: &[Rank]) -> Result<BTreeMap<At, At>, TraceError> {
    let mut ends = Ends::new();
    for (rank, of_rank) in ranks.iter().enumerate() {
        for (place, node) in of_rank.nodes.iter().enumerate() {
            match node.does {
                Does::Send(Message { peer, tag, bytes }) => {
                    ends.entry((rank, peer as usize, tag, bytes)).or_default().0.push(place);
                }
                Does::Receive(Message { peer, tag, bytes }) => {
                    ends.entry((peer as usize, rank, tag, bytes)).or_default().1.push(place);
                }
                Does::Compute(_) => {}
            }
        }
    }
    let mut sender = BTreeMap::new();
    for ((source, destination, tag, bytes), (sends, receives)) in &ends {
        if sends.len() < receives.len() {
            let place = receives[sends.len()];
            let what = format!(
                "rank {destination} awaits {bytes} with tag {tag} from rank {source}, which {}",
                instead(&ends, ranks, (*source, *destination), true)
            );
            return Err(wrong(ranks, (*destination, place), what));
        }
        if receives.len() < sends.len() {
            let place = sends[receives.len()];
            let what = format!(
                "rank {source} sends {bytes} with tag {tag} to rank {destination}, which {}",
                instead(&ends, ranks, (*source, *destination), false)
            );
            return Err(wrong(ranks, (*source, place), what));
        }
        let pairs = receives.iter().zip(sends);
        sender.extend(pairs.map(|(receive, send)| ((*destination, *receive), (*source, *send))));
    }
    Ok(sender)
}

/// What the other end does instead of what it should.
fn instead(ends: &Ends, ranks: &[Rank], pair: (usize, usize), sends: bool) -> String {
    let other = ends.iter().find_map(|((source, destination, tag, bytes), (sent, awaited))| {
        let (long, short, rank) =
            if sends { (sent, awaited, source) } else { (awaited, sent, destination) };
        let place = ((*source, *destination) == pair).then(|| long.get(short.len())).flatten()?;
        let title = ranks[*rank].nodes[*place].title();
        Some((title, *tag, *bytes))
    });
    match (other, sends) {
        (Some((title, tag, bytes)), true) => format!("sends {bytes} with tag {tag} in {title}"),
        (Some((title, tag, bytes)), false) => format!("awaits {bytes} with tag {tag} in {title}"),
        (None, true) => "never sends it: a deadlock".to_owned(),
        (None, false) => "does not await it".to_owned(),
    }
}

fn wrong(ranks: &[Rank], (rank, place): At, why: String) -> TraceError {
    let of_rank = &ranks[rank];
    let title = of_rank.nodes[place].title();
    TraceError::new(
        &of_rank.file,
        title,
        why,
        "mend the collective's trace: both ends of a message agree",
    )
}

/// All nodes, each after what it waits for.
fn in_order(ranks: &[Rank], sender: &BTreeMap<At, At>) -> Result<Vec<At>, TraceError> {
    let before = |(rank, place): At| {
        let own = ranks[rank].nodes[place].after.iter().map(move |before| (rank, *before));
        own.chain(sender.get(&(rank, place)).copied())
    };
    let all = || {
        let of = |(rank, of_rank): (usize, &Rank)| {
            (0..of_rank.nodes.len()).map(move |place| (rank, place))
        };
        ranks.iter().enumerate().flat_map(of)
    };
    let mut missing: Vec<Vec<usize>> = ranks.iter().map(|rank| vec![0; rank.nodes.len()]).collect();
    let mut after: BTreeMap<At, Vec<At>> = BTreeMap::new();
    for node in all() {
        for earlier in before(node) {
            missing[node.0][node.1] += 1;
            after.entry(earlier).or_default().push(node);
        }
    }
    let mut order: Vec<At> = all().filter(|node| missing[node.0][node.1] == 0).collect();
    let mut done = 0;
    while let Some(node) = order.get(done).copied() {
        done += 1;
        for next in after.get(&node).into_iter().flatten() {
            missing[next.0][next.1] -= 1;
            if missing[next.0][next.1] == 0 {
                order.push(*next);
            }
        }
    }
    let blocked = |node: &At| missing[node.0][node.1] > 0;
    let Some(first) = all().find(blocked) else { return Ok(order) };
    let mut walk = vec![first];
    let circle = loop {
        let last = walk[walk.len() - 1];
        let Some(earlier) = before(last).find(blocked) else { break walk };
        if let Some(at) = walk.iter().position(|node| *node == earlier) {
            break walk.split_off(at);
        }
        walk.push(earlier);
    };
    const MOST: usize = 8;
    let shown: Vec<String> = circle
        .iter()
        .take(MOST)
        .map(|(rank, place)| format!("{} of rank {rank}", ranks[*rank].nodes[*place].title()))
        .collect();
    let more = if circle.len() > MOST { ", …" } else { "" };
    let why = format!("deadlock: {}{more}, and so on in a circle", shown.join(" waits for "));
    Err(wrong(ranks, circle[0], why))
}

/// Whose contributions can have come to a node.
type Heard = Vec<u64>;

fn reached(
    ranks: &[Rank],
    sender: &BTreeMap<At, At>,
    order: &[At],
    operation: Operation,
) -> Result<(), TraceError> {
    let words = ranks.len().div_ceil(64);
    let own = |rank: usize| {
        let mut heard = vec![0u64; words];
        heard[rank / 64] |= 1 << (rank % 64);
        heard
    };
    let add = |to: &mut Heard, from: &Heard| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to |= from);
    };
    let mut heard: Vec<Vec<Heard>> =
        ranks.iter().map(|rank| vec![Heard::new(); rank.nodes.len()]).collect();
    let mut at_end: Vec<Heard> = (0..ranks.len()).map(own).collect();
    for (rank, place) in order.iter().copied() {
        let mut here = own(rank);
        for before in &ranks[rank].nodes[place].after {
            add(&mut here, &heard[rank][*before]);
        }
        if let Some((from, send)) = sender.get(&(rank, place)) {
            add(&mut here, &heard[*from][*send]);
        }
        add(&mut at_end[rank], &here);
        heard[rank][place] = here;
    }
    for (rank, heard) in at_end.iter().enumerate() {
        let lacks: Vec<String> = (0..ranks.len())
            .filter(|other| heard[other / 64] >> (other % 64) & 1 == 0)
            .map(|other| other.to_string())
            .collect();
        if lacks.is_empty() {
            continue;
        }
        let why = format!(
            "at the end of the {operation}, rank {rank} cannot have what rank{} {} put in: no chain \
             of messages leads there",
            if lacks.len() == 1 { "" } else { "s" },
            lacks.join(", ")
        );
        return Err(last_of(ranks, rank, why));
    }
    Ok(())
}

/// An error at the last message that a rank awaits.
fn last_of(ranks: &[Rank], rank: usize, why: String) -> TraceError {
    let nodes = &ranks[rank].nodes;
    let receives = |place: &usize| matches!(nodes[*place].does, Does::Receive(_));
    match (0..nodes.len()).rev().find(receives) {
        Some(place) => wrong(ranks, (rank, place), why),
        None => TraceError::new(
            &ranks[rank].file,
            "the file",
            why,
            "mend the collective's trace: every rank has to hear of every other",
        ),
    }
}

fn enough(ranks: &[Rank], operation: Operation, bytes: Bytes) -> Result<(), TraceError> {
    let (many, buffer) = (ranks.len() as u128, u128::from(bytes.count()));
    let (in_all, of_a_rank) = match operation {
        Operation::AllReduce => (2 * (many - 1) * buffer, buffer),
        Operation::ReduceScatter => ((many - 1) * buffer, buffer / many),
        Operation::AllGather | Operation::AllToAll => {
            ((many - 1) * buffer, (many - 1) * buffer / many)
        }
        Operation::Broadcast => ((many - 1) * buffer, 0),
    };
    let received = |rank: &Rank| -> (u128, u128) {
        rank.nodes.iter().fold((0, 0), |(sum, count), node| match node.does {
            Does::Receive(message) => (sum + u128::from(message.bytes.count()), count + 1),
            _ => (sum, count),
        })
    };
    let of_ranks: Vec<(u128, u128)> = ranks.iter().map(received).collect();
    let sum: u128 = of_ranks.iter().map(|(bytes, _)| bytes).sum();
    let messages: u128 = of_ranks.iter().map(|(_, count)| count).sum();
    let least = of_ranks.iter().enumerate().min_by_key(|(_, (bytes, _))| *bytes);
    let Some((rank, (fewest, count))) = least else { return Ok(()) };
    // Blocks that do not divide are rounded down by who writes them, a byte a message.
    if sum + messages < in_all || fewest + count < of_a_rank {
        let why = format!(
            "an {operation} of {buffer} B over {many} takes {in_all} B in messages, \
             {of_a_rank} B to each rank at least; these carry {sum} B in all, {fewest} B of \
             them to rank {rank}",
            many = counted(many, "rank")
        );
        return Err(last_of(ranks, rank, why));
    }
    Ok(())
}
