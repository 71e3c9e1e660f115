//! Payloads that are drawn, and ranks that talk in bytes, in any order that channels allow.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_coordinate::broken::Kind;
use allrail_coordinate::cause::About;
use allrail_coordinate::messages::{
    Agreed, Decision, Idle, IdleNames, Missing, Probe, Report, Thaw, Verdict, Vote, Waits,
};
use allrail_coordinate::ranks::Ranks;
use allrail_coordinate::requests::{Asked, Asks, Completed, Side};
use allrail_coordinate::wire::{Limits, decode, encode};
use allrail_coordinate::{
    Action, Bits, Breach, Broken, Cause, Consensus, CoordinationPolicy, CoordinationSpec,
    Coordinator, Event, Launch, Payload, Reason, Request, Trouble,
};
use allrail_core::{Bytes, Time};
use allrail_schedule::operation::{Key, OperationName};
use allrail_schedule::signature::{Fingerprint, Signature, Signed};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The seeds of a law: some that are pinned, or as many as `LAW_SEEDS` says.
pub fn seeds() -> std::ops::Range<u64> {
    let more = std::env::var("LAW_SEEDS").ok().and_then(|count| count.parse().ok());
    0..more.unwrap_or(200)
}

/// Draws what a peer may say: within `ranks` and `tensors`, or a little beyond.
pub struct Speech {
    pub draw: Pcg64Mcg,
    pub ranks: u32,
    pub tensors: u32,
}

impl Speech {
    pub fn new(seed: u64, ranks: u32, tensors: u32) -> Self {
        Self { draw: Pcg64Mcg::seed_from_u64(seed), ranks, tensors }
    }

    fn some<T>(&mut self, one: impl Fn(&mut Self) -> T) -> Option<T> {
        self.draw.random_bool(0.5).then(|| one(self))
    }

