//! Training steps with parameter servers: by hand, against a small loop of its own, and bad input.

use std::ops::ControlFlow;

use allrail_collective::Operation;
use allrail_core::{Bandwidth, Bytes, DimensionId, EventQueue, Rank, Time};
use allrail_schedule::tensor::{self, Action, Event, OperationId, Tensor, TensorScheduler};
use allrail_simulate::SimulateError;
use allrail_simulate::scenario::WorldKind;
use allrail_simulate::training::communicator::servers::machines::{Machines, Servers, Transfer};
use allrail_simulate::training::{Job, TrainingResult, TrainingScenario, WhatIf, run};
use allrail_workload::{
    Actor, Builder, Group, Node, Part, Pass, Perturbation, Purpose, StepGraph, Work,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A layer: forward and backward pass in us, and its gradient in bytes.
type Layer = (u64, u64, u64);

fn graph(sizes: &[u32], layers: &[Layer], operation: Operation) -> StepGraph {
    let mut builder = Builder::default();
    let ranks = (0..sizes.iter().product()).map(Rank).collect();
    let actor = builder.actor(Actor { name: "workers".to_owned(), ranks });
    let part = |(d, size): (u32, &u32)| Part { dimension: DimensionId(d), size: *size, stride: 1 };
    let parts = (0..).zip(sizes).map(part).collect();
    let group = Group { name: "dp".to_owned(), parts, ranks: Vec::new(), actors: vec![actor] };
    let group = builder.group(group);
    let compute = |time, pass| Node {
        actor,
        work: Work::Compute { time: Time::from_us(time) },
        tensor: None,
        pass,
    };
    let (mut before, mut forwards) = (Vec::new(), Vec::new());
    for (forward, ..) in layers {
        let id = builder.node("forward", compute(*forward, Pass::Forward), &before);
        before = vec![id];
        forwards.push(id);
    }
    for (i, (_, backward, bytes)) in layers.iter().enumerate().rev() {
        let id = builder.node("backward", compute(*backward, Pass::Backward), &before);
        before = vec![id];
        let (bytes, purpose) = (Bytes::new(*bytes), Purpose::Data);
        let work = Work::Collective { operation, bytes, group, purpose };
        let tensor = Some(u32::try_from(i).expect("few layers"));
        let gradient = Node { actor, work, tensor, pass: Pass::Backward };
        let gradient = builder.node("gradient", gradient, &[id]);
        let update = builder.node("update", compute(0, Pass::Update), &[gradient]);
        builder.carry(forwards[i], update);
    }
    builder.finish().expect("a good graph")
}

/// Machines on switches of 1 GB/s and `latency` ns: a byte takes a nanosecond.
fn scenario(
    sizes: &[u32],
    latency: u64,
    tensor: &Value,
) -> Result<TrainingScenario, SimulateError> {
    let dimension = |size| {
        json!({"kind": "switch", "size": size, "links": 1, "bandwidth": "1 GB/s",
               "latency": format!("{latency} ns")})
    };
    let dimensions: Vec<Value> = sizes.iter().map(dimension).collect();
    let scenario = json!({
        "schema_version": 1,
        "fabric": {"name": "machines", "dimensions": dimensions},
        "workload": {"model": {"steps": {}}},
        "schedule": {"policy": "baseline", "chunks": 1, "tensor": tensor},
        "world": "dims",
    });
    TrainingScenario::from_json(&scenario.to_string())
}

fn driven(
    sizes: &[u32],
    latency: u64,
    layers: &[Layer],
    tensor: &Value,
    iterations: u32,
) -> Result<TrainingResult, SimulateError> {
    let scenario = scenario(sizes, latency, tensor)?;
    let job = Job {
        graph: &graph(sizes, layers, Operation::AllReduce),
        memory: None,
        notes: Vec::new(),
        perturbation: Perturbation::default(),
        iterations,
        work: None,
    };
    run(&job, &scenario, false, &mut |_, _| ControlFlow::Continue(()))
}

#[test]
fn a_step_is_as_worked_out_by_hand() {
    // 4 workers and servers; 400 KB are a big array here: 400 us to push and 400 us to pull.
    let layers = [(100, 200, 400_000), (100, 200, 400_000)];
    let fifo = json!({"exchange": "parameter_server",
                      "servers": {"big_array": "400 KB", "colocated": false}});
    let result = driven(&[4], 0, &layers, &fifo, 3).expect("it runs");
    // Forward 200; the last layer's gradient is ready at 400, pushed until 800, pulled until 1200;
    // the first's is ready at 600, pushed until 1200, pulled until 1600.
    assert_eq!(result.steps_us, [1600.0, 1600.0, 1600.0]);
    assert_eq!(result.compute_us, 600.0);
    assert_eq!(result.exposed_us["data"], 1000.0);
    assert_eq!(result.dimensions[0].bytes_per_npu, 800_000);
    assert_eq!(result.dimensions[0].busy_fraction, 0.5);
}

#[test]
fn partitions_let_pulls_follow_their_pushes() {
    let layers = [(100, 200, 400_000), (100, 200, 400_000)];
    let servers = json!({"big_array": "1 B", "colocated": false});
    let tensor = json!({"policy": "bytescheduler", "partition": "40 KB", "credit": "40 KB",
                        "exchange": "parameter_server", "servers": servers, "barrier": true});
    let result = driven(&[4], 0, &layers, &tensor, 3).expect("it runs");
    // 800 us of pushes from 400 on, and the last partition's pull of 40.
    assert_eq!(result.steps_us, [1240.0, 1240.0, 1240.0]);
}

/// What a plain loop needs to know.
struct Chain<'a> {
    layers: &'a [Layer],
    scheduler: Box<dyn TensorScheduler>,
    servers: Servers,
    barrier: bool,
    /// Of every start, so that what starts first goes first among equals.
    started: i64,
    /// Whether priorities count.
    ranks: bool,
    overhead: &'a dyn Fn(usize) -> Time,
    flying: Vec<(OperationId, usize)>,
    timers: EventQueue<Option<u64>>,
    /// Of each layer, whether its gradient is done; and which iteration's will be next.
    done: Vec<bool>,
    iteration_of: Vec<usize>,
    position: usize,
    running: bool,
    /// When each iteration's last gradient is done.
    ends: Vec<(usize, Time)>,
}

