//! A cycle of all ranks as one wave: up a tree and down again, without a calendar.
//!
//! In such a cycle a rank hears its own clock and its children before it speaks to its parent, and its
//! parent once afterwards. Children have higher numbers than their parents, so ranks from the last to
//! the first, each with what has come to it in the order of time, and then from the first to the last,
//! is an order that every rank finds right. The machines do the same at the same times as by the calendar
//! (a test compares); what is saved is the queue and the messages, and memory is walked through in order.
//!
//! A wave rises when all that may be submitted before its end is known; rank 0's answer falls as far as time
//! has come, and on from there. It ends early, and leaves the rest to the calendar, when rank 0 decides
//! something else than the end of the cycle.

use allrail_coordinate::messages::Vote;
use allrail_coordinate::{CYCLE, Ended, Payload};
use allrail_core::Time;

use super::control_plane::ControlPlane;
use super::entry::{Entry, Feed, What, again};

impl ControlPlane {
    /// Whether waves are possible at all.
    pub(super) fn may_run_waves(&self) -> bool {
        let plain = self.delays.is_none() && self.faults.deaths.is_empty() && !self.halted;
        self.skips && self.wave.tree.is_some() && plain
    }

    /// Whether the next cycle can be a wave: all of it is over before anything else happens, and by `until`
    /// rank 0 has decided.
    pub(super) fn can_run_wave(&mut self, until: Time) -> bool {
        let Some((_, last)) = self.rhythm.held else { return false };
        if !self.may_run_waves() || self.in_flight > 0 {
            return false;
        }
        let Some(over) = self.wave_end(last) else { return false };
        let other = self.queue.next_time().unwrap_or(Time::MAX);
        over < other && (over <= until || self.decides_by(until))
    }

    /// When a wave is over at the latest: on each level up and down a rank hears its children, and speaks to
    /// them, one after the other, as long as votes can be.
    fn wave_end(&self, last: Time) -> Option<Time> {
        let tree = self.wave.tree.as_ref()?;
        let leaving = self.latency.leaving(self.latency.vote_bytes(self.slots));
        let one = (leaving + self.latency.receive).checked_mul(tree.most + 1)?;
        let all = (one + self.latency.wire + self.latency.wire).checked_mul(tree.levels)?;
        last.max(self.busiest).checked_add(all)
    }

    /// Whether rank 0 will have decided by then, at the latest.
    fn decides_by(&mut self, until: Time) -> bool {
        let decides = self.decides();
        let least = self.latency.leaving(self.latency.vote(&Vote::default(), self.slots));
        let most = self.latency.leaving(self.latency.vote_bytes(self.slots));
        let levels = self.wave.tree.as_ref().map_or(1, |tree| tree.levels);
        let longer = most.saturating_sub(least).checked_mul(levels);
        longer.and_then(|longer| decides.checked_add(longer)).is_some_and(|time| time <= until)
    }

    /// When rank 0 decides at the earliest, if all votes are short.
    fn decides(&mut self) -> Time {
        if let Some(decides) = self.rhythm.decides {
            return decides;
        }
        let Some(tree) = &self.wave.tree else { return Time::ZERO };
        let leaving = self.latency.leaving(self.latency.vote(&Vote::default(), self.slots));
        let (hop, receive) = (leaving + self.latency.wire, self.latency.receive);
        let arrivals = &mut self.wave.arrivals;
        let mut decides = Time::ZERO;
        for rank in (0..self.ranks.len() as u32).rev() {
            let tick = self.rhythm.ticks[rank as usize];
            let mut busy = self.ranks[rank as usize].busy;
            let below = tree.below(rank).len();
            if below > 0 {
                let first = arrivals.len() - below;
                arrivals[first..].sort_unstable();
                busy = arrivals.drain(first..).fold(busy, |busy, at| busy.max(at) + receive);
            }
            decides = busy.max(tick);
            arrivals.push(decides + hop);
        }
        arrivals.clear();
        self.rhythm.decides = Some(decides);
        decides
    }

