//! The connections that a rank needs, by the rank at their other end and their dimension: which stand, and which are
//! awaited.

use std::collections::{BTreeMap, BTreeSet};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connected::Connected;
use super::handshake::Handshake;
use crate::error::RuntimeError;
use crate::settings::Settings;

/// For control where there is no dimension.
pub(super) type Line = (u32, Option<u32>);

/// Those of one rank.
pub(super) struct Lines {
    /// Those on which the other rank dials.
    pub(super) awaited: BTreeSet<Line>,
    pub(super) connected: Connected,
    /// Where those that have dialled came from.
    froms: BTreeMap<Line, String>,
}

impl Lines {
    pub(super) fn new(awaited: BTreeSet<Line>, dimensions: usize) -> Self {
        let data = (0..dimensions).map(|_| BTreeMap::new()).collect();
        let connected = Connected { control: BTreeMap::new(), data, notes: Vec::new() };
        Self { awaited, connected, froms: BTreeMap::new() }
    }

    /// A rank has dialled and proved who it is: whether its connection is one of these.
    pub(super) fn keep(
        &mut self,
        line: Line,
        from: String,
        talk: Handshake,
        settings: &Settings,
    ) -> Result<bool, RuntimeError> {
        // Words of control go over TCP: the network's acknowledgements tell a lost link.
        let fits = line.1.is_some() || !talk.is_local();
        let is_new = self.awaited.remove(&line);
        if !is_new && self.is_there(line) {
            return Err(self.claimed_twice(line, &from));
        }
        if !fits || !is_new && !self.froms.contains_key(&line) {
            return Ok(false);
        }
        // Whoever was there before has hung up, and comes again.
        self.froms.insert(line, from);
        self.insert(line, talk, settings)?;
        Ok(true)
    }

    /// Whether a rank that has connected has not hung up since.
    fn is_there(&self, (rank, dimension): Line) -> bool {
        let Connected { control, data, .. } = &self.connected;
        let link = match dimension {
            Some(d) => data.get(d as usize).and_then(|links| links.get(&rank)),
            None => control.get(&rank),
        };
        let Some(link) = link else { return false };
        let mut ends = [PollFd::new(link.socket(), PollFlags::RDHUP)];
        poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ended| ended == 0)
    }

    fn claimed_twice(&self, line: Line, from: &str) -> RuntimeError {
        let (rank, _) = line;
        let first = self.froms.get(&line).map_or("another", String::as_str);
        RuntimeError::Connect {
            rank: Some(rank),
            what: format!("two processes say that they are rank {rank}: {first} and {from}"),
            hint: "give each process a rank of its own, and end what is left of an earlier start of this job"
                .to_owned(),
        }
    }

    pub(super) fn insert(
        &mut self,
        (rank, dimension): Line,
        talk: Handshake,
        settings: &Settings,
    ) -> Result<(), RuntimeError> {
        let link = talk.into_link(settings);
        let link = link.map_err(|error| RuntimeError::system("a connection", &error))?;
        let Connected { control, data, .. } = &mut self.connected;
        match dimension {
            Some(d) => data[d as usize].insert(rank, link),
            None => control.insert(rank, link),
        };
        Ok(())
    }
}
