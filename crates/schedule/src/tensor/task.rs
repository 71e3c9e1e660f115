//! The communication task of ByteScheduler (SOSP'19, §3): one tensor, cut into partitions that are
//! started and finish on their own.
//!
//! A task lives through iterations: waiting for its tensor, ready, in flight, done. With servers a
//! partition is pushed, then pulled; the task is done when the last partition has been.

use allrail_core::Bytes;

use super::{Leg, Piece, Tensor};
use crate::error::ScheduleError;

/// So many partitions may a tensor have.
pub const MAX_PARTITIONS: u64 = 1 << 20;

/// One tensor's communication.
#[derive(Clone, Debug)]
pub struct CommTask {
    tensor: u32,
    bytes: Bytes,
    place: u32,
    /// Bytes whose last leg has not finished; `None` while the tensor is not ready.
    left: Option<u64>,
}

impl CommTask {
    /// Of the tensor with this index.
    #[must_use]
    pub fn new(index: u32, tensor: &Tensor) -> Self {
        Self { tensor: index, bytes: tensor.bytes, place: tensor.place, left: None }
    }

    /// How urgent: place in the forward pass.
    #[must_use]
    pub fn place(&self) -> u32 {
        self.place
    }

    /// Its partitions in order: none larger than `size`, only the last one smaller. A tensor of no
    /// bytes has none.
    pub fn partition(&self, size: Bytes) -> impl Iterator<Item = Piece> + use<> {
        let (tensor, total, size) = (self.tensor, self.bytes.count(), size.count());
        let offsets = (0..total.div_ceil(size)).map(move |index| index * size);
        offsets.map(move |offset| Piece {
            tensor,
            offset: Bytes::new(offset),
            bytes: Bytes::new(size.min(total - offset)),
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
            return Err(ScheduleError::Field {
                field: "schedule.tensor.partition".to_owned(),
                value: size.to_string(),
                why: format!("the largest tensor would have {partitions} partitions"),
                hint: format!("at most {MAX_PARTITIONS}; the default is `4 MiB`"),
            });
        }
        Ok((0..).zip(tensors).map(|(index, tensor)| Self::new(index, tensor)).collect())
    }
}