impl Chain<'_> {
    fn tell(&mut self, now: Time, event: Event) {
        let mut actions = Vec::new();
        self.scheduler.on(now, event, &mut actions);
        for action in actions {
            match action {
                Action::Start { operation, leg, pieces, priority } => {
                    let mut overhead = (self.overhead)(pieces.len());
                    self.flying.push((operation, pieces.len()));
                    for piece in pieces.iter().copied() {
                        self.started += 1;
                        let rank = if self.ranks { priority << 32 } else { 0 } - self.started;
                        let tag = operation.0;
                        self.servers
                            .submit(now, &Transfer { leg, piece, priority: rank, overhead, tag });
                        overhead = Time::ZERO;
                    }
                }
                Action::Done { tensor } => {
                    let layer = self.layers.len() - 1 - tensor as usize;
                    self.done[layer] = true;
                    let iteration = self.iteration_of[layer];
                    self.iteration_of[layer] += 1;
                    if self.ends.len() <= iteration {
                        self.ends.resize(iteration + 1, (0, Time::ZERO));
                    }
                    let (count, end) = &mut self.ends[iteration];
                    (*count, *end) = (*count + 1, now);
                }
                Action::SetTimer { id, at } => self.timers.push(at, 1, Some(id)),
            }
        }
    }

    /// Forward 0.., backward ..0, again and again, until so many iterations are over.
    fn run(mut self, iterations: usize) -> Vec<Time> {
        let count = self.layers.len();
        let mut now = Time::ZERO;
        loop {
            if !self.running {
                let forward = self.position < count;
                let free = match self.barrier {
                    true => self.done.iter().all(|done| *done),
                    false => self.done[self.position.min(count - 1)],
                };
                if !forward || free {
                    let layer = if forward { self.position } else { 2 * count - 1 - self.position };
                    let (ahead, back, _) = self.layers[layer];
                    let time = Time::from_us(if forward { ahead } else { back });
                    self.timers.push(now + time, 0, None);
                    self.running = true;
                }
            }
            self.servers.choose(now);
            if self.ends.iter().filter(|(over, _)| *over == count).count() >= iterations {
                return self.ends.into_iter().take(iterations).map(|(_, end)| end).collect();
            }
            let times = [self.timers.next_time(), self.servers.next_time()];
            now = times.into_iter().flatten().min().expect("it goes on");
            let (mut computed, mut timers, mut finished) = (false, Vec::new(), Vec::new());
            while self.timers.next_time() == Some(now) {
                match self.timers.pop() {
                    Some((_, Some(id))) => timers.push(id),
                    _ => computed = true,
                }
            }
            while let Some(tag) = self.servers.next_event(now) {
                finished.push(OperationId(tag));
            }
            if computed {
                self.running = false;
                let over = self.position;
                self.position = (over + 1) % (2 * count);
                if over >= count {
                    let layer = 2 * count - 1 - over;
                    self.done[layer] = false;
                    let tensor = u32::try_from(count - 1 - layer).expect("few layers");
                    self.tell(now, Event::Ready { tensor });
                }
            }
            for operation in finished {
                let (_, left) =
                    self.flying.iter_mut().find(|(id, _)| *id == operation).expect("it flies");
                *left -= 1;
                if *left == 0 {
                    self.flying.retain(|(id, _)| *id != operation);
                    self.tell(now, Event::Finished { operation });
                }
            }
            for id in timers {
                self.tell(now, Event::Timer { id });
            }
        }
    }
}

