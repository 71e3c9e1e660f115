//! The operations under way on this rank: their names and elements, in the executor's places.
//!
//! What a tensor scheduler starts is one operation, and mostly one collective. Tensors that travel together
//! and are of different types cannot share a buffer: they are as many collectives, and the operation is
//! over with the last of them. A call is one collective, and no scheduler has started it.

use allrail_schedule::OperationName;
use allrail_schedule::tensor::OperationId;

use super::event::Slice;
use crate::CollectiveId;

/// A slice, and which part of its tensor it is.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) slice: Slice,
    pub(super) part: u32,
}

struct Slot {
    generation: u32,
    open: bool,
    name: OperationName,
    /// Of a call: none.
    of: Option<OperationId>,
    slices: Vec<Slice>,
    parts: Vec<u32>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Operations {
    slots: Vec<Slot>,
    /// Operations of several collectives: how many are not over.
    several: Vec<(OperationId, u32)>,
}

impl Operations {
    /// An operation of so many collectives begins.
    pub(super) fn expect(&mut self, of: OperationId, collectives: u32) {
        if collectives > 1 {
            self.several.push((of, collectives));
        }
    }

    /// One of its collectives begins.
    pub(super) fn begin(
        &mut self,
        id: CollectiveId,
        name: OperationName,
        of: Option<OperationId>,
        shares: impl Iterator<Item = Share>,
    ) {
        let slot = id.slot as usize;
        while self.slots.len() <= slot {
            let (slices, parts) = (Vec::new(), Vec::new());
            self.slots.push(Slot { generation: 0, open: false, name, of, slices, parts });
        }
        let slot = &mut self.slots[slot];
        (slot.generation, slot.open, slot.name, slot.of) = (id.generation, true, name, of);
        slot.slices.clear();
        slot.parts.clear();
        for share in shares {
            slot.slices.push(share.slice);
            slot.parts.push(share.part);
        }
    }

    fn slot(&self, id: CollectiveId) -> Option<&Slot> {
        let slot = self.slots.get(id.slot as usize);
        slot.filter(|slot| slot.open && slot.generation == id.generation)
    }

    /// The elements of one that is under way.
    pub(super) fn slices(&self, id: CollectiveId) -> Option<&[Slice]> {
        self.slot(id).map(|slot| slot.slices.as_slice())
    }

    /// Its slices, each with its part.
    pub(super) fn shares(&self, id: CollectiveId) -> impl Iterator<Item = (&Slice, u32)> {
        let slot = self.slot(id).into_iter();
        slot.flat_map(|slot| slot.slices.iter().zip(slot.parts.iter().copied()))
    }

    /// One is over. Whose it was; with the last one of a scheduler's operation, that too.
    pub(super) fn end(&mut self, id: CollectiveId) -> Option<(OperationName, Option<OperationId>)> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.open = false;
        let (name, of) = (slot.name, slot.of);
        Some((name, of.filter(|of| self.one_over(*of))))
    }

    /// One collective of an operation is over: whether that was the last.
    pub(super) fn one_over(&mut self, of: OperationId) -> bool {
        let Some(place) = self.several.iter().position(|(other, _)| *other == of) else {
            return true;
        };
        self.several[place].1 -= 1;
        let last = self.several[place].1 == 0;
        if last {
            self.several.swap_remove(place);
        }
        last
    }
}