    fn list<T>(&mut self, most: usize, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.draw.random_range(0..=most)).map(|_| one(self)).collect()
    }

    fn rank(&mut self) -> u32 {
        self.draw.random_range(0..self.ranks)
    }

    fn tensor(&mut self) -> u32 {
        self.draw.random_range(0..self.tensors)
    }

    fn number(&mut self) -> u64 {
        self.draw.random::<u64>() >> self.draw.random_range(0..64)
    }

    fn bits(&mut self) -> Bits {
        let most = self.tensors as usize;
        self.list(6, |s| s.draw.random_range(0..most)).into_iter().collect()
    }

    fn spans(&mut self) -> Ranks {
        let mut ranks = Ranks::default();
        for _ in 0..self.draw.random_range(0..3) {
            let start = self.rank();
            let end = self.draw.random_range(start..self.ranks) + 1;
            ranks.unite(&Ranks::span(start..end));
        }
        ranks
    }

    fn signature(&mut self) -> Signed {
        let name: String = self.list(9, |s| s.draw.random_range('a'..'é')).into_iter().collect();
        Arc::new(Signature {
            name,
            dtype: "float32".to_owned(),
            shape: self.list(3, Self::number),
            strides: self.list(3, |s| s.number() as i64),
        })
    }

    pub fn request(&mut self) -> Request {
        let operations = [Operation::AllReduce, Operation::AllGather, Operation::Broadcast];
        Request {
            tensor: self.tensor(),
            operation: operations[self.draw.random_range(0..3)],
            bytes: Bytes::new(self.number()),
            root: self.rank(),
            signature: Fingerprint(self.number()),
        }
    }

    fn side(&mut self) -> Box<Side> {
        let (rank, request) = (self.rank(), self.request());
        Box::new(Side { rank, request, signature: self.some(Self::signature) })
    }

    fn trouble(&mut self) -> Trouble {
        if self.draw.random_bool(0.5) {
            Trouble::Mismatch { one: self.side(), other: self.side() }
        } else {
            Trouble::RootJoined { root: self.rank() }
        }
    }

    fn asks(&mut self) -> Asks {
        Asks {
            entries: self.list(4, |s| Asked {
                request: s.request(),
                ranks: s.spans(),
                sizes: s.list(3, |s| (s.rank(), Bytes::new(s.number()))).into(),
                trouble: s.some(Self::trouble),
                signature: s.some(Self::signature),
            }),
            joined: self.spans(),
            shutdown: self.draw.random_bool(0.1),
            finished: self.list(2, Self::number),
            cut: self.some(Self::number),
        }
    }

    fn completed(&mut self) -> Arc<Completed> {
        let sizes = self.list(self.ranks.min(4) as usize, |s| Bytes::new(s.number()));
        let (request, trouble) = (self.request(), self.some(Self::trouble));
        Arc::new(Completed { request, sizes, trouble })
    }

    fn outcome(&mut self) -> Consensus {
        Consensus {
            invalid: self.bits(),
            ready: self.bits(),
            complete: self.list(2, Self::completed),
            all_joined: self.draw.random_bool(0.2),
            finished: self.list(2, Self::number),
            cut: self.some(Self::number),
        }
    }

    fn decision(&mut self) -> Decision {
        Decision {
            complete: self.list(3, Self::completed),
            all_joined: self.draw.random_bool(0.2),
            stop: self.some(|s| Arc::new(s.reason())),
            finished: self.list(2, Self::number),
            cut: self.some(Self::number),
        }
    }

    fn reason(&mut self) -> Reason {
        match self.draw.random_range(0..6) {
            0 => Reason::Asked,
            1 => Reason::Silent { ranks: self.list(3, Self::rank), by: self.rank() },
            2 => Reason::Stalled { tensor: self.tensor(), missing: self.list(3, Self::rank) },
            3..5 => Reason::Fault(self.cause()),
            _ => {
                let slot = Breach::Slot { slot: self.number(), slots: self.number() };
                let turn = Breach::OutOfTurn { kind: Kind::Report };
                let breach = if self.draw.random_bool(0.5) { slot } else { turn };
                Reason::Broken { broken: Broken { peer: self.rank(), breach }, by: self.rank() }
            }
        }
    }

    fn about(&mut self) -> About {
        let key = Key(self.number());
        let operation = OperationName {
            key,
            generation: self.number(),
            part: self.draw.random(),
            ..OperationName::default()
        };
        About { operation, tensor: self.some(|s| format!("layer{}", s.tensor())) }
    }

    fn cause(&mut self) -> Cause {
        let (by, what) = (self.rank(), "a reason, as long as it is \u{00fc}ber".to_owned());
        match self.draw.random_range(0..6) {
            0 => Cause::Lost { rank: by },
            1 => Cause::Failed { by, about: self.about(), why: what },
            2 => Cause::Frame { from: self.rank(), by, about: self.about(), what },
            3 => Cause::Mismatch { tensor: format!("layer{}", self.tensor()), what },
            4 => Cause::Differs { from: self.rank(), by, about: self.about(), what },
            _ => Cause::Rank { by, what },
        }
    }

    /// Any message, each kind as often as the others.
    pub fn payload(&mut self) -> Payload {
        match self.draw.random_range(0..12) {
            0 => Payload::Asks(Box::new(self.asks())),
            1 => Payload::Vote(Box::new(Vote {
                ready: self.bits(),
                invalid: self.bits(),
                uncached: self.draw.random_bool(0.5),
                shutdown: self.draw.random_bool(0.1),
                finished: self.some(|s| Box::new(s.bits())),
                cut: self.some(Self::number),
            })),
            2 => Payload::Verdict(Arc::new(Verdict {
                invalid: self.bits(),
                outcome: self.outcome(),
                uncached: self.draw.random_bool(0.5),
                shutdown: self.draw.random_bool(0.1),
            })),
            3 => Payload::Decision(Arc::new(self.decision())),
            4 => Payload::Report(Box::new(Report {
                epoch: self.draw.random_range(0..2),
                heard: self.draw.random_range(0..9),
                ready: self.bits(),
                asks: self.some(|s| Box::new(s.asks())),
                forget: self.some(|s| Box::new(s.bits())),
            })),
            5 => Payload::Agreed(Arc::new(Agreed {
                ready: self.bits(),
                forget: self.some(Self::bits),
                decision: self.some(Self::decision),
            })),
            6 => Payload::Probe(Box::new(Probe {
                origin: self.rank(),
                tensors: self.list(4, Self::tensor).into(),
            })),
            7 => Payload::Missing(Box::new(Missing {
                tensors: self.list(4, Self::tensor),
                passed: self.list(3, Self::rank),
            })),
            8 => Payload::Waits(Box::new(Waits {
                key: Key(self.number()),
                generation: self.number(),
                signature: self.number(),
            })),
            9 => Payload::Idle(Arc::new(IdleNames {
                round: self.number(),
                names: self.list(4, |draw| Idle { key: Key(draw.number()), calls: draw.number() }),
            })),
            10 => Payload::Thaw(Box::new(Thaw { round: self.number(), known: self.draw.random() })),
            _ => Payload::Stop(Arc::new(self.reason())),
        }
    }
}