fn plain(
    workers: u32,
    latency: u64,
    layers: &[Layer],
    tensor: &Value,
    iterations: u32,
) -> Vec<f64> {
    let parameters = scenario(&[workers], latency, tensor).expect("a scenario").tensor();
    let servers = parameters.servers.clone().expect("given");
    // Gradients come in the order of the backward pass.
    let mut tensors: Vec<Tensor> = (0u32..)
        .zip(layers)
        .map(|(place, (_, _, bytes))| Tensor { bytes: Bytes::new(*bytes), place, group: None })
        .collect();
    tensors.reverse();
    let machines = Machines {
        workers,
        servers: servers.count.unwrap_or(workers),
        colocated: servers.colocated,
        bandwidth: Bandwidth::from_bytes_per_second(1_000_000_000).expect("positive"),
        host: servers.host,
        sum: servers.sum,
        in_order: servers.in_order,
        latency: Time::from_ns(latency),
        big_array: servers.big_array,
    };
    let chain = Chain {
        layers,
        scheduler: parameters.scheduler(&tensors).expect("valid"),
        servers: Servers::new(machines),
        barrier: parameters.has_barrier().expect("valid"),
        started: 0,
        ranks: parameters.policy().expect("valid").ranks_in_the_network(),
        overhead: &|pieces| parameters.overhead(pieces),
        flying: Vec::new(),
        timers: EventQueue::new(),
        done: vec![true; layers.len()],
        iteration_of: vec![0; layers.len()],
        position: 0,
        running: false,
        ends: Vec::new(),
    };
    let ends = chain.run(iterations as usize);
    let mut before = Time::ZERO;
    let step = |end: Time| (end - std::mem::replace(&mut before, end)).as_us();
    ends.into_iter().map(step).collect()
}

