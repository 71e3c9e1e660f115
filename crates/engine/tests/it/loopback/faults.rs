//! Jobs in which one thing goes wrong.

use allrail_collective::Operation;
use allrail_engine::Dtype;

use super::draw::Draw;
use super::job::coordination;
use super::{Job, Transport};

/// What a rank takes a tensor, or a call, for.
#[derive(Clone, Debug)]
pub(crate) struct TakenFor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) elements: u64,
    pub(crate) operation: Operation,
    pub(crate) root: u32,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// This rank is lost.
    Lost(u32),
    /// An operation fails on this rank, after it has done so much.
    Fails(u32, u64),
    /// After so many data frames, one is delivered twice.
    Twice(u64),
    /// After so many data frames, one is delivered that is almost like it.
    Stray(u64),
    /// This rank takes a tensor for another, as the setup says.
    Differs(u32),
    /// After so many messages of coordinators, one is changed on its way, and found to be.
    Garbled(u64),
}

impl Job {
    /// [`Job::engines`], and one thing goes wrong.
    pub(crate) fn faulty(seed: u64, most_ranks: u32) -> Self {
        let mut draw = Draw(seed ^ 1 << 51);
        let transport = draw.one_of(&[Transport::Tagged, Transport::InOrder]);
        let mut job = Self::engines(seed, most_ranks, transport);
        let rank = draw.below(job.ranks() as usize) as u32;
        job.fault = Some(match draw.below(6) {
            0 => Fault::Lost(rank),
            1 => Fault::Twice(draw.next() % 200),
            2 => Fault::Stray(draw.next() % 200),
            3 => Fault::Fails(rank, draw.next() % 60),
            _ => Fault::Differs(rank),
        });
        let tensor = draw.below(job.tensors.len());
        let mut taken = job.taken_for(rank, tensor);
        if let (Some(Fault::Differs(_)), Some(setup)) = (job.fault, &mut job.engine) {
            match draw.below(3) {
                0 => taken.name = "another".to_owned(),
                1 => taken.dtype = another(&mut draw, &Dtype::ALL, taken.dtype),
                // So that all ranks of an all-to-all still have a shard.
                _ => taken.elements += 100 * u64::from(job.sizes.iter().product::<u32>()),
            }
            setup.differs.insert((rank, tensor), taken);
            // Where the others have nothing to send, only a coordinator can say that one waits for it.
            let any = coordination(&mut draw, Transport::InOrder);
            let nothing = job.tensors[tensor].elements == 0;
            setup.coordination = setup.coordination.take().or(any.filter(|_| nothing));
        }
        job
    }

    /// [`Job::engines`] with coordinators, one of whose messages cannot be understood.
    pub(crate) fn garbled(seed: u64, most_ranks: u32) -> Self {
        let mut draw = Draw(seed ^ 1 << 55);
        let transport = draw.one_of(&[Transport::Tagged, Transport::InOrder]);
        let mut job = Self::engines(seed, most_ranks, transport);
        let any = coordination(&mut draw, Transport::InOrder);
        if let Some(setup) = &mut job.engine {
            setup.coordination = setup.coordination.take().or(any);
        }
        job.fault = Some(Fault::Garbled(draw.next() % 40));
        job
    }

    /// [`Job::calls`], and one thing goes wrong.
    pub(crate) fn faulty_calls(seed: u64, most_ranks: u32) -> Self {
        let mut draw = Draw(seed ^ 1 << 53);
        let mut job = Self::calls(seed, most_ranks);
        let rank = draw.below(job.ranks() as usize) as u32;
        let call = draw.below(job.tensors.len());
        let ranks = job.group(&job.tensors[0].dimensions, rank).len() as u64;
        job.fault = Some(match draw.below(8) {
            0 => Fault::Lost(rank),
            1 => Fault::Twice(draw.next() % 200),
            2 => Fault::Stray(draw.next() % 200),
            3 => Fault::Fails(rank, draw.next() % 60),
            _ => Fault::Differs(rank),
        });
        if job.fault == Some(Fault::Differs(rank)) {
            let mut taken = job.taken_for(rank, call);
            let mut kinds: Vec<Operation> = job.tensors.iter().map(|one| one.operation).collect();
            kinds.retain(|kind| {
                let fits = *kind != Operation::AllToAll || taken.elements.is_multiple_of(ranks);
                *kind != taken.operation && fits
            });
            match draw.below(4) {
                0 if !kinds.is_empty() => (taken.operation, taken.root) = (draw.one_of(&kinds), 0),
                0 | 1 if taken.operation == Operation::Broadcast && ranks > 1 => {
                    // Where the root itself waits for another, no frame is sent.
                    if draw.one_in(2) {
                        job.tensors[call].root = job.place(rank);
                    }
                    taken.root = (job.tensors[call].root + 1) % ranks as u32;
                }
                2 => taken.elements += 100 * ranks,
                _ => taken.dtype = another(&mut draw, &Dtype::ALL, taken.dtype),
            }
            let setup = job.engine.as_mut().expect("calls are for engines");
            setup.differs.insert((rank, call), taken);
        }
        job
    }
}

/// One of these that is not this one.
fn another<T: Copy + PartialEq>(draw: &mut Draw, all: &[T], than: T) -> T {
    let others: Vec<T> = all.iter().copied().filter(|other| *other != than).collect();
    draw.one_of(&others)
}
