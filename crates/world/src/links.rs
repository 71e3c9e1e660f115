//! `links`: every link serves whole messages first come, first served, store and forward.
//!
//! A message of `m` bytes occupies each link on its path for `m / bandwidth`, one after the other;
//! after each it travels on for the link's latency, the step latency divided by the links of a
//! step (the first takes what is left over). So on a one-hop dimension a step takes `m/BW + α` as in `dims`, and on a switch one
//! serialisation more. This is what ASTRA-sim calls congestion-aware.
//!
//! On a dimension without contention messages share nothing: one of `m` bytes arrives after the step
//! latency of each of its steps and ⌊m / bandwidth⌋ in whole nanoseconds, where it has all of a ring's or a
//! switch's links.
//!
//! A dimension that stands for a network without dimensions has that network's cables
//! ([`allrail_fabric::wiring`]), which all its instances share: a message takes one shortest path over them.
//!
//! Parallel links between the same two ends are bonded. Ignored: packets, buffers, back pressure.
//!
//! A link's messages leave in the order in which they came, so all departures are known on
//! arrival; the event queue holds only the next arrival of each link, and its size is that of the
//! network, not of the traffic.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use allrail_core::{Bandwidth, Bytes, DimensionId, EventQueue, Rank, Time};
use allrail_fabric::kinds::{self, Reach, Topology};
use allrail_fabric::wiring::{Hop, Wiring};
use allrail_fabric::{Contention, Dimension, Fabric};

use crate::{DELIVERED, Event, SENT, Submission, Transfer, TransferId, World};

struct Plane {
    dimension: Dimension,
    topology: &'static dyn Topology,
    /// Product of the sizes of the inner dimensions: the distance of two neighbours' ranks.
    stride: u32,
    links_per_instance: u32,
    first_link: usize,
    /// Of the first link of a message, with what dividing the step latency leaves over.
    first_latency: Time,
    /// Of the others.
    link_latency: Time,
    pace: Pace,
    /// Which links are slow, and how fast these are; none where all are alike.
    slow: Option<(Vec<bool>, Pace)>,
    /// Links that any message can cross.
    used_links: u64,
    /// Where it counts over cables: these, and the links of messages so far.
    wired: Option<Wired>,
}

/// Cables that all instances of a dimension share.
struct Wired {
    wiring: Wiring,
    hops: Vec<Option<Hop>>,
    /// By line and the two places.
    routes: HashMap<[u32; 3], Arc<[u32]>>,
}

impl Wired {
    fn new(wiring: &Wiring) -> Self {
        let hops = (0..wiring.hops()).map(|hop| wiring.hop(hop)).collect();
        Self { wiring: wiring.clone(), hops, routes: HashMap::new() }
    }

    fn route(&mut self, line: u32, from: u32, to: u32) -> Arc<[u32]> {
        let Self { wiring, routes, .. } = self;
        let found = || wiring.route(line, from, to).into();
        Arc::clone(routes.entry([line, from, to]).or_insert_with(found))
    }
}

/// How fast a link is.
struct Pace {
    bandwidth: Bandwidth,
    /// The last message's size and its serialisation: most are alike.
    last: (Bytes, Time),
}

impl Pace {
    const fn of(bandwidth: Bandwidth) -> Self {
        Self { bandwidth, last: (Bytes::new(0), Time::ZERO) }
    }

    fn serialisation(&mut self, bytes: Bytes) -> Time {
        if self.last.0 != bytes {
            let time = self.bandwidth.time_for(bytes);
            self.last = (bytes, time.expect("the driver bounds the time of a message"));
        }
        self.last.1
    }
}

struct Message {
    tag: u64,
    bytes: Bytes,
    dimension: u32,
    instance: u32,
    source: u32,
    destination: u32,
    hop: u32,
    /// On cables, its links.
    route: Option<Arc<[u32]>>,
    /// How many messages had this place before.
    generation: u32,
    /// Whether the event of its departure is to come.
    unsent: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    Cancelled,
    /// Cancelled and gone; only the event of its departure, of the same time, is to come.
    Dropped,
    Over,
}

