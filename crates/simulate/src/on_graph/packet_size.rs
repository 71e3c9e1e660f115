//! How large the packets of a training step are, where its scenario does not say.
//!
//! What a step costs to simulate is its packets. A packet goes on when its first flit is there, so a larger one is
//! a phase of smaller ones that nothing comes between: what changes is how finely messages take turns
//! (`docs/concepts/packets.md` has what that was, measured).

use allrail_collective::Operation;
use allrail_core::Bytes;
use allrail_network::packets::Settings;
use allrail_workload::{StepGraph, Work};

/// Beyond as many packets in an iteration they are made larger. A core simulates some millions a second.
const MANY: u64 = 1 << 27;
/// No packet is made larger than this: a port's buffer holds several.
const LARGEST: u64 = 1 << 20;

/// The settings with a packet that suits the step, and what a result should say of it.
pub(crate) fn suited(settings: &Settings, graph: &StepGraph) -> (Settings, Option<String>) {
    let usual = settings.packet().count();
    let packets = sent(graph) / usual;
    let mut packet = usual;
    while packets / (packet / usual) > MANY && packet < LARGEST {
        packet *= 2;
    }
    if settings.packet.is_some() || packet == usual {
        return (settings.clone(), None);
    }
    let note = format!(
        "packets have {} KiB: of {} KiB, an iteration had about {} million (`packets.packet` sets it)",
        packet >> 10,
        usual >> 10,
        packets / 1_000_000
    );
    (Settings { packet: Some(Bytes::new(packet)), ..settings.clone() }, Some(note))
}

/// About how many bytes all ranks send in an iteration.
fn sent(graph: &StepGraph) -> u64 {
    let of_node = |id| {
        let node = graph.node(id);
        let bytes = match node.work {
            Work::Collective { operation: Operation::AllReduce, bytes, .. } => {
                bytes.count().saturating_mul(2)
            }
            Work::Collective { bytes, .. } | Work::Send { bytes, .. } => bytes.count(),
            Work::Compute { .. } | Work::Receive { .. } => 0,
        };
        bytes.saturating_mul(graph.actors()[node.actor.0 as usize].ranks.len() as u64)
    };
    graph.ids().map(of_node).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use allrail_core::Rank;
    use allrail_workload::{Actor, ActorId, Builder, Node, Pass};

    use super::*;

    fn a_step(bytes: u64) -> StepGraph {
        let mut builder = Builder::default();
        let actor =
            builder.actor(Actor { name: "ranks".to_owned(), ranks: vec![Rank(0), Rank(1)] });
        let group = builder.group(allrail_workload::Group {
            name: "dp".to_owned(),
            parts: Vec::new(),
            ranks: vec![Rank(0), Rank(1)],
            actors: vec![ActorId(0)],
        });
        let work = Work::Collective {
            operation: Operation::AllReduce,
            bytes: Bytes::new(bytes),
            group,
            purpose: allrail_workload::Purpose::Other,
        };
        builder.node("sum", Node { actor, work, tensor: None, pass: Pass::default() }, &[]);
        builder.finish().expect("one node")
    }

    #[test]
    fn packets_grow_until_they_are_few_enough_and_not_where_they_are_said() {
        let usual = Settings::default();
        let most = MANY * usual.packet().count() / 4;
        assert_eq!(suited(&usual, &a_step(most)), (usual.clone(), None));
        let (larger, note) = suited(&usual, &a_step(3 * most));
        assert_eq!(larger.packet, Some(Bytes::new(4 * usual.packet().count())));
        assert!(note.is_some_and(|note| note.contains("packets have 32 KiB")));
        assert_eq!(suited(&usual, &a_step(u64::MAX)).0.packet, Some(Bytes::new(LARGEST)));
        let said = Settings { packet: Some(usual.packet()), ..usual };
        assert_eq!(suited(&said, &a_step(u64::MAX)), (said.clone(), None));
    }
}