    /// Where the next cycle may be a wave and nothing else happens before: when its last rank begins, or
    /// rank 0 decides, if that is known. Nothing is launched everywhere before that, and until then
    /// submissions may come.
    pub(super) fn waits_until(&mut self) -> Option<Time> {
        let (_, last) = self.rhythm.held?;
        let other = self.queue.next_time().unwrap_or(Time::MAX);
        let waits = self.may_run_waves() && self.in_flight == 0 && self.lists.is_empty();
        (waits && last < other).then_some(self.rhythm.decides.map_or(last, |time| time.max(last)))
    }

    /// Whether the next cycle waits for what may be submitted after `until`.
    pub(super) fn waits_beyond(&mut self, until: Time) -> bool {
        let Some(waits) = self.waits_until() else { return false };
        let Some((first, last)) = self.rhythm.held else { return false };
        // What is submitted at `until` comes too late for ranks that have begun before.
        let begun = last < until && self.busiest <= first;
        waits > until || begun && self.decides() > until
    }

    /// Runs a cycle of all ranks up to `until`, and says when it was over, if it is.
    pub(super) fn run_wave(
        &mut self,
        until: Time,
        mut feed: Option<&mut dyn Feed>,
    ) -> Option<Time> {
        let latest = self.rhythm.held.take().and_then(|(_, last)| self.wave_end(last));
        self.wave.latest = latest.unwrap_or(Time::MAX);
        self.wave.notices = self.notices.len();
        self.wave.end = Time::ZERO;
        self.rhythm.set = 0;
        self.counts.waves += 1;
        self.wave.is_on = true;
        for rank in (0..self.ranks.len() as u32).rev() {
            self.rise(rank, &mut feed);
        }
        self.fall(until, feed)
    }

    /// A rank hears its clock and its children, and speaks to its parent.
    fn rise(&mut self, rank: u32, feed: &mut Option<&mut dyn Feed>) {
        let tick = std::mem::replace(&mut self.rhythm.ticks[rank as usize], Time::MAX);
        let Some(tree) = &self.wave.tree else { return };
        let (below, parent) = (tree.below(rank).len(), tree.parents[rank as usize]);
        let at = if below == 0 {
            self.cast(tick, rank, feed)
        } else {
            let first = self.wave.arrivals.len() - below;
            self.wave.arrivals[first..].sort_unstable();
            let (mut at, mut tick) = (Time::ZERO, Some(tick));
            for place in first..first + below {
                let arrival = self.wave.arrivals[place];
                if let Some(tick) = tick.take_if(|tick| *tick <= arrival) {
                    self.cast(tick, rank, feed);
                }
                at = self.arrive(arrival, rank, self.latency.receive, again(feed));
            }
            if let Some(tick) = tick {
                at = self.cast(tick, rank, feed);
            }
            self.wave.arrivals.truncate(first);
            self.wave.gather();
            at
        };
        if rank == 0 {
            debug_assert!(self.rhythm.decides.is_none_or(|decides| decides <= at), "{at}: early");
            let vote = std::mem::take(&mut self.wave.own);
            let Some(waves) = self.fleet.waves() else { return };
            let told = waves.decide(at, vote, &mut self.actions);
            self.told(at, rank, told);
            return;
        }
        if below > 0
            && let Some(waves) = self.fleet.waves()
        {
            waves.pass_on(rank, at, &mut self.actions);
            if !self.actions.is_empty() {
                self.carry_out(at, rank);
            }
        }
        let bytes = self.latency.vote(&self.wave.own, self.slots);
        let busy = self.ranks[rank as usize].busy.max(at) + self.leaving(bytes);
        self.counts.bytes += bytes;
        self.ranks[rank as usize].busy = busy;
        self.busiest = self.busiest.max(busy);
        self.wave.arrivals.push(busy + self.latency.wire);
        self.wave.count(parent);
    }

    /// A rank's cycle begins: its vote is put into its place.
    #[inline]
    fn cast(&mut self, tick: Time, rank: u32, feed: &mut Option<&mut dyn Feed>) -> Time {
        let at = tick.max(self.ranks[rank as usize].busy);
        self.catch_up(at, rank, again(feed));
        if let Some(waves) = self.fleet.waves() {
            waves.vote(rank, at, &mut self.wave.own, &mut self.actions);
        }
        if !self.actions.is_empty() {
            self.carry_out(at, rank);
        }
        at
    }

