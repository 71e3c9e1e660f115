//! What the ranks of process groups agree on before it starts: gradients, and other collectives where that is asked for.
//!
//! The gradients of one kind of a process group have one [`Agreement`]; the group's other collectives are numbered behind
//! the first kind's gradients, and have one of their own where there are none. With a lag several iterations are under
//! way: what the next one asks for is numbered behind all that one asks for. A collective that a player asks for again
//! before ranks have launched it waits until they have.
//!
//! What is no gradient travels by itself, also where coordinators put it into one buffer with gradients.

use std::collections::{BTreeMap, VecDeque};

use allrail_collective::Operation;
use allrail_core::{Bytes, Time, counted};
use allrail_schedule::tensor::Tensor;
use allrail_workload::{NodeId, StepGraph, Work};
use serde_json::Value;

use crate::SimulateError;
use crate::coordination::{Agreement, Collectives, Coordination, Counts};
use crate::training::driver::record::Ran;
use crate::training::players::{Players, ProcessGroup};

/// How many iterations' gradients may be under way, and what is drawn from.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    /// How many iterations later gradients are applied.
    pub lag: u32,
    /// For what is drawn.
    pub seed: u64,
}

/// Gradients of one iteration that ranks have agreed to launch together.
pub(super) struct Together {
    /// The first scheduler of their kind.
    pub(super) scheduler: u32,
    /// Which of the iterations under way.
    pub(super) turn: u32,
    /// By number, in the order of the buffer.
    pub(super) tensors: Vec<u32>,
}

/// The collectives of a graph that are no gradient's.
#[derive(Default)]
struct Others {
    /// The number of each among those of its group.
    number_of: BTreeMap<NodeId, u32>,
    /// Of every group, the first actor's; other actors' meet these in order.
    lists: BTreeMap<u32, Vec<(Operation, Bytes)>>,
}

impl Others {
    fn new(graph: &StepGraph) -> Self {
        let mut found = Self::default();
        let mut counts: BTreeMap<(u32, u32), u32> = BTreeMap::new();
        for id in graph.ids() {
            let node = graph.node(id);
            let Work::Collective { operation, bytes, group, .. } = node.work else { continue };
            if node.tensor.is_some() {
                continue;
            }
            let count = counts.entry((group.0, node.actor.0)).or_default();
            found.number_of.insert(id, *count);
            *count += 1;
            if graph.groups()[group.index()].actors[0] == node.actor {
                found.lists.entry(group.0).or_default().push((operation, bytes));
            }
        }
        found
    }
}

/// What some ranks agree on, by one coordinator each.
struct Talk {
    process_group: u32,
    /// The first scheduler of the gradients.
    scheduler: u32,
    tensors: u32,
    others: u32,
    agreement: Box<dyn Agreement>,
    /// By place among all that is asked for: who came to other collectives, until ranks have agreed.
    held: BTreeMap<u32, VecDeque<Vec<Ran>>>,
    /// By place and player: how often it has asked for one that was not launched yet.
    asked: BTreeMap<(u32, u32), u32>,
}

impl Talk {
    fn place(&self, turn: u32, number: u32) -> u32 {
        number + turn * (self.tensors + self.others)
    }

    /// Ranks have agreed on a collective: who came to it. Who has asked for it again does so now.
    fn launched(&mut self, now: Time, place: u32) -> Vec<Ran> {
        let players = self.asked.range_mut((place, 0)..=(place, u32::MAX));
        let mut again = Vec::new();
        for ((_, player), count) in players {
            *count -= 1;
            if *count > 0 {
                again.push(*player);
            }
        }
        for player in again {
            self.agreement.submit(now, player, place);
        }
        let came = self.held.get_mut(&place).and_then(VecDeque::pop_front);
        came.expect("all came, or ranks had not agreed")
    }
}

/// What the ranks of all process groups agree on.
pub(super) struct Agreements {
    /// The key `schedule.coordination`, where ranks agree on anything.
    tree: Option<Value>,
    drawn: Drawn,
    talks: Vec<Talk>,
    others: Others,
    /// Who agrees on other collectives, by process group.
    talk_of: BTreeMap<u32, usize>,
    released: Vec<(u32, Vec<Ran>)>,
}