#[derive(Default)]
struct Link {
    free_at: Time,
    /// It has served, or will have when it is free.
    busy: Time,
    /// Messages on this link, with the time at which each reaches its far end.
    arrivals: VecDeque<(Time, u32)>,
}

enum Inner {
    /// The oldest message on this link reaches the far end.
    Arrived {
        link: u32,
    },
    Departed {
        message: u32,
        generation: u32,
        tag: u64,
    },
    /// A message that shared nothing has arrived.
    Landed {
        message: u32,
    },
}

/// See the module.
pub struct Links {
    planes: Vec<Plane>,
    links: Vec<Link>,
    messages: Vec<Message>,
    unused: Vec<u32>,
    events: EventQueue<Inner>,
}

impl Links {
    /// An idle network.
    ///
    /// # Panics
    /// If the fabric has more links than memory can hold; see [`Links::link_count`].
    #[must_use]
    pub fn new(fabric: &Fabric) -> Self {
        let npus = fabric.npus();
        let mut stride = 1u32;
        let mut first_link = 0usize;
        let mut planes = Vec::new();
        for dimension in &fabric.dimensions {
            let topology = kinds::of(dimension.kind);
            let links_per_instance = topology.link_count(dimension);
            let link_count = usize::try_from(Self::links_on(fabric, dimension))
                .expect("the driver bounds the number of links");
            let wired = dimension.wiring.as_ref().map(Wired::new);
            let cables = wired.as_ref().map(|wired| wired.hops.iter().flatten().count() as u64);
            let hops = u64::from(topology.hops_per_step());
            let per_link = dimension.latency.as_ps() / hops;
            planes.push(Plane {
                topology,
                stride,
                links_per_instance,
                first_link,
                first_latency: Time::from_ps(dimension.latency.as_ps() - per_link * (hops - 1))
                    + dimension.message_latency,
                link_latency: Time::from_ps(per_link),
                pace: Pace::of(topology.link_bandwidth(dimension)),
                slow: None,
                used_links: cables.unwrap_or(npus * topology.links_per_npu(dimension) * hops),
                wired,
                dimension: dimension.clone(),
            });
            stride *= dimension.size;
            first_link += link_count;
        }
        let mut links = Vec::new();
        links.resize_with(first_link, Link::default);
        Self { planes, links, messages: Vec::new(), unused: Vec::new(), events: EventQueue::new() }
    }

    /// Gives the links of a dimension for which `slow` holds another bandwidth. They are numbered
    /// instance by instance, as their topology numbers them within one.
    pub fn slow_down(
        &mut self,
        dimension: DimensionId,
        slow: impl Fn(u64) -> bool,
        bandwidth: impl Fn(Bandwidth) -> Bandwidth,
    ) {
        let count = self.links_of(dimension.index()).len();
        let plane = &mut self.planes[dimension.index()];
        let which: Vec<bool> = (0..count as u64).map(slow).collect();
        if which.contains(&true) {
            plane.slow = Some((which, Pace::of(bandwidth(plane.pace.bandwidth))));
        }
    }

    /// Which links a plane has.
    fn links_of(&self, plane: usize) -> Range<usize> {
        let next = self.planes.get(plane + 1).map(|next| next.first_link);
        self.planes[plane].first_link..next.unwrap_or(self.links.len())
    }

    /// How many directed links a fabric has in this world.
    #[must_use]
    pub fn link_count(fabric: &Fabric) -> u64 {
        fabric.dimensions.iter().map(|dimension| Self::links_on(fabric, dimension)).sum()
    }

    /// How many of them are of a dimension. Their numbers follow each other.
    #[must_use]
    pub fn links_on(fabric: &Fabric, dimension: &Dimension) -> u64 {
        match &dimension.wiring {
            Some(wiring) => u64::from(wiring.hops()),
            None => {
                let each = kinds::of(dimension.kind).link_count(dimension);
                fabric.npus() / u64::from(dimension.size) * u64::from(each)
            }
        }
    }

