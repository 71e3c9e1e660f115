//! Calls with a name, as arrays of a framework are exchanged: each rank begins them in its own order, and the
//! k-th of a name is the same operation on every rank.
//!
//! They begin at once, as calls without a name do, and nothing of them is registered. So a frame of a name
//! that is not known is early, in a group [whose calls may have names](super::Settings::named_calls). What is
//! kept grows with the names: their caller uses them again.

use std::collections::BTreeMap;

use allrail_schedule::{Key, OperationName};

use super::event::Home;
use crate::{Broken, CollectiveId};

/// How many names a group knows at most.
const MOST_NAMES: usize = 1 << 16;

/// A name, and how far its calls are.
#[derive(Debug)]
struct Named {
    name: String,
    /// How many were begun.
    begun: u64,
    /// The last of them, until it is over.
    running: Option<CollectiveId>,
}

/// The named calls of a group.
#[derive(Debug, Default)]
pub(super) struct NamedCalls(BTreeMap<Key, Named>);

impl NamedCalls {
    /// The key and the generation of the next call of a name.
    pub(super) fn next(&self, name: &str) -> Result<(Key, u64), Broken> {
        let key = Key::of(name);
        let refuse = |why: &str, hint: &str| {
            let (value, why, hint) = (name.to_owned(), why.to_owned(), hint.to_owned());
            Broken::Setting { field: "name", value, why, hint }
        };
        match self.0.get(&key) {
            None if key.number_of_call().is_some() => {
                Err(refuse("its key is that of a call without a name", "another name"))
            }
            None if self.0.len() >= MOST_NAMES => {
                let why = format!("{MOST_NAMES} other names are known, and none is ever forgotten");
                Err(refuse(&why, "use a name again once its last operation is over"))
            }
            None => Ok((key, 0)),
            Some(one) if one.name != name => {
                Err(refuse(&format!("its key is that of `{}`", one.name), "another name"))
            }
            Some(Named { running: Some(_), begun, .. }) => {
                Err(Broken::NotDone { name: name.to_owned(), generation: begun - 1 })
            }
            Some(one) => Ok((key, one.begun)),
        }
    }

    /// The next call of a name has begun.
    pub(super) fn begin(&mut self, key: Key, name: &str, id: CollectiveId) {
        let new = || Named { name: name.to_owned(), begun: 0, running: None };
        let one = self.0.entry(key).or_insert_with(new);
        one.begun += 1;
        one.running = Some(id);
    }

    /// A call is over; whether it was one of these.
    pub(super) fn over(&mut self, key: Key) -> bool {
        self.0.get_mut(&key).is_some_and(|one| one.running.take().is_some())
    }

    /// Where frames of a call belong.
    pub(super) fn home(&self, operation: &OperationName) -> Result<Home, Broken> {
        if operation.part != 0 {
            return Err(Broken::UnknownOperation(*operation));
        }
        let Some(one) = self.0.get(&operation.key) else { return Ok(Home::Early) };
        if operation.generation >= one.begun {
            return Ok(Home::Early);
        }
        match one.running {
            Some(id) if operation.generation + 1 == one.begun => Ok(Home::Running(id)),
            _ => Err(Broken::Old(*operation)),
        }
    }

    /// The name of a key.
    pub(super) fn name(&self, key: Key) -> Option<&str> {
        self.0.get(&key).map(|one| one.name.as_str())
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
        calls.begin(key, "loss", id);
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
}