impl Agreements {
    /// On nothing yet.
    ///
    /// # Errors
    /// A setting is wrong: names its key.
    pub(super) fn new(
        graph: &StepGraph,
        tree: Option<&Value>,
        drawn: Drawn,
    ) -> Result<Self, SimulateError> {
        let settings = tree.map(|tree| Coordination::read(&without_groups(tree), &[]));
        let settings = settings.transpose()?.filter(|settings| settings.policy.is_some());
        let all = settings.as_ref().is_some_and(|one| one.collectives == Collectives::All);
        Ok(Self {
            tree: tree.filter(|_| settings.is_some()).cloned(),
            drawn,
            talks: Vec::new(),
            others: if all { Others::new(graph) } else { Others::default() },
            talk_of: BTreeMap::new(),
            released: Vec::new(),
        })
    }

    /// Ranks of a process group agree on these gradients, which `scheduler` is the first of, and on the group's
    /// other collectives if nobody does yet. Which agreement it is; `None` if they agree on nothing.
    ///
    /// # Errors
    /// A group of tensors that cannot be.
    pub(super) fn add(
        &mut self,
        players: &Players,
        (index, process_group): (u32, &ProcessGroup),
        scheduler: u32,
        (tensors, names): (&[Tensor], &[String]),
    ) -> Result<Option<usize>, SimulateError> {
        let Some(tree) = &self.tree else { return Ok(None) };
        let ranks = ranks_of(players, process_group);
        let new = !self.talk_of.contains_key(&index) && ranks.iter().sum::<u32>() > 1;
        let others = self.others.lists.get(&process_group.group.0).filter(|_| new);
        let others = others.map_or(&[][..], |list| list);
        if tensors.is_empty() && others.is_empty() {
            return Ok(None);
        }
        let mut coordination = match tensors {
            [] => Coordination::read(&without_groups(tree), &[])?,
            _ => Coordination::read(tree, names)?,
        };
        if others.is_empty() {
            coordination.collectives = Collectives::Gradients;
        } else {
            self.talk_of.insert(index, self.talks.len());
        }
        let one = |tensor: &Tensor| (Operation::AllReduce, tensor.bytes);
        let each: Vec<_> = tensors.iter().map(one).chain(others.iter().copied()).collect();
        let count = u32::try_from(each.len()).expect("few collectives");
        let later =
            |by: u32, group: &Vec<u32>| group.iter().map(|tensor| tensor + by * count).collect();
        coordination.groups = (0..=self.drawn.lag)
            .flat_map(|by| coordination.groups.iter().map(move |group| later(by, group)))
            .collect();
        let all: Vec<_> = (0..=self.drawn.lag).flat_map(|_| &each).copied().collect();
        self.talks.push(Talk {
            process_group: index,
            scheduler,
            tensors: u32::try_from(tensors.len()).expect("few tensors"),
            others: u32::try_from(others.len()).expect("few collectives"),
            agreement: coordination.agreement(&ranks, &all, each.len(), self.drawn.seed)?,
            held: BTreeMap::new(),
            asked: BTreeMap::new(),
        });
        Ok(Some(self.talks.len() - 1))
    }

    /// Whether ranks agree on anything.
    pub(super) fn any(&self) -> bool {
        !self.talks.is_empty()
    }

    /// Whether ranks have to agree on a node's collective, which is no gradient's.
    pub(super) fn holds(&self, process_group: u32, node: NodeId) -> bool {
        self.talk_of.contains_key(&process_group) && self.others.number_of.contains_key(&node)
    }

    /// A player has a gradient ready; `position` is its place in the process group.
    pub(super) fn submit(
        &mut self,
        now: Time,
        agreement: usize,
        turn: u32,
        tensor: u32,
        position: u32,
    ) {
        let talk = &mut self.talks[agreement];
        talk.agreement.submit(now, position, talk.place(turn, tensor));
    }

    fn other(&self, process_group: u32, ran: Ran) -> (usize, u32) {
        let index = self.talk_of[&process_group];
        let talk = &self.talks[index];
        let turn = ran.iteration % (self.drawn.lag + 1);
        (index, talk.place(turn, talk.tensors + self.others.number_of[&ran.node]))
    }

