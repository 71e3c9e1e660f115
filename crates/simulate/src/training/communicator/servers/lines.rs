//! Pushes and pulls over the links of workers and servers, message by message, in virtual time.
//!
//! Every worker pushes its own copy of a partition to the server that keeps it, or a part of it to every
//! server, and pulls the result for itself. A *line* serves one message at a time, to its end: a link up, a
//! link down, what moves or sums bytes within a machine, the thread of a server. A push is
//!
//! ```text
//! within the machine ─► link up ─► link down of the server ─► its thread sums ─► all have pushed ─► a word back
//! ```
//!
//! and a pull, which begins with that word,
//!
//! ```text
//! a request ─► the server's thread copies ─► link up of the server ─► link down ─► within the machine
//! ```
//!
//! A message of `b` bytes occupies a link of bandwidth `B` for `b/B`. It comes to the receiver's link when it
//! begins on the sender's (cut-through), waits there for others if there are any, and has arrived when it has
//! left both. So workers whose messages meet at one server are one behind the other from then on, and each
//! next server has them one by one: they rotate, without a rule that says so, and all links are busy, even
//! where a worker has but one message under way. The parts of what is split over all servers go side by
//! side on as many connections: worker `w` begins with the part of server `w`.
//!
//! A server sums the messages of a push as they arrive, in its one thread. Where it waits for all (*synchronous*)
//! the word goes to every worker once it has the last worker's; else to each worker once it has its own. With
//! *backup* workers it does not wait for the last ones: what comes later is dropped, neither summed nor waited
//! for. A worker's push has *arrived* when the server has its bytes, and is *over* with the word.
//!
//! A worker and a server on one machine share its links, and what they exchange takes none.
//!
//! Of what waits for a line the highest priority goes first, then what its worker submitted first; but a link is
//! shared: a link up by its machine's worker and server, a link down by connections, in turn ([`line`]). Among
//! equals, as the same partition of workers in step, server `s` begins with worker `s`, so that each has another one
//! first; what is equal in this, too, goes as it was submitted. *In order*, first
//! comes first, whatever its priority, as on ps-lite's connections; and without taking time a request
//! waits on its worker's link up, behind pushes, and a word on its server's link up, behind pulls. At one time
//! links up choose before links down, so that these know what begins.
//!
//! An arrival, a word and the end of a pull come `latency` after the last byte.
//!
//! Ignored: packets; that switches drop or hold back what waits for a link down; connections that share
//! a link byte by byte (one message goes after the other).

mod line;
mod path;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use allrail_core::{Bandwidth, EventQueue, Time};
use allrail_schedule::tensor::Leg;

use self::line::{Line, Work};
use super::machines::{Machines, Transfer, time};
use super::placement::Placed;
use super::slots::Slots;

/// What has happened to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A push has arrived at its servers. It is over later, or at the same time.
    Arrived {
        /// As submitted.
        tag: u64,
    },
    /// A push was answered; a pull has arrived.
    Over {
        /// As submitted.
        tag: u64,
    },
}

/// A transfer under way.
struct Operation {
    transfer: Transfer,
    /// Among its worker's, and among all.
    sequence: u64,
    submitted: u64,
    /// How many of the stages within its machine are done.
    stage: usize,
    /// Messages that have not arrived, and that were not answered.
    missing: u32,
    unanswered: u32,
}

/// What travels between a worker and one server.
#[derive(Clone, Copy)]
struct Message {
    operation: u32,
    server: u32,
    /// Its bytes, as a part of the transfer's, and which part that is.
    part: (u64, u64),
    place: u32,
    /// How long it delays its worker's link before its bytes.
    overhead: Time,
    /// Links that have not served it.
    left: u8,
}

enum Inner {
    Served {
        line: u32,
    },
    /// A message's first byte comes to the link of its receiver.
    Through {
        message: u32,
    },
    /// An operation goes on to its next stage.
    Entered {
        operation: u32,
    },
    Arrived {
        operation: u32,
    },
    Over {
        operation: u32,
    },
}

