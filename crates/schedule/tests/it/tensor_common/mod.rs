//! Drives a tensor scheduler through random orders of events and keeps what happened.

use allrail_core::{Bytes, Time};
use allrail_schedule::tensor::{
    self, Action, Event, Exchange, Leg, OperationId, Piece, Tensor, TensorParameters,
    TensorScheduler,
};
use proptest::prelude::*;

pub(crate) const ITERATIONS: u32 = 3;

/// What happened, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Ready(u32),
    /// As a coordinator has packed them.
    Together(Vec<u32>),
    Finished(OperationId),
    Timer(Time),
    Started {
        operation: OperationId,
        leg: Leg,
        pieces: Vec<Piece>,
        priority: i64,
    },
    Done(u32),
}

/// Drives a scheduler with choices from a list of numbers: a tensor becomes ready, or several do that a
/// coordinator has packed, an operation finishes, time goes on.
struct Harness<'a> {
    scheduler: Box<dyn TensorScheduler>,
    choices: &'a [usize],
    at: usize,
    now: Time,
    /// How often each tensor may still become ready.
    unready: Vec<u32>,
    busy: Vec<bool>,
    flying: Vec<OperationId>,
    timers: Vec<(Time, u64)>,
    /// Whether a coordinator packs tensors, sometimes.
    packs: bool,
    records: Vec<Record>,
}

impl Harness<'_> {
    fn choose(&mut self, below: usize) -> usize {
        self.at += 1;
        self.choices[self.at % self.choices.len()].wrapping_add(self.at / self.choices.len())
            % below
    }

    /// Of the tensors that may become ready, the one at `choice` and some of the others, in some order.
    fn pack(&mut self, mut ready: Vec<u32>, choice: usize) -> Vec<u32> {
        let mut packed = vec![ready.remove(choice)];
        while !ready.is_empty() && self.choose(3) > 0 {
            let next = self.choose(ready.len());
            packed.push(ready.remove(next));
        }
        packed
    }

    fn tell(&mut self, event: Event<'_>) {
        let mut actions = Vec::new();
        self.scheduler.on(self.now, event, &mut actions);
        for action in actions {
            match action {
                Action::Start { operation, leg, pieces, priority } => {
                    self.flying.push(operation);
                    self.records.push(Record::Started {
                        operation,
                        leg,
                        pieces: pieces.to_vec(),
                        priority,
                    });
                }
                Action::Done { tensor } => {
                    assert!(
                        self.busy[tensor as usize],
                        "tensor {tensor} is done and was not ready"
                    );
                    self.busy[tensor as usize] = false;
                    self.records.push(Record::Done(tensor));
                }
                Action::SetTimer { id, at } => {
                    assert!(at >= self.now, "a timer in the past");
                    self.timers.push((at, id));
                }
            }
        }
    }

    /// Until nothing can happen any more.
    fn run(&mut self) {
        loop {
            let ready: Vec<u32> = (0..)
                .zip(&self.unready)
                .filter(|(tensor, left)| **left > 0 && !self.busy[*tensor as usize])
                .map(|(tensor, _)| tensor)
                .collect();
            let kinds = ready.len() + self.flying.len() + self.timers.len();
            if kinds == 0 {
                return;
            }
            let choice = self.choose(kinds);
            if choice < ready.len() && self.packs && self.choose(3) > 0 {
                let tensors = self.pack(ready, choice);
                for tensor in &tensors {
                    self.busy[*tensor as usize] = true;
                    self.unready[*tensor as usize] -= 1;
                }
                self.records.push(Record::Together(tensors.clone()));
                self.tell(Event::Together { tensors: &tensors });
            } else if let Some(tensor) = ready.get(choice) {
                self.busy[*tensor as usize] = true;
                self.unready[*tensor as usize] -= 1;
                self.records.push(Record::Ready(*tensor));
                self.tell(Event::Ready { tensor: *tensor });
            } else if choice < ready.len() + self.flying.len() {
                let operation = self.flying.remove(choice - ready.len());
                self.records.push(Record::Finished(operation));
                self.tell(Event::Finished { operation });
            } else {
                let (at, id) = self.timers.remove(0);
                self.now = at;
                self.records.push(Record::Timer(at));
                self.tell(Event::Timer { id });
            }
            let later = Time::from_ns(self.choose(400) as u64);
            self.now += later;
            if let Some((at, _)) = self.timers.first() {
                self.now = self.now.min(*at);
            }
        }
    }
}

pub(crate) fn records(
    parameters: &TensorParameters,
    tensors: &[Tensor],
    choices: &[usize],
) -> Vec<Record> {
    driven(parameters, tensors, choices, false)
}

/// With a coordinator that packs tensors, sometimes.
pub(crate) fn packed_records(
    parameters: &TensorParameters,
    tensors: &[Tensor],
    choices: &[usize],
) -> Vec<Record> {
    driven(parameters, tensors, choices, true)
}

fn driven(
    parameters: &TensorParameters,
    tensors: &[Tensor],
    choices: &[usize],
    packs: bool,
) -> Vec<Record> {
    let mut harness = Harness {
        scheduler: parameters.scheduler(tensors).expect("valid"),
        choices,
        at: 0,
        now: Time::ZERO,
        unready: vec![ITERATIONS; tensors.len()],
        busy: vec![false; tensors.len()],
        flying: Vec::new(),
        timers: Vec::new(),
        packs,
        records: Vec::new(),
    };
    harness.run();
    assert!(harness.busy.iter().all(|busy| !busy), "a tensor starves: {:?}", harness.records);
    harness.records
}

pub(crate) fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    let tensor = (0u64..40, 0u32..6, prop::option::weighted(0.3, 0u32..3))
        .prop_map(|(bytes, place, group)| Tensor { bytes: Bytes::new(bytes), place, group });
    prop::collection::vec(tensor, 1..9)
}

pub(crate) fn exchange() -> impl Strategy<Value = Exchange> {
    prop_oneof![Just(Exchange::AllReduce), Just(Exchange::ParameterServer)]
}

/// Small parameters, those that the policy reads.
pub(crate) fn parameters(
    policy: &str,
    exchange: Exchange,
    (first, second, groups): (u64, u64, u32),
) -> TensorParameters {
    let mut parameters =
        TensorParameters { policy: policy.to_owned(), exchange, ..TensorParameters::default() };
    let (one, two) = (Some(Bytes::new(first)), Some(Bytes::new(second)));
    let reads = tensor::named(policy).expect("listed").reads();
    for key in reads {
        match *key {
            "first_bucket" => parameters.first_bucket = one,
            "bucket" => parameters.bucket = two,
            "threshold" => parameters.threshold = two,
            "cycle" => parameters.cycle = Some(Time::from_ns(first * 100)),
            "groups" => parameters.groups = Some(groups),
            "partition" => parameters.partition = one,
            "credit" => parameters.credit = two,
            // A key of a policy of tomorrow: its default.
            _ => {}
        }
    }
    parameters
}
