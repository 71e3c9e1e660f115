//! Algorithms of a user's own: programs as data, each for one operation and one number of ranks.
//!
//! A program says what of a buffer leaves for whom in which step, as [`Program`] does, and is proved when it is
//! read ([`crate::verify`]): what is not right is refused, whoever wrote it. Plans carry the programs that they
//! name, so a rank on another machine needs no other file.
//!
//! Its cost is counted: the bytes of the rank that sends the most, and as `fill` what the busiest rank of each
//! step sends beyond them.
//!
//! ```
//! use allrail_collective::Operation;
//! use allrail_collective::algorithm::OwnPrograms;
//! let text = r#"{"swap": {"operation": "all_reduce", "ranks": 2, "blocks": 1, "steps": [[
//!     {"from": 0, "to": 1, "blocks": [0], "adds": true},
//!     {"from": 1, "to": 0, "blocks": [0], "adds": true}
//! ]]}}"#;
//! let own: OwnPrograms = serde_json::from_str(text)?;
//! assert_eq!(own.named("swap")?.cost(Operation::AllReduce, 2).steps, 1);
//! assert!(own.named("ring").is_ok() && own.named("swop").is_err());
//! // One of the two does not add.
//! let wrong = text.replacen(", \"adds\": true", "", 1);
//! let error = serde_json::from_str::<OwnPrograms>(&wrong).expect_err("wrong");
//! assert!(error.to_string().contains("`swap`"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_core::{Bytes, counted, either};
use allrail_fabric::Kind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, Cost, OnLinks, named};
use crate::program::{Blocks, Combine, Waits};
use crate::verify::{matching, verify};
use crate::{CollectiveError, Operation, Program, SizeRange};

/// Ranks times blocks, and ranks times steps, of a program.
const MOST: u64 = 1 << 24;

/// A program as files have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OwnProgram")]
pub struct Written {
    /// What it does.
    pub operation: Operation,
    /// The number of ranks that it is for.
    pub ranks: u32,
    /// Into how many equal blocks a buffer is divided.
    pub blocks: u32,
    /// The sizes of a collective that it is for; any, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SizeRange")]
    pub sizes: Option<SizeRange>,
    /// What the messages that a rank sends wait for: `steps`, all that it receives in the steps before;
    /// `blocks`, only what it receives of the blocks that they carry.
    #[serde(default, skip_serializing_if = "is_steps")]
    #[schemars(extend("default" = Waits::Steps))]
    pub waits: Waits,
    /// The messages of each step.
    pub steps: Vec<Vec<Message>>,
}

fn is_steps(waits: &Waits) -> bool {
    *waits == Waits::Steps
}

/// A message of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "OwnMessage")]
pub struct Message {
    /// The rank that sends it.
    pub from: u32,
    /// The rank that receives it.
    pub to: u32,
    /// The blocks that it carries.
    pub blocks: Vec<u32>,
    /// The blocks where they go; the same, if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u32>")]
    pub into: Option<Vec<u32>>,
    /// The switches that it passes, as nodes of the network that the program was made for (its NPUs are counted
    /// first); those of any shortest way, if left out.
    #[serde(default, skip_serializing_if = "<[u32]>::is_empty")]
    #[schemars(extend("default" = Vec::<u32>::new()))]
    pub via: Box<[u32]>,
    /// Whether they are added to what is there, and do not replace it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adds: bool,
}

/// A proved program under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    name: String,
    operation: Operation,
    sizes: Option<SizeRange>,
    program: Program,
    cost: Cost,
    messages: u64,
}

impl Own {
    /// A program that is right.
    ///
    /// # Errors
    /// [`CollectiveError::Program`] if it is not, with the rank and the step.
    pub fn new(
        name: &str,
        operation: Operation,
        sizes: Option<SizeRange>,
        program: Program,
    ) -> Result<Self, CollectiveError> {
        let wrong = |why: String| CollectiveError::Program { name: name.to_owned(), why };
        if named(name).is_ok() {
            return Err(wrong("an algorithm of this name is there already".to_owned()));
        }
        let steps = program.step_count() as u64;
        let ranks = u64::from(program.ranks);
        if ranks < 2 || program.blocks == 0 || steps == 0 {
            let why = format!(
                "it has {ranks}, {} and {steps}; two ranks, a block and a step at least",
                counted(program.blocks, "block"),
                ranks = counted(ranks, "rank"),
                steps = counted(steps, "step")
            );
            return Err(wrong(why));
        }
        let proof = verify(&program, operation).map_err(|violation| {
            wrong(format!("it is no right program for `{operation}`: {violation}"))
        })?;
        check_places(&program, operation).map_err(wrong)?;
        let cost = count(&program);
        Ok(Self {
            name: name.to_owned(),
            operation,
            sizes,
            program,
            cost,
            messages: proof.messages,
        })
    }

