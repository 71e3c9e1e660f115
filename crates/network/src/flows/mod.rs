//! `flows`: a fluid network model on a graph. Messages under way share links max-min fairly.
//!
//! A message flows from its source to its destination over the paths that its [`Splitting`] gives it,
//! at one rate over all of them:
//!
//! ```text
//! rate = the max-min fair one, over links of capacity `bandwidth`, weights = its shares
//! last byte out (Sent) = when the integral of its rate is its bytes, rounded up to a picosecond
//! last byte in (Delivered) = Sent + the latency of its longest path
//! ```
//!
//! NPUs are the nodes of the graph with their number. Messages that start together share from the
//! start; whatever happens at one instant is one update of the [`solver`]. Of a stream's messages from one NPU to
//! another one flows at a time, and the next begins when its last byte is out.
//!
//! Ignored: packets and their headers, buffers, virtual channels, the time in which a first byte
//! travels (bytes are at all links of a path at once), out-of-order arrival, and congestion control,
//! which is taken to be perfect and immediate.
//!
//! - [`phase`]: phases of equal messages in closed form, without a network model.
//! - [`solver`]: the sharing, which knows nothing of networks; [`oracle`] is its plain version.
//! - [`splitting`]: over which paths; `balance.rs` finds best splittings.

mod balance;
mod best;
mod detours;
pub mod oracle;
pub mod phase;
mod route;
pub mod solver;
pub mod splitting;
mod symmetry;

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use allrail_core::{Bandwidth, Time};
use allrail_fabric::graph::Graph;

use crate::{Event, NetworkModel, Submission, Transfer, TransferId};
pub use phase::{Phase, Phases};
use route::{Message, Route, Router};
use solver::Solver;
pub use splitting::Splitting;

const PS_PER_S: f64 = 1e12;
const NOT_SHARING: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits for those before it in its stream.
    Waiting,
    /// Its bytes leave.
    Flowing,
    /// They have left.
    Travelling,
    /// Delivered, or withdrawn.
    Over,
}

struct Flow {
    message: Message,
    tag: u64,
    sent_tag: Option<u64>,
    /// How many messages had this place before.
    generation: u32,
    state: State,
    /// In picoseconds.
    latency: u64,
    /// Bytes to go at `since`, in picoseconds, from when on its rate is `rate` bytes a second.
    left: f64,
    since: u64,
    rate: f64,
    ends: u64,
    /// When the calendar has it; it may end later, never earlier.
    due: u64,
    sharing: u32,
    stream: Option<u64>,
    /// The way that its driver has named.
    way: Option<u32>,
}

/// A stream's messages from one NPU to another.
type Lane = (u32, u32, u64);

/// A flow with its generation: what a calendar holds may be over.
type Place = (u32, u32);

struct Ready {
    entry: Place,
    event: Event,
}

struct Inner {
    router: Router,
    solver: Solver,
    flows: Vec<Flow>,
    unused: Vec<u32>,
    /// The flows of each of the solver's bundles.
    bundles: Vec<Vec<u32>>,
    /// Come, but not shared out yet.
    fresh: Vec<u32>,
    /// Of every lane on which one flows, those that wait.
    lanes: HashMap<Lane, VecDeque<u32>>,
    /// Whether rates are out of date.
    stale: bool,
    now: u64,
    ends: BTreeMap<u64, Vec<Place>>,
    arrivals: BTreeMap<u64, Vec<Place>>,
    ready: VecDeque<Ready>,
    routes: Vec<Route>,
    messages: Vec<Message>,
    capacities: Vec<f64>,
    /// Bytes that each link was given; the first of parallel links stands for all.
    carried: Vec<f64>,
}

/// See the module.
pub struct Flows {
    /// Rates follow all changes of an instant, so they are worked out when someone asks for times.
    inner: RefCell<Inner>,
    npus: u32,
}

impl Flows {
    /// An idle network.
    #[must_use]
    pub fn new(graph: &Arc<Graph>, splitting: Splitting) -> Self {
        Self::with_detours(graph, splitting, false)
    }

