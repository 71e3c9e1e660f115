//! Parameter servers: pushes and pulls over the links of workers and servers, in virtual time.
//!
//! `W` workers that are alike push every piece of a gradient to the server that keeps it and pull
//! it from there. Every machine has one link up and one down, of the same bandwidth. With separate
//! servers, for a piece of `b` bytes of which server `s` keeps `b_s`,
//!
//! - a push keeps every worker's link up busy for `b/B` and the link down of each of its servers for
//!   `W·b_s/B`: all workers send at once;
//! - a pull keeps those servers' links up busy for `W·b_s/B` and every worker's link down for `b/B`.
//!
//! With co-located servers machine `s` is worker and server, with one pair of links for both, and
//! what it exchanges with itself takes no link: `(b - b_s)/B` and `(W - 1)·b_s/B`.
//!
//! With a *host* bandwidth `H`, a worker's piece is first brought from its NPUs into host memory,
//! `b/H`, and only then sent; and after it has arrived brought to them, the other way. So does a
//! framework whose operations take whole arrays: what is not cut into pieces is not pipelined.
//!
//! With a *sum* bandwidth `R`, a server takes the parts of a push in once they are there, `W·b_s/R`
//! for those of all workers and the update, one push after the other; then the push is over. So do
//! MXNet's servers, in one thread and a whole message at a time (`kvstore_dist_server.h`).
//!
//! *In order*, all that goes from one machine to another waits its turn, whatever its priority, as on
//! ps-lite's connections: on every link first comes first, and without taking time the request of a
//! pull waits on the workers' links up, behind pushes, and the word that a push is over on its
//! servers' links up, behind pulls. Otherwise these are known at once.
//!
//! A link serves one operation at a time, to its end: the highest priority, then what was submitted
//! first. At one time links up choose before links down, so that these know what begins.
//! The receiving links get an operation when the first of its senders begins it (cut-through: the
//! workers' flows to one server, each slower than its own link, arrive side by side). It is over
//! `latency` after the last of its links. Its overhead keeps its first links busy before its bytes
//! do: the host's at a push where there is one, else sending and receiving ones.
//!
//! Pieces are spread: one of at least `big_array` evenly over all servers, a smaller one to one
//! server, each next one that travels for the first time to the next server; it stays there (MXNet's
//! key-value store does the same in the order of its keys).
//!
//! Ignored: the copy of a pull on its server, the sharing of links within an operation, packets.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use allrail_core::{Bandwidth, Bytes, EventQueue, Time};
use allrail_schedule::tensor::{Leg, Piece};

/// The machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machines {
    /// How many workers; one at least.
    pub workers: u32,
    /// How many servers; one at least, and no more than workers if co-located.
    pub servers: u32,
    /// Whether server `s` runs on the machine of worker `s`.
    pub colocated: bool,
    /// Of every link, each way.
    pub bandwidth: Bandwidth,
    /// What a worker brings between its NPUs and its memory, each way; unlimited if absent.
    pub host: Option<Bandwidth>,
    /// How much of what workers push a server sums and updates; unlimited if absent.
    pub sum: Option<Bandwidth>,
    /// Whether links know no priority, and requests and acknowledgements wait their turn on them.
    pub in_order: bool,
    /// From the last byte of an operation to its end.
    pub latency: Time,
    /// Pieces of this size and more are split over all servers; none if absent.
    pub big_array: Option<Bytes>,
}

/// A push or pull of a piece by all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Push, or pull.
    pub leg: Leg,
    /// Of what.
    pub piece: Piece,
    /// Higher goes first on every link.
    pub priority: i64,
    /// For how long it occupies its first links before its bytes do.
    pub overhead: Time,
    /// Comes back when it is over.
    pub tag: u64,
}

/// Which server keeps how much of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    One(u32),
    All,
}

/// Smaller goes first: by priority, or in order by when it came to the links; then as submitted.
type Rank = (Reverse<i64>, Time, u64);

/// A link, and for how long an operation takes it.
type Demand = (u32, Time);

#[derive(Default)]
struct Link {
    /// Operations by rank, with the time that they take here.
    waiting: BTreeMap<Rank, (u32, Time)>,
    serving: Option<u32>,
    busy: Time,
}

/// An operation under way.
struct Operation {
    tag: u64,
    rank: Rank,
    /// Links that have not finished it.
    left: u32,
    /// What the receiving links will have to do; taken when the first sender begins.
    receivers: Vec<Demand>,
    /// What follows once all of these have finished it, last first.
    stages: Vec<Stage>,
}

/// Links, hosts, sums that an operation takes together: the senders, and with them the receivers.
struct Stage {
    senders: Vec<Demand>,
    receivers: Vec<Demand>,
}

#[derive(Clone, Copy)]
enum Inner {
    Served { link: u32 },
    Over { operation: u32 },
}