    fn read(name: &str, written: Written) -> Result<Self, CollectiveError> {
        let Written { operation, ranks, blocks, sizes, waits, steps } = written;
        let wrong = |why: String| CollectiveError::Program { name: name.to_owned(), why };
        let size = u64::from(ranks) * u64::from(blocks).max(steps.len() as u64);
        if size > MOST {
            let why = format!(
                "{ranks} with {blocks} and {} {are} too many",
                counted(steps.len(), "step"),
                ranks = counted(ranks, "rank"),
                blocks = counted(blocks, "block"),
                are = either(&steps.len(), "is", "are")
            );
            return Err(wrong(why));
        }
        let mut program = Program { waits, ..Program::empty(ranks, blocks, steps.len()) };
        for (step, messages) in steps.into_iter().enumerate() {
            for Message { from, to, blocks: list, into, via, adds } in messages {
                if from >= ranks || to >= ranks || from == to {
                    let why = format!(
                        "step {step} has a message from rank {from} to rank {to}, and its ranks are 0 to {}",
                        ranks.saturating_sub(1)
                    );
                    return Err(wrong(why));
                }
                let into = into.unwrap_or_else(|| list.clone());
                let outside = list.iter().chain(&into).find(|block| **block >= blocks);
                if let Some(block) = outside {
                    let why = format!("step {step} names block {block}, and there are {blocks}");
                    return Err(wrong(why));
                }
                if list.is_empty() {
                    let why = format!("step {step} has a message that carries nothing");
                    return Err(wrong(why));
                }
                let combine = if adds { Combine::Reduce } else { Combine::Replace };
                let (list, into) = (Blocks::of(list, blocks), Blocks::of(into, blocks));
                program.message_via(step, (from, list), (to, into), combine, via);
            }
        }
        Self::new(name, operation, sizes, program)
    }

    /// As files have it.
    #[must_use]
    pub fn written(&self) -> Written {
        let Program { ranks, blocks, waits, .. } = self.program;
        let steps = (0..self.program.step_count()).map(|step| {
            let matched = matching::messages(&self.program, step).expect("it is proved");
            let message = |one: matching::Message<'_>| {
                let list: Vec<u32> = one.send.blocks.iter(blocks).collect();
                let into: Vec<u32> = one.receive.blocks.iter(blocks).collect();
                Message {
                    from: one.source,
                    to: one.send.to,
                    into: (into != list).then_some(into),
                    blocks: list,
                    via: one.send.via.clone(),
                    adds: one.receive.combine == Combine::Reduce,
                }
            };
            matched.into_iter().map(message).collect()
        });
        let steps = steps.collect();
        Written { operation: self.operation, ranks, blocks, sizes: self.sizes, waits, steps }
    }

    /// What it does.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Into how many blocks it divides a buffer.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.program.blocks
    }

    /// How many messages it has.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// The sizes of a collective that it is for, if not any.
    #[must_use]
    pub fn sizes(&self) -> Option<SizeRange> {
        self.sizes
    }

    /// Refuses a collective whose size it is not for.
    ///
    /// # Errors
    /// [`CollectiveError::Program`] with both.
    pub fn check_size(&self, size: Bytes) -> Result<(), CollectiveError> {
        match self.sizes {
            Some(range) if !range.contains(size) => {
                let why = format!(
                    "it is for {range} (`minBytes`, `maxBytes`), and the collective has {size}"
                );
                Err(CollectiveError::Program { name: self.name.clone(), why })
            }
            _ => Ok(()),
        }
    }
}

/// A chunk's blocks differ by a granule: one goes where another of its length was.
fn check_places(program: &Program, operation: Operation) -> Result<(), String> {
    let parts = (program.blocks / program.ranks).max(1);
    let fits = |(from, into): (u32, u32)| match operation {
        Operation::AllToAll => from % parts == into % parts,
        _ => from == into,
    };
    for step in 0..program.step_count() {
        for message in matching::messages(program, step).map_err(|wrong| wrong.to_string())? {
            let from = message.send.blocks.iter(program.blocks);
            if let Some((from, into)) =
                from.zip(message.receive.blocks.iter(program.blocks)).find(|pair| !fits(*pair))
            {
                return Err(format!(
                    "step {step}: block {from} of rank {} goes to block {into} of rank {}, and blocks keep \
                     their places, in an all-to-all within their shards",
                    message.source, message.send.to
                ));
            }
        }
    }
    Ok(())
}

