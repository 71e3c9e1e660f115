//! Which call on the host a kernel of NCCL comes from.
//!
//! A kernel and the `cudaLaunchKernel` that launched it share a `correlation`; that launch lies, in time and
//! on its thread, within the host's `c10d::`, `record_param_comms` and `nccl:` events of one call. Calls
//! between `ncclGroupStart` and `ncclGroupEnd` (`batch_isend_irecv`, coalesced collectives) launch nothing
//! themselves: the group's end does, after the last of them, one kernel for all.

use std::collections::BTreeMap;

use super::said::{Kind, Said};

/// An event of the host that belongs to a communication.
#[derive(Clone, Debug)]
pub(super) struct HostEvent {
    pub(super) thread: String,
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) said: Said,
    /// The higher, the more its words are worth.
    pub(super) rank: u8,
    /// Whether a backend of accelerators says it.
    pub(super) on_accelerator: bool,
}

/// One call: all events of the host that lie within its first one.
#[derive(Clone, Debug)]
pub(super) struct Call {
    start: f64,
    end: f64,
    pub(super) said: Said,
    on_accelerator: bool,
    launches: bool,
}

/// The calls of every thread, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    threads: BTreeMap<String, Vec<Call>>,
}

impl Calls {
    pub(super) fn new(mut events: Vec<HostEvent>) -> Self {
        events.sort_by(|a, b| a.start.total_cmp(&b.start).then(b.end.total_cmp(&a.end)));
        let mut nested: BTreeMap<String, Vec<Vec<HostEvent>>> = BTreeMap::new();
        for event in events {
            let calls = nested.entry(event.thread.clone()).or_default();
            match calls.last_mut() {
                Some(call) if event.start < call[0].end => call.push(event),
                _ => calls.push(vec![event]),
            }
        }
        let call = |mut events: Vec<HostEvent>| {
            let (start, end) = (events[0].start, events[0].end);
            let on_accelerator = events.iter().any(|event| event.on_accelerator);
            events.sort_by_key(|event| std::cmp::Reverse(event.rank));
            let said = events.into_iter().map(|event| event.said).reduce(Said::or);
            Call { start, end, said: said.unwrap_or_default(), on_accelerator, launches: false }
        };
        let threads = nested
            .into_iter()
            .map(|(thread, calls)| (thread, calls.into_iter().map(call).collect()))
            .collect();
        Self { threads }
    }

    /// The call that a launch at `at` lies in, by its place.
    pub(super) fn around(&self, thread: &str, at: f64) -> Option<usize> {
        let calls = self.threads.get(thread)?;
        let next = calls.partition_point(|call| call.start <= at);
        let place = next.checked_sub(1)?;
        (calls[place].end >= at).then_some(place)
    }

    pub(super) fn get(&self, thread: &str, place: usize) -> &Call {
        &self.threads[thread][place]
    }

    /// Notes that a call has launched a kernel itself.
    pub(super) fn launches(&mut self, thread: &str, place: usize) {
        if let Some(calls) = self.threads.get_mut(thread) {
            calls[place].launches = true;
        }
    }

    /// What a launch at `at` that lies in no call may stand for: the calls before it that launched
    /// nothing, back to `since`, the last launch of NCCL before it on its thread.
    pub(super) fn grouped(&self, thread: &str, since: f64, at: f64) -> Vec<&Said> {
        let calls = self.threads.get(thread).map_or(&[][..], Vec::as_slice);
        let from = calls.partition_point(|call| call.start <= since);
        let until = calls.partition_point(|call| call.end <= at);
        let silent = calls.get(from..until.max(from)).unwrap_or_default();
        silent
            .iter()
            .filter(|call| !call.launches && call.said.kind().is_some())
            .map(|call| &call.said)
            .collect()
    }

    /// How many calls of a backend of accelerators there are that need a kernel.
    pub(super) fn on_accelerator(&self) -> usize {
        let needs = |call: &&Call| {
            let alone = call.said.size == Some(1) || call.said.ranks.len() == 1;
            let works = !matches!(call.said.kind(), None | Some(Kind::Barrier));
            call.on_accelerator && works && !alone
        };
        self.threads.values().flatten().filter(needs).count()
    }
}
