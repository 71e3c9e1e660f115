//! What waits and why: whatever kind of call it is, and whichever rank does not make it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allrail_collective::Operation;
use allrail_engine::{Asked, Dtype};
use allrail_runtime::{CallOf, FaultKind, Node, RuntimeError};
use allrail_schedule::Key;
use serde_json::{Value, json};

use crate::cluster::{Held, LONG, connected, register};

const RANKS: u32 = 3;

fn hasty(stalled: &str) -> Value {
    json!({"named_calls": true, "timeouts": {"connect": "20 s", "link": "10 s", "silent": "60 s",
        "heartbeat": "20 ms", "warn": "1 s", "stalled": stalled}})
}

/// A kind of exchange, as this rank makes it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Gradient,
    Named,
    Call(Operation),
}

const KINDS: [Kind; 7] = [
    Kind::Gradient,
    Kind::Named,
    Kind::Call(Operation::AllReduce),
    Kind::Call(Operation::ReduceScatter),
    Kind::Call(Operation::AllGather),
    Kind::Call(Operation::Broadcast),
    Kind::Call(Operation::AllToAll),
];

/// What a rank waits for.
enum Ticket {
    Of(Key, u64),
    Call(u64),
}

/// A node, and what it keeps until it is closed.
struct Rank {
    node: Arc<Node>,
    key: Key,
    held: Vec<Held>,
}

impl Rank {
    fn all(more: &Value) -> Vec<Self> {
        let rank = |node: Arc<Node>| {
            let held = vec![Held::new(Dtype::Float32, &[0; 48])];
            let key = register(&node, "weight", &held[0], 0);
            node.start().expect("it starts");
            Self { node, key, held }
        };
        connected(&[RANKS], more).into_iter().map(rank).collect()
    }

    fn begin(&mut self, kind: Kind, name: &str, root: u32) -> Ticket {
        self.held.push(Held::new(Dtype::Float32, &[0; 48]));
        let held = self.held.last_mut().expect("it was pushed");
        let (pointer, elements) = (held.pointer(), held.elements());
        let (operation, name) = match kind {
            Kind::Gradient => {
                // SAFETY: it is kept until the node is closed.
                let made = unsafe { self.node.submit(self.key, pointer, elements) };
                return Ticket::Of(self.key, made.expect("it is taken"));
            }
            Kind::Named => (Operation::AllReduce, Some(name)),
            Kind::Call(operation) => (operation, None),
        };
        let root = if operation == Operation::Broadcast { root } else { 0 };
        let call = CallOf {
            operation,
            root,
            dtype: Dtype::Float32,
            priority: 0,
            name,
            asked: Asked::default(),
        };
        // SAFETY: as above.
        Ticket::Call(unsafe { self.node.call(&call, pointer, elements) }.expect("it is taken"))
    }

    fn wait(&self, ticket: &Ticket) -> Result<bool, RuntimeError> {
        match ticket {
            Ticket::Of(key, generation) => self.node.wait(*key, *generation, LONG),
            Ticket::Call(ticket) => self.node.wait_call(*ticket, LONG),
        }
    }

