//! Which calls on the host a kernel of NCCL comes from.
//!
//! A kernel and the `cudaLaunchKernel` that launched it share a `correlation`; that launch lies, in time and
//! on its thread, within the `c10d::` and `record_param_comms` of one call. Calls between `ncclGroupStart` and
//! `ncclGroupEnd` (`batch_isend_irecv`, coalesced collectives) launch nothing themselves: the group's end
//! does, after the last of them, one kernel for all, or several where one holds too little.
//!
//! Spans of a backend (`nccl:all_reduce`) begin within their call and end when its work is thrown away, which
//! may be long after the call, and after the calls that follow: only where they begin is asked. Without a call
//! around them, as in old versions, they are calls themselves, each until the next begins. `nccl:coalesced` is
//! neither: it is opened where a group ends, and says nothing of what is in it.

use std::collections::BTreeMap;

use super::events::{Events, HostEvent, Kernel};
use super::said::{Kind, Said};

/// One call: all events of the host that begin within its first one.
#[derive(Clone, Debug)]
pub(super) struct Call {
    start: f64,
    end: f64,
    pub(super) said: Said,
    on_accelerator: bool,
}

impl Call {
    /// Whether it asks a backend of accelerators for something that takes a kernel.
    fn needs_kernel(&self) -> bool {
        let works = !matches!(self.said.kind(), None | Some(Kind::Barrier));
        self.on_accelerator && works && !alone(&self.said)
    }
}

/// The calls of every thread, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    threads: BTreeMap<String, Vec<Call>>,
}

impl Calls {
    pub(super) fn new(mut events: Vec<HostEvent>) -> Self {
        events.retain(|event| !event.said.is_mark());
        events.sort_by(|a, b| {
            let calls_first = a.backend.is_some().cmp(&b.backend.is_some());
            a.start.total_cmp(&b.start).then(calls_first).then(b.end.total_cmp(&a.end))
        });
        let mut nested: BTreeMap<String, Vec<(f64, Vec<HostEvent>)>> = BTreeMap::new();
        for event in events {
            let calls = nested.entry(event.thread.clone()).or_default();
            match calls.last_mut() {
                // A span without a call around it holds no other one.
                Some((end, call)) if event.start < *end && call[0].backend.is_none() => {
                    call.push(event);
                }
                last => {
                    if let Some((end, _)) = last {
                        *end = end.min(event.start);
                    }
                    calls.push((event.end, vec![event]));
                }
            }
        }
        let call = |(end, mut events): (f64, Vec<HostEvent>)| {
            let start = events[0].start;
            let on_accelerator = events.iter().any(|event| event.backend == Some(true));
            events.sort_by_key(|event| std::cmp::Reverse(event.rank));
            let said = events.into_iter().map(|event| event.said).reduce(Said::or);
            Call { start, end, said: said.unwrap_or_default(), on_accelerator }
        };
        let threads = nested
            .into_iter()
            .map(|(thread, calls)| (thread, calls.into_iter().map(call).collect()))
            .collect();
        Self { threads }
    }

    /// The call that something at `at` lies in, by its place.
    pub(super) fn around(&self, thread: &str, at: f64) -> Option<usize> {
        let calls = self.threads.get(thread)?;
        let next = calls.partition_point(|call| call.start <= at);
        let place = next.checked_sub(1)?;
        (calls[place].end >= at).then_some(place)
    }

    pub(super) fn get(&self, thread: &str, place: usize) -> &Call {
        &self.threads[thread][place]
    }

    /// The calls that begin after `since` and are over at `at`, by their places.
    fn between(&self, thread: &str, since: f64, at: f64) -> std::ops::Range<usize> {
        let calls = self.threads.get(thread).map_or(&[][..], Vec::as_slice);
        let from = calls.partition_point(|call| call.start <= since);
        from..calls.partition_point(|call| call.start <= at && call.end <= at).max(from)
    }
}