/// The lines of all machines, and what travels on them.
pub struct Servers {
    machines: Machines,
    placed: Placed,
    /// All links up, then all links down, then each worker's own lines, then the servers' threads.
    lines: Vec<Line>,
    /// How many machines there are, and lines within each that trains.
    count: u32,
    locals: u32,
    /// Lines that may begin something.
    idle: BTreeSet<u32>,
    operations: Slots<Operation>,
    messages: Slots<Message>,
    events: EventQueue<Inner>,
    /// By partition, round and server: messages that wait for other workers'.
    gathered: BTreeMap<(u32, u32, u32), Vec<u32>>,
    /// With backup workers: by partition and server, the last round that was answered.
    answered: BTreeMap<(u32, u32), u32>,
    /// Messages of pushes that were summed, and that were dropped, in bytes.
    taken: (f64, f64),
    /// By worker: how much it has submitted.
    submitted: Vec<u64>,
    all: u64,
}

impl Servers {
    /// Idle machines.
    ///
    /// # Panics
    /// Without workers or servers, or with more servers on workers' machines than either.
    #[must_use]
    pub fn new(machines: Machines) -> Self {
        let Machines { workers, servers, hosted, placement, big_array, .. } = machines;
        assert!(workers > 0 && servers > 0, "there are workers and servers");
        assert!(hosted <= workers.min(servers), "servers have hosts");
        let count = workers + servers - hosted;
        let locals = machines.locals();
        // Links down begin with worker `s`, or server `s`.
        let first = |machine: u32| match machine.checked_sub(workers) {
            Some(own) => 2 * ((hosted + own) % workers),
            None => 2 * machine,
        };
        let mut lines: Vec<Line> = (0..count).map(|_| Line::default()).collect();
        lines.extend((0..count).map(|machine| Line::beginning_with(first(machine))));
        lines.extend((0..workers * locals + servers).map(|_| Line::default()));
        Self {
            placed: Placed::new(placement, big_array, workers, servers, hosted),
            machines,
            lines,
            count,
            locals,
            idle: BTreeSet::new(),
            operations: Slots::default(),
            messages: Slots::default(),
            events: EventQueue::new(),
            gathered: BTreeMap::new(),
            answered: BTreeMap::new(),
            taken: (0.0, 0.0),
            submitted: vec![0; workers as usize],
            all: 0,
        }
    }

    /// The machines.
    #[must_use]
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Queues a transfer at its first line. Nothing begins before [`Servers::choose`].
    ///
    /// # Panics
    /// If its leg is neither push nor pull, or it takes longer than the clock holds.
    pub fn submit(&mut self, now: Time, transfer: Transfer) {
        assert!(transfer.leg != Leg::Whole, "servers are pushed to and pulled from");
        let submitted = &mut self.submitted[transfer.worker as usize];
        *submitted += 1;
        let sequence = *submitted;
        self.all += 1;
        let operation = self.operations.add(Operation {
            transfer,
            sequence,
            submitted: self.all,
            stage: 0,
            missing: 0,
            unanswered: 0,
        });
        match transfer.leg {
            Leg::Push => self.proceed(now, operation),
            Leg::Pull | Leg::Whole => self.scatter(now, operation),
        }
    }

    /// Everything of `now` has been submitted: idle lines begin what goes first.
    pub fn choose(&mut self, now: Time) {
        while let Some(index) = self.idle.pop_first() {
            let line = &mut self.lines[index as usize];
            if line.serving.is_some() {
                continue;
            }
            let Some((work, time)) = line.pop() else { continue };
            line.serving = Some(work);
            line.busy += time;
            self.events.push(now + time, 0, Inner::Served { line: index });
            if let Work::Send(message) = work {
                let sent = self.messages.get(message);
                let pushed = self.operations.get(sent.operation).transfer.leg == Leg::Push;
                match sent.overhead {
                    overhead if pushed && overhead > Time::ZERO => {
                        self.events.push(now + overhead, 0, Inner::Through { message });
                    }
                    _ => self.receive(now, message),
                }
            }
        }
    }

