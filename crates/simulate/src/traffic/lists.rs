//! Messages of NPUs that walk their own lists, and messages with a time.
//!
//! In [`Lists`], NPU `n` sends its messages one after another; up to `window` of them may be leaving
//! it at once, and one more starts when the last byte of one has left. In exchanges
//! ([`Lists::exchanges`]) an NPU that sends a message in each step also receives one in each: message
//! `k`, from 0, starts when `k + 1 − window` messages have left here and as many have arrived here. NPUs
//! cannot drift apart by more than the window then, as in the
//! pairwise exchange of message passing libraries. With a barrier, message `k` of every NPU starts when
//! all messages `k − 1` have arrived everywhere. In [`Timed`], each message leaves at its own time,
//! whatever happened to those before.

use allrail_core::{Bytes, Time, counted, either};

use super::driver::{Demand, Message};

/// Of each NPU, its messages in order.
pub struct Lists<'a> {
    npus: u32,
    count: u32,
    bytes: Bytes,
    /// Whom NPU `n` sends its message `k`, if it has one.
    to: &'a dyn Fn(u32, u32) -> Option<u32>,
    window: Option<u32>,
    /// The next message of each NPU; of all of them with a barrier.
    next: Vec<u32>,
    /// Messages of the phase under way that have not arrived.
    open: u64,
    done: u64,
    total: u64,
    /// When the last message of each NPU arrived.
    finish: Vec<Time>,
    /// In exchanges: of each NPU, how many messages have left it and how many have arrived.
    exchanged: Option<Vec<[u32; 2]>>,
}

impl<'a> Lists<'a> {
    /// `count` messages of each of `npus` NPUs; with a barrier after each if `window` is `None`.
    #[must_use]
    pub fn new(
        npus: u32,
        count: u32,
        bytes: Bytes,
        window: Option<u32>,
        to: &'a dyn Fn(u32, u32) -> Option<u32>,
    ) -> Self {
        let of = |npu| (0..count).filter(|&k| to(npu, k).is_some()).count() as u64;
        let total = (0..npus).map(of).sum();
        let (next, finish) = (vec![0; npus as usize], vec![Time::ZERO; npus as usize]);
        let exchanged = None;
        Self { npus, count, bytes, to, window, next, open: 0, done: 0, total, finish, exchanged }
    }

    /// Every NPU sends one message in each step and receives one, and takes part in at most `window`
    /// steps at once: message `k` waits until `k + 1 − window` messages have left and as many arrived.
    #[must_use]
    pub fn exchanges(mut self) -> Self {
        self.exchanged = Some(vec![[0; 2]; self.npus as usize]);
        self
    }

    /// When the last message of each NPU arrived.
    #[must_use]
    pub fn finish(&self) -> &[Time] {
        &self.finish
    }

    /// One more message has left `npu` (`what` 0) or arrived there (1), in exchanges.
    fn exchange(&mut self, npu: u32, what: usize, out: &mut Vec<Message>) {
        let (Some(exchanged), Some(window)) = (&mut self.exchanged, self.window) else { return };
        let counts = &mut exchanged[npu as usize];
        counts[what] += 1;
        let steps = counts[0].min(counts[1]);
        while self.next[npu as usize] < steps.saturating_add(window) && self.start_next(npu, out) {}
    }

    fn start_next(&mut self, npu: u32, out: &mut Vec<Message>) -> bool {
        let next = &mut self.next[npu as usize];
        while *next < self.count {
            let k = *next;
            *next += 1;
            if let Some(destination) = (self.to)(npu, k) {
                let tag = u64::from(npu) << 32 | u64::from(k);
                out.push(Message { source: npu, destination, bytes: self.bytes, tag });
                return true;
            }
        }
        false
    }

    /// Starts phases until one has messages.
    fn start_phase(&mut self, out: &mut Vec<Message>) {
        for npu in 0..self.npus {
            self.open += u64::from(self.start_next(npu, out));
        }
    }
}

impl Demand for Lists<'_> {
    fn due(&mut self, _now: Time, out: &mut Vec<Message>) {
        let Some(window) = self.window else { return self.start_phase(out) };
        // In turns, as they would leave: not the whole window of the first NPU before the second's.
        for _ in 0..window.min(self.count) {
            for npu in 0..self.npus {
                self.start_next(npu, out);
            }
        }
    }

    fn wants_sent(&self) -> bool {
        self.window.is_some_and(|window| window < self.count)
    }

    fn sent(&mut self, _now: Time, tag: u64, out: &mut Vec<Message>) {
        let npu = (tag >> 32) as u32;
        if self.exchanged.is_some() {
            self.exchange(npu, 0, out);
        } else {
            self.start_next(npu, out);
        }
    }

    fn delivered(&mut self, now: Time, tag: u64, out: &mut Vec<Message>) {
        self.done += 1;
        self.finish[(tag >> 32) as usize] = now;
        if self.exchanged.is_some() {
            let (npu, k) = ((tag >> 32) as u32, tag as u32);
            let destination = (self.to)(npu, k).expect("it was sent");
            self.exchange(destination, 1, out);
        }
        if self.window.is_none() {
            self.open -= 1;
            if self.open == 0 {
                self.start_phase(out);
            }
        }
    }

    fn progress(&self) -> (u64, u64) {
        (self.done, self.total)
    }

    fn waits(&self) -> String {
        not_arrived(self.total - self.done, self.total)
    }
}

fn not_arrived(left: u64, total: u64) -> String {
    let have = either(&left, "has", "have");
    format!("  {left} of {} {have} not arrived", counted(total, "message"))
}

/// Messages that leave at their own times.
pub struct Timed {
    /// In the order of time.
    messages: Vec<(Time, Message)>,
    next: usize,
    done: u64,
    /// From leaving to arriving, in the order of arrival.
    latencies: Vec<Time>,
}

impl Timed {
    /// Time, source, destination and bytes of each, in the order of time.
    #[must_use]
    pub fn new(messages: impl IntoIterator<Item = (Time, u32, u32, Bytes)>) -> Self {
        let messages: Vec<(Time, Message)> = (0..)
            .zip(messages)
            .map(|(tag, (time, source, destination, bytes))| {
                (time, Message { source, destination, bytes, tag })
            })
            .collect();
        Self { messages, next: 0, done: 0, latencies: Vec::new() }
    }

    /// How long each message took, in the order in which they arrived.
    #[must_use]
    pub fn latencies(&self) -> &[Time] {
        &self.latencies
    }
}

impl Demand for Timed {
    fn next_time(&self) -> Option<Time> {
        self.messages.get(self.next).map(|(time, _)| *time)
    }

    fn due(&mut self, now: Time, out: &mut Vec<Message>) {
        while let Some((_, message)) = self.messages.get(self.next).filter(|(at, _)| *at <= now) {
            out.push(*message);
            self.next += 1;
        }
    }

    fn delivered(&mut self, now: Time, tag: u64, _out: &mut Vec<Message>) {
        self.done += 1;
        self.latencies.push(now - self.messages[tag as usize].0);
    }

    fn progress(&self) -> (u64, u64) {
        (self.done, self.messages.len() as u64)
    }

    fn waits(&self) -> String {
        let total = self.messages.len() as u64;
        not_arrived(total - self.done, total)
    }
}