    /// What rank 0 has decided goes down, as far as it comes by `until`; says when it was everywhere, if it
    /// is.
    pub(super) fn fall(&mut self, until: Time, mut feed: Option<&mut dyn Feed>) -> Option<Time> {
        self.wave.is_on = true;
        self.wave.falls = None;
        if let Some(payload) = self.wave.verdict.take() {
            let mut next = Time::MAX;
            for rank in 1..self.ranks.len() as u32 {
                let arrival = self.wave.arrives[rank as usize];
                if arrival > until || arrival == Time::MAX {
                    next = next.min(arrival);
                    continue;
                }
                self.wave.arrives[rank as usize] = Time::MAX;
                self.in_flight -= 1;
                self.wave.end = self.wave.end.max(arrival);
                self.end_cycle(arrival, rank, &payload, again(&mut feed));
            }
            if next < Time::MAX {
                self.wave.verdict = Some(payload);
                self.wave.falls = Some(next);
            }
        }
        self.wave.is_on = false;
        for (at, entry) in std::mem::take(&mut self.wave.others) {
            self.queue.push(at, entry);
        }
        if self.wave.falls.is_some() {
            return None;
        }
        debug_assert!(self.wave.end <= self.wave.latest, "{}: too late", self.wave.end);
        if self.rhythm.set as usize == self.ranks.len() {
            self.rhythm.hold();
        } else {
            self.set_timers();
        }
        // Ranks spoke in the order of their numbers.
        self.notices[self.wave.notices..].sort_by_key(|(time, ..)| *time);
        Some(self.wave.end)
    }

    /// The end of the cycle comes to a rank.
    #[inline]
    fn end_cycle(&mut self, now: Time, rank: u32, payload: &Payload, feed: Option<&mut dyn Feed>) {
        let at = self.arrive(now, rank, self.latency.receive, feed);
        let Payload::Verdict(verdict) = payload else { return };
        let ended = self.fleet.waves().and_then(|waves| waves.end(rank, at, verdict));
        let Some(Ended { next, launches }) = ended else {
            let Some(tree) = &self.wave.tree else { return };
            let from = tree.parents[rank as usize];
            let told = self.fleet.hear(rank, at, from, payload, &mut self.actions);
            self.told(at, rank, told);
            return;
        };
        self.rhythm.set += 1;
        self.rhythm.ticks[rank as usize] = next;
        if launches {
            self.launched_too(at, rank);
        }
        let Some(tree) = &self.wave.tree else { return };
        let below = tree.below(rank);
        if below.is_empty() {
            return;
        }
        let bytes = self.latency.bytes(payload, self.slots);
        let leaving = self.latency.leaving(bytes);
        let mut busy = self.ranks[rank as usize].busy;
        self.counts.bytes += bytes * below.len() as u64;
        self.in_flight += below.len() as u64;
        for child in &tree.children[below] {
            busy += leaving;
            self.wave.arrives[*child as usize] = busy + self.latency.wire;
        }
        self.ranks[rank as usize].busy = busy;
        self.busiest = self.busiest.max(busy);
    }

    /// Gives the timers of ranks that have ended a cycle to the calendar.
    fn set_timers(&mut self) {
        for (tick, to) in self.rhythm.ticks.iter().zip(0..).filter(|(tick, _)| **tick < Time::MAX) {
            self.queue.push(*tick, Entry { to, what: What::Timer(CYCLE) });
        }
    }

    /// Whether something else has come up that may happen before a wave is over.
    pub(super) fn is_disturbed(&mut self) -> bool {
        let latest = self.wave.latest;
        self.queue.next_time().is_some_and(|other| other <= latest)
    }

    /// Gives what is left of a wave to the calendar.
    pub(super) fn break_wave(&mut self) {
        self.wave.falls = None;
        let (Some(payload), Some(tree)) = (self.wave.verdict.take(), &self.wave.tree) else {
            return;
        };
        for (to, at) in (0..).zip(&mut self.wave.arrives).filter(|(_, at)| **at < Time::MAX) {
            let from = tree.parents[to as usize];
            let what = What::Message { from, payload: payload.clone() };
            self.queue.push(std::mem::replace(at, Time::MAX), Entry { to, what });
        }
        self.set_timers();
    }
}