    /// When something happens next; it may be of no interest outside.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.events.next_time()
    }

    /// Takes what happens at `now`, up to what concerns the caller, who stops at every
    /// [`Servers::next_time`], takes until nothing is left, submits, and lets lines choose.
    pub fn next_event(&mut self, now: Time) -> Option<Happened> {
        while self.events.next_time().is_some_and(|time| time <= now) {
            match self.events.pop()?.1 {
                Inner::Served { line } => {
                    let served = self.lines[line as usize].serving.take();
                    self.idle.insert(line);
                    self.served(now, served.expect("a line that ends serves"));
                }
                Inner::Through { message } => self.receive(now, message),
                Inner::Entered { operation } => self.proceed(now, operation),
                Inner::Arrived { operation } => {
                    let tag = self.operations.get(operation).transfer.tag;
                    return Some(Happened::Arrived { tag });
                }
                Inner::Over { operation } => {
                    let tag = self.operations.take(operation).transfer.tag;
                    return Some(Happened::Over { tag });
                }
            }
        }
        None
    }

    /// For how long a worker's link up and its link down have served, as means over the workers; then each of
    /// a worker's own lines, and the busiest server's thread.
    #[must_use]
    pub fn busy(&self) -> Busy {
        let workers = self.machines.workers;
        let mean = |line: &dyn Fn(u32) -> u32| {
            let all = (0..workers).map(|worker| self.lines[line(worker) as usize].busy.as_ps());
            Time::from_ps(all.sum::<u64>() / u64::from(workers))
        };
        let local = |local: u32| mean(&|worker| self.local(worker, local));
        Busy {
            up: mean(&|worker| worker),
            down: mean(&|worker| self.count + worker),
            local: (0..self.locals).map(local).collect(),
        }
    }

    /// How many bytes that workers pushed were summed, and how many came too late.
    #[must_use]
    pub fn taken(&self) -> (f64, f64) {
        self.taken
    }

    fn local(&self, worker: u32, line: u32) -> u32 {
        2 * self.count + worker * self.locals + line
    }

    fn thread(&self, server: u32) -> u32 {
        2 * self.count + self.machines.workers * self.locals + server
    }

    /// The machine of a server.
    fn host(&self, server: u32) -> u32 {
        match server.checked_sub(self.machines.hosted) {
            Some(own) => self.machines.workers + own,
            None => server,
        }
    }

    fn is_own(&self, message: Message) -> bool {
        self.host(message.server) == self.operations.get(message.operation).transfer.worker
    }

    /// What a message takes at a bandwidth.
    fn bytes(&self, message: Message, bandwidth: Bandwidth) -> Time {
        let bytes = self.operations.get(message.operation).transfer.bytes.count();
        time(bandwidth, u128::from(bytes) * u128::from(message.part.0), message.part.1)
    }

    /// Among equals: how far a message's worker is from its server, and which part it is.
    fn turn(&self, work: Work) -> (u32, u32) {
        let number = match work {
            Work::Local(_) => return (0, 0),
            Work::Send(number)
            | Work::Receive(number)
            | Work::Sum(number)
            | Work::Copy(number)
            | Work::Request(number)
            | Work::Word(number) => number,
        };
        let message = self.messages.get(number);
        let worker = self.operations.get(message.operation).transfer.worker;
        let workers = self.machines.workers;
        ((worker + workers - message.server % workers) % workers, message.place)
    }

    /// Whose turn a line gives to something ([`line`]).
    fn flow(&self, work: Work) -> u32 {
        let (Work::Send(number) | Work::Receive(number)) = work else { return 0 };
        if self.machines.in_order {
            return 0;
        }
        let message = self.messages.get(number);
        let Transfer { leg, worker, .. } = self.operations.get(message.operation).transfer;
        let push = leg == Leg::Push;
        match work {
            Work::Send(_) => u32::from(!push),
            _ if push => 2 * worker,
            _ => 2 * message.server + 1,
        }
    }

    fn queue(&mut self, now: Time, line: u32, operation: u32, work: Work, time: Time) {
        let (turn, place) = self.turn(work);
        let flow = self.flow(work);
        let Operation { transfer, sequence, submitted, .. } = self.operations.get(operation);
        let (first, since) = match self.machines.in_order {
            true => (Reverse(0), now),
            false => (Reverse(transfer.priority), Time::ZERO),
        };
        let rank = (first, since, *sequence, turn, *submitted, place);
        self.lines[line as usize].push(flow, rank, work, time);
        self.idle.insert(line);
    }
}

/// For how long lines have served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// A worker's link up.
    pub up: Time,
    /// A worker's link down.
    pub down: Time,
    /// Each of a worker's lines within its machine.
    pub local: Vec<Time>,
}