    /// A player has come to a collective that is no gradient's.
    pub(super) fn come(&mut self, now: Time, process_group: u32, ran: Ran, position: u32) {
        let (index, place) = self.other(process_group, ran);
        let talk = &mut self.talks[index];
        let asked = talk.asked.entry((place, position)).or_default();
        *asked += 1;
        if *asked == 1 {
            talk.agreement.submit(now, position, place);
        }
    }

    /// All players have come to such a collective: it starts when ranks have agreed on it.
    pub(super) fn hold(&mut self, process_group: u32, came: Vec<Ran>) {
        let (index, place) = self.other(process_group, came[0]);
        self.talks[index].held.entry(place).or_default().push_back(came);
    }

    /// When ranks find out something next, if that is by `until`; until then nothing may be ready.
    pub(super) fn next_time(&mut self, until: Time) -> Option<Time> {
        loop {
            // What one finds out may be what another waits for: the earliest goes on as far as it is.
            let mut first: Option<(Time, usize)> = None;
            let mut others = until;
            for (index, talk) in self.talks.iter_mut().enumerate() {
                let Some(earliest) = talk.agreement.earliest() else { continue };
                match first {
                    Some((time, _)) if time <= earliest => others = others.min(earliest),
                    _ => {
                        others = first.map_or(others, |(time, _)| others.min(time));
                        first = Some((earliest, index));
                    }
                }
            }
            let (_, index) = first.filter(|(earliest, _)| *earliest <= until)?;
            if let Some(found) = self.talks[index].agreement.next_time(others) {
                return Some(found);
            }
        }
    }

    /// What ranks find out now: the gradients that go together. Other collectives are released.
    pub(super) fn take(&mut self, now: Time) -> Vec<Together> {
        let mut all = Vec::new();
        for talk in &mut self.talks {
            let count = talk.tensors + talk.others;
            while let Some((_, places)) = talk.agreement.next_event(now) {
                let (gradients, others): (Vec<u32>, Vec<u32>) =
                    places.iter().partition(|place| **place % count < talk.tensors);
                for place in others {
                    self.released.push((talk.process_group, talk.launched(now, place)));
                }
                // Gradients of one iteration travel together.
                for turn in 0..=self.drawn.lag {
                    let own = gradients.iter().filter(|place| **place / count == turn);
                    let tensors: Vec<u32> = own.map(|place| place % count).collect();
                    if !tensors.is_empty() {
                        all.push(Together { scheduler: talk.scheduler, turn, tensors });
                    }
                }
            }
        }
        all
    }

    /// Collectives that ranks have agreed on, with their process groups and who came.
    pub(super) fn take_released(&mut self) -> Vec<(u32, Vec<Ran>)> {
        std::mem::take(&mut self.released)
    }

    /// What coordinators said in all; `None` without any.
    pub(super) fn counts(&self) -> Option<Counts> {
        self.talks.iter().map(|talk| talk.agreement.counts()).reduce(|a, b| a + b)
    }

    /// Which collectives wait for the ranks' word, for the report of a stall.
    pub(super) fn waits(&self) -> impl Iterator<Item = String> {
        self.talks.iter().filter_map(|talk| {
            let count: usize = talk.held.values().map(VecDeque::len).sum();
            (count > 0).then(|| {
                format!("  coordinators hold {count}", count = counted(count, "collective"))
            })
        })
    }
}

/// How many ranks each player of a process group stands for in it.
fn ranks_of(players: &Players, process_group: &ProcessGroup) -> Vec<u32> {
    let count = |player: &u32| {
        let members = process_group.ranks.iter().filter(|rank| players.of(**rank) == Some(*player));
        u32::try_from(members.count()).expect("few ranks")
    };
    process_group.players.iter().map(count).collect()
}

/// The settings of a coordination over no tensors.
fn without_groups(tree: &Value) -> Value {
    let mut tree = tree.clone();
    if let Some(keys) = tree.as_object_mut()
        && keys.get("policy").is_some_and(|policy| policy != "none")
    {
        keys.remove("groups");
    }
    tree
}
