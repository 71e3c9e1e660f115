//! The messages of one chunk on one rank, from its stages and the layout of its elements.

use std::ops::Range;
use std::sync::Arc;

use allrail_core::DimensionId;

use super::cells::{Axis, Cells, Layout, push, slice};
use super::line::{Line, LineMessage};
use super::message::{Action, Message, Shape, Stage};
use crate::Operation;
use crate::program::Combine;
use crate::waits::{Touch, waits};

/// A stage of a chunk on one rank, before it is known how many elements the chunk has.
#[derive(Clone, Debug)]
pub(super) struct RouteStage {
    pub(super) dimension: DimensionId,
    pub(super) operation: Operation,
    pub(super) line: Arc<Line>,
    /// Whether the rank's line has anything to do.
    pub(super) takes_part: bool,
    /// Of the rank, on the stage's dimension.
    pub(super) coordinate: u32,
    /// From which coordinate on the line counts its ranks, and how many it has.
    pub(super) root: u32,
    pub(super) size: u32,
    /// From one rank of the line to the next.
    pub(super) stride: u32,
}

/// The stages of a chunk on one rank, and the dimensions over which its cells are spread.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) stages: Vec<RouteStage>,
    pub(super) axes: Vec<Axis>,
}

impl Route {
    /// For chunks of this layout.
    pub(super) fn shape(&self, layout: Layout, granule: u64, rank: u32) -> Shape {
        let mut cells = Cells { axes: self.axes.clone(), layout, granule };
        let (mut messages, mut ranges) = (Vec::new(), Vec::new());
        let mut stages = Vec::with_capacity(self.stages.len());
        for (index, stage) in (0u32..).zip(&self.stages) {
            let mut steps = Vec::with_capacity(stage.line.steps as usize);
            let digits = Digits::new(stage, &cells);
            let mut line = stage.line.messages.iter().peekable();
            for step in 0..stage.line.steps {
                let first = place(&messages);
                let mut middle = None;
                while let Some(message) = line.next_if(|message| message.step == step) {
                    if message.action != Action::Send {
                        middle.get_or_insert(place(&messages));
                    }
                    if !stage.takes_part {
                        continue;
                    }
                    let from = place(&ranges);
                    let elements = digits.carried(message, &mut ranges);
                    if elements > 0 {
                        messages.push(Message {
                            place: place(&messages),
                            stage: index,
                            step,
                            peer: rank - stage.coordinate * stage.stride
                                + (message.peer + stage.root) % stage.size * stage.stride,
                            index: message.index,
                            action: message.action,
                            elements,
                            ranges: from..place(&ranges),
                        });
                    }
                }
                let end = place(&messages);
                steps.push([first, middle.unwrap_or(end), end]);
            }
            stages.push(Stage { dimension: stage.dimension, operation: stage.operation, steps });
            let own = stage.operation == Operation::ReduceScatter;
            if own || stage.operation == Operation::AllGather {
                let here = stage.dimension.index();
                cells.axes.iter_mut().filter(|a| a.dimension == here).for_each(|a| a.own = own);
            }
        }
        let touched = messages.iter().map(|message| Touch {
            sends: message.action == Action::Send,
            ranges: &ranges[message.ranges.start as usize..message.ranges.end as usize],
        });
        let (before, after) = waits(touched, &ranges);
        let may_wait = |message: &&Message| {
            let waits_for = before.of(message.place);
            match message.action {
                Action::Send => false,
                Action::Receive(Combine::Reduce) => !waits_for.is_empty(),
                Action::Receive(Combine::Replace) => waits_for.iter().any(|place| {
                    let other = messages[*place as usize].stage;
                    match self.stages[other as usize].operation {
                        Operation::AllToAll => true,
                        // A stage after it begins anew with elements that may not all have left.
                        Operation::AllReduce | Operation::Broadcast => other < message.stage,
                        Operation::ReduceScatter | Operation::AllGather => false,
                    }
                }),
            }
        };
        let most_aside = messages.iter().filter(may_wait).map(|message| message.elements).sum();
        Shape { stages, messages, ranges, before, after, most_aside }
    }
}

fn place<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).expect("fewer than 2^32 messages and ranges")
}

/// What each digit of a stage stands for on this rank.
struct Digits<'a> {
    line: &'a Line,
    granule: u64,
    /// The held elements of each shard of the stage's dimension.
    shards: Vec<Range<u64>>,
    starts: Vec<usize>,
}

impl<'a> Digits<'a> {
    fn new(stage: &'a RouteStage, cells: &Cells) -> Self {
        let line = &*stage.line;
        let mut digits = Self { line, granule: cells.granule, shards: Vec::new(), starts: vec![0] };
        if stage.takes_part && line.steps > 0 {
            for shard in 0..line.shards {
                cells.held(stage.dimension.index(), shard, &mut digits.shards);
                digits.starts.push(digits.shards.len());
            }
        }
        digits
    }

    /// Appends what `message` carries; how many elements that are.
    fn carried(&self, message: &LineMessage, out: &mut Vec<Range<u64>>) -> u64 {
        let first = out.len();
        for digit in &message.digits {
            let (shard, part) = (digit / self.line.parts, digit % self.line.parts);
            let shard = shard as usize;
            let runs = &self.shards[self.starts[shard]..self.starts[shard + 1]];
            slice(runs, (part, self.line.parts), self.granule, first, out);
        }
        // Where both sides have the elements in one place, any order will do that both find.
        let carried = &mut out[first..];
        if self.line.in_place && !carried.is_sorted_by_key(|range| range.start) {
            carried.sort_unstable_by_key(|range| range.start);
            let sorted = out.split_off(first);
            sorted.into_iter().for_each(|range| push(out, first, range));
        }
        out[first..].iter().map(|range| range.end - range.start).sum()
    }
}
