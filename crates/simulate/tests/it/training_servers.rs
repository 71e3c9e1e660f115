//! Training steps with parameter servers: by hand, against a small loop of its own, and bad input.

use std::ops::ControlFlow;

use allrail_collective::Operation;
use allrail_core::{Bandwidth, Bytes, DimensionId, EventQueue, Rank, Time};
use allrail_schedule::tensor::{self, Action, Event, OperationId, Tensor, TensorScheduler};
use allrail_simulate::SimulateError;
use allrail_simulate::TrainingScenario;
use allrail_simulate::scenario::{NetworkModelKind, WhatIf};
use allrail_simulate::training::communicator::servers::lines::{Happened, Servers};
use allrail_simulate::training::communicator::servers::machines::{Local, Machines, Transfer};
use allrail_simulate::training::{BuiltJob, TrainingResult, run};
use allrail_workload::{
    Actor, Builder, Group, Node, Part, Pass, Perturbation, Purpose, StepGraph, Work,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
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
        "network_model": "dims",
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
    let job = BuiltJob {
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

#[test]
fn the_npus_of_a_machine_are_summed_before_a_push() {
    // Two machines of two NPUs, each with 1 GB/s to the other and to the switch outside: 2 GB/s a machine.
    let layers = [(100, 200, 400_000)];
    let tensor = |servers: &Value| {
        let mut tensor = json!({"exchange": "parameter_server", "servers": servers});
        tensor["servers"]["big_array"] = json!("400 KB");
        tensor["servers"]["colocated"] = json!(false);
        tensor
    };
    // 200 us of reduce-scatter, 200 to push 400 KB, 200 to pull them, 200 of all-gather.
    let result = driven(&[2, 2], 0, &layers, &tensor(&json!({})), 2).expect("it runs");
    assert_eq!(result.steps_us, [1100.0, 1100.0]);
    let sent: Vec<u64> = result.dimensions.iter().map(|one| one.bytes_per_npu).collect();
    assert_eq!(sent, [400_000, 200_000]);
    // Over the host: two gradients of 400 KB at 4 GB/s each way, summed at 8 GB/s.
    let host = json!({"local": "host", "host": "4 GB/s", "host_sum": "8 GB/s"});
    let result = driven(&[2, 2], 0, &layers, &tensor(&host), 2).expect("it runs");
    assert_eq!(result.steps_us, [1200.0, 1200.0]);
    // A reduced gradient crosses once.
    let buses = json!({"host": "4 GB/s"});
    let result = driven(&[2, 2], 0, &layers, &tensor(&buses), 2).expect("it runs");
    assert_eq!(result.steps_us, [1300.0, 1300.0]);
}

#[test]
fn two_workers_on_two_servers_one_partition_each() {
    // Partitions 0 and 1 on servers 0 and 1, of 100 us. The second layer's is ready at 40, the first's at 60.
    // Worker 1's second is at server 1 at 140, worker 0's at 240; each then sends its first, which is at server 0
    // at 240 and 340. Pulls, one at a time: of the second from 240 to 340 (worker 1) and 440; of the first, which
    // both have pushed at 340, from then to 440 (worker 1), and to 540.
    let layers = [(10, 20, 100_000), (10, 20, 100_000)];
    let servers = json!({"colocated": false});
    let tensor = json!({"policy": "bytescheduler", "partition": "100 KB", "credit": "100 KB",
                        "exchange": "parameter_server", "servers": servers, "barrier": true});
    let result = driven(&[2], 0, &layers, &tensor, 2).expect("it runs");
    assert_eq!(result.steps_us, [540.0, 540.0]);
}

/// What a plain loop needs to know.
struct Chain<'a> {
    layers: &'a [Layer],
    /// One a worker.
    schedulers: Vec<Box<dyn TensorScheduler>>,
    servers: Servers,
    /// Of each tensor, the number of its first partition, and how large partitions are.
    first: Vec<u32>,
    partition: Option<Bytes>,
    barrier: bool,
    /// Of every worker's starts, so that what starts first goes first.
    started: Vec<i64>,
    /// Whether priorities count.
    ranks: bool,
    overhead: &'a dyn Fn(usize) -> Time,
    /// (worker, operation) and how many of its pieces fly.
    flying: Vec<((usize, OperationId), usize)>,
    /// What tags stand for.
    tags: Vec<(usize, OperationId)>,
    timers: EventQueue<Option<(usize, u64)>>,
    /// Of each layer, how many workers have its gradient; and which iteration's will be next.
    done: Vec<usize>,
    iteration_of: Vec<usize>,
    position: usize,
    running: bool,
    /// When each iteration's last gradient is done.
    ends: Vec<(usize, Time)>,
}

impl Chain<'_> {
    fn tell(&mut self, now: Time, worker: usize, event: Event) {
        let mut actions = Vec::new();
        self.schedulers[worker].on(now, event, &mut actions);
        for action in actions {
            match action {
                Action::Start { operation, leg, pieces, priority } => {
                    let mut overhead = (self.overhead)(pieces.len());
                    self.flying.push(((worker, operation), pieces.len()));
                    for piece in pieces.iter().copied() {
                        let layer = self.layers.len() - 1 - piece.tensor as usize;
                        self.started[worker] += 1;
                        let started = self.started[worker];
                        let rank = if self.ranks { priority << 32 } else { 0 } - started;
                        let within =
                            self.partition.map_or(0, |size| piece.offset.count() / size.count());
                        let within = u32::try_from(within).expect("few partitions");
                        let tag = self.tags.len() as u64;
                        self.tags.push((worker, operation));
                        let transfer = Transfer {
                            leg,
                            worker: u32::try_from(worker).expect("few workers"),
                            partition: self.first[piece.tensor as usize] + within,
                            round: u32::try_from(self.iteration_of[layer]).expect("few"),
                            bytes: piece.bytes,
                            priority: rank,
                            overhead,
                            tag,
                        };
                        self.servers.submit(now, transfer);
                        overhead = Time::ZERO;
                    }
                }
                Action::Done { tensor } => {
                    let layer = self.layers.len() - 1 - tensor as usize;
                    self.done[layer] += 1;
                    if self.done[layer] < self.schedulers.len() {
                        continue;
                    }
                    let iteration = self.iteration_of[layer];
                    self.iteration_of[layer] += 1;
                    if self.ends.len() <= iteration {
                        self.ends.resize(iteration + 1, (0, Time::ZERO));
                    }
                    let (count, end) = &mut self.ends[iteration];
                    (*count, *end) = (*count + 1, now);
                }
                Action::SetTimer { id, at } => self.timers.push(at, 1, Some((worker, id))),
            }
        }
    }

    /// Forward 0.., backward ..0, again and again, until so many iterations are over.
    fn run(mut self, iterations: usize) -> Vec<Time> {
        let (count, workers) = (self.layers.len(), self.schedulers.len());
        let mut now = Time::ZERO;
        loop {
            if !self.running {
                let forward = self.position < count;
                let free = match self.barrier {
                    true => self.done.iter().all(|done| *done == workers),
                    false => self.done[self.position.min(count - 1)] == workers,
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
            let (mut computed, mut timers) = (false, Vec::new());
            let (mut arrived, mut finished) = (Vec::new(), Vec::new());
            while self.timers.next_time() == Some(now) {
                match self.timers.pop() {
                    Some((_, Some(timer))) => timers.push(timer),
                    _ => computed = true,
                }
            }
            let index = |tag: u64| usize::try_from(tag).expect("an index");
            while let Some(happened) = self.servers.next_event(now) {
                match happened {
                    Happened::Arrived { tag } => arrived.push(self.tags[index(tag)]),
                    Happened::Over { tag } => finished.push(self.tags[index(tag)]),
                }
            }
            if computed {
                self.running = false;
                let over = self.position;
                self.position = (over + 1) % (2 * count);
                if over >= count {
                    let layer = 2 * count - 1 - over;
                    self.done[layer] = 0;
                    let tensor = u32::try_from(count - 1 - layer).expect("few layers");
                    for worker in 0..workers {
                        self.tell(now, worker, Event::Ready { tensor });
                    }
                }
            }
            for (worker, operation) in arrived {
                let of = self.flying.iter().find(|(id, _)| *id == (worker, operation));
                if of.is_some_and(|(_, pieces)| *pieces == 1) {
                    self.tell(now, worker, Event::Arrived { operation });
                }
            }
            for of in finished {
                let (_, left) = self.flying.iter_mut().find(|(id, _)| *id == of).expect("it flies");
                *left -= 1;
                if *left == 0 {
                    self.flying.retain(|(id, _)| *id != of);
                    self.tell(now, of.0, Event::Finished { operation: of.1 });
                }
            }
            for (worker, id) in timers {
                self.tell(now, worker, Event::Timer { id });
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
    let told = parameters.servers.clone().expect("given");
    // Gradients come in the order of the backward pass.
    let mut tensors: Vec<Tensor> = (0u32..)
        .zip(layers)
        .map(|(place, (_, _, bytes))| Tensor { bytes: Bytes::new(*bytes), place, group: None })
        .collect();
    let policy = parameters.policy().expect("valid");
    let partition = policy.partition(&parameters);
    // Partitions are numbered in the order of the forward pass.
    let mut next = 0;
    let mut first: Vec<u32> = Vec::new();
    for tensor in &tensors {
        first.push(next);
        let count = partition.map_or(1, |size| tensor.bytes.count().div_ceil(size.count()));
        next += u32::try_from(count).expect("few partitions");
    }
    tensors.reverse();
    first.reverse();
    let gigabyte = Bandwidth::from_bytes_per_second(1_000_000_000).expect("positive");
    let count = told.count.unwrap_or(workers);
    let bus = |line, bandwidth: Option<Bandwidth>| {
        bandwidth.map(|bandwidth| Local::Bytes { line, times: 1, bandwidth })
    };
    let machines = Machines {
        workers,
        servers: count,
        hosted: if told.colocated { count } else { 0 },
        placement: told.placement,
        big_array: told.big_array,
        synchronous: told.synchronous,
        backup: 0,
        bandwidth: gigabyte,
        own: told.bandwidth.unwrap_or(gigabyte),
        latency: Time::from_ns(latency),
        before: bus(0, told.host).into_iter().collect(),
        after: bus(1, told.host).into_iter().collect(),
        model: None,
        sum: told.sum,
        copy: told.copy,
        in_order: told.in_order,
    };
    let scheduler = |_| parameters.scheduler(&tensors).expect("valid");
    let chain = Chain {
        layers,
        schedulers: (0..workers).map(scheduler).collect(),
        servers: Servers::new(machines),
        first,
        partition,
        barrier: parameters.has_barrier().expect("valid"),
        started: vec![0; workers as usize],
        ranks: policy.ranks_in_the_network(),
        overhead: &|pieces| parameters.overhead(pieces),
        flying: Vec::new(),
        tags: Vec::new(),
        timers: EventQueue::new(),
        done: vec![workers as usize; layers.len()],
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
    (policy, any::<bool>(), any::<bool>(), big, any::<[bool; 6]>(), 0u64..20).prop_map(
        |(mut tensor, barrier, colocated, big_array, more, overhead)| {
            let [host, sum, copy, own, synchronous, in_order] = more;
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
            if copy {
                tensor["servers"]["copy"] = json!("1.7 GB/s");
            }
            if own && !colocated {
                tensor["servers"]["bandwidth"] = json!("2.5 GB/s");
            }
            tensor["servers"]["placement"] = json!(if own { "hash" } else { "in_turn" });
            tensor["servers"]["synchronous"] = json!(synchronous);
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
        let job = BuiltJob {
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
        let job = BuiltJob {
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
    let links = TrainingScenario { network_model: NetworkModelKind::Links, ..base.clone() };
    assert_eq!(refused(&links), "schedule.tensor.exchange");
    let mut ideal = base;
    ideal.job.what_if = Some(WhatIf::Ideal);
    assert_eq!(refused(&ideal), "what_if");
}

#[test]
fn with_infinite_bandwidth_latencies_and_overheads_remain() {
    let layers = [(100, 200, 400_000)];
    let tensor = json!({"exchange": "parameter_server", "start_overhead": "3 us",
                        "servers": {"colocated": false, "host": "1 GB/s", "sum": "1 GB/s"}});
    let mut infinite = scenario(&[4], 2000, &tensor).expect("a scenario");
    infinite.job.what_if = Some(WhatIf::InfiniteBandwidth);
    let job = BuiltJob {
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

/// Workers, and servers of any model: from one for all workers to one each.
fn any_servers() -> impl Strategy<Value = (u32, Value)> {
    let rate = || prop::option::of((3u64..40).prop_map(|tenths| format!("{} MB/s", tenths * 100)));
    let machine = (rate(), rate(), rate());
    let counts =
        (2u32..17).prop_flat_map(|workers| (Just(workers), prop_oneof![Just(1), 1..=workers]));
    let places = prop_oneof![Just("in_turn"), Just("hash"), Just("byteps")];
    (counts, machine, any::<bool>(), any::<bool>(), places).prop_map(
        |((workers, count), (host, sum, copy), colocated, in_order, placement)| {
            let mut servers = json!({"count": count, "in_order": in_order, "placement": placement});
            servers["colocated"] = json!(colocated || placement == "byteps");
            let rates = [("host", host), ("sum", sum), ("copy", copy)];
            for (key, rate) in rates.into_iter().filter_map(|(key, rate)| Some((key, rate?))) {
                servers[key] = json!(rate);
            }
            (workers, servers)
        },
    )
}

const PARTITION: u64 = 4_000;

/// A step of `fifo`, one of `bytescheduler` with a credit of so many partitions, and one partition alone, from
/// ready to pulled: us.
fn steps(
    (workers, servers): &(u32, Value),
    layers: &[Layer],
    barrier: bool,
    window: u64,
) -> (f64, f64, f64) {
    let step = |mut tensor: Value, layers: &[Layer]| {
        tensor["exchange"] = json!("parameter_server");
        for (key, value) in servers.as_object().into_iter().flatten() {
            tensor["servers"][key] = value.clone();
        }
        let result = driven(&[*workers], 0, layers, &tensor, 4).expect("it runs");
        result.steps_us[1..].iter().sum::<f64>() / 3.0
    };
    let size = format!("{PARTITION} B");
    // Whole tensors over all servers, as MXNet splits them.
    let fifo = json!({"policy": "fifo", "barrier": barrier, "servers": {"big_array": size}});
    let credit = format!("{} B", window * PARTITION);
    let urgent = json!({"policy": "bytescheduler", "partition": size, "credit": credit});
    let alone = json!({"policy": "priority", "partition": size});
    (step(fifo, layers), step(urgent, layers), step(alone, &[(0, 0, PARTITION)]))
}

#[test]
fn one_server_of_many_workers_lets_none_of_them_starve() {
    // The default credit of four partitions: 11 workers took 1.4 times as long as `fifo` where the most urgent
    // message of all workers went first on the server's link.
    let layers = [(50, 100, 200_000); 8];
    for (workers, count, colocated) in
        [(11, 1, false), (11, 1, true), (11, 3, false), (16, 4, false)]
    {
        let servers = (workers, json!({"count": count, "colocated": colocated}));
        let (fifo, urgent, _) = steps(&servers, &layers, false, 4);
        assert!(urgent < fifo, "{servers:?}: {urgent} against {fifo}");
    }
}

/// The same cases each time: of 1,500, one came within 2 % of the law.
fn same_cases() -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(27), ..ProptestConfig::with_cases(50) }
}

proptest! {
    #![proptest_config(same_cases())]

    #[test]
    fn urgency_is_never_slower_than_fifo_beyond_one_partition_s_time(
        servers in any_servers(),
        layers in prop::collection::vec(
            (1u64..100, 1u64..100, prop_oneof![1u64..10_000, 1u64..200_000]), 1..16),
        barrier in any::<bool>(),
        window in prop_oneof![3u64..9, Just(1_000_000)],
    ) {
        // With one or two partitions of a worker under way, pushed or pulled, links rest between them. What is
        // handed over to links that know no priority is not overtaken: there a credit keeps them short.
        let window = if servers.1["in_order"] == json!(true) { window.min(8) } else { window };
        let (fifo, urgent, alone) = steps(&servers, &layers, barrier, window);
        prop_assert!(urgent <= fifo + alone, "{window} partitions: {urgent} > {fifo} + {alone}");
    }
}
