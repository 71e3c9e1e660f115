//! Orders of gradients from the step graph: TicTac's, and those of schedulers from outside the crates.

use std::ops::ControlFlow;
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Rank, Time};
use allrail_schedule::ScheduleError;
use allrail_schedule::tensor::{
    self, Choice, Chooser, CommTask, Cut, Exchange, Outlook, Planned, StepFacts, Tensor,
    TensorParameters, TensorPlugins, TensorPolicy, TensorScheduler,
};
use allrail_simulate::SimulateError;
use allrail_simulate::TrainingScenario;
use allrail_simulate::training::{BuiltJob, TrainingResult, run};
use allrail_workload::{
    Actor, Builder, Group, Node, NodeId, Part, Pass, Perturbation, Purpose, StepGraph, Work,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// (forward us, backward us, bytes, the layers that come directly before it).
type Layer = (u64, u64, u64, Vec<usize>);

/// Layers that need not be a chain, on 8 ranks; backward passes go from the last to the first, and each layer of
/// the next iteration waits for its own gradient.
fn graph(layers: &[Layer]) -> StepGraph {
    let mut builder = Builder::default();
    let ranks = (0..8).map(Rank).collect();
    let actor = builder.actor(Actor { name: "ranks".to_owned(), ranks });
    let parts = vec![Part { dimension: DimensionId(0), size: 8, stride: 1 }];
    let (name, actors) = ("dp".to_owned(), vec![actor]);
    let group = builder.group(Group { name, parts, ranks: Vec::new(), actors });
    let compute = |time| Work::Compute { time: Time::from_us(time) };
    let node = |work, tensor, pass| Node { actor, work, tensor, pass };
    let mut forward: Vec<NodeId> = Vec::new();
    for (time, _, _, before) in layers {
        let after: Vec<NodeId> = before.iter().map(|layer| forward[*layer]).collect();
        forward.push(builder.node("layer", node(compute(*time), None, Pass::Forward), &after));
    }
    let mut last = forward.clone();
    for (at, (_, time, bytes, _)) in layers.iter().enumerate().rev() {
        let place = u32::try_from(at).expect("few layers");
        let back = builder.node("back", node(compute(*time), None, Pass::Backward), &last);
        last = vec![back];
        let (operation, bytes) = (Operation::AllReduce, Bytes::new(*bytes));
        let work = Work::Collective { operation, bytes, group, purpose: Purpose::Data };
        let name = format!("gradient {place}");
        let exchange = builder.node(&name, node(work, Some(place), Pass::Backward), &[back]);
        builder.carry(forward[at], exchange);
    }
    builder.finish().expect("a graph")
}

fn simulated(
    layers: &[Layer],
    tensor: &Value,
    plugins: &TensorPlugins,
) -> Result<TrainingResult, SimulateError> {
    let tree = json!({
        "schema_version": 1,
        "fabric": {"name": "switch", "dimensions": [
            {"kind": "switch", "size": 8, "links": 1, "bandwidth": "100 GB/s", "latency": "0 ns"},
        ]},
        "workload": {"model": {"layers": [{"name": "unused", "flops": 1, "parameters": 1, "output": 1}]},
            "batch_per_replica": 1, "compute": {"peak": "1 TFLOP/s"}},
        "schedule": {"chunks": 1, "tensor": tensor},
    });
    let scenario = TrainingScenario::with_plugins(&tree.to_string(), &Default::default(), plugins)?;
    let job = BuiltJob {
        graph: &graph(layers),
        memory: None,
        notes: Vec::new(),
        perturbation: Perturbation::default(),
        iterations: 4,
        work: None,
    };
    run(&job, &scenario, false, &mut |_, _| ControlFlow::Continue(()))
}

fn steps(layers: &[Layer], tensor: &Value) -> Vec<f64> {
    simulated(layers, tensor, &TensorPlugins::default()).expect("it runs").steps_us
}

/// Whole tensors, one at a time.
fn one_by_one(policy: &str) -> Value {
    json!({"policy": policy, "partition": "1 GB", "credit": "1 B"})
}

/// Layers 0 and 1 do not depend on each other, layer 2 on both; each gradient of 8 MB takes 140 us. The last
/// layer's is ready at 50 of the backward pass and travels to 190, when the other two wait.
fn branches() -> Vec<Layer> {
    let bytes = 8_000_000;
    vec![(10, 25, bytes, vec![]), (200, 25, bytes, vec![]), (10, 50, bytes, vec![0, 1])]
}

#[test]
fn by_hand() {
    let step = |policy| steps(&branches(), &one_by_one(policy))[2];
    // The forward pass's order: 0 to 330, 1 to 470. Layer 0 at 330, layer 1 from 470 to 670, layer 2 to 680.
    assert_eq!(step("bytescheduler"), 680.0);
    // An exchange counts 1: 0 and 1 lead to nothing that waits for others but the end, so they are equal.
    assert_eq!(step("tic"), 680.0);
    // Layer 1 computes longer: 1 to 330, 0 to 470. Layer 1 from 330 to 530, layer 0 to 540, layer 2 to 550.
    assert_eq!(step("tac"), 550.0);
}

fn any_layers() -> impl Strategy<Value = Vec<Layer>> {
    let layer = (1u64..200, 1u64..200, 1u64..9_000_000, any::<[bool; 6]>());
    prop::collection::vec(layer, 1..7).prop_map(|layers| {
        let before = |place: usize, bits: [bool; 6]| {
            (0..place).filter(|earlier| bits[*earlier]).collect::<Vec<usize>>()
        };
        let layers = layers.into_iter().enumerate();
        layers.map(|(at, (f, b, bytes, bits))| (f, b, bytes, before(at, bits))).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// On a chain both are the order of the forward pass.
    #[test]
    fn a_chain_goes_in_the_order_of_the_forward_pass(
        layers in any_layers(),
        partition in 100_000u64..9_000_000,
        credit in 1u64..20_000_000,
    ) {
        let mut layers = layers;
        for (at, layer) in layers.iter_mut().enumerate() {
            layer.3 = at.checked_sub(1).into_iter().collect();
        }
        let with = |policy: &str| {
            let sizes = [partition, credit].map(|bytes| format!("{bytes} B"));
            steps(&layers, &json!({"policy": policy, "partition": sizes[0], "credit": sizes[1]}))
        };
        prop_assert_eq!(with("tic"), with("bytescheduler"));
        prop_assert_eq!(with("tac"), with("bytescheduler"));
    }

    /// No order of partitions is slower than fifo behind the barrier that it has, beyond a partition: whatever is
    /// sent first, the last gradient is there when fifo's is.
    #[test]
    fn no_slower_than_fifo_beyond_a_partition(
        layers in any_layers(),
        partition in 500_000u64..4_000_000,
        tag in prop_oneof![Just("tic"), Just("tac"), Just("bytescheduler")],
    ) {
        let size = format!("{partition} B");
        let ours = steps(&layers, &json!({"policy": tag, "partition": size, "credit": "1 B"}));
        let fifo = steps(&layers, &json!({"policy": "fifo"}));
        let mean = |steps: &[f64]| steps[1..].iter().sum::<f64>() / (steps.len() - 1) as f64;
        // 2 × 7/8 of the bytes at 100 GB/s.
        let alone = 1.75 * partition as f64 / 1e5;
        prop_assert!(mean(&ours) <= mean(&fifo) + alone, "{:?} {:?}", ours, fifo);
    }
}

/// What a plugin of the tests does.
#[derive(Clone, Copy)]
enum Does {
    /// The reverse of the forward pass, in partitions of these sizes.
    Reverse(&'static [u64]),
    /// Chooses: the first that is offered, one at a time.
    Chooses,
    /// Chooses nothing, ever.
    Nothing,
    /// Cuts otherwise each time.
    Unlike,
}

struct Mine(Does, std::sync::atomic::AtomicU64);

struct First(bool);

impl Chooser for First {
    fn choose(&mut self, choice: &Choice<'_>) -> Option<u32> {
        (self.0 && choice.in_flight == Bytes::default()).then(|| choice.offers[0].tensor)
    }

    fn stalled(&mut self, tensors: &[u32]) {
        assert!(!self.0 && !tensors.is_empty());
    }
}

impl TensorPolicy for Mine {
    fn tag(&self) -> &str {
        "mine"
    }

    fn about(&self) -> &str {
        "of a test"
    }

    fn version(&self) -> u32 {
        1
    }

    fn crosses_barrier(&self) -> bool {
        true
    }

    fn ranks_in_the_network(&self) -> bool {
        true
    }

    fn reads(&self) -> &'static [&'static str] {
        &["partition", "credit"]
    }

    fn scheduler(
        &self,
        _: &TensorParameters,
        _: Exchange,
        _: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        unreachable!("it is asked in a step")
    }

    fn outlook(&self) -> Outlook {
        Outlook::Tensors
    }

    fn in_step(
        &self,
        parameters: &TensorParameters,
        _: Exchange,
        tensors: &[Tensor],
        facts: &StepFacts,
    ) -> Result<Option<Planned>, ScheduleError> {
        assert_eq!(facts.tensors.len(), tensors.len());
        let turn = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let cut = |tensor: &Tensor| match self.0 {
            Does::Reverse([]) | Does::Chooses | Does::Nothing => Cut::Size(Bytes::new(1 << 30)),
            Does::Reverse(sizes) => {
                let (first, rest) = sizes.split_first().expect("not empty");
                let left = tensor.bytes.count() - first - rest.iter().sum::<u64>();
                let sizes = sizes.iter().copied().chain([left]).map(Bytes::new);
                Cut::Sizes(sizes.collect())
            }
            Does::Unlike => Cut::Size(Bytes::new(1000 + turn)),
        };
        let last = tensors.iter().map(|tensor| tensor.place).max().unwrap_or(0);
        let task = |(index, tensor): (u32, &Tensor)| {
            let place = match self.0 {
                Does::Reverse(_) => last - tensor.place,
                _ => tensor.place,
            };
            CommTask::new(index, &Tensor { place, ..*tensor }, cut(tensor))
        };
        let chooser = match self.0 {
            Does::Chooses => Some(Box::new(First(true)) as Box<dyn Chooser>),
            Does::Nothing => Some(Box::new(First(false)) as Box<dyn Chooser>),
            _ => None,
        };
        let tasks = (0..).zip(tensors).map(task).collect();
        Ok(Some(Planned { tasks, credit: parameters.credit_or_default(), chooser }))
    }
}

fn mine(does: Does) -> TensorPlugins {
    TensorPlugins::new(vec![Arc::new(Mine(does, Default::default()))])
}

#[test]
fn one_from_outside_is_found_by_its_name() {
    let step = |does| {
        let result = simulated(&branches(), &one_by_one("mine"), &mine(does)).expect("it runs");
        result.steps_us[2]
    };
    // Reversed: 1 to 330, then 0: as `tac` has it.
    assert_eq!(step(Does::Reverse(&[])), 550.0);
    // Of three partitions each the last one of a gradient travels as long: nothing is lost between them.
    assert_eq!(step(Does::Reverse(&[1_000_000, 3_000_000])), 550.0);
    // The first that is offered is the most urgent one.
    assert_eq!(step(Does::Chooses), 680.0);
    let unknown = simulated(&branches(), &one_by_one("nine"), &mine(Does::Chooses));
    let report = unknown.expect_err("there is none").report();
    assert!(report.hint.contains("`tac`") && report.hint.contains("`mine`"), "{}", report.hint);
}

#[test]
fn one_that_starts_nothing_stalls() {
    let error = simulated(&branches(), &one_by_one("mine"), &mine(Does::Nothing));
    let SimulateError::Stalled { waits, .. } = error.expect_err("nothing goes on") else {
        panic!("another error")
    };
    assert!(waits.contains("holds 3 gradients"), "{waits}");
}

#[test]
fn with_servers_each_worker_has_its_own() {
    let servers = |does, policy: &str| {
        let mut tensor = one_by_one(policy);
        tensor["exchange"] = json!("parameter_server");
        simulated(&branches(), &tensor, &mine(does))
    };
    let step = |does, policy| servers(does, policy).expect("it runs").steps_us[2];
    assert_eq!(step(Does::Chooses, "mine"), step(Does::Chooses, "bytescheduler"));
    let report = servers(Does::Unlike, "mine").expect_err("cut otherwise").report();
    assert!(report.why.contains("it cuts `gradient 2` otherwise"), "{}", report.why);
}

/// What tells of it, and what a plan says, name the same policies.
#[test]
fn every_policy_that_looks_at_a_step_answers_there() {
    for policy in tensor::ALL {
        let looks = policy.outlook() != Outlook::Nothing;
        let parameters =
            TensorParameters { policy: policy.tag().to_owned(), ..TensorParameters::default() };
        let tensors = [Tensor { bytes: Bytes::new(9), place: 0, group: None }];
        let facts = StepFacts::chain([0], Time::from_us(1));
        let planned = policy.in_step(&parameters, Exchange::AllReduce, &tensors, &facts);
        assert_eq!(planned.expect("valid").is_some(), looks, "{}", policy.tag());
    }
}
