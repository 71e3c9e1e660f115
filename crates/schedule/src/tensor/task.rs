//! The communication task of ByteScheduler (SOSP'19, §3): one tensor, cut into partitions that are
//! started and finish on their own.
//!
//! A task lives through iterations: waiting for its tensor, ready, in flight, done. With servers a
//! partition is pushed, then pulled; the task is done when the last partition has been.
//!
//! | ByteScheduler's call | here | who calls it, and when |
//! |---|---|---|
//! | `partition(size)` | [`CommTask::cut`], [`CommTask::partitions`] | the policy, before the first iteration |
//! | `notify_ready()` | [`CommTask::notify_ready`] | the scheduler, when all ranks have the tensor |
//! | `start()` | [`CommTask::start`] | the scheduler, for each partition and leg that it starts |
//! | `notify_finish()` | [`CommTask::notify_finish`] | the scheduler, when a partition's leg is over |
//!
//! ```
//! use allrail_core::Bytes;
//! use allrail_schedule::tensor::{CommTask, Cut, Leg, Tensor};
//! let tensor = Tensor { bytes: Bytes::new(10), place: 3, group: None };
//! let mut task = CommTask::new(0, &tensor, Cut::Size(Bytes::new(4)));
//! assert!(!task.notify_ready());
//! let partitions: Vec<_> = task.partitions().collect();
//! assert_eq!(partitions.iter().map(|one| one.bytes.count()).collect::<Vec<_>>(), [4, 4, 2]);
//! assert_eq!(task.start(Leg::Whole), (Leg::Whole, -3));
//! let over: Vec<bool> = partitions.iter().map(|one| task.notify_finish(one, Leg::Whole)).collect();
//! assert_eq!(over, [false, false, true]);
//! ```

use std::sync::Arc;

use allrail_core::{Bytes, FieldError, counted};

use super::{Leg, Piece, Tensor};
use crate::error::ScheduleError;

/// So many partitions may a tensor have.
pub const MAX_PARTITIONS: u64 = 1 << 20;

/// How a tensor is cut into partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// None is larger, and only the last one is smaller. Not zero.
    Size(Bytes),
    /// These, in order; together they are the tensor, and none is empty.
    Sizes(Arc<[Bytes]>),
}

impl Cut {
    /// How many partitions a tensor of so many bytes has.
    #[must_use]
    pub fn count(&self, bytes: Bytes) -> u64 {
        match self {
            Self::Size(size) => bytes.count().div_ceil(size.count()),
            Self::Sizes(sizes) => sizes.len() as u64,
        }
    }

    /// Which partition begins at this offset.
    #[must_use]
    pub fn index(&self, offset: Bytes) -> u64 {
        match self {
            Self::Size(size) => offset.count() / size.count(),
            Self::Sizes(sizes) => {
                let mut left = offset.count();
                let before = sizes.iter().take_while(|size| {
                    let starts_later = left >= size.count();
                    left = left.saturating_sub(size.count());
                    starts_later
                });
                before.count() as u64
            }
        }
    }
}

/// One tensor's communication.
#[derive(Clone, Debug)]
pub struct CommTask {
    tensor: u32,
    bytes: Bytes,
    place: u32,
    cut: Cut,
    /// Bytes whose last leg has not finished; `None` while the tensor is not ready.
    left: Option<u64>,
}

impl CommTask {
    /// Of the tensor with this index, as urgent as its place in the forward pass.
    #[must_use]
    pub fn new(index: u32, tensor: &Tensor, cut: Cut) -> Self {
        Self { tensor: index, bytes: tensor.bytes, place: tensor.place, cut, left: None }
    }

    /// How urgent: 0 first. Its place in the forward pass, unless a policy ranks otherwise.
    #[must_use]
    pub fn place(&self) -> u32 {
        self.place
    }

    /// How it is cut.
    #[must_use]
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Cuts it otherwise from the next time on that it is ready.
    pub fn recut(&mut self, cut: Cut) {
        self.cut = cut;
    }

    /// Its partitions in order. A tensor of no bytes has none.
    pub fn partitions(&self) -> impl Iterator<Item = Piece> + use<> {
        let (tensor, total, cut) = (self.tensor, self.bytes.count(), self.cut.clone());
        let count = if total == 0 { 0 } else { cut.count(self.bytes) };
        let mut offset = 0;
        (0..count).map(move |index| {
            let bytes = match &cut {
                Cut::Size(size) => size.count().min(total - offset),
                Cut::Sizes(sizes) => sizes[usize::try_from(index).expect("an index")].count(),
            };
            let piece = Piece { tensor, offset: Bytes::new(offset), bytes: Bytes::new(bytes) };
            offset += bytes;
            piece
        })
    }

    /// The tensor is there on all ranks. True if that is all: it has no bytes.
    ///
    /// # Panics
    /// If it was ready already and is not done.
    pub fn notify_ready(&mut self) -> bool {
        assert!(self.left.is_none(), "tensor {} was ready and is not done", self.tensor);
        if self.bytes.count() > 0 {
            self.left = Some(self.bytes.count());
        }
        self.left.is_none()
    }

    /// A partition goes to the network in this leg.
    ///
    /// # Panics
    /// If the tensor is not ready.
    pub fn start(&self, leg: Leg) -> (Leg, i64) {
        assert!(self.left.is_some(), "tensor {} starts before it is ready", self.tensor);
        (leg, -i64::from(self.place))
    }

    /// A leg of a partition is over. True if the whole task is done with it.
    ///
    /// # Panics
    /// If more bytes finish than the tensor has.
    pub fn notify_finish(&mut self, piece: &Piece, leg: Leg) -> bool {
        if leg == Leg::Push {
            return false;
        }
        let left = self.left.and_then(|left| left.checked_sub(piece.bytes.count()));
        let left = left.expect("no byte of a tensor finishes twice");
        self.left = (left > 0).then_some(left);
        left == 0
    }

    /// The tasks of all tensors.
    ///
    /// # Errors
    /// If a tensor would have more than [`MAX_PARTITIONS`] partitions.
    pub(super) fn all(tensors: &[Tensor], size: Bytes) -> Result<Vec<Self>, ScheduleError> {
        let largest = tensors.iter().map(|tensor| tensor.bytes.count()).max().unwrap_or(0);
        let partitions = largest.div_ceil(size.count());
        if partitions > MAX_PARTITIONS {
            return Err(FieldError::new(
                "schedule.tensor.partition",
                size,
                format!(
                    "the largest tensor would have {partitions}",
                    partitions = counted(partitions, "partition")
                ),
                format!("at most {MAX_PARTITIONS}; the default is `4 MiB`"),
            )
            .into());
        }
        let task = |(index, tensor)| Self::new(index, tensor, Cut::Size(size));
        Ok((0..).zip(tensors).map(task).collect())
    }
}