    /// A rank's coordinate on a plane's dimension, and which of its instances it is in.
    fn locate(&self, dimension: DimensionId, rank: Rank) -> (u32, u32) {
        let plane = &self.planes[dimension.index()];
        let coordinate = rank.0 / plane.stride % plane.dimension.size;
        let below = rank.0 % plane.stride;
        let above = rank.0 / (plane.stride * plane.dimension.size);
        (coordinate, above * plane.stride + below)
    }

    /// Puts `message` on its next link at `now`; returns when its last byte leaves that link, or
    /// `None` if it has arrived.
    fn forward(&mut self, now: Time, id: u32) -> Option<Time> {
        let message = &mut self.messages[id as usize];
        let plane = &mut self.planes[message.dimension as usize];
        let (within, serialisation, latency) = match (&message.route, &plane.wired) {
            (Some(route), Some(wired)) => {
                let within = *route.get(message.hop as usize)? as usize;
                let hop = wired.hops[within].expect("a route is of links");
                let time = hop.bandwidth.time_for(message.bytes);
                (within, time.expect("the driver bounds the time of a message"), hop.latency)
            }
            _ => {
                let link = plane.topology.link(
                    &plane.dimension,
                    message.source,
                    message.destination,
                    message.hop,
                )?;
                let within =
                    message.instance as usize * plane.links_per_instance as usize + link.0 as usize;
                let pace = match &mut plane.slow {
                    Some((slow, pace)) if slow[within] => pace,
                    _ => &mut plane.pace,
                };
                let first = message.hop == 0;
                let latency = if first { plane.first_latency } else { plane.link_latency };
                (within, pace.serialisation(message.bytes), latency)
            }
        };
        message.hop += 1;
        let index = plane.first_link + within;
        let server = &mut self.links[index];
        let departure = server.free_at.max(now) + serialisation;
        server.free_at = departure;
        server.busy += serialisation;
        let arrival = departure + latency;
        server.arrivals.push_back((arrival, id));
        if server.arrivals.len() == 1 {
            let link = u32::try_from(index).expect("fewer than 2^32 links");
            self.events.push(arrival, DELIVERED, Inner::Arrived { link });
        }
        Some(departure)
    }
}

impl Links {
    /// How long a message takes that shares nothing.
    fn alone(&self, dimension: DimensionId, from: u32, to: u32, bytes: Bytes) -> Time {
        let plane = &self.planes[dimension.index()];
        let mut path = Vec::new();
        kinds::path(&plane.dimension, from, to, &mut path);
        let steps = path.len() as u64 / u64::from(plane.topology.hops_per_step());
        let (whole, size) = (plane.dimension.aggregate(), u64::from(plane.dimension.size));
        let share = if plane.topology.reach() == Reach::Peers { size - 1 } else { 1 };
        let rate = u128::from(whole.fraction(1, share).bytes_per_second());
        let nanoseconds = u128::from(bytes.count()) * 1_000_000_000 / rate;
        let nanoseconds = u64::try_from(nanoseconds).expect("the driver bounds a message's time");
        let latency = plane.dimension.latency.checked_mul(steps).expect("few steps");
        latency + plane.dimension.message_latency + Time::from_ns(nanoseconds)
    }
}

