//! A collective as steps of messages of so many bytes, without saying what they carry.
//!
//! What network models need of a [`Program`] is less than what its proof needs: who sends how much to whom in
//! each step. A rank begins a step when all that it receives in the steps before has arrived. Where
//! many steps are alike, [`Steps::alike`] says so, and a driver may run some and skip the rest.

use std::ops::Range;
use std::sync::Arc;

use allrail_core::Bytes;

use crate::Program;

/// Steps of messages over ranks `0 .. ranks`.
pub trait Steps: Send + Sync {
    /// How many ranks.
    fn ranks(&self) -> u32;

    /// How many steps each rank has.
    fn steps(&self) -> u32;

    /// Appends what `rank` sends in `step`: to whom, how much.
    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>);

    /// How many messages `rank` receives in `step`.
    fn expected(&self, rank: u32, step: u32) -> u32;

    /// Runs of steps in all of which every rank sends as much to the same ranks; in order, disjoint.
    fn alike(&self) -> Vec<Range<u32>> {
        Vec::new()
    }
}

impl<T: Steps + ?std::marker::Sized> Steps for &T {
    fn ranks(&self) -> u32 {
        (**self).ranks()
    }

    fn steps(&self) -> u32 {
        (**self).steps()
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        (**self).sends(rank, step, out);
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        (**self).expected(rank, step)
    }

    fn alike(&self) -> Vec<Range<u32>> {
        (**self).alike()
    }
}

impl<T: Steps + ?std::marker::Sized> Steps for Arc<T> {
    fn ranks(&self) -> u32 {
        (**self).ranks()
    }

    fn steps(&self) -> u32 {
        (**self).steps()
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        (**self).sends(rank, step, out);
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        (**self).expected(rank, step)
    }

    fn alike(&self) -> Vec<Range<u32>> {
        (**self).alike()
    }
}

/// A program with blocks of a size.
#[derive(Clone, Copy, Debug)]
pub struct Sized<'a> {
    /// What is sent.
    pub program: &'a Program,
    /// How large one of its blocks is.
    pub block: Bytes,
}

impl Steps for Sized<'_> {
    fn ranks(&self) -> u32 {
        self.program.ranks
    }

    fn steps(&self) -> u32 {
        u32::try_from(self.program.step_count()).expect("few steps")
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        let sends = &self.program.steps[rank as usize][step as usize].sends;
        let size = |blocks: u32| Bytes::new(self.block.count() * u64::from(blocks));
        out.extend(sends.iter().map(|send| (send.to, size(send.blocks.len()))));
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        let receives = &self.program.steps[rank as usize][step as usize].receives;
        u32::try_from(receives.len()).expect("few messages")
    }
}
