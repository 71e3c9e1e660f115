//! The tensors of an engine, by number: how often each was exchanged, and how far the exchange under way
//! is.

use std::ops::Range;
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_coordinate::Request;
use allrail_core::{Bytes, FieldError};
use allrail_schedule::registry::Registry;
use allrail_schedule::signature::Signature;
use allrail_schedule::tensor::{Piece, Tensor};
use allrail_schedule::{Key, OperationName};

use super::event::{Home, Registration, TensorReport};
use crate::{Broken, CollectiveId, SignatureHash};

/// A part of the generation under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Running(CollectiveId),
    Over,
}

/// One tensor.
#[derive(Debug)]
pub(super) struct TensorState {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) key: Key,
    pub(super) request: Request,
    pub(super) hash: SignatureHash,
    pub(super) width: u32,
    /// Elements where it may be cut.
    granule: u64,
    elements: u64,
    place: u32,
    group: Option<u32>,
    /// How many generations were submitted.
    pub(super) submitted: u64,
    /// Of these, how many the coordinator has been told of, one after the other: beside a tagged
    /// transport it may be behind.
    told: u64,
    /// And how many all ranks agree that all have submitted.
    agreed: u64,
    /// And how many are done.
    done: u64,
    /// Of the generation under way: whether this rank takes part with zeros.
    pub(super) unused: bool,
    /// Whether the scheduler knows that it is ready.
    pub(super) ready: bool,
    /// Bytes of it that were started.
    started: u64,
    /// Elements of it that hold the result.
    finished: u64,
    parts: Vec<Part>,
}

/// Elements and bytes of a tensor.
pub(super) fn check(one: &Registration) -> Result<(u64, Bytes), Broken> {
    let mut shape = one.signature.shape.iter();
    let elements = shape.try_fold(1u64, |product, side| product.checked_mul(*side));
    let bytes = elements.and_then(|elements| elements.checked_mul(u64::from(one.width)));
    match (elements, bytes) {
        (Some(elements), Some(bytes)) if one.width > 0 => Ok((elements, Bytes::new(bytes))),
        _ => Err(Broken::Setting(FieldError::new(
            "tensor",
            one.signature.name.clone(),
            "its elements have no bytes, or it has 2^64 bytes or more",
            "a width of 4 for f32",
        ))),
    }
}

impl TensorState {
    /// The generation that was submitted last.
    pub(super) fn generation(&self) -> u64 {
        self.submitted.saturating_sub(1)
    }

    /// Whether what was submitted last is done.
    pub(super) fn is_done(&self) -> bool {
        self.submitted == self.done
    }

    /// The next generation is here.
    pub(super) fn submit(&mut self, unused: bool) {
        self.submitted += 1;
        (self.unused, self.ready) = (unused, false);
        (self.started, self.finished) = (0, 0);
        self.parts.clear();
    }

    /// What the coordinator has to hear of it now, if anything: a generation once the one before is
    /// agreed.
    pub(super) fn tell(&mut self) -> Option<Request> {
        let is_next = self.told == self.agreed && self.told < self.submitted;
        is_next.then(|| {
            self.told += 1;
            self.request
        })
    }

    /// All ranks have submitted a generation. False if this one has not said so.
    pub(super) fn agree(&mut self) -> bool {
        let asked = self.agreed < self.told;
        self.agreed += u64::from(asked);
        asked
    }

    /// Generations before this one were exchanged without a coordinator.
    pub(super) fn agreed_apart(&mut self, generation: u64) {
        (self.told, self.agreed) = (generation, generation);
    }

    /// Whether all of it has started.
    pub(super) fn is_started(&self) -> bool {
        self.ready && self.started == self.request.bytes.count()
    }

    /// Whether all of it is over on this rank.
    pub(super) fn is_whole(&self) -> bool {
        self.is_started() && self.parts.iter().all(|part| *part == Part::Over)
    }

    /// The generation under way is done.
    pub(super) fn done(&mut self) -> u64 {
        self.done = self.submitted;
        self.generation()
    }

    /// Where byte `at` falls, cut at a granule.
    fn cut(&self, at: u64) -> u64 {
        if at >= self.request.bytes.count() {
            return self.elements;
        }
        at / (self.granule * u64::from(self.width)) * self.granule
    }

    /// The elements of a piece, and which part of the tensor they are. Pieces start one after the other:
    /// so a part's number says the same on every rank.
    pub(super) fn elements(&self, piece: &Piece) -> Option<(Range<u64>, u32)> {
        let (from, bytes) = (piece.offset.count(), piece.bytes.count());
        let to = from.checked_add(bytes).filter(|to| *to <= self.request.bytes.count())?;
        let goes_on = self.ready && bytes > 0 && from == self.started;
        let part = u32::try_from(self.parts.len()).ok().filter(|_| goes_on)?;
        Some((self.cut(from)..self.cut(to), part))
    }

