//! The critical path of a step: from what was over last back to what it waited for last, and so on,
//! to the end of the iteration before.
//!
//! Stretches of one kind in a row are one entry. A path may have millions of entries; the
//! [`LONGEST`] longest are kept, and the others are summed up in one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use allrail_core::{Time, counted};
use allrail_workload::Purpose;
use serde::Serialize;

use crate::training::driver::record::Ran;

/// How many entries are kept.
pub(crate) const LONGEST: usize = 1000;

/// A stretch of the critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathEntry {
    /// `compute`, `communication` or `waiting`; `rest` for all that is too short to be listed.
    pub what: &'static str,
    /// The node's name; of several in a row, the first's and the last's.
    pub name: String,
    /// Whose.
    pub actor: String,
    /// What a communication is for.
    pub purpose: Option<Purpose>,
    /// The dimension that it keeps busy for longest.
    pub dimension: Option<String>,
    /// How long.
    pub time_us: f64,
    /// Of the step.
    pub share: f64,
}

/// What an actor does on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// It computes.
    Compute,
    /// It communicates, for this, mostly on this dimension.
    Communication(Purpose, Option<u32>),
    /// It waits for others.
    Waiting,
}

/// The path as a table, earliest first, and in one sentence.
pub(crate) struct CriticalPath {
    /// The table.
    pub entries: Vec<PathEntry>,
    /// The sentence: `62 % of the step waits for dim3, data-parallel communication, most of it
    /// layer41`.
    pub words: String,
}

/// Stretches of one kind in a row. The path is walked backwards: `first` is the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Merged {
    what: What,
    player: u32,
    time: Time,
    nodes: u32,
    first: Option<Ran>,
    last: Option<Ran>,
}

/// The longest entries, and what the sentence is made of.
#[derive(Default)]
struct Ledger {
    /// The stretch that is not over.
    open: Option<Merged>,
    /// (length, place from the end): the shortest leaves first.
    order: BinaryHeap<Reverse<(Time, Reverse<u64>)>>,
    kept: BTreeMap<u64, Merged>,
    places: u64,
    rest: Time,
    left_out: u64,
    /// For each kind, its time in all, and the longest entry.
    sums: BTreeMap<What, (Time, Merged)>,
}

impl Ledger {
    /// Lengthens the stretch before, or begins another.
    fn add(&mut self, what: What, player: u32, ran: Option<Ran>, time: Time) {
        if time == Time::ZERO {
            return;
        }
        if let Some(merged) = &mut self.open
            && (merged.what, merged.player) == (what, player)
        {
            merged.time += time;
            merged.nodes += 1;
            merged.last = ran;
            return;
        }
        let next = Merged { what, player, time, nodes: 1, first: ran, last: ran };
        if let Some(done) = self.open.replace(next) {
            self.keep(done);
        }
    }

    fn keep(&mut self, merged: Merged) {
        let (all, longest) = self.sums.entry(merged.what).or_insert((Time::ZERO, merged));
        *all += merged.time;
        if merged.time > longest.time {
            *longest = merged;
        }
        self.order.push(Reverse((merged.time, Reverse(self.places))));
        self.kept.insert(self.places, merged);
        self.places += 1;
        if self.kept.len() > LONGEST
            && let Some(Reverse((time, Reverse(place)))) = self.order.pop()
        {
            self.kept.remove(&place);
            self.rest += time;
            self.left_out += 1;
        }
    }

    /// All that is too short to be listed.
    fn rest(&self, step: Time) -> Option<PathEntry> {
        (self.left_out > 0).then(|| PathEntry {
            what: "rest",
            name: format!("{} shorter stretches", self.left_out),
            actor: String::new(),
            purpose: None,
            dimension: None,
            time_us: self.rest.as_us(),
            share: self.rest.ratio(step),
        })
    }
}

/// Walks back from `last` to `from`. `look` gives a node's start, end and cause, `what` its kind,
/// `name` and `actor` are those of nodes and players.
pub(crate) fn trace(
    last: Ran,
    (from, to): (Time, Time),
    look: impl Fn(Ran) -> Option<(Time, Time, Option<Ran>)>,
    what: impl FnMut(Ran) -> What,
    name: impl Fn(Ran) -> String,
    actor: impl Fn(u32) -> String,
) -> CriticalPath {
    let ledger = walk(last, (from, to), look, what);
    let step = to.saturating_sub(from);
    let named = |merged: &Merged| match (merged.last, merged.first) {
        (Some(earliest), Some(latest)) if merged.nodes > 1 => {
            format!("{} ... {} ({})", name(earliest), name(latest), counted(merged.nodes, "node"))
        }
        (Some(only), _) => name(only),
        _ => String::new(),
    };
    let entry = |merged: &Merged| {
        let (what, purpose, dimension) = match merged.what {
            What::Compute => ("compute", None, None),
            What::Waiting => ("waiting", None, None),
            What::Communication(purpose, dimension) => ("communication", Some(purpose), dimension),
        };
        PathEntry {
            what,
            name: named(merged),
            actor: actor(merged.player),
            purpose,
            dimension: dimension.map(|d| format!("dim{}", d + 1)),
            time_us: merged.time.as_us(),
            share: merged.time.ratio(step),
        }
    };
    let mut entries: Vec<PathEntry> = ledger.kept.values().rev().map(entry).collect();
    entries.extend(ledger.rest(step));
    CriticalPath { entries, words: in_words(&ledger.sums, step, named) }
}

/// The stretches from `last` back to `from`.
fn walk(
    last: Ran,
    (from, to): (Time, Time),
    look: impl Fn(Ran) -> Option<(Time, Time, Option<Ran>)>,
    mut what: impl FnMut(Ran) -> What,
) -> Ledger {
    let mut ledger = Ledger::default();
    let mut at = Some(last);
    let mut until = to;
    while let Some(ran) = at {
        let Some((start, finish, cause)) = look(ran) else { break };
        let end = finish.min(until).max(from);
        if end < until {
            ledger.add(What::Waiting, ran.player, None, until - end);
        }
        let start = start.min(end).max(from);
        ledger.add(what(ran), ran.player, Some(ran), end - start);
        until = start;
        if until <= from {
            break;
        }
        at = cause;
    }
    if until > from {
        ledger.add(What::Waiting, last.player, None, until - from);
    }
    if let Some(done) = ledger.open.take() {
        ledger.keep(done);
    }
    ledger
}

/// The path in a sentence, the largest part first.
fn in_words(
    sums: &BTreeMap<What, (Time, Merged)>,
    step: Time,
    named: impl Fn(&Merged) -> String,
) -> String {
    let mut parts: Vec<(&What, f64, &Merged)> =
        sums.iter().map(|(what, (all, longest))| (what, all.ratio(step), longest)).collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words: Vec<String> = parts
        .into_iter()
        .filter(|(_, share, _)| *share >= 0.005)
        .map(|(what, share, longest)| {
            let about = match what {
                What::Compute => "computes".to_owned(),
                What::Waiting => "waits for others".to_owned(),
                What::Communication(purpose, Some(d)) => {
                    format!("waits for dim{}, {}", d + 1, purpose.words())
                }
                What::Communication(purpose, None) => format!("waits for {}", purpose.words()),
            };
            let all = format!("{:.0} % of the step {about}", share * 100.0);
            let name = named(longest);
            if *what == What::Compute || name.is_empty() {
                all
            } else if longest.time.ratio(step) >= share * 0.995 {
                format!("{all}: {name}")
            } else {
                format!("{all}, most of it {name}")
            }
        })
        .collect();
    words.join("; ")
}
