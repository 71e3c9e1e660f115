//! What can be wrong with a program, each in a sentence that says where to look.

use allrail_core::{counted, either};

use crate::Operation;

/// Why a program does not do what it should. Ranks, steps and blocks count from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Not one list of steps per rank.
    #[error(
        "the program is for {ranks} but has the steps of {lists}",
        ranks = counted(*.ranks, "rank")
    )]
    Ranks {
        /// As it says.
        ranks: u32,
        /// As it has.
        lists: usize,
    },
    /// Ranks count different steps.
    #[error(
        "rank {rank} has {steps} and rank 0 has {others}; give idle ranks empty steps, so \
         that all count the same",
        steps = counted(*.steps, "step")
    )]
    StepCounts {
        /// The one that differs.
        rank: u32,
        /// Its steps.
        steps: usize,
        /// Rank 0's.
        others: usize,
    },
    /// A peer that does not exist, or the rank itself.
    #[error("in step {step}, rank {rank} names peer {peer}; peers are the other ranks of {ranks}")]
    Peer {
        /// Which rank.
        rank: u32,
        /// In which step.
        step: usize,
        /// Whom it names.
        peer: u32,
        /// How many there are.
        ranks: u32,
    },
    /// A block that does not exist, or more blocks at once than there are.
    #[error(
        "in step {step}, rank {rank} names block {block}; the buffer has {blocks}",
        blocks = counted(*.blocks, "block")
    )]
    Block {
        /// Which rank.
        rank: u32,
        /// In which step.
        step: usize,
        /// What it names.
        block: u64,
        /// How many there are.
        blocks: u32,
    },
    /// The buffer cannot be divided into shards.
    #[error(
        "`{operation}` over {ranks} needs equal shards, and {blocks} {have} none",
        ranks = counted(*.ranks, "rank"),
        blocks = counted(*.blocks, "block"),
        have = either(.blocks, "has", "have")
    )]
    Shards {
        /// How many ranks.
        ranks: u32,
        /// How many blocks.
        blocks: u32,
        /// What it should do.
        operation: Operation,
    },
    /// A message is awaited that never comes.
    #[error("deadlock: {}", chain(waits, *circle))]
    Deadlock {
        /// Each waits for the next.
        waits: Vec<Waiting>,
        /// The last of them waits for one that is named; else for a message that nobody sends.
        circle: bool,
    },
    /// A message is sent that nobody takes.
    #[error(
        "in step {step}, rank {source_rank} sends to rank {destination}, which does not await it \
         then{}",
        elsewhere("; it awaits messages from that rank", awaited)
    )]
    NotAwaited {
        /// The sender.
        source_rank: u32,
        /// Its peer.
        destination: u32,
        /// When.
        step: usize,
        /// The steps in which that peer awaits anything from it.
        awaited: Vec<usize>,
    },
    /// A message has another length than the receiver expects.
    #[error(
        "in step {step}, rank {source_rank} sends {sent} to rank {destination}, which awaits \
         {awaited}",
        sent = counted(*.sent, "block")
    )]
    Lengths {
        /// The sender.
        source_rank: u32,
        /// Its peer.
        destination: u32,
        /// When.
        step: usize,
        /// Blocks sent.
        sent: u32,
        /// Blocks awaited.
        awaited: u32,
    },
    /// A block is sent before anything has arrived in it.
    #[error("in step {step}, rank {rank} sends block {block} to rank {to} but holds nothing there")]
    NotHeld {
        /// The sender.
        rank: u32,
        /// When.
        step: usize,
        /// Which block.
        block: u32,
        /// To whom.
        to: u32,
    },
    /// A sum with nothing.
    #[error(
        "in step {step}, rank {rank} adds what comes from rank {from} to block {block}, where it \
         holds nothing"
    )]
    AddedToNothing {
        /// The receiver.
        rank: u32,
        /// When.
        step: usize,
        /// Which block.
        block: u32,
        /// From whom.
        from: u32,
    },
    /// A sum of different blocks.
    #[error(
        "in step {step}, rank {rank} adds block {arrived} of the buffers, from rank {from}, to \
         block {held} (in its block {block})"
    )]
    Mixed {
        /// The receiver.
        rank: u32,
        /// When.
        step: usize,
        /// Where.
        block: u32,
        /// From whom.
        from: u32,
        /// What is there.
        held: u32,
        /// What comes.
        arrived: u32,
    },
    /// A contribution is added a second time.
    #[error(
        "in step {step}, rank {rank} counts rank {contribution}'s contribution to block {block} \
         twice: what comes from rank {from} has it already"
    )]
    CountedTwice {
        /// The receiver.
        rank: u32,
        /// When.
        step: usize,
        /// Which block.
        block: u32,
        /// From whom.
        from: u32,
        /// Whose contribution.
        contribution: u32,
    },
    /// The result depends on which of two messages of a step comes first.
    #[error(
        "in step {step}, two messages write block {block} of rank {rank}, and not both are sums: \
         the result depends on which comes first"
    )]
    WrittenTwice {
        /// The receiver.
        rank: u32,
        /// When.
        step: usize,
        /// Which block.
        block: u32,
    },
    /// Nothing where the result should be.
    #[error("at the end, rank {rank} holds nothing in block {block}")]
    Empty {
        /// Which rank.
        rank: u32,
        /// Which block.
        block: u32,
    },
    /// Another block where this one should be.
    #[error(
        "at the end, rank {rank} holds block {held} of the buffers in its block {block}, where \
         block {expected} should be"
    )]
    WrongBlock {
        /// Which rank.
        rank: u32,
        /// Which block.
        block: u32,
        /// What is there.
        held: u32,
        /// What should be.
        expected: u32,
    },
    /// Contributions lack, or are there that should not be.
    #[error("at the end, block {block} of rank {rank} {}", sum(missing, surplus))]
    WrongSum {
        /// Which rank.
        rank: u32,
        /// Which block.
        block: u32,
        /// Whose contributions lack, as text.
        missing: String,
        /// Whose should not be there, as text.
        surplus: String,
    },
}

