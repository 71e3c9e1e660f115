//! Whether coordinators may run for ever: memory after many events is what it was after few.
//!
//! `cargo run --release -p allrail-coordinate --example coordination_soak [events]`: four ranks of each policy,
//! each alone with its own ledger; tensors that are submitted in another order on every rank, one of which
//! changes in every step; two operations a step that finish, and a cut. Prints the resident memory of the
//! process at the end of each tenth.
#![allow(clippy::print_stdout, reason = "a table is what it is for")]

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use allrail_coordinate::{
    self, Action, CoordinationPolicy, CoordinationSpec, Coordinator, Event, Payload, Request,
    Settings,
};
use allrail_core::{Bytes, Time};

const RANKS: u32 = 4;
const TENSORS: u64 = 16;

/// Resident memory in kB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").trim().parse().unwrap_or(0)
}

/// What is under way: messages, in one order for all, and timers.
#[derive(Default)]
struct Loopback {
    ranks: Vec<Box<dyn Coordinator>>,
    messages: VecDeque<(u32, u32, Payload)>,
    timers: BTreeMap<(Time, u32, u64), ()>,
    now: Time,
    events: u64,
    /// Tensors and finished operations that each rank has seen agreed.
    agreed: Vec<u64>,
    actions: Vec<Action>,
}

impl Loopback {
    fn new(policy: &dyn CoordinationPolicy) -> Self {
        let settings = Settings { cache: 12, ..Settings::default() };
        let job = CoordinationSpec::new(policy, &settings, RANKS, &[]).expect("a job");
        let ranks = (0..RANKS).map(|rank| policy.coordinator(&job, rank)).collect();
        let mut all = Self { ranks, agreed: vec![0; RANKS as usize], ..Self::default() };
        (0..RANKS).for_each(|rank| all.tell(rank, Event::Start));
        all
    }

    fn tell(&mut self, rank: u32, event: Event) {
        self.events += 1;
        let told = self.ranks[rank as usize].on(self.now, event, &mut self.actions);
        told.expect("nobody breaks the rules");
        for action in self.actions.drain(..) {
            match action {
                Action::Send { to, payload } => self.messages.push_back((rank, to, payload)),
                Action::Spread { below, payload } => {
                    let each = below.below().map(|to| (rank, to.start, payload.clone()));
                    self.messages.extend(each);
                }
                Action::SetTimer { id, at } => drop(self.timers.insert((at, rank, id), ())),
                Action::Ready(launch) => {
                    let finished = launch.finished.len() as u64;
                    self.agreed[rank as usize] += launch.tensors.len() as u64 + finished;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn go_on(&mut self) {
        if let Some((from, to, payload)) = self.messages.pop_front() {
            self.tell(to, Event::Message { from, payload });
        } else if let Some(((at, rank, id), ())) = self.timers.pop_first() {
            self.now = self.now.max(at);
            self.tell(rank, Event::Timer { id });
        } else {
            panic!("nothing is under way");
        }
    }

    /// A step of training.
    fn step(&mut self, number: u64) {
        for place in 0..TENSORS {
            for rank in 0..RANKS {
                let tensor = (place + u64::from(rank) * 5) % TENSORS;
                let bytes = Bytes::new(8 + if tensor == 3 { number } else { 0 });
                self.tell(rank, Event::Submit(Request::all_reduce(tensor as u32, bytes)));
            }
        }
        for rank in 0..RANKS {
            for operation in [2 * number, 2 * number + 1] {
                self.tell(rank, Event::Finished { operation });
            }
            self.tell(rank, Event::Cut { number });
        }
        while self.agreed.iter().any(|agreed| *agreed < (number + 1) * (TENSORS + 2)) {
            self.go_on();
        }
    }
}

fn main() {
    let events = std::env::args().nth(1).and_then(|count| count.parse().ok());
    let events: u64 = events.unwrap_or(100_000_000);
    println!("policy        events       steps    cpu+wait   resident, each tenth (kB)");
    for policy in allrail_coordinate::ALL {
        let start = Instant::now();
        let mut all = Loopback::new(*policy);
        let (mut steps, mut kept) = (0, Vec::new());
        let share = events / allrail_coordinate::ALL.len() as u64;
        while all.events < share {
            all.step(steps);
            steps += 1;
            if all.events * 10 / share > kept.len() as u64 {
                kept.push(resident());
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let tag = policy.tag();
        println!("{tag:<11} {:>10} {steps:>10} {seconds:>9.1} s   {kept:?}", all.events);
    }
}
