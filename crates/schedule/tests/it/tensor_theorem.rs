//! The theorem of ByteScheduler (SOSP'19, §3): with partitions as small as can be and free
//! pre-emption, starting what the next forward pass needs first ends an iteration as early as any
//! order can.
//!
//! Chains of up to six layers in unit quanta: the backward pass goes from the last layer to the
//! first and makes a tensor a layer; layer i of the next forward pass waits for layer i - 1 and for
//! its own tensor. The network is one server (all-reduce), or two (push and pull): each carries a
//! unit a quantum, chosen anew every quantum. The real `bytescheduler` with partition and credit of
//! one byte is compared with a search over all choices, idling included.

use std::collections::BTreeMap;

use allrail_core::{Bytes, Time};
use allrail_schedule::tensor::{
    Action, Event, Exchange, Leg, OperationId, Tensor, TensorParameters,
};
use proptest::prelude::*;

/// A layer: quanta of its backward and forward pass, and of its tensor on a server.
#[derive(Clone, Copy, Debug)]
struct Layer {
    backward: u64,
    forward: u64,
    size: u64,
}

/// When each layer's tensor is there: the backward pass begins at 0 with the last layer.
fn releases(layers: &[Layer]) -> Vec<u64> {
    let mut now = 0;
    let mut times: Vec<u64> = layers
        .iter()
        .rev()
        .map(|layer| {
            now += layer.backward;
            now
        })
        .collect();
    times.reverse();
    times
}

/// When the next forward pass ends, given when each tensor is there again. It begins after the
/// backward pass.
fn forward_end(layers: &[Layer], arrivals: &[u64]) -> u64 {
    let begin = layers.iter().map(|layer| layer.backward).sum();
    layers.iter().zip(arrivals).fold(begin, |now, (layer, at)| now.max(*at) + layer.forward)
}

/// Runs a policy: an operation occupies its leg's server for as many quanta as it has bytes, the
/// servers serve what was started first come, first served.
fn driven(layers: &[Layer], parameters: &TensorParameters) -> u64 {
    let tensors: Vec<Tensor> = (0..)
        .zip(layers)
        .map(|(place, layer)| Tensor { bytes: Bytes::new(layer.size), place, group: None })
        .collect();
    let releases = releases(layers);
    let mut scheduler = parameters.scheduler(&tensors).expect("valid");
    // What each server has yet to serve: (operation, quanta left).
    let mut queues: [Vec<(OperationId, u64)>; 2] = [Vec::new(), Vec::new()];
    let mut arrivals: Vec<Option<u64>> = vec![None; layers.len()];
    for now in 0.. {
        // Ready before finished: a choice sees all that has come by its time.
        let mut events: Vec<Event> = (0u32..)
            .zip(&releases)
            .filter(|(_, at)| **at == now)
            .map(|(tensor, _)| Event::Ready { tensor })
            .collect();
        for queue in &mut queues {
            if let Some((operation, left)) = queue.first_mut() {
                *left -= 1;
                if *left == 0 {
                    events.push(Event::Finished { operation: *operation });
                    queue.remove(0);
                }
            }
        }
        for event in events {
            let mut actions = Vec::new();
            scheduler.on(Time::from_ns(now), event, &mut actions);
            for action in actions {
                match action {
                    Action::Start { operation, leg, pieces, .. } => {
                        let bytes = pieces.iter().map(|piece| piece.bytes.count()).sum();
                        queues[usize::from(leg == Leg::Pull)].push((operation, bytes));
                    }
                    Action::Done { tensor } => arrivals[tensor as usize] = Some(now),
                    Action::SetTimer { .. } => panic!("no timers here"),
                }
            }
        }
        if arrivals.iter().all(Option::is_some) {
            break;
        }
    }
    let arrivals: Vec<u64> = arrivals.into_iter().flatten().collect();
    forward_end(layers, &arrivals)
}

/// Where a search stands: the quantum; of each tensor the units that are pushed (or reduced) and
/// pulled; the next layer of the forward pass, and when its predecessor ends.
type State = (u64, Vec<u64>, Vec<u64>, usize, u64);

struct Search<'a> {
    layers: &'a [Layer],
    releases: Vec<u64>,
    pulls: bool,
    best: BTreeMap<State, u64>,
}