    /// The first warning.
    fn warned(&self) -> String {
        let until = Instant::now() + LONG;
        loop {
            if let Some(one) = self.node.take_warnings().first() {
                return one.to_string();
            }
            assert!(Instant::now() < until, "nobody warns: {:?}", self.node.report());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// How a kind is called in what is said of it.
fn called(kind: Kind) -> (String, &'static str) {
    match kind {
        Kind::Gradient => ("weight".to_owned(), "submit"),
        Kind::Named => ("loss".to_owned(), "call"),
        Kind::Call(operation) => {
            (format!("call 0 ({operation} of 12 elements of float32)"), "call")
        }
    }
}

/// Jobs of all kinds at once, as each only waits; whose turn it is to be late goes round.
fn of_all_kinds(late: [u32; 3], check: impl Fn(Kind, u32) + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for (kind, late) in KINDS.into_iter().zip(late.into_iter().cycle()) {
            scope.spawn(move || check(kind, late));
        }
    });
}

/// One rank does not come: those that wait say so once, and go on when it comes.
#[test]
fn whoever_is_late_is_named_whatever_the_kind_of_call() {
    of_all_kinds([0, 1, 2], |kind, late| {
        let mut ranks = Rank::all(&hasty("1800 s"));
        // Who is late is the root, for whom all others wait.
        let tickets: Vec<Option<Ticket>> = (0..)
            .zip(&mut ranks)
            .map(|(rank, one)| (rank != late).then(|| one.begin(kind, "loss", late)))
            .collect();
        let (name, verb) = called(kind);
        let others: Vec<String> =
            (0..RANKS).filter(|rank| *rank != late).map(|rank| rank.to_string()).collect();
        for one in
            ranks.iter().zip(&tickets).filter_map(|(one, ticket)| ticket.as_ref().map(|_| one))
        {
            let text = one.warned();
            assert!(
                text.starts_with(&format!("`{name}`: rank {late} did not {verb} it; ")),
                "{text}"
            );
            let waits = format!("ranks {} wait for it", others.join(", "));
            assert!(text.contains(&waits) && text.ends_with("the job ends after 1800 s"), "{text}");
        }
        let ticket = ranks[late as usize].begin(kind, "loss", late);
        for (one, made) in ranks.iter().zip(&tickets) {
            assert!(
                one.wait(made.as_ref().unwrap_or(&ticket)).expect("it was only late"),
                "{kind:?}"
            );
            assert!(one.node.take_warnings().is_empty(), "it is said once");
        }
    });
}

/// One rank never comes: all others end with it, and it does, too.
#[test]
fn whoever_never_comes_ends_the_job_whatever_the_kind_of_call() {
    of_all_kinds([2, 0, 1], |kind, late| {
        let mut ranks = Rank::all(&hasty("2 s"));
        let tickets: Vec<Option<Ticket>> = (0..)
            .zip(&mut ranks)
            .map(|(rank, one)| (rank != late).then(|| one.begin(kind, "loss", late)))
            .collect();
        let (name, verb) = called(kind);
        for (one, ticket) in ranks.iter().zip(&tickets) {
            let Some(ticket) = ticket else { continue };
            let Err(RuntimeError::Fault(fault)) = one.wait(ticket) else { panic!("{kind:?}") };
            assert_eq!((fault.kind, fault.rank), (FaultKind::Stalled, Some(late)), "{fault}");
            assert_eq!(fault.tensor.as_deref(), Some(name.as_str()));
            assert!(fault.what.contains(&format!("rank {late} did not {verb} it")), "{fault}");
        }
        ranks.iter().for_each(|one| one.node.close());
    });
}

/// Two names for one thing: each side learns of the other's.
#[test]
fn a_name_that_another_rank_spells_otherwise_is_named() {
    let mut ranks = Rank::all(&hasty("1800 s"));
    let _tickets: Vec<Ticket> = ranks
        .iter_mut()
        .zip(["loss", "Loss", "loss"])
        .map(|(one, name)| one.begin(Kind::Named, name, 0))
        .collect();
    let wanted = [
        "`loss`: rank 1 did not call it; rank 1 waits for `Loss` (did you mean `Loss`?); ranks 0, 2 wait",
        "`Loss`: ranks 0, 2 did not call it; rank 0 waits for `loss` (did you mean `loss`?); rank 2 waits for",
    ];
    for (rank, wanted) in [(0, wanted[0]), (2, wanted[0]), (1, wanted[1])] {
        let text = ranks[rank].warned();
        assert!(text.starts_with(wanted), "rank {rank}: {text}");
    }
    ranks.iter().for_each(|one| one.node.close());
}

/// One rank is at another call: others learn at which.
#[test]
fn what_a_rank_waits_for_instead_is_said_whatever_it_is() {
    let mut ranks = Rank::all(&hasty("1800 s"));
    let _tickets = [
        ranks[0].begin(Kind::Named, "loss", 0),
        ranks[1].begin(Kind::Call(Operation::AllGather), "", 0),
        ranks[2].begin(Kind::Gradient, "", 0),
    ];
    let text = ranks[0].warned();
    assert!(
        text.contains("rank 1 waits for `call 0 (all_gather of 12 elements of float32)`"),
        "{text}"
    );
    assert!(text.contains("rank 2 waits for `weight`") && !text.contains("did you mean"), "{text}");
    let text = ranks[2].warned();
    assert!(
        text.starts_with("`weight`: ranks 0, 1 did not submit it; rank 0 waits for `loss`"),
        "{text}"
    );
    ranks.iter().for_each(|one| one.node.close());
}
