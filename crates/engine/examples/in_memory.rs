//! Two ranks sum a tensor, and its bytes never leave the process: the smallest driver of an engine.
//!
//! `cargo run -p allrail-engine --example in_memory`
//!
//! The engine decides, [`Operations`] knows which message may move now, and the driver carries out what they
//! say. One over sockets does the same with threads, a clock and links.

use allrail_collective::Operation;
use allrail_collective::rank::Plans;
use allrail_core::{Bytes, Time};
use allrail_engine::{
    Action, Dtype, Engine, Event, FrameAt, FrameName, Operations, Registration, Run, Settings,
    SignatureHash, Work, memory,
};
use allrail_schedule::OperationName;
use allrail_schedule::signature::Signature;

use self::switches::plan;

#[path = "../tests/it/switches.rs"]
mod switches;

struct Rank {
    number: u32,
    engine: Engine,
    operations: Operations<Vec<u8>>,
    tensor: Vec<u8>,
    begun: Option<OperationName>,
    running: Vec<Run>,
    done: bool,
}

impl Rank {
    /// A rank with a tensor of these numbers, for which it has a plan.
    fn new(number: u32, tensor: &[f32]) -> Self {
        let (bytes, elements) = (Bytes::new(size_of_val(tensor) as u64), tensor.len() as u64);
        let mut plans = Plans::new(number, 16);
        plans.add(plan(&[2], Operation::AllReduce, "baseline", bytes, 2)).expect("its plan");
        let settings = Settings { rank: number, ranks: 2, ..Settings::default() };
        let mut engine = Engine::new(settings, plans).expect("settings that go together");
        let (name, dtype, shape) = ("weight".to_owned(), "float32".to_owned(), vec![elements]);
        let signature = Signature { name, dtype, shape, strides: Vec::new() };
        let tensor_of = Registration { signature, width: 4, place: 0, group: None };
        let key = engine.register(tensor_of).expect("a tensor");
        let operations = Operations::new(0, bytes);
        let tensor = tensor.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let (begun, running, done) = (None, Vec::new(), false);
        let mut rank = Self { number, engine, operations, tensor, begun, running, done };
        rank.tell(Event::Start);
        rank.tell(Event::Submit { key });
        rank
    }

    /// Tells the engine what has happened, and carries out what it wants.
    fn tell(&mut self, event: Event) {
        let mut actions = Vec::new();
        self.engine.on(Time::ZERO, event, &mut actions).expect("an event in its turn");
        self.engine.settle(&mut actions);
        for action in actions {
            match action {
                Action::Begin { operation, signature, part, .. } => {
                    self.operations.open(operation, signature, part).expect("a new operation");
                    self.begun = Some(operation);
                }
                Action::Run(run) => {
                    let operation = self.begun.expect("an operation begins before its stages");
                    self.operations.begin(operation, run.at).expect("a stage of its plan");
                    self.running.push(run);
                }
                Action::Over { operation, .. } => {
                    self.operations.close(operation).expect("an operation that was open");
                }
                Action::Done { .. } => self.done = true,
                other => panic!("{other:?} is for jobs that lose ranks or have a coordinator"),
            }
        }
    }

    /// Does the next thing that may be done; a message that leaves is returned, with its receiver.
    fn work(&mut self) -> Option<(u32, FrameName, SignatureHash, Vec<u8>)> {
        let (operation, chunk, work) = self.operations.next_work()?;
        let run = self.operations.run(operation, chunk).expect("a chunk under way");
        let message = run.message(work.place()).expect("a message of its plan").clone();
        let mut data = Vec::new();
        let (of, dtype) = (run.chunk(), Dtype::Float32);
        let held = match &work {
            Work::Send { .. } => memory::read(of, &message, dtype, &self.tensor, &mut data),
            Work::Combine { frame, .. } => {
                memory::combine(of, &message, dtype, &mut self.tensor, frame)
            }
        };
        held.expect("memory as large as planned");
        let stage = self.operations.done(operation, chunk, message.place).expect("handed out");
        let signature = self.operations.signature(operation).expect("it is open");
        if self.operations.is_over(operation, stage) {
            let place = self.running.iter().position(|run| run.at == stage);
            let Run { collective: id, at, port, .. } = self.running.remove(place.expect("it runs"));
            self.tell(Event::PortFree { port });
            self.tell(Event::StageOver { id, at });
        }
        let (step, index, from) = (message.step, message.index, self.number);
        let at = FrameAt { stage: message.stage, step, from, index };
        let name = FrameName { operation, chunk, at };
        matches!(work, Work::Send { .. }).then_some((message.peer, name, signature, data))
    }
}

fn main() {
    let mut ranks = [Rank::new(0, &[1.0; 100]), Rank::new(1, &[2.0; 100])];
    while !ranks.iter().all(|rank| rank.done) {
        for sender in 0..2 {
            while let Some((to, name, signature, data)) = ranks[sender].work() {
                let receiver = &mut ranks[to as usize].operations;
                receiver.frame(name, signature, data.len() as u64, data).expect("as planned");
            }
        }
    }
    for rank in ranks {
        assert_eq!(rank.tensor, 3f32.to_ne_bytes().repeat(100));
    }
}

#[test]
fn every_rank_has_the_sum() {
    main();
}