/// All ranks of a job, each alone with its own ledger, between them channels that keep an order.
pub struct Talk {
    ranks: Vec<Box<dyn Coordinator>>,
    channels: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    timers: BTreeSet<(Time, u32, u64)>,
    now: Time,
    limits: Limits,
    draw: Pcg64Mcg,
    /// What each rank was told, in order.
    pub launches: Vec<Vec<Arc<Launch>>>,
    /// Why each rank has stopped.
    pub stops: Vec<Option<Arc<Reason>>>,
    pub broken: Vec<(u32, Broken)>,
    pub events: u64,
    /// What ranks have said to whom, from when this is a list on.
    pub said: Option<Vec<(u32, u32, Payload)>>,
}

impl Talk {
    pub fn new(policy: &dyn CoordinationPolicy, job: &CoordinationSpec, seed: u64) -> Self {
        let count = job.ranks as usize;
        let mut talk = Self {
            ranks: (0..job.ranks).map(|rank| policy.coordinator(job, rank)).collect(),
            channels: BTreeMap::new(),
            timers: BTreeSet::new(),
            now: Time::ZERO,
            // A little wider than the job, so that coordinators meet what is out of range.
            limits: Limits { ranks: job.ranks + 2, tensors: job.tensors + 3, ..Limits::default() },
            draw: Pcg64Mcg::seed_from_u64(seed),
            launches: vec![Vec::new(); count],
            stops: vec![None; count],
            broken: Vec::new(),
            events: 0,
            said: None,
        };
        (0..job.ranks).for_each(|rank| talk.tell(rank, Event::Start));
        talk
    }

    /// A rank is told something.
    pub fn tell(&mut self, rank: u32, event: Event) {
        let mut actions = Vec::new();
        self.events += 1;
        if let Err(broken) = self.ranks[rank as usize].on(self.now, event, &mut actions) {
            self.broken.push((rank, broken));
        }
        for action in actions {
            match action {
                Action::Send { to, payload } => self.send(rank, to, &payload),
                Action::Spread { below, payload } => {
                    below.below().for_each(|to| self.send(rank, to.start, &payload));
                }
                Action::SetTimer { id, at } => {
                    self.timers.insert((at, rank, id));
                }
                Action::Ready(launch) => self.launches[rank as usize].push(launch),
                Action::Stop(reason) => self.stops[rank as usize] = Some(reason),
                Action::Warn { .. } | Action::Refused { .. } => {}
            }
        }
    }

    fn send(&mut self, from: u32, to: u32, payload: &Payload) {
        let mut bytes = Vec::new();
        encode(payload, &mut bytes).expect("a message");
        assert_eq!(decode(&bytes, &self.limits).as_ref(), Ok(payload));
        if let Some(said) = &mut self.said {
            said.push((from, to, payload.clone()));
        }
        self.channels.entry((from, to)).or_default().push_back(bytes);
    }

    /// One message arrives, or time goes on. Whether anything was left to do.
    pub fn step(&mut self) -> bool {
        self.channels.retain(|_, waiting| !waiting.is_empty());
        if !self.channels.is_empty() {
            let place = self.draw.random_range(0..self.channels.len());
            let (from, to) = *self.channels.keys().nth(place).expect("a channel");
            let bytes = self.channels.get_mut(&(from, to)).and_then(VecDeque::pop_front);
            let payload = decode(&bytes.expect("a message"), &self.limits).expect("as it was sent");
            self.tell(to, Event::Message { from, payload });
            return true;
        }
        let Some((at, rank, id)) = self.timers.pop_first() else { return false };
        self.now = self.now.max(at);
        self.tell(rank, Event::Timer { id });
        true
    }

    pub fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            if !self.step() {
                return;
            }
        }
    }

    /// Goes on until no message is under way.
    pub fn run_to_silence(&mut self) {
        while self.channels.values().any(|waiting| !waiting.is_empty()) {
            self.step();
        }
    }

    pub fn now(&self) -> Time {
        self.now
    }
}
