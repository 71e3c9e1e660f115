//! From tensors that are ready to collectives on the executor.

use allrail_core::Time;
use allrail_schedule::OperationName;
use allrail_schedule::tensor::{self, OperationId, Piece, Pieces};

use super::event::{Action, Slice};
use super::operations::Share;
use super::parts::{Parts, Wanted};
use super::running::Running;
use super::tensors::TensorState;
use crate::{ALONE, Broken, Progress, SignatureHash};

/// How many of these pieces, from the first on, share a buffer: tensors of one type. Where every rank has
/// a shard, tensors have no buffer in common.
fn share_a_buffer(all: &[TensorState], pieces: &[Piece]) -> usize {
    let of = |piece: &Piece| &all[piece.tensor as usize];
    let Some(first) = pieces.first().map(of) else { return 0 };
    let most = if first.request.operation.is_sharded() { 1 } else { pieces.len() };
    let alike = |piece: &&Piece| of(piece).dtype == first.dtype && of(piece).width == first.width;
    pieces[..most].iter().take_while(alike).count()
}

impl Running {
    /// These are ready, here or everywhere, and travel together.
    pub(super) fn ready(&mut self, now: Time, tensors: &[u32]) {
        for number in tensors {
            let tensor = &mut self.tensors.all[*number as usize];
            tensor.ready = true;
            if let Some(tuning) = self.tunings.before(tensor.generation()) {
                self.scheduler.retune(tuning);
            }
        }
        match tensors {
            [tensor] => {
                let event = tensor::Event::Ready { tensor: *tensor };
                self.scheduler.on(now, event, &mut self.wanted);
            }
            _ => self.scheduler.on(now, tensor::Event::Together { tensors }, &mut self.wanted),
        }
    }

    /// Does what the tensor scheduler wants.
    pub(super) fn start_wanted(
        &mut self,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let mut wanted = std::mem::take(&mut self.wanted);
        let mut result = Ok(());
        for action in wanted.drain(..) {
            match action {
                tensor::Action::Start { operation, pieces, priority, .. } => {
                    if let Some(rounds) = &mut self.rounds {
                        rounds.started(&pieces, priority);
                    }
                    if result.is_ok() {
                        result = self.begin(operation, &pieces, priority, parts, out);
                    }
                }
                tensor::Action::Done { tensor } => {
                    let tensor = &mut self.tensors.all[tensor as usize];
                    let generation = tensor.done();
                    out.push(Action::Done { key: tensor.key, generation });
                    if let Some(rounds) = &mut self.rounds {
                        rounds.tensor_done();
                    }
                }
                tensor::Action::SetTimer { id, at } => self.timers.of_scheduler(id, at),
            }
        }
        self.wanted = wanted;
        result
    }

    /// An operation starts: a collective for each run of pieces that share a buffer.
    pub(super) fn begin(
        &mut self,
        of: OperationId,
        pieces: &Pieces,
        priority: i64,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let (mut collectives, mut rest) = (0, &pieces[..]);
        while !rest.is_empty() {
            collectives += 1;
            rest = &rest[share_a_buffer(&self.tensors.all, rest)..];
        }
        self.operations.expect(of, collectives);
        rest = &pieces[..];
        while !rest.is_empty() {
            let (first, others) = rest.split_at(share_a_buffer(&self.tensors.all, rest));
            self.begin_run(of, first, priority, parts, out)?;
            rest = others;
        }
        Ok(())
    }

    fn begin_run(
        &mut self,
        of: OperationId,
        pieces: &[Piece],
        priority: i64,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let wrong = |what: String| Broken::Policy { policy: self.policy.tag().to_owned(), what };
        let (mut elements, mut signature) = (0, SignatureHash::default());
        for piece in pieces {
            let tensor = &self.tensors.all[piece.tensor as usize];
            let Some((range, _)) = tensor.elements(piece) else {
                return Err(wrong(format!("{piece:?} of `{}`, out of turn", tensor.name)));
            };
            let whole = piece.bytes == tensor.request.bytes && pieces.len() == 1;
            if !whole && tensor.request.operation.is_sharded() {
                let what = tensor.request.operation;
                return Err(wrong(format!("part of {what} of `{}`", tensor.name)));
            }
            elements += range.end - range.start;
            signature = signature.and(tensor.hash, tensor.key, range.start, range.end);
        }
        let first = &self.tensors.all[pieces[0].tensor as usize];
        let (key, generation, width) = (first.key, first.generation(), first.width);
        let part = first.elements(&pieces[0]).map_or(0, |(_, part)| part);
        let (epoch, group) = (self.epoch, self.group);
        let operation = OperationName { epoch, group, key, generation, part };
        if elements == 0 {
            for piece in pieces {
                self.tensors.all[piece.tensor as usize].begin(piece, None);
            }
            if self.operations.one_over(of) {
                self.finished_here(of);
            }
            return Ok(());
        }
        let (kind, ranks) = (first.request.operation, u64::from(self.ranks));
        // By what the tensor is called, and not by which others a rank has; its parts one after the other.
        let turn = key.0.wrapping_add(u64::from(part)) % ranks.max(1);
        let turn = u32::try_from(turn).expect("below the number of ranks");
        let of_size = parts.of(Wanted { operation: kind, root: 0, turn, elements, width })?;
        let (id, progress) = self.executor.issue(of_size.stages, ALONE, priority)?;
        let all = &self.tensors.all;
        let shares = pieces.iter().filter_map(|piece| {
            let tensor = &all[piece.tensor as usize];
            let (elements, part) = tensor.elements(piece)?;
            let (key, unused) = (tensor.key, tensor.unused);
            Some(Share { slice: Slice { tensor: piece.tensor, key, elements, unused }, part })
        });
        self.operations.begin(id, operation, Some(of), shares);
        for piece in pieces {
            self.tensors.all[piece.tensor as usize].begin(piece, Some(id));
        }
        out.push(Action::Begin { id, operation, priority, signature, part: of_size.plan });
        if progress == Progress::Over {
            // A plan without stages: there is nobody else.
            self.collective_over(id, out);
        }
        Ok(())
    }
}