/// What a kernel of NCCL was launched for.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// The host does not tell.
    Unknown,
    /// One call.
    Call(Box<Said>),
    /// The calls of a group, in order.
    Group(Vec<Said>),
    /// What the kernel before it of the same group was launched for, by its place.
    GoesOn(usize),
}

/// The origins of all kernels, and what the host called for in vain.
pub(super) struct Origins {
    /// Of each kernel by its place; of kernels that are not NCCL's, unknown.
    pub(super) of: Vec<Origin>,
    /// Calls that need a kernel.
    pub(super) asked: usize,
    /// Those of them that have none.
    pub(super) lost: usize,
}

impl Origins {
    /// Reads them off the events of a file.
    pub(super) fn new(events: &Events) -> Self {
        let calls = Calls::new(events.host.clone());
        let mut of = vec![Origin::Unknown; events.kernels.len()];
        let mut threads: BTreeMap<&str, Vec<(f64, usize)>> = BTreeMap::new();
        let communicates = |kernel: &Kernel| kernel.said.is_some();
        let launch = |kernel: &Kernel| events.launches.get(&kernel.correlation?);
        for (place, kernel) in events.kernels.iter().enumerate() {
            let Some((thread, at)) = launch(kernel).filter(|_| communicates(kernel)) else {
                continue;
            };
            threads.entry(thread).or_default().push((*at, place));
        }
        let mut claimed: BTreeMap<&str, Vec<bool>> = calls
            .threads
            .iter()
            .map(|(thread, list)| (thread.as_str(), vec![false; list.len()]))
            .collect();
        for (thread, mut launches) in threads {
            launches.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let mut since = f64::NEG_INFINITY;
            // The first kernel of the group whose end launches, until another call begins.
            let mut open: Option<usize> = None;
            for (at, place) in launches {
                let said = events.kernels[place].said.clone().unwrap_or_default();
                let mut claim = |place: usize| {
                    if let Some(flag) = claimed.get_mut(thread).and_then(|list| list.get_mut(place))
                    {
                        *flag = true;
                    }
                };
                if let Some(call) = calls.around(thread, at) {
                    claim(call);
                    open = None;
                    of[place] = Origin::Call(Box::new(calls.get(thread, call).said.clone()));
                } else {
                    let between = calls.between(thread, since, at);
                    let group: Vec<usize> = between
                        .clone()
                        .filter(|call| {
                            let said = &calls.get(thread, *call).said;
                            said.kind().is_some() && !alone(said)
                        })
                        .collect();
                    let theirs = || group.iter().map(|call| &calls.get(thread, *call).said);
                    // A kernel that speaks for itself speaks of one call: of a group, that of one of it.
                    let fits = said.kind().is_none() || theirs().any(|call| call.is_like(&said));
                    if !group.is_empty() && fits {
                        of[place] = Origin::Group(theirs().cloned().collect());
                        group.into_iter().for_each(&mut claim);
                        open = Some(place);
                    } else if let (Some(first), true, true) =
                        (open, between.is_empty(), said.kind().is_none())
                    {
                        of[place] = Origin::GoesOn(first);
                    } else {
                        open = None;
                    }
                }
                since = at;
            }
        }
        let kernels = events.kernels.iter().zip(&of).filter(|(kernel, _)| communicates(kernel));
        let untold = kernels.filter(|(_, origin)| matches!(origin, Origin::Unknown)).count();
        let every = || {
            calls
                .threads
                .iter()
                .flat_map(|(thread, list)| list.iter().zip(&claimed[thread.as_str()]))
        };
        let asked = every().filter(|(call, _)| call.needs_kernel()).count();
        let silent = every().filter(|(call, claimed)| call.needs_kernel() && !**claimed).count();
        Self { of, asked, lost: silent.saturating_sub(untold) }
    }
}

/// Whether it is among one rank, which takes no kernel of NCCL.
fn alone(said: &Said) -> bool {
    said.size == Some(1) || said.ranks.len() == 1
}