/// The links of all machines, and what travels on them.
pub struct Servers {
    machines: Machines,
    /// How many links up there are, and so down.
    ups: u32,
    links: Vec<Link>,
    /// Links that may begin something.
    idle: BTreeSet<u32>,
    operations: Vec<Operation>,
    free: Vec<u32>,
    events: EventQueue<Inner>,
    shares: BTreeMap<Piece, Share>,
    next_server: u32,
    sequence: u64,
}

impl Servers {
    /// Idle machines.
    ///
    /// # Panics
    /// Without workers or servers, or with more co-located servers than workers.
    #[must_use]
    pub fn new(machines: Machines) -> Self {
        assert!(machines.workers > 0 && machines.servers > 0, "there are workers and servers");
        assert!(!machines.colocated || machines.servers <= machines.workers, "servers have hosts");
        // All links up, then all links down, then a worker's host, out and in, then the servers'
        // sums. Separate: of the workers, one stands for all, then the servers. Co-located: the
        // machines.
        let ups = if machines.colocated { machines.workers } else { 1 + machines.servers };
        Self {
            machines,
            ups,
            links: (0..2 * ups + 2 + machines.servers).map(|_| Link::default()).collect(),
            idle: BTreeSet::new(),
            operations: Vec::new(),
            free: Vec::new(),
            events: EventQueue::new(),
            shares: BTreeMap::new(),
            next_server: 0,
            sequence: 0,
        }
    }

    /// How long all workers' exchange of so many bytes takes at the most: over one server, each leg
    /// and link after the other. `None` if that is beyond a quarter of the clock.
    #[must_use]
    pub fn within_the_clock(&self, bytes: u128) -> Option<Time> {
        let Machines { workers, bandwidth, host, sum, .. } = self.machines;
        let slowest = [host, sum].into_iter().flatten().fold(bandwidth, Bandwidth::min);
        let all = bytes.checked_mul(u128::from(workers) * 7)?;
        let time = slowest.time_for_fraction(all, 1)?;
        time.checked_mul(4).map(|_| time)
    }

    /// Queues an operation at its first links. Nothing begins before [`Servers::choose`].
    ///
    /// # Panics
    /// If its leg is neither push nor pull, or it takes longer than the clock holds.
    pub fn submit(&mut self, now: Time, transfer: &Transfer) {
        let stages = self.stages(transfer);
        let rank = (Reverse(transfer.priority), Time::ZERO, self.sequence);
        self.sequence += 1;
        let operation =
            Operation { tag: transfer.tag, rank, left: 0, receivers: Vec::new(), stages };
        let index = match self.free.pop() {
            Some(index) => {
                self.operations[index as usize] = operation;
                index
            }
            None => {
                self.operations.push(operation);
                u32::try_from(self.operations.len() - 1).expect("few operations")
            }
        };
        self.enter(now, index);
    }

    /// An operation goes to the links of its next stage; false if there is none.
    fn enter(&mut self, now: Time, index: u32) -> bool {
        let operation = &mut self.operations[index as usize];
        let Some(stage) = operation.stages.pop() else { return false };
        let count = stage.senders.len() + stage.receivers.len();
        operation.left = u32::try_from(count).expect("few links");
        operation.receivers = stage.receivers;
        if self.machines.in_order {
            operation.rank = (Reverse(0), now, operation.rank.2);
        }
        let rank = operation.rank;
        for (link, time) in stage.senders {
            self.queue(link, rank, index, time);
        }
        true
    }

    /// Everything of `now` has been submitted: idle links begin what goes first.
    pub fn choose(&mut self, now: Time) {
        while let Some(index) = self.idle.pop_first() {
            let link = &mut self.links[index as usize];
            if link.serving.is_some() {
                continue;
            }
            let Some((_, (operation, time))) = link.waiting.pop_first() else { continue };
            link.serving = Some(operation);
            link.busy += time;
            self.events.push(now + time, 0, Inner::Served { link: index });
            let begun = &mut self.operations[operation as usize];
            let rank = begun.rank;
            for (receiver, time) in std::mem::take(&mut begun.receivers) {
                self.queue(receiver, rank, operation, time);
            }
        }
    }