/// What the busiest rank sends, and what the busiest of each step sends beyond it.
fn count(program: &Program) -> Cost {
    let blocks = u64::from(program.blocks);
    let of = |step: usize| {
        let sent = program.steps.iter().map(move |steps| {
            steps[step].sends.iter().map(|send| u64::from(send.blocks.len())).sum::<u64>()
        });
        sent.max().unwrap_or(0)
    };
    let all: u64 = (0..program.step_count()).map(of).sum();
    let sent = (0..program.ranks).map(|rank| program.blocks_sent(rank)).max().unwrap_or(0);
    Cost {
        sent: (sent, blocks),
        steps: u32::try_from(program.step_count()).unwrap_or(u32::MAX),
        latencies: u32::try_from(program.chain(|_| 1)).unwrap_or(u32::MAX),
        fill: (all - sent, blocks),
    }
}

impl Algorithm for Own {
    fn tag(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &'static str {
        "a program of one's own"
    }

    fn operations(&self) -> &'static [Operation] {
        static EACH: [Operation; Operation::ALL.len()] = Operation::ALL;
        let only = EACH.iter().find(|one| **one == self.operation);
        std::slice::from_ref(only.expect("`ALL` has them all"))
    }

    fn cost(&self, _: Operation, _: u32) -> Cost {
        self.cost
    }

    fn program(&self, _: Operation, _: u32) -> Program {
        self.program.clone()
    }

    fn on_links(&self, _: Kind, _: Operation, _: u32) -> OnLinks {
        OnLinks { messages: Some(self.messages), ..OnLinks::default() }
    }

    fn ranks(&self) -> Option<u32> {
        Some(self.program.ranks)
    }
}

/// Programs of a user's own, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Written>", into = "BTreeMap<String, Written>")]
pub struct OwnPrograms(BTreeMap<String, Arc<Own>>);

impl TryFrom<BTreeMap<String, Written>> for OwnPrograms {
    type Error = CollectiveError;

    fn try_from(written: BTreeMap<String, Written>) -> Result<Self, CollectiveError> {
        let read = |(name, one): (String, Written)| {
            let own = Own::read(&name, one)?;
            Ok((name, Arc::new(own)))
        };
        written.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl From<OwnPrograms> for BTreeMap<String, Written> {
    fn from(programs: OwnPrograms) -> Self {
        programs.0.into_iter().map(|(name, one)| (name, one.written())).collect()
    }
}

impl JsonSchema for OwnPrograms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OwnPrograms".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        BTreeMap::<String, Written>::json_schema(generator)
    }
}

impl FromIterator<Own> for OwnPrograms {
    fn from_iter<I: IntoIterator<Item = Own>>(programs: I) -> Self {
        Self(programs.into_iter().map(|one| (one.name.clone(), Arc::new(one))).collect())
    }
}

impl OwnPrograms {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Own>> {
        self.0.get(name)
    }

    /// The algorithm of this name: one of these, or of [`ALL`](super::ALL).
    ///
    /// # Errors
    /// [`CollectiveError::UnknownAlgorithm`] with the known names.
    pub fn named(&self, name: &str) -> Result<&dyn Algorithm, CollectiveError> {
        match self.get(name) {
            Some(own) => Ok(&**own),
            None => named(name).map_err(|error| match error {
                CollectiveError::UnknownAlgorithm { name, mut known } => {
                    known.extend(self.0.keys().cloned());
                    CollectiveError::UnknownAlgorithm { name, known }
                }
                other => other,
            }),
        }
    }

    /// These and another.
    #[must_use]
    pub fn with(mut self, own: Arc<Own>) -> Self {
        self.0.insert(own.name.clone(), own);
        self
    }

    /// Those that are among `names`.
    #[must_use]
    pub fn among(&self, names: &[String]) -> Self {
        let named = self.0.iter().filter(|(name, _)| names.contains(name));
        Self(named.map(|(name, one)| (name.clone(), Arc::clone(one))).collect())
    }
}