    /// An idle network; with `detours`, `ideal` may also take paths by way of any one switch
    /// (dragonfly).
    #[must_use]
    pub fn with_detours(graph: &Arc<Graph>, splitting: Splitting, detours: bool) -> Self {
        let router = Router::new(graph, splitting, detours);
        let capacities = router.capacities(graph);
        let inner = Inner {
            solver: Solver::new(&capacities),
            router,
            flows: Vec::new(),
            unused: Vec::new(),
            bundles: Vec::new(),
            fresh: Vec::new(),
            lanes: HashMap::new(),
            stale: false,
            now: 0,
            ends: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            ready: VecDeque::new(),
            routes: Vec::new(),
            messages: Vec::new(),
            carried: vec![0.0; capacities.len()],
            capacities,
        };
        Self { inner: RefCell::new(inner), npus: graph.npus() }
    }
}

impl Inner {
    fn next_instant(&self) -> Option<u64> {
        let first = |calendar: &BTreeMap<u64, Vec<Place>>| {
            calendar.first_key_value().map(|(&time, _)| time)
        };
        match (first(&self.ends), first(&self.arrivals)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Goes on to `now`, with rates as they were.
    fn reach(&mut self, now: Time) {
        if now.as_ps() > self.now {
            self.settle();
            self.now = now.as_ps();
        }
    }

    /// Brings rates up to date, and with them the ends of flows.
    fn settle(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        self.messages.clear();
        let fresh = self.fresh.iter().map(|&id| &self.flows[id as usize]);
        let unnamed = fresh.filter(|flow| flow.way.is_none());
        self.messages.extend(unnamed.map(|flow| flow.message));
        self.routes.clear();
        self.router.routes(&self.messages, &mut self.routes);
        let fresh = std::mem::take(&mut self.fresh);
        let mut routes = self.routes.drain(..);
        for &id in &fresh {
            let flow = &mut self.flows[id as usize];
            let route = match flow.way {
                Some(way) => self.router.named(way).clone(),
                None => routes.next().expect("each message has a route"),
            };
            flow.latency = route.latency;
            for &(link, share) in route.entries.iter() {
                self.carried[link as usize] += share * flow.left;
            }
            flow.sharing = self.solver.add(route.entries);
            if flow.sharing as usize >= self.bundles.len() {
                self.bundles.resize(flow.sharing as usize + 1, Vec::new());
            }
            self.bundles[flow.sharing as usize].push(id);
        }
        drop(routes);
        self.solver.update();
        for place in 0..self.solver.changed().len() {
            let bundle = self.solver.changed()[place];
            let rate = self.solver.rate(bundle);
            for place in 0..self.bundles[bundle as usize].len() {
                self.set_rate(self.bundles[bundle as usize][place], rate);
            }
        }
        // Who came to a bundle that keeps its rate.
        for &id in &fresh {
            if self.flows[id as usize].rate == 0.0 {
                self.set_rate(id, self.solver.rate(self.flows[id as usize].sharing));
            }
        }
        self.fresh = fresh;
        self.fresh.clear();
    }

    /// From now on a flow has another rate.
    fn set_rate(&mut self, id: u32, rate: f64) {
        let flow = &mut self.flows[id as usize];
        let whole = flow.rate == 0.0;
        flow.left -= flow.rate * (self.now - flow.since) as f64 / PS_PER_S;
        (flow.since, flow.rate) = (self.now, rate);
        flow.ends = self.now.saturating_add(duration(flow, whole));
        if flow.ends < flow.due {
            flow.due = flow.ends;
            self.ends.entry(flow.ends).or_default().push((id, flow.generation));
        }
    }

    /// A flow shares no more.
    fn leave(&mut self, id: u32) {
        let sharing = self.flows[id as usize].sharing;
        let bundle = &mut self.bundles[sharing as usize];
        let place = bundle.iter().position(|&other| other == id);
        bundle.swap_remove(place.expect("a flow is in its bundle"));
        self.solver.remove(sharing);
        self.stale = true;
    }

    /// What happens at the instant `now`: deliveries before departures.
    fn happen(&mut self, now: u64) {
        self.now = now;
        let mut sent = Vec::new();
        for (id, generation) in self.ends.remove(&now).unwrap_or_default() {
            let flow = &mut self.flows[id as usize];
            let current = flow.generation == generation && flow.state == State::Flowing;
            if !current || flow.due != now {
                continue;
            }
            if flow.ends > now {
                flow.due = flow.ends;
                self.ends.entry(flow.ends).or_default().push((id, generation));
                continue;
            }
            flow.state = State::Travelling;
            self.arrivals
                .entry(now.saturating_add(flow.latency))
                .or_default()
                .push((id, generation));
            if let Some(tag) = flow.sent_tag {
                sent.push(Ready { entry: (id, generation), event: Event::Sent { tag } });
            }
            if flow.sharing != NOT_SHARING {
                self.leave(id);
            }
            self.let_next(id);
        }
        for (id, generation) in self.arrivals.remove(&now).unwrap_or_default() {
            let flow = &self.flows[id as usize];
            if flow.generation == generation && flow.state == State::Travelling {
                let event = Event::Delivered { tag: flow.tag };
                self.ready.push_back(Ready { entry: (id, generation), event });
            }
        }
        self.ready.extend(sent);
    }

    /// The lane of a flow, if it is of a stream.
    fn lane(&self, id: u32) -> Option<Lane> {
        let Flow { message: (source, destination, _), stream, .. } = self.flows[id as usize];
        stream.map(|stream| (source, destination, stream))
    }

    /// A flow begins.
    fn begin(&mut self, id: u32) {
        let now = self.now;
        let flow = &mut self.flows[id as usize];
        (flow.state, flow.since) = (State::Flowing, now);
        let (source, destination, bytes) = flow.message;
        if bytes == 0 {
            flow.latency = match flow.way {
                Some(way) => self.router.named(way).latency,
                None => self.router.latency(source, destination),
            };
            (flow.ends, flow.due) = (now, now);
            self.ends.entry(now).or_default().push((id, flow.generation));
        } else {
            self.fresh.push(id);
            self.stale = true;
        }
    }

    /// A flow has left: the next of its lane begins.
    fn let_next(&mut self, id: u32) {
        let Some(lane) = self.lane(id) else { return };
        match self.lanes.get_mut(&lane).and_then(VecDeque::pop_front) {
            Some(next) => self.begin(next),
            None => drop(self.lanes.remove(&lane)),
        }
    }

    fn take(&mut self) -> Option<(Time, Event)> {
        let Ready { entry: (id, _), event } = self.ready.pop_front()?;
        if matches!(event, Event::Delivered { .. }) {
            self.flows[id as usize].state = State::Over;
            self.unused.push(id);
        }
        Some((Time::from_ps(self.now), event))
    }
}

/// No flow takes longer, in picoseconds (53 days): drivers break off long before the clock ends.
const LONGEST: u64 = 1 << 62;

/// How long a flow's bytes take from now on at its rate; `whole` if none has left yet.
fn duration(flow: &Flow, whole: bool) -> u64 {
    if whole && flow.rate.fract() == 0.0 {
        // As exact as a link that serves one message after the other.
        let bandwidth = Bandwidth::from_bytes_per_second(flow.rate as u64);
        let time = bandwidth
            .and_then(|bandwidth| bandwidth.time_for(allrail_core::Bytes::new(flow.message.2)));
        return time.map_or(LONGEST, |time| time.as_ps().min(LONGEST));
    }
    // As a float above 2^64, a time becomes the largest integer.
    LONGEST.min(((flow.left * PS_PER_S / flow.rate).ceil() as u64).max(1))
}

impl Flows {
    fn add(
        &mut self,
        now: Time,
        submission: Submission,
        stream: Option<u64>,
        via: Option<&[u32]>,
    ) -> TransferId {
        let Transfer::Message { source, destination, bytes, .. } = submission.transfer else {
            panic!("the network model `flows` carries messages; a driver sent it a stage");
        };
        assert!(
            source != destination && source.0.max(destination.0) < self.npus,
            "{source} and {destination} are not two NPUs of {}",
            self.npus
        );
        let inner = self.inner.get_mut();
        inner.reach(now);
        let way = via.and_then(|via| inner.router.along(source.0, destination.0, via));
        let id = inner.unused.pop().unwrap_or(inner.flows.len() as u32);
        let mut flow = Flow {
            message: (source.0, destination.0, bytes.count()),
            tag: submission.tag,
            sent_tag: submission.sent_tag,
            generation: 0,
            state: State::Waiting,
            latency: 0,
            left: bytes.count() as f64,
            since: inner.now,
            rate: 0.0,
            ends: u64::MAX,
            due: u64::MAX,
            sharing: NOT_SHARING,
            stream,
            way,
        };
        if let Some(before) = inner.flows.get(id as usize) {
            flow.generation = before.generation.wrapping_add(1);
        }
        let generation = flow.generation;
        if id as usize == inner.flows.len() {
            inner.flows.push(flow);
        } else {
            inner.flows[id as usize] = flow;
        }
        match inner.lane(id).map(|lane| inner.lanes.entry(lane)) {
            Some(Entry::Occupied(mut waiting)) => waiting.get_mut().push_back(id),
            Some(Entry::Vacant(lane)) => {
                lane.insert(VecDeque::new());
                inner.begin(id);
            }
            None => inner.begin(id),
        }
        TransferId(u64::from(generation) << 32 | u64::from(id))
    }
}

impl NetworkModel for Flows {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        self.add(now, submission, None, None)
    }

    fn submit_in_stream(&mut self, now: Time, submission: Submission, stream: u64) -> TransferId {
        self.add(now, submission, Some(stream), None)
    }

    fn submit_along(&mut self, now: Time, submission: Submission, via: &[u32]) -> TransferId {
        self.add(now, submission, None, Some(via))
    }

    fn next_time(&self) -> Option<Time> {
        let mut inner = self.inner.borrow_mut();
        if !inner.ready.is_empty() {
            return Some(Time::from_ps(inner.now));
        }
        if inner.next_instant() != Some(inner.now) {
            inner.settle();
        }
        inner.next_instant().map(Time::from_ps)
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        let inner = self.inner.get_mut();
        loop {
            if let Some(event) = inner.take() {
                return Some(event);
            }
            // What is submitted at this instant, too, belongs to the same update.
            if inner.next_instant() != Some(inner.now) && until.as_ps() > inner.now {
                inner.settle();
            }
            let next = inner.next_instant()?;
            if next > until.as_ps() {
                return None;
            }
            inner.happen(next);
        }
    }

    /// Its bytes that are to go are not sent, and its bandwidth is the others' at once.
    fn cancel(&mut self, now: Time, transfer: TransferId) -> bool {
        let inner = self.inner.get_mut();
        let id = (transfer.0 & u64::from(u32::MAX)) as u32;
        let generation = (transfer.0 >> 32) as u32;
        let flow = &inner.flows[id as usize];
        if flow.generation != generation || flow.state == State::Over {
            return false;
        }
        inner.reach(now);
        let flow = &inner.flows[id as usize];
        match flow.state {
            State::Flowing => {
                if flow.sharing == NOT_SHARING {
                    inner.fresh.retain(|&other| other != id);
                } else {
                    inner.leave(id);
                }
                inner.let_next(id);
            }
            State::Waiting => {
                let lane = inner.lane(id).and_then(|lane| inner.lanes.get_mut(&lane));
                lane.expect("one that waits is on a lane").retain(|&other| other != id);
            }
            State::Travelling | State::Over => {}
        }
        inner.flows[id as usize].state = State::Over;
        inner.unused.push(id);
        inner.ready.retain(|ready| ready.entry != (id, generation));
        true
    }

    fn link_seconds(&self) -> Vec<f64> {
        let inner = self.inner.borrow();
        let each = inner.carried.iter().zip(&inner.capacities);
        let mut seconds: Vec<f64> = each.map(|(bytes, capacity)| bytes / capacity).collect();
        inner.router.spread(&mut seconds);
        seconds
    }
}