impl Search<'_> {
    /// The earliest end of the forward pass from a state on.
    fn from(&mut self, (now, pushed, pulled, mut next, mut free): State) -> u64 {
        let here = if self.pulls { &pulled } else { &pushed };
        // Layers whose tensor is there and whose turn it is.
        while next < self.layers.len()
            && here[next] == self.layers[next].size
            && self.releases[next] <= now
        {
            free = free.max(now) + self.layers[next].forward;
            next += 1;
        }
        if next == self.layers.len() {
            return free;
        }
        let state = (now, pushed, pulled, next, free);
        if let Some(end) = self.best.get(&state) {
            return *end;
        }
        let (_, pushed, pulled, ..) = &state;
        let layers = self.layers;
        let push = |i: &usize| self.releases[*i] <= now && pushed[*i] < layers[*i].size;
        let pull = |i: &usize| self.pulls && pulled[*i] < pushed[*i];
        let all = || 0..layers.len();
        let pushes: Vec<Option<usize>> =
            [None].into_iter().chain(all().filter(push).map(Some)).collect();
        let pulls: Vec<Option<usize>> =
            [None].into_iter().chain(all().filter(pull).map(Some)).collect();
        let waits_for_release = all().any(|i| self.releases[i] > now);
        let mut end = u64::MAX;
        for first in &pushes {
            for second in &pulls {
                // Two idle servers with nothing to come is no progress.
                if first.is_none() && second.is_none() && !waits_for_release {
                    continue;
                }
                let (mut pushed, mut pulled) = (pushed.clone(), pulled.clone());
                first.iter().for_each(|i| pushed[*i] += 1);
                second.iter().for_each(|i| pulled[*i] += 1);
                end = end.min(self.from((now + 1, pushed, pulled, next, free)));
            }
        }
        self.best.insert(state, end);
        end
    }
}

fn optimum(layers: &[Layer], exchange: Exchange) -> u64 {
    let mut search = Search {
        layers,
        releases: releases(layers),
        pulls: exchange == Exchange::ParameterServer,
        best: BTreeMap::new(),
    };
    let begin = layers.iter().map(|layer| layer.backward).sum();
    search.from((0, vec![0; layers.len()], vec![0; layers.len()], 0, begin))
}

fn bytescheduler(exchange: Exchange) -> TensorParameters {
    TensorParameters {
        policy: "bytescheduler".to_owned(),
        partition: Some(Bytes::new(1)),
        credit: Some(Bytes::new(1)),
        exchange,
        ..TensorParameters::default()
    }
}

fn fifo(exchange: Exchange) -> TensorParameters {
    TensorParameters { exchange, ..TensorParameters::default() }
}

fn layers(most: usize, largest: u64) -> impl Strategy<Value = Vec<Layer>> {
    let layer = (0u64..4, 0u64..4, 0..=largest).prop_map(|(backward, forward, size)| Layer {
        backward,
        forward,
        size,
    });
    prop::collection::vec(layer, 1..=most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_order_on_one_server_is_faster(layers in layers(6, 3)) {
        let exchange = Exchange::AllReduce;
        let best = optimum(&layers, exchange);
        prop_assert_eq!(driven(&layers, &bytescheduler(exchange)), best);
        prop_assert!(driven(&layers, &fifo(exchange)) >= best);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_order_of_pushes_and_pulls_is_faster(
        layers in layers(6, 2).prop_filter("small enough to search", |layers| {
            layers.iter().map(|layer| layer.size).sum::<u64>() <= 8
        }),
    ) {
        let exchange = Exchange::ParameterServer;
        let best = optimum(&layers, exchange);
        prop_assert_eq!(driven(&layers, &bytescheduler(exchange)), best);
        prop_assert!(driven(&layers, &fifo(exchange)) >= best);
    }
}

/// The small first layer comes last and waits behind the large second one.
const BLOCKED: [Layer; 2] =
    [Layer { backward: 1, forward: 4, size: 1 }, Layer { backward: 1, forward: 1, size: 4 }];

#[test]
fn first_come_first_served_is_not_optimal() {
    // One server: tensor 1 from 1 to 5, tensor 0 to 6, forward 4 + 1. With urgency tensor 0 goes at
    // 2, is there at 3, and tensor 1 at 6 is hidden behind the first layer.
    let exchange = Exchange::AllReduce;
    assert_eq!(driven(&BLOCKED, &fifo(exchange)), 11);
    assert_eq!(driven(&BLOCKED, &bytescheduler(exchange)), 8);
    assert_eq!(optimum(&BLOCKED, exchange), 8);
    // Two servers: tensor 1 is pushed until 5 and pulled until 9, tensor 0 pulled until 10. With
    // urgency tensor 0 is pushed until 3 and pulled until 4.
    let exchange = Exchange::ParameterServer;
    assert_eq!(driven(&BLOCKED, &fifo(exchange)), 15);
    assert_eq!(driven(&BLOCKED, &bytescheduler(exchange)), 9);
    assert_eq!(optimum(&BLOCKED, exchange), 9);
}

#[test]
fn a_credit_that_is_too_large_for_pre_emption_is_not_optimal() {
    let exchange = Exchange::AllReduce;
    let parameters = TensorParameters { credit: Some(Bytes::new(4)), ..bytescheduler(exchange) };
    assert!(driven(&BLOCKED, &parameters) > optimum(&BLOCKED, exchange));
}
