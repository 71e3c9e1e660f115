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

mod plane;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use allrail_core::{Bandwidth, Bytes, DimensionId, EventQueue, Time};
use allrail_fabric::kinds;
use allrail_fabric::{Contention, Dimension, Fabric};

use self::plane::{Pace, Plane};
use crate::{DELIVERED, Event, NetworkModel, SENT, Submission, Transfer, TransferId};

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
            let link_count = usize::try_from(Self::links_on(fabric, dimension))
                .expect("the driver bounds the number of links");
            planes.push(Plane::new(dimension, npus, stride, first_link));
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

    /// How many directed links a fabric has in this network model.
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

impl NetworkModel for Links {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        let Transfer::Message { dimension, source, destination, bytes } = submission.transfer
        else {
            panic!("the network model `links` carries messages; a driver sent it a stage");
        };
        let plane = &mut self.planes[dimension.index()];
        let (from, instance) = plane.locate(source);
        let (to, other) = plane.locate(destination);
        let alone = plane.dimension.contention == Contention::None;
        assert!(
            (alone || instance == other) && from != to,
            "{source} and {destination} are not peers on {dimension}"
        );
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
            let arrival = now + self.planes[dimension.index()].alone(from, to, bytes);
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
