//! What alike ranks submit, each at its own time: a class of ranks computes as one, and its ranks are apart.
//!
//! A rank is later than its class by a time that is drawn for every step, up to the skew. Of two tensors that
//! follow one another some ranks make the second first, drawn too: such a rank submits both when the second
//! is there. Without a skew all ranks are alike, and nothing is drawn. Where computing waits for some of what
//! is submitted, all ranks keep one order: who holds one back for the next might wait for itself.

use std::collections::VecDeque;
use std::ops::Range;

use allrail_collective::Operation;
use allrail_coordinate::Request;
use allrail_core::{Bytes, Time};

use super::entry::Feed;

/// A number that looks drawn, of a rank and a step.
fn scatter(seed: u64, rank: u32, step: u32) -> u64 {
    let mut x = seed ^ (u64::from(rank) << 32 | u64::from(step));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What a player has submitted: the last of it, as far back as any rank may be.
#[derive(Default)]
struct Log {
    /// The place of the first.
    first: u64,
    submitted: VecDeque<(Time, u32)>,
}

impl Log {
    fn get(&self, place: u64) -> Option<(Time, u32)> {
        self.submitted.get(place.checked_sub(self.first)? as usize).copied()
    }
}

/// How far a rank has come with its submissions.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Since the beginning.
    made: u64,
    /// How many of the step are left.
    left: u32,
    player: u32,
    step: u32,
    /// How late it is in this step.
    late: Time,
    /// Which neighbours it swaps.
    swaps: u64,
}

/// The ranks of all players.
pub(super) struct Crowd {
    /// Of each player, and the number of all ranks.
    first_rank: Vec<u32>,
    logs: Vec<Log>,
    ranks: Vec<Progress>,
    requests: Vec<Request>,
    in_step: u32,
    skew: Time,
    seed: u64,
    /// Whether neighbours are swapped.
    swaps: bool,
}

impl Crowd {
    /// Players that stand for so many ranks each, and ask for these, so many of them in a step.
    pub(super) fn new(
        players: &[u32],
        tensors: &[(Operation, Bytes)],
        in_step: usize,
        skew: Time,
        seed: u64,
    ) -> Self {
        let ends = players.iter().scan(0, |end, ranks| {
            *end += ranks;
            Some(*end)
        });
        let mut crowd = Self {
            first_rank: std::iter::once(0).chain(ends).collect(),
            logs: players.iter().map(|_| Log::default()).collect(),
            ranks: Vec::new(),
            requests: (0..)
                .zip(tensors)
                .map(|(tensor, (operation, bytes))| Request {
                    operation: *operation,
                    ..Request::all_reduce(tensor, *bytes)
                })
                .collect(),
            in_step: in_step as u32,
            skew,
            seed,
            swaps: true,
        };
        for (player, ranks) in (0..).zip(players) {
            for _ in 0..*ranks {
                let fresh = Progress { player, ..Progress::default() };
                let rank = crowd.ranks.len() as u32;
                crowd.ranks.push(crowd.enter(rank, fresh, 0));
            }
        }
        crowd
    }

    /// The same, whose ranks all keep one order if `kept`.
    pub(super) fn in_one_order(mut self, kept: bool) -> Self {
        self.swaps = !kept;
        self
    }

    fn enter(&self, rank: u32, before: Progress, step: u32) -> Progress {
        let (mut late, mut swaps) = (Time::ZERO, 0);
        if self.skew > Time::ZERO {
            swaps = scatter(self.seed, rank, step);
            late = Time::from_ps(swaps % (self.skew.as_ps() + 1));
        }
        Progress { left: self.in_step, step, late, swaps, ..before }
    }

    /// How many players there are.
    pub(super) fn players(&self) -> u32 {
        self.logs.len() as u32
    }

    /// The ranks of a player.
    pub(super) fn ranks(&self, player: u32) -> Range<u32> {
        self.first_rank[player as usize]..self.first_rank[player as usize + 1]
    }

    /// A player has a tensor ready.
    pub(super) fn submit(&mut self, now: Time, player: u32, tensor: u32) {
        let log = &mut self.logs[player as usize];
        log.submitted.push_back((now, tensor));
        // A tensor is submitted again only when all ranks have launched it.
        if log.submitted.len() > 2 * self.requests.len() + 1 {
            log.submitted.pop_front();
            log.first += 1;
        }
    }

    /// When a rank submits next.
    pub(super) fn due(&self, rank: u32) -> Option<Time> {
        self.next(self.ranks[rank as usize]).map(|(due, _)| due)
    }

    /// What a rank submits next, and when.
    #[inline]
    fn next(&self, of: Progress) -> Option<(Time, u32)> {
        let log = &self.logs[of.player as usize];
        let place = self.in_step - of.left;
        let swaps = self.swaps && of.swaps >> (place / 2 % 64) & 1 == 1;
        let (time, tensor) = if !swaps {
            log.get(of.made)?
        } else if place % 2 == 1 {
            (log.get(of.made)?.0, log.get(of.made - 1)?.1)
        } else if of.left > 1 {
            log.get(of.made + 1)?
        } else {
            log.get(of.made)?
        };
        Some((time + of.late, tensor))
    }
}

impl Feed for Crowd {
    fn take(&mut self, rank: u32, now: Time, requests: &mut Vec<Request>) -> Option<Time> {
        let mut progress = self.ranks[rank as usize];
        let mut next = self.next(progress);
        while let Some((due, tensor)) = next
            && due <= now
        {
            requests.push(self.requests[tensor as usize]);
            progress.made += 1;
            progress.left -= 1;
            if progress.left == 0 {
                progress = self.enter(rank, progress, progress.step + 1);
            }
            next = self.next(progress);
        }
        self.ranks[rank as usize] = progress;
        next.map(|(due, _)| due)
    }
}