impl World for Links {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        let Transfer::Message { dimension, source, destination, bytes } = submission.transfer
        else {
            panic!("the world `links` carries messages; a driver sent it a stage");
        };
        let (from, instance) = self.locate(dimension, source);
        let (to, other) = self.locate(dimension, destination);
        let alone = self.planes[dimension.index()].dimension.contention == Contention::None;
        assert!(
            (alone || instance == other) && from != to,
            "{source} and {destination} are not peers on {dimension}"
        );
        let plane = &mut self.planes[dimension.index()];
        let route = plane.wired.as_mut().map(|wired| wired.route(instance, from, to));
        let mut message = Message {
            tag: submission.tag,
            bytes,
            dimension: dimension.0,
            instance,
            source: from,
            destination: to,
            hop: 0,
            route,
            generation: 0,
            unsent: submission.sent_tag.is_some(),
            state: State::UnderWay,
        };
        let id = if let Some(id) = self.unused.pop() {
            message.generation = self.messages[id as usize].generation.wrapping_add(1);
            self.messages[id as usize] = message;
            id
        } else {
            self.messages.push(message);
            u32::try_from(self.messages.len() - 1).expect("fewer than 2^32 messages at once")
        };
        let departure = if alone {
            let arrival = now + self.alone(dimension, from, to, bytes);
            self.events.push(arrival, DELIVERED, Inner::Landed { message: id });
            now
        } else {
            self.forward(now, id).expect("two peers are a link apart at least")
        };
        if let Some(tag) = submission.sent_tag {
            let generation = self.messages[id as usize].generation;
            self.events.push(departure, SENT, Inner::Departed { message: id, generation, tag });
        }
        TransferId(u64::from(self.messages[id as usize].generation) << 32 | u64::from(id))
    }

    fn next_time(&self) -> Option<Time> {
        self.events.next_time()
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        while self.events.next_time().is_some_and(|time| time <= until) {
            let (now, inner) = self.events.pop()?;
            match inner {
                Inner::Departed { message: id, generation, tag } => {
                    let message = &mut self.messages[id as usize];
                    if message.generation != generation {
                        return Some((now, Event::Sent { tag }));
                    }
                    message.unsent = false;
                    match message.state {
                        State::UnderWay | State::Over => {
                            return Some((now, Event::Sent { tag }));
                        }
                        State::Cancelled => {}
                        State::Dropped => {
                            message.state = State::Over;
                            self.unused.push(id);
                        }
                    }
                }
                Inner::Landed { message: id } => {
                    let message = &mut self.messages[id as usize];
                    let delivered = message.state == State::UnderWay;
                    if message.unsent && !delivered {
                        message.state = State::Dropped;
                        continue;
                    }
                    message.state = State::Over;
                    self.unused.push(id);
                    if delivered {
                        let tag = self.messages[id as usize].tag;
                        return Some((now, Event::Delivered { tag }));
                    }
                }
                Inner::Arrived { link } => {
                    let arrivals = &mut self.links[link as usize].arrivals;
                    let (due, id) = arrivals.pop_front().expect("an event per link with messages");
                    debug_assert!(due <= now);
                    if let Some((next, _)) = arrivals.front() {
                        self.events.push(*next, DELIVERED, Inner::Arrived { link });
                    }
                    if self.messages[id as usize].state == State::UnderWay
                        && self.forward(now, id).is_some()
                    {
                        continue;
                    }
                    let message = &mut self.messages[id as usize];
                    if message.state == State::Cancelled && message.unsent {
                        message.state = State::Dropped;
                        continue;
                    }
                    let delivered = message.state == State::UnderWay;
                    message.state = State::Over;
                    self.unused.push(id);
                    if delivered {
                        let tag = self.messages[id as usize].tag;
                        return Some((now, Event::Delivered { tag }));
                    }
                }
            }
        }
        None
    }

    /// The message is dropped at the end of the link that it is on.
    fn cancel(&mut self, _now: Time, transfer: TransferId) -> bool {
        let index = usize::try_from(transfer.0 & u64::from(u32::MAX)).expect("a 32-bit index");
        let message = &mut self.messages[index];
        let current = u64::from(message.generation) == transfer.0 >> 32;
        let under_way = current && message.state == State::UnderWay;
        if under_way {
            message.state = State::Cancelled;
        }
        under_way
    }

    fn busy(&self, span: Time) -> Option<Vec<f64>> {
        let share = |(index, plane): (usize, &Plane)| {
            let links = &self.links[self.links_of(index)];
            let busy = links.iter().fold(Time::ZERO, |sum, link| sum + link.busy);
            busy.ratio(span) / plane.used_links as f64
        };
        Some(self.planes.iter().enumerate().map(share).collect())
    }

    fn link_seconds(&self) -> Vec<f64> {
        self.links.iter().map(|link| link.busy.as_s()).collect()
    }
}
