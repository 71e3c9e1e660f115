//! Calls with a name, as arrays of a framework are exchanged: each rank begins them in its own order, and the
//! k-th of a name is the same operation on every rank.
//!
//! They begin at once, as calls without a name do, and nothing of them is registered. So a frame of a name
//! that is not known is early, in a group [whose calls may have names](super::Settings::named_calls). A name
//! that was not used for [`Settings::forget_after`](super::Settings::forget_after) calls is forgotten, on all
//! ranks alike ([`forget`](super::forget)); used again it is a new name, and its calls count from 0.

use std::collections::{BTreeMap, BTreeSet};

use allrail_coordinate::messages::{Idle, Waits};
use allrail_core::FieldError;
use allrail_schedule::{Key, OperationName};

use super::event::Home;
use crate::{Broken, CollectiveId, SignatureHash};

/// Of how many calls of a name, the last ones, it is remembered what they were.
const KNOWN: usize = 4;

/// How many calls a rank says at a time that it waits for.
const MOST_TOLD: usize = 8;

/// How many names one list has at most.
const MOST_IDLE: usize = 1 << 15;

/// A name, and how far its calls are.
#[derive(Debug)]
struct Named {
    name: String,
    /// How many were begun.
    begun: u64,
    /// The last of them, until it is over.
    running: Option<CollectiveId>,
    /// What the last ones are, this one last.
    signatures: [SignatureHash; KNOWN],
    /// How many calls of all names came before the last.
    after: u64,
    /// How many calls of all names this rank had begun when the last of this one was over.
    idle_since: u64,
    /// Whether this rank has told others that it may be forgotten, and nobody knows yet whether it is.
    undecided: bool,
}

/// The named calls of a group.
#[derive(Debug, Default)]
pub(super) struct NamedCalls {
    known: BTreeMap<Key, Named>,
    /// Those with no call under way, the longest idle first.
    idle: BTreeSet<(u64, Key)>,
    /// Those with one, in the order in which they were begun.
    running: BTreeSet<(u64, Key)>,
    /// How many calls were begun, of all names.
    begun: u64,
}

impl NamedCalls {
    /// The key and the generation of the next call of a name.
    pub(super) fn next(&self, name: &str) -> Result<(Key, u64), Broken> {
        let key = Key::of(name);
        let refuse = |why: &str, hint: &str| {
            let (value, why, hint) = (name.to_owned(), why.to_owned(), hint.to_owned());
            Broken::Setting(FieldError::new("name", value, why, hint))
        };
        match self.known.get(&key) {
            None if key.number_of_call().is_some() => {
                Err(refuse("its key is that of a call without a name", "another name"))
            }
            None => Ok((key, 0)),
            Some(one) if one.name != name => {
                Err(refuse(&format!("its key is that of `{}`", one.name), "another name"))
            }
            Some(Named { running: Some(_), begun, .. }) => {
                Err(Broken::NotDone { name: name.to_owned(), generation: begun - 1 })
            }
            Some(Named { undecided: true, .. }) => Err(Broken::Undecided { name: name.to_owned() }),
            Some(one) => Ok((key, one.begun)),
        }
    }

    /// The next call of a name has begun.
    pub(super) fn begin(
        &mut self,
        key: Key,
        name: &str,
        (id, signature): (CollectiveId, SignatureHash),
    ) {
        let one = self.known.entry(key).or_insert_with(|| Named {
            name: name.to_owned(),
            begun: 0,
            running: None,
            signatures: [SignatureHash::default(); KNOWN],
            after: 0,
            idle_since: 0,
            undecided: false,
        });
        self.idle.remove(&(one.idle_since, key));
        one.begun += 1;
        one.running = Some(id);
        one.signatures.rotate_left(1);
        one.signatures[KNOWN - 1] = signature;
        one.after = self.begun;
        self.running.insert((self.begun, key));
        self.begun += 1;
    }

    /// A call is over; whether it was one of these.
    pub(super) fn over(&mut self, key: Key) -> bool {
        let begun = self.begun;
        let Some(one) = self.known.get_mut(&key) else { return false };
        let was = one.running.take().is_some();
        if was {
            self.running.remove(&(one.after, key));
            one.idle_since = begun;
            self.idle.insert((begun, key));
        }
        was
    }

    /// Where frames of a call belong.
    pub(super) fn home(&self, operation: &OperationName) -> Result<Home, Broken> {
        if operation.part != 0 {
            return Err(Broken::UnknownOperation(*operation));
        }
        let Some(one) = self.known.get(&operation.key) else { return Ok(Home::Early) };
        // Of an undecided name the sender may know already that it is forgotten, and begin anew.
        if one.undecided || operation.generation >= one.begun {
            return Ok(Home::Early);
        }
        match one.running {
            Some(id) if operation.generation + 1 == one.begun => Ok(Home::Running(id)),
            _ => Err(Broken::Old(*operation)),
        }
    }

