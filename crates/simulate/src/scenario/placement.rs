//! On which NPUs a job's ranks are: the key `placement`.

use allrail_core::{FieldError, counted};
use allrail_fabric::graph::NodeId;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SimulateError;

/// On which NPUs of the fabric a job's ranks are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Rank `r` on NPU `r`.
    #[default]
    InOrder,
    /// On NPUs drawn by the seed from all of them.
    Scattered,
    /// On the first NPUs, in an order drawn by the seed.
    Shuffled,
    /// Rank `r` on NPU `npus[r]`.
    #[serde(untagged)]
    Npus(Vec<u32>),
}

impl Placement {
    /// Whether the job is on the first NPUs, and not anywhere.
    #[must_use]
    pub(crate) fn is_on_first(&self) -> bool {
        matches!(self, Self::InOrder | Self::Shuffled)
    }

    /// The NPU of each of `ranks` ranks, of `npus`.
    ///
    /// # Errors
    /// More ranks than NPUs; a list that names one twice, or one that does not exist.
    pub fn places(&self, ranks: u32, npus: u32, seed: u64) -> Result<Vec<NodeId>, SimulateError> {
        let wrong = |value: String, why: String, hint: &str| {
            SimulateError::Field(FieldError::new("placement", value, why, hint))
        };
        if ranks > npus {
            let why = format!("the fabric has {npus}", npus = counted(npus, "NPU"));
            return Err(wrong(counted(ranks, "rank"), why, "take a larger fabric"));
        }
        let mut places: Vec<u32> = match self {
            Self::Npus(listed) => listed.clone(),
            _ if self.is_on_first() => (0..ranks).collect(),
            _ => (0..npus).collect(),
        };
        if matches!(self, Self::Scattered | Self::Shuffled) {
            let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x7261_6e6b_706c_6163);
            for i in 0..ranks as usize {
                let other = random.random_range(i..places.len());
                places.swap(i, other);
            }
            places.truncate(ranks as usize);
        }
        if places.len() != ranks as usize {
            let value = counted(places.len(), "NPU");
            return Err(wrong(
                value,
                format!("the job has {ranks}", ranks = counted(ranks, "rank")),
                "list one for each",
            ));
        }
        let mut seen = vec![false; npus as usize];
        for npu in &places {
            match seen.get_mut(*npu as usize) {
                None => {
                    let why = format!("the NPUs are 0 to {}", npus - 1);
                    return Err(wrong(npu.to_string(), why, "name NPUs that exist"));
                }
                Some(true) => {
                    let why = "two ranks are on it".to_owned();
                    return Err(wrong(npu.to_string(), why, "name each NPU once"));
                }
                Some(seen) => *seen = true,
            }
        }
        Ok(places.into_iter().map(NodeId).collect())
    }
}