fn tensor() -> impl Strategy<Value = Value> {
    let policy = (0..tensor::ALL.len(), 1u64..100, 1u64..300).prop_map(|(policy, small, large)| {
        let policy = tensor::ALL[policy];
        let (small, large) = (format!("{small} KB"), format!("{large} KB"));
        let given = json!({"first_bucket": small, "bucket": large, "cycle": "70 us",
                               "threshold": large, "partition": small, "credit": large});
        let mut tree = json!({"policy": policy.tag()});
        for (key, value) in given.as_object().into_iter().flatten() {
            if policy.reads().contains(&key.as_str()) {
                tree[key] = value.clone();
            }
        }
        tree
    });
    let big = prop_oneof![Just("1 B"), Just("60 KB"), Just("1 GB")];
    (policy, any::<bool>(), any::<bool>(), big, any::<[bool; 3]>(), 0u64..20).prop_map(
        |(mut tensor, barrier, colocated, big_array, [host, sum, in_order], overhead)| {
            tensor["barrier"] = json!(barrier);
            tensor["exchange"] = json!("parameter_server");
            tensor["start_overhead"] = json!(format!("{overhead} us"));
            tensor["servers"] = json!({"colocated": colocated, "big_array": big_array});
            if host {
                tensor["servers"]["host"] = json!("700 MB/s");
            }
            if sum {
                tensor["servers"]["sum"] = json!("1.3 GB/s");
            }
            tensor["servers"]["in_order"] = json!(in_order);
            tensor
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_small_loop_of_its_own_gives_the_same_steps(
        workers in 2u32..5,
        layers in prop::collection::vec((1u64..300, 1u64..300, 1u64..200_000), 1..6),
        tensor in tensor(),
        latency in 0u64..3000,
    ) {
        let driven = driven(&[workers], latency, &layers, &tensor, 3).expect("it runs");
        prop_assert_eq!(driven.steps_us, plain(workers, latency, &layers, &tensor, 3));
    }
}

fn refused(sizes: &[u32], operation: Operation, tensor: &Value) -> (String, String) {
    let error = scenario(sizes, 0, tensor).and_then(|scenario| {
        let job = Job {
            graph: &graph(sizes, &[(1, 1, 1000)], operation),
            memory: None,
            notes: Vec::new(),
            perturbation: Perturbation::default(),
            iterations: 2,
            work: None,
        };
        run(&job, &scenario, false, &mut |_, _| ControlFlow::Continue(()))
    });
    let report = error.expect_err("it is refused").report();
    assert!(!report.hint.is_empty(), "no hint");
    (report.field, report.why)
}

#[test]
fn what_servers_cannot_do_is_refused() {
    let servers = json!({"exchange": "parameter_server"});
    let (field, why) = refused(&[2, 2], Operation::AllReduce, &servers);
    assert_eq!(field, "schedule.tensor.exchange");
    assert_eq!(why, "the gradients of group `dp` travel over several dimensions");
    let (field, why) = refused(&[4], Operation::ReduceScatter, &servers);
    assert_eq!(field, "schedule.tensor.exchange");
    assert_eq!(why, "`gradient` is a reduce_scatter, and servers do all-reduces");
    let five = json!({"exchange": "parameter_server", "servers": {"count": 5}});
    let (field, why) = refused(&[4], Operation::AllReduce, &five);
    assert_eq!(field, "schedule.tensor.servers.count");
    assert_eq!(why, "only 4 machines have one");
    let none = json!({"exchange": "parameter_server", "servers": {"count": 0}});
    assert_eq!(refused(&[4], Operation::AllReduce, &none).0, "schedule.tensor.servers.count");
    let unread = json!({"policy": "fifo", "credit": "4 MiB"});
    assert_eq!(refused(&[4], Operation::AllReduce, &unread).0, "schedule.tensor.credit");
}

#[test]
fn servers_are_modelled_in_dims_and_have_no_ideal_schedule() {
    let tensor = json!({"exchange": "parameter_server"});
    let base = scenario(&[4], 0, &tensor).expect("a scenario");
    let refused = |scenario: &TrainingScenario| {
        let job = Job {
            graph: &graph(&[4], &[(1, 1, 1000)], Operation::AllReduce),
            memory: None,
            notes: Vec::new(),
            perturbation: Perturbation::default(),
            iterations: 2,
            work: None,
        };
        let result = run(&job, scenario, false, &mut |_, _| ControlFlow::Continue(()));
        result.expect_err("it is refused").report().field
    };
    let links = TrainingScenario { world: WorldKind::Links, ..base.clone() };
    assert_eq!(refused(&links), "schedule.tensor.exchange");
    let ideal = TrainingScenario { what_if: Some(WhatIf::Ideal), ..base };
    assert_eq!(refused(&ideal), "what_if");
}

#[test]
fn with_infinite_bandwidth_latencies_and_overheads_remain() {
    let layers = [(100, 200, 400_000)];
    let tensor = json!({"exchange": "parameter_server", "start_overhead": "3 us",
                        "servers": {"colocated": false, "host": "1 GB/s", "sum": "1 GB/s"}});
    let base = scenario(&[4], 2000, &tensor).expect("a scenario");
    let infinite = TrainingScenario { what_if: Some(WhatIf::InfiniteBandwidth), ..base };
    let job = Job {
        graph: &graph(&[4], &layers, Operation::AllReduce),
        memory: None,
        notes: Vec::new(),
        perturbation: Perturbation::default(),
        iterations: 2,
        work: None,
    };
    let result = run(&job, &infinite, false, &mut |_, _| ControlFlow::Continue(()));
    // Push and pull: each 3 us of overhead and 2 us of latency, and next to nothing for the bytes.
    let step = result.expect("it runs").step_time_us;
    assert!((step - 310.0).abs() < 0.01, "{step}");
}