/// A rank that waits for a message which never comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The rank.
    pub rank: u32,
    /// The step that it cannot end.
    pub step: usize,
    /// The rank that it waits for.
    pub on: u32,
    /// The steps in which that rank sends it anything.
    pub sent_in: Vec<usize>,
}

fn chain(waits: &[Waiting], circle: bool) -> String {
    let mut text = String::new();
    for (i, Waiting { rank, step, on, sent_in }) in waits.iter().enumerate() {
        if i == 0 {
            text += &format!("rank {rank} waits");
        } else {
            text += ", which waits";
        }
        text += &format!(" in step {step} for rank {on}");
        if i + 1 == waits.len() {
            if circle {
                text += ", and so on in a circle";
            } else {
                text += ", which does not send it that message";
                text += &elsewhere("; it sends to it", sent_in);
            }
        }
    }
    text
}

/// `what` "in steps 1, 2 only", or nothing.
fn elsewhere(what: &str, steps: &[usize]) -> String {
    const MOST: usize = 8;
    match steps {
        [] => String::new(),
        [one] => format!("{what} in step {one} only"),
        many => {
            let shown: Vec<String> = many.iter().take(MOST).map(ToString::to_string).collect();
            let more = if many.len() > MOST { ", …" } else { "" };
            format!("{what} in steps {}{more}", shown.join(", "))
        }
    }
}

fn sum(missing: &str, surplus: &str) -> String {
    match (missing.is_empty(), surplus.is_empty()) {
        (false, true) => format!("lacks the contributions of {missing}"),
        (true, _) => format!("has the contributions of {surplus}, which should not be there"),
        (false, false) => {
            format!("has the contributions of {surplus} instead of those of {missing}")
        }
    }
}

/// "rank 3" or "ranks 3, 4, … (7 in all)".
pub(super) fn names(ranks: &[u32]) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = ranks.iter().take(MOST).map(ToString::to_string).collect();
    match ranks.len() {
        0 => String::new(),
        1 => format!("rank {}", shown[0]),
        n if n > MOST => format!("ranks {}, … ({n} in all)", shown.join(", ")),
        _ => format!("ranks {}", shown.join(", ")),
    }
}
