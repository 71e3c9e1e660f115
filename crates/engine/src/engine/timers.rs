//! The timers of the deciders, behind one deadline.

use allrail_core::Time;

/// Who has set a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Coordinator,
    /// Of calls that wait.
    Calls,
    Scheduler {
        /// Counted from 0, in the order in which the scheduler sets timers: where that follows from agreed
        /// events, a cut's number.
        number: u64,
        /// Whether this rank's clock has come to it, and the others do not agree yet.
        waits: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    pub(super) owner: Owner,
    pub(super) id: u64,
    at: Time,
    /// Of two at one time the one that was set first fires first.
    sequence: u64,
}

/// Few at once, so they stand in a list.
#[derive(Debug, Default)]
pub(super) struct Timers {
    list: Vec<Timer>,
    sequence: u64,
    numbers: u64,
}

impl Timers {
    pub(super) fn of_coordinator(&mut self, id: u64, at: Time) {
        self.set(Owner::Coordinator, id, at);
    }

    pub(super) fn of_calls(&mut self, at: Time) {
        self.set(Owner::Calls, 0, at);
    }

    pub(super) fn of_scheduler(&mut self, id: u64, at: Time) {
        let number = self.numbers;
        self.numbers += 1;
        self.set(Owner::Scheduler { number, waits: false }, id, at);
    }

    fn set(&mut self, owner: Owner, id: u64, at: Time) {
        self.list.push(Timer { owner, id, at, sequence: self.sequence });
        self.sequence += 1;
    }

    fn fires(timer: &Timer) -> bool {
        !matches!(timer.owner, Owner::Scheduler { waits: true, .. })
    }

    /// When the next one fires.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.list.iter().filter(|timer| Self::fires(timer)).map(|timer| timer.at).min()
    }

    fn first(&self, is: impl Fn(&Timer) -> bool) -> Option<usize> {
        let some = self.list.iter().enumerate().filter(|(_, timer)| is(timer));
        some.min_by_key(|(_, timer)| (timer.at, timer.sequence)).map(|(place, _)| place)
    }

    /// Takes out the next one that is due.
    pub(super) fn take_due(&mut self, now: Time) -> Option<Timer> {
        let place = self.first(|timer| Self::fires(timer) && timer.at <= now)?;
        Some(self.list.swap_remove(place))
    }

    /// Puts one that was due back, until its cut is agreed.
    pub(super) fn wait_for_cut(&mut self, timer: Timer, number: u64) {
        self.list.push(Timer { owner: Owner::Scheduler { number, waits: true }, ..timer });
    }

    /// Takes out the next of the scheduler's whose cut is agreed, whether this rank's clock has come to
    /// it or not.
    pub(super) fn take_cut(&mut self, cut: u64) -> Option<Timer> {
        let is_cut =
            |timer: &Timer| matches!(timer.owner, Owner::Scheduler { number, .. } if number <= cut);
        let place = (0..self.list.len())
            .filter(|place| is_cut(&self.list[*place]))
            .min_by_key(|place| self.list[*place].sequence)?;
        Some(self.list.swap_remove(place))
    }

    /// None fires any more.
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_the_order_of_their_times_and_cuts_in_that_of_their_numbers() {
        let mut timers = Timers::default();
        timers.of_coordinator(7, Time::from_us(3));
        timers.of_scheduler(1, Time::from_us(2));
        timers.of_scheduler(2, Time::from_us(9));
        assert_eq!(timers.deadline(), Some(Time::from_us(2)));
        assert!(timers.take_due(Time::from_us(1)).is_none());
        let due = timers.take_due(Time::from_us(3)).expect("the scheduler's");
        assert_eq!((due.id, due.owner), (1, Owner::Scheduler { number: 0, waits: false }));
        timers.wait_for_cut(due, 0);
        assert_eq!(timers.take_due(Time::from_us(3)).map(|timer| timer.id), Some(7));
        assert_eq!(timers.deadline(), Some(Time::from_us(9)), "the cut is not agreed");
        assert_eq!(timers.take_cut(1).map(|timer| timer.id), Some(1));
        assert_eq!(
            timers.take_cut(1).map(|timer| timer.id),
            Some(2),
            "another rank was there first"
        );
        assert_eq!(timers.deadline(), None);
    }
}
