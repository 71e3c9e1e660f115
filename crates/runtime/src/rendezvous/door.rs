//! Who has connected and proved nothing: a bounded number of connections, of which a newcomer takes the
//! place of an old one.
//!
//! Whoever proves the secret with its [first words](super::greeting) leaves the door for good, so strangers
//! never hold the place of a rank. Of the others no more than [`MAX_STRANGERS`] are kept. One too many is
//! hung up on: of hosts that are no rank's first, then of the source with the most connections, the
//! oldest. A rank's first words come with its connection, and are read as it enters; one that is hung up on
//! all the same dials again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::greeting::{Greeted, Greeting, Words};
use super::refused::Refused;
use crate::auth::Secret;

/// How many connections without a proof are kept at once.
pub(crate) const MAX_STRANGERS: usize = 128;
/// How long anyone has for the first words; in tests so long that whatever waits for it is told from a busy machine.
const FIRST_WORDS: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 5 });

/// Where a connection is from: a host, or a process of this one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Host(IpAddr),
    Process(i32),
}

struct Guest {
    source: Source,
    from: String,
    greeting: Greeting,
}

/// See the module.
pub(super) struct Door {
    secret: Secret,
    /// Where ranks are.
    known: BTreeSet<IpAddr>,
    /// Oldest first.
    guests: Vec<Guest>,
    /// First words that were proved: whoever says them again has overheard them.
    heard: BTreeSet<Words>,
    strangers: u64,
    last_stranger: Option<String>,
}

impl Door {
    pub(super) fn new(secret: Secret, known: BTreeSet<IpAddr>) -> Self {
        let (guests, heard) = (Vec::new(), BTreeSet::new());
        Self { secret, known, guests, heard, strangers: 0, last_stranger: None }
    }

    /// Connections whose first words are awaited.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.guests.iter().map(|one| one.greeting.socket())
    }

    /// A connection to `at` has come; what it has said, where it proves the secret at once.
    pub(super) fn enter(
        &mut self,
        socket: Socket,
        at: SocketAddr,
        source: Source,
        from: String,
    ) -> Option<(String, Greeted)> {
        let (is_local, until) =
            (matches!(source, Source::Process(_)), Instant::now() + FIRST_WORDS);
        let greeting = Greeting::new(socket, is_local, at, self.secret.clone(), until);
        self.guests.push(Guest { source, from, greeting });
        if let Some(found) = self.look_at(self.guests.len() - 1, Instant::now()) {
            return Some(found);
        }
        if self.guests.len() > MAX_STRANGERS {
            let place = self.least();
            let guest = self.guests.remove(place);
            self.refuse(&guest.from, "there were too many at once");
        }
        None
    }

    /// Those who have proved the secret meanwhile.
    pub(super) fn look(&mut self) -> Vec<(String, Greeted)> {
        let now = Instant::now();
        // From the last on: a place that was looked at does not move.
        (0..self.guests.len()).rev().filter_map(|place| self.look_at(place, now)).collect()
    }

    fn look_at(&mut self, place: usize, now: Instant) -> Option<(String, Greeted)> {
        let guest = &mut self.guests[place];
        let heard = match guest.greeting.advance() {
            Ok(None) if guest.greeting.until > now => return None,
            Ok(None) => Err(Refused::Late),
            Ok(Some(hello)) if !self.heard.insert(hello) => Err(Refused::Repeats),
            Ok(Some(hello)) => Ok(hello),
            Err(refused) => Err(refused),
        };
        let Guest { from, greeting, .. } = self.guests.remove(place);
        match heard.and_then(|hello| greeting.into_greeted(hello)) {
            Ok(greeted) => Some((from, greeted)),
            Err(refused) => {
                self.refuse(&from, &refused.to_string());
                None
            }
        }
    }

    /// Nobody is let in any more.
    pub(super) fn close(&mut self) {
        for guest in std::mem::take(&mut self.guests) {
            self.refuse(&guest.from, "it has proved nothing");
        }
    }

    /// Whose place a newcomer takes.
    fn least(&self) -> usize {
        let mut crowds: BTreeMap<Source, usize> = BTreeMap::new();
        for guest in &self.guests {
            *crowds.entry(guest.source).or_default() += 1;
        }
        let rank = |guest: &Guest| {
            let is_known = match guest.source {
                Source::Host(ip) => self.known.contains(&ip),
                Source::Process(_) => true,
            };
            (is_known, Reverse(crowds[&guest.source]))
        };
        (0..self.guests.len()).min_by_key(|place| rank(&self.guests[*place])).unwrap_or(0)
    }

    /// Notes a connection that is none of this job's.
    pub(super) fn refuse(&mut self, from: &str, why: &str) {
        self.strangers += 1;
        self.last_stranger = Some(format!("{from}: {why}"));
    }

    /// How many were none of this job's, and the last of them.
    pub(super) fn refused(&self) -> Option<(u64, &str)> {
        self.last_stranger.as_deref().map(|last| (self.strangers, last))
    }
}
