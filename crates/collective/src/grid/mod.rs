//! STAND-IN for all-reduces on grids.
use allrail_core::Bytes;

use crate::{CollectiveError, Steps};

#[allow(missing_docs)]
pub trait GridAllReduce: Sync {
    fn tag(&self) -> &'static str;
    fn check(&self, rows: u32, columns: u32) -> Result<(), CollectiveError>;
    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps>;
}

struct Ring;
struct RingSteps(u32, Bytes);

impl GridAllReduce for Ring {
    fn tag(&self) -> &'static str {
        "ring"
    }
    fn check(&self, _: u32, _: u32) -> Result<(), CollectiveError> {
        Ok(())
    }
    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps> {
        let ranks = rows * columns;
        Box::new(RingSteps(ranks, Bytes::new(size.count().div_ceil(2 * u64::from(ranks)))))
    }
}

impl Steps for RingSteps {
    fn ranks(&self) -> u32 {
        self.0
    }
    fn steps(&self) -> u32 {
        2 * (self.0 - 1)
    }
    fn sends(&self, rank: u32, _: u32, out: &mut Vec<(u32, Bytes)>) {
        out.push(((rank + 1) % self.0, self.1));
        out.push(((rank + self.0 - 1) % self.0, self.1));
    }
    fn expected(&self, _: u32, _: u32) -> u32 {
        2
    }
    fn alike(&self) -> Vec<std::ops::Range<u32>> {
        std::iter::once(0..self.steps()).collect()
    }
}

#[allow(missing_docs)]
pub static ALL: &[&dyn GridAllReduce] = &[&Ring];

#[allow(missing_docs)]
pub fn named(tag: &str) -> Result<&'static dyn GridAllReduce, CollectiveError> {
    ALL.iter().find(|one| one.tag() == tag).copied().ok_or_else(|| {
        CollectiveError::UnknownAlgorithm {
            name: tag.to_owned(),
            known: ALL.iter().map(|a| a.tag()).collect(),
        }
    })
}