    /// A piece has started.
    pub(super) fn begin(&mut self, piece: &Piece, id: Option<CollectiveId>) {
        self.started += piece.bytes.count();
        self.parts.push(id.map_or(Part::Over, Part::Running));
    }

    /// A part of it is over on this rank.
    pub(super) fn over(&mut self, part: u32, elements: u64) {
        if let Some(part) = self.parts.get_mut(part as usize) {
            *part = Part::Over;
        }
        self.finished += elements;
    }

    /// Where frames of an operation on it belong.
    pub(super) fn home(&self, operation: &OperationName) -> Result<Home, Broken> {
        match operation.generation.cmp(&self.submitted.wrapping_sub(1)) {
            _ if self.submitted == 0 => Ok(Home::Early),
            std::cmp::Ordering::Greater => Ok(Home::Early),
            std::cmp::Ordering::Less => Err(Broken::Old(*operation)),
            std::cmp::Ordering::Equal => match self.parts.get(operation.part as usize) {
                Some(Part::Running(id)) => Ok(Home::Running(*id)),
                Some(Part::Over) => Err(Broken::Old(*operation)),
                None if self.started == self.request.bytes.count() && self.ready => {
                    Err(Broken::UnknownOperation(*operation))
                }
                None => Ok(Home::Early),
            },
        }
    }

    fn report(&self) -> TensorReport {
        let finished = self.is_done() || self.submitted > 0 && self.finished == self.elements;
        TensorReport {
            name: self.name.clone(),
            submitted: self.submitted,
            finished,
            elements: if finished { self.elements } else { self.finished },
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Tensors {
    pub(super) registry: Arc<Registry>,
    pub(super) all: Vec<TensorState>,
}

impl Tensors {
    /// Numbered by name.
    pub(super) fn new(
        registered: &[Registration],
        operation: Operation,
        granule: Bytes,
    ) -> Result<Self, Broken> {
        let mut registered: Vec<&Registration> = registered.iter().collect();
        registered.sort_by(|one, other| one.signature.cmp(&other.signature));
        let signatures = registered.iter().map(|one| one.signature.clone()).collect();
        let registry = Arc::new(Registry::new(signatures)?);
        let state = |(number, one): (u32, &&Registration)| {
            let (elements, bytes) = check(one)?;
            // Of an all-gather, too: what is registered is the whole buffer, not what a rank brings.
            let signature = one.signature.fingerprint(false);
            let (tensor, root) = (number, 0);
            let Signature { dtype, shape, strides, .. } = &one.signature;
            let hash = SignatureHash::new(operation, root, dtype, shape, strides);
            Ok(TensorState {
                name: one.signature.name.clone(),
                dtype: one.signature.dtype.clone(),
                key: Key::of(&one.signature.name),
                request: Request { tensor, operation, bytes, root, signature },
                hash,
                width: one.width,
                granule: granule.count().div_ceil(u64::from(one.width)),
                elements,
                place: one.place,
                group: one.group,
                submitted: 0,
                told: 0,
                agreed: 0,
                done: 0,
                unused: false,
                ready: false,
                started: 0,
                finished: 0,
                parts: Vec::new(),
            })
        };
        let all = (0..).zip(&registered).map(state).collect::<Result<_, Broken>>()?;
        Ok(Self { registry, all })
    }

    /// As the tensor schedulers see them.
    pub(super) fn for_scheduler(&self) -> Vec<Tensor> {
        let of = |one: &TensorState| Tensor {
            bytes: one.request.bytes,
            place: one.place,
            group: one.group,
        };
        self.all.iter().map(of).collect()
    }

    /// The tensors of each group.
    pub(super) fn groups(&self) -> Vec<Vec<u32>> {
        let mut names: Vec<u32> = self.all.iter().filter_map(|one| one.group).collect();
        names.sort_unstable();
        names.dedup();
        let of = |group: &u32| {
            let members = (0u32..).zip(&self.all).filter(|(_, one)| one.group == Some(*group));
            members.map(|(number, _)| number).collect()
        };
        names.iter().map(of).collect()
    }

    pub(super) fn number(&self, key: Key) -> Result<u32, Broken> {
        self.registry.of_key(key).ok_or(Broken::UnknownTensor(key))
    }

    pub(super) fn of_key(&self, key: Key) -> Result<&TensorState, Broken> {
        Ok(&self.all[self.number(key)? as usize])
    }

    /// Where every tensor is.
    pub(super) fn report(&self) -> Vec<TensorReport> {
        self.all.iter().map(TensorState::report).collect()
    }
}