    /// Which calls are under way of those that were begun before the `before`-th; the first of them.
    pub(super) fn waiting(&self, before: u64) -> impl Iterator<Item = Waits> + '_ {
        let old = self.running.iter().take_while(move |(after, _)| *after < before);
        old.take(MOST_TOLD).filter_map(|(_, key)| {
            let one = self.known.get(key)?;
            let (generation, signature) = (one.begun.checked_sub(1)?, one.signatures[KNOWN - 1].0);
            Some(Waits { key: *key, generation, signature })
        })
    }

    /// Whether calls are under way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.running.is_empty()
    }

    /// What a call of a name is or was, if that is known.
    pub(super) fn signature(&self, key: Key, generation: u64) -> Option<SignatureHash> {
        let one = self.known.get(&key)?;
        let after =
            one.begun.checked_sub(generation).and_then(|after| usize::try_from(after).ok())?;
        let place = KNOWN.checked_sub(after)?;
        one.signatures.get(place).copied()
    }

    /// The name of a key.
    pub(super) fn name(&self, key: Key) -> Option<&str> {
        self.known.get(&key).map(|one| one.name.as_str())
    }

    /// How many calls of each name are over.
    pub(super) fn done(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        let done = |one: &Named| one.begun - u64::from(one.running.is_some());
        self.known.iter().map(move |(key, one)| (*key, done(one)))
    }

    /// How many calls of a name were begun.
    pub(super) fn begun_of(&self, key: Key) -> Option<u64> {
        self.known.get(&key).map(|one| one.begun)
    }

    /// How many calls were begun, of all names.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// How many names are known.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn is_undecided(&self, key: Key) -> bool {
        self.known.get(&key).is_some_and(|one| one.undecided)
    }

    /// The names that were idle for `after` calls, by key: from now on they are undecided.
    pub(super) fn take_idle(&mut self, after: u64) -> Vec<Idle> {
        let Some(before) = self.begun.checked_sub(after) else { return Vec::new() };
        let old = self.idle.iter().take_while(|(since, _)| *since <= before).take(MOST_IDLE);
        let mut names = Vec::new();
        for (_, key) in old {
            if let Some(one) = self.known.get_mut(key) {
                one.undecided = true;
                names.push(Idle { key: *key, calls: one.begun });
            }
        }
        names.sort_unstable();
        names
    }

    /// What was undecided is decided: `forgotten` of these are, the others are known as before.
    pub(super) fn decide(&mut self, undecided: &[Idle], forgotten: &[Idle]) {
        for Idle { key, .. } in undecided {
            if let Some(one) = self.known.get_mut(key) {
                one.undecided = false;
            }
        }
        for Idle { key, .. } in forgotten {
            if let Some(one) = self.known.remove(key) {
                self.idle.remove(&(one.idle_since, *key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_of_a_name_follow_each_other() {
        let mut calls = NamedCalls::default();
        let (key, generation) = calls.next("loss").expect("it is new");
        assert_eq!((key, generation), (Key::of("loss"), 0));
        let of = |generation| OperationName { key, generation, ..OperationName::default() };
        assert_eq!(calls.home(&of(0)), Ok(Home::Early));
        let id = CollectiveId { slot: 3, generation: 0 };
        calls.begin(key, "loss", (id, SignatureHash::default()));
        assert_eq!(calls.home(&of(0)), Ok(Home::Running(id)));
        assert_eq!(calls.home(&of(1)), Ok(Home::Early));
        let part = OperationName { part: 1, ..of(0) };
        assert_eq!(calls.home(&part), Err(Broken::UnknownOperation(part)));
        let not_done = Broken::NotDone { name: "loss".to_owned(), generation: 0 };
        assert_eq!(calls.next("loss"), Err(not_done));
        assert!(calls.over(key) && !calls.over(key));
        assert_eq!(calls.home(&of(0)), Err(Broken::Old(of(0))));
        assert_eq!(calls.home(&of(1)), Ok(Home::Early));
        assert_eq!(calls.next("loss"), Ok((key, 1)));
        assert_eq!((calls.name(key), calls.name(Key(1 << 60))), (Some("loss"), None));
    }

    #[test]
    fn what_waits_is_told_with_what_it_is_and_the_last_calls_are_remembered() {
        let mut calls = NamedCalls::default();
        let id = CollectiveId { slot: 0, generation: 0 };
        for number in 0..20 {
            let name = number.to_string();
            calls.begin(Key::of(&name), &name, (id, SignatureHash(number)));
        }
        assert!(calls.over(Key::of("1")));
        let told: Vec<u64> = calls.waiting(20).map(|one| one.signature).collect();
        assert_eq!(told, [0, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(calls.waiting(3).count(), 2, "the others have not waited for long");
        for number in 0..20 {
            calls.over(Key::of(&number.to_string()));
        }
        assert!(!calls.is_waiting() && calls.waiting(20).next().is_none());
        let key = Key::of("5");
        for generation in 1..6 {
            calls.begin(key, "5", (id, SignatureHash(100 + generation)));
            calls.over(key);
        }
        let known = [1, 2, 5, 6].map(|generation| calls.signature(key, generation));
        assert_eq!(known, [None, Some(SignatureHash(102)), Some(SignatureHash(105)), None]);
    }

    #[test]
    fn a_name_is_idle_after_so_many_calls_and_not_while_one_is_under_way() {
        let mut calls = NamedCalls::default();
        let id = CollectiveId { slot: 0, generation: 0 };
        for name in ["old", "open", "new"] {
            calls.begin(Key::of(name), name, (id, SignatureHash::default()));
        }
        assert!(calls.over(Key::of("old")));
        assert!(calls.take_idle(1).is_empty());
        calls.begin(Key::of("more"), "more", (id, SignatureHash::default()));
        let key = Key::of("old");
        assert!(calls.take_idle(2).is_empty());
        let idle = calls.take_idle(1);
        assert_eq!(idle, [Idle { key, calls: 1 }]);
        let old = OperationName { key, ..OperationName::default() };
        assert_eq!(calls.home(&old), Ok(Home::Early));
        assert_eq!(calls.next("old"), Err(Broken::Undecided { name: "old".to_owned() }));
        calls.decide(&idle, &[]);
        assert_eq!(calls.next("old"), Ok((key, 1)));
        assert_eq!(calls.home(&old), Err(Broken::Old(old)));
        let idle = calls.take_idle(1);
        calls.decide(&idle, &idle);
        assert_eq!((calls.next("old"), calls.len()), (Ok((key, 0)), 3));
    }
}
