//! Time goes on: the next thing that happens to a rank, by the calendar, as a wave, or between cycles.

use allrail_coordinate::CYCLE;
use allrail_core::Time;

use super::control_plane::ControlPlane;
use super::entry::{Entry, Feed, What, again};
use super::reports::{Everywhere, Listed};

impl ControlPlane {
    /// When something happens next. Cycles happen for ever.
    pub fn next_time(&mut self) -> Option<Time> {
        let listed = self.whole().map(|listed| listed.last);
        [self.next_event(), listed].into_iter().flatten().min()
    }

    /// When a rank is told something next.
    fn next_event(&mut self) -> Option<Time> {
        let held = self.rhythm.held.map(|(first, _)| first);
        [self.queue.next_time(), held, self.wave.falls].into_iter().flatten().min()
    }

    /// No list is launched everywhere before; there may be none then either.
    pub(super) fn earliest(&mut self) -> Option<Time> {
        self.waits_until().or_else(|| self.next_time())
    }

    fn whole(&self) -> Option<&Listed> {
        self.lists.front().filter(|listed| listed.ranks as usize == self.ranks.len())
    }

    /// Runs until a list has been launched everywhere, at most until `until`, that included.
    pub fn advance(&mut self, until: Time, mut feed: Option<&mut dyn Feed>) -> Option<Everywhere> {
        loop {
            let next = self.next_event();
            if let Some(listed) = self.whole() {
                let last = listed.last;
                if last <= until && next.is_none_or(|next| last < next) {
                    let Listed { launch, first, last, .. } = self.lists.pop_front()?;
                    self.place += 1;
                    return Some(Everywhere { place: self.place - 1, launch, first, last });
                }
            }
            if next.is_none_or(|next| next > until) {
                return None;
            }
            if self.wave.falls.is_some() {
                if !self.is_disturbed() {
                    let end = self.fall(until, again(&mut feed));
                    self.rest_after(end, until);
                    continue;
                }
                self.break_wave();
            }
            if self.rhythm.held.is_some() {
                // What is submitted by the clock may come later, and is taken in then at its time.
                if feed.is_some() && self.waits_beyond(until) {
                    return None;
                }
                if self.whole().is_none() && self.can_run_wave(until) {
                    let end = self.run_wave(until, again(&mut feed));
                    self.rest_after(end, until);
                    continue;
                }
                self.release();
            }
            let (now, Entry { to, what }) = self.queue.pop()?;
            if let What::Message { .. } = what {
                self.in_flight -= 1;
            }
            if matches!(what, What::Timer(CYCLE)) {
                self.rhythm.set -= 1;
            }
            if self.is_dead(to, now) {
                continue;
            }
            match what {
                What::Message { from, payload } => {
                    self.hear(now, to, from, payload, again(&mut feed));
                }
                What::Timer(id) => self.time_out(now, to, id, again(&mut feed)),
                What::Wake => {
                    let at = now.max(self.ranks[to as usize].busy);
                    if let Some(feed) = again(&mut feed) {
                        self.submit_due(at, to, feed);
                        let due = self.ranks[to as usize].due;
                        if due < Time::MAX {
                            self.queue.push(due, Entry { to, what: What::Wake });
                        }
                    }
                }
            }
            if self.skips && self.in_flight == 0 && self.rhythm.set as usize == self.ranks.len() {
                self.rest(now, until);
            }
        }
    }
}