    /// When something happens next; it may be of no interest outside.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.events.next_time()
    }

    /// Takes what happens at `now`, up to an operation that is over: its tag. The caller stops at
    /// every [`Servers::next_time`], takes until nothing is left, submits, and lets links choose.
    pub fn next_event(&mut self, now: Time) -> Option<u64> {
        while self.events.next_time().is_some_and(|time| time <= now) {
            match self.events.pop()?.1 {
                Inner::Served { link } => {
                    let served = self.links[link as usize].serving.take();
                    let operation = served.expect("a link that ends serves");
                    self.idle.insert(link);
                    let ended = &mut self.operations[operation as usize];
                    ended.left -= 1;
                    if ended.left == 0 && !self.enter(now, operation) {
                        let over = now + self.machines.latency;
                        self.events.push(over, 1, Inner::Over { operation });
                    }
                }
                Inner::Over { operation } => {
                    self.free.push(operation);
                    return Some(self.operations[operation as usize].tag);
                }
            }
        }
        None
    }

    /// For how long a worker's link up, its link down, the busiest server's link up and that's link
    /// down have been served; co-located servers have the links of their machine.
    #[must_use]
    pub fn busy(&self) -> [Time; 4] {
        let most = |links: &[Link]| links.iter().map(|link| link.busy).max().unwrap_or_default();
        let (up, down) = self.links[..2 * self.ups as usize].split_at(self.ups as usize);
        let servers = if self.machines.colocated { 0 } else { 1 };
        let workers = if self.machines.colocated { up.len() } else { 1 };
        [most(&up[..workers]), most(&down[..workers]), most(&up[servers..]), most(&down[servers..])]
    }

    fn queue(&mut self, link: u32, rank: Rank, operation: u32, time: Time) {
        self.links[link as usize].waiting.insert(rank, (operation, time));
        self.idle.insert(link);
    }

    /// `numerator / denominator` bytes at the bandwidth of a link.
    fn time(&self, numerator: u128, denominator: u32) -> Time {
        time(self.machines.bandwidth, numerator, denominator)
    }

    /// What an operation does, last first.
    fn stages(&mut self, transfer: &Transfer) -> Vec<Stage> {
        let Machines { workers, servers, colocated, big_array, .. } = self.machines;
        let share = match self.shares.get(&transfer.piece) {
            Some(share) => *share,
            None => {
                let share = if big_array.is_some_and(|bound| transfer.piece.bytes >= bound) {
                    Share::All
                } else {
                    let server = self.next_server;
                    self.next_server = (server + 1) % servers;
                    Share::One(server)
                };
                self.shares.insert(transfer.piece, share);
                share
            }
        };
        let (range, parts) = match share {
            Share::One(server) => (server..server + 1, 1),
            Share::All => (0..servers, servers),
        };
        let bytes = u128::from(transfer.piece.bytes.count());
        let push = match transfer.leg {
            Leg::Push => true,
            Leg::Pull => false,
            Leg::Whole => unreachable!("servers are pushed to and pulled from"),
        };
        // On the workers' side and on the servers', links up at a push and links down at a pull, and
        // the other way round.
        let mut by_workers = Vec::new();
        let mut by_servers = Vec::new();
        if colocated {
            let (worker_base, server_base) = if push { (0, self.ups) } else { (self.ups, 0) };
            for worker in 0..workers {
                let own = u128::from(range.contains(&worker));
                let time = self.time(bytes * (u128::from(parts) - own), parts);
                if u128::from(parts) > own {
                    by_workers.push((worker_base + worker, time));
                }
            }
            if workers > 1 {
                let time = self.time(bytes * u128::from(workers - 1), parts);
                by_servers.extend(range.clone().map(|server| (server_base + server, time)));
            }
        } else {
            let (worker, server_base) = if push { (0, self.ups + 1) } else { (self.ups, 1) };
            by_workers.push((worker, self.time(bytes, 1)));
            let time = self.time(bytes * u128::from(workers), parts);
            by_servers.extend(range.clone().map(|server| (server_base + server, time)));
        }
        let (mut senders, receivers) = match push {
            true => (by_workers, by_servers),
            false => (by_servers, by_workers),
        };
        if senders.is_empty() {
            // A lone machine exchanges everything with itself.
            senders.push((0, Time::ZERO));
        }
        let before = |links: Vec<Demand>| Stage { senders: links, receivers: Vec::new() };
        let mut stages = vec![Stage { senders, receivers }];
        if let Some(host) = self.machines.host {
            let link = 2 * self.ups + u32::from(!push);
            let stage = before(vec![(link, time(host, bytes, 1))]);
            stages.insert(usize::from(push), stage);
        }
        if let Some(Stage { senders, receivers }) = stages.last_mut() {
            for (_, time) in senders.iter_mut().chain(receivers) {
                *time += transfer.overhead;
            }
        }
        if let (true, Some(sum)) = (push, self.machines.sum) {
            let time = time(sum, bytes * u128::from(workers), parts);
            let link = 2 * self.ups + 2;
            stages.insert(0, before(range.clone().map(|server| (link + server, time)).collect()));
        }
        if self.machines.in_order {
            // Links up: separate, the first is the workers'.
            let (workers, first) = if colocated { (workers, 0) } else { (1, 1) };
            let (links, at) = match push {
                true => (range.start + first..range.end + first, 0),
                false => (0..workers, stages.len()),
            };
            stages.insert(at, before(links.map(|link| (link, Time::ZERO)).collect()));
        }
        stages
    }
}

/// `numerator / denominator` bytes at a bandwidth.
fn time(bandwidth: Bandwidth, numerator: u128, denominator: u32) -> Time {
    let time = bandwidth.time_for_fraction(numerator, u128::from(denominator));
    time.expect("an operation takes less than 213 days")
}
