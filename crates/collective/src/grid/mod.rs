//! All-reduce over `rows` × `columns` NPUs in a grid: one file an algorithm, one line in [`ALL`].
//!
//! Rank = row · columns + column. With `p` ranks, `S` bytes, `r` rows, `c` columns, `l` the larger and
//! `s` the smaller of the two; links are the four of an NPU on a torus, one each way a cable:
//!
//! | | steps | bytes on the busiest link | the same, steps in time with each other |
//! |---|---|---|---|
//! | `rings` | 2(p − 1) | (S/2)(p − 1)/p | the same |
//! | `torus` | 2(r − 1) + 2(c − 1) | (S/2)(1 − 1/l)(1 + 1/s) | S − S(s² + 1)/2ls |
//! | `ring` | 2(p − 1) | S(p − 1)/p | the same |
//! | `ring_unidirectional` | 2(p − 1) | 2S(p − 1)/p | the same |
//! | `hierarchical` | 2(r − 1) + 2(c − 1) | S(c − 1)/c | S(p − 1)/p |
//! | `tree` | 16 + 2⌊log₂ p⌋ − 1 | depends on the routing | |
//!
//! Of a square, `torus` loads its links as `rings` does: (S/2)(1 − 1/p). Where the published forms
//! differ (Hoefler et al., "`HammingMesh`", SC'22, Section V): they leave the −1 out (2pα, Sβ/2), and
//! print Sβ(1 + 2q)/(4q) for `torus` on q × q, which is more than its own three phases add up to.
//!
//! A buffer is padded to whole blocks, as in every [`Program`]: p for `ring_unidirectional`, 2p for
//! `ring`, 4p for `rings` and `hierarchical`, 8p for `torus`, 32 for `tree`.
//!
//! Its halves, and broadcasts, are in [`group`].
//!
//! [`GridAllReduce::program`] is what the verifier proves, [`GridAllReduce::steps`] what network models run:
//! the same messages, computed when they are asked for. A program has `p · steps` lists of blocks; it
//! is meant for small grids.
//!
//! ```
//! use allrail_collective::grid::named;
//! use allrail_core::Bytes;
//!
//! let rings = named("rings")?;
//! rings.check(32, 32)?;
//! let steps = rings.steps(32, 32, Bytes::new(4096 << 10));
//! let mut sends = Vec::new();
//! steps.sends(0, 7, &mut sends);
//! let block = Bytes::new(1 << 10);
//! assert_eq!(sends, [(1, block), (992, block), (32, block), (31, block)]);
//! assert_eq!(steps.alike()[0], 0..2 * 1023);
//! assert!(rings.check(96, 4).is_err());
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

pub mod group;
pub mod hamiltonian;
mod hierarchical;
mod ring;
mod ring_steps;
mod ring_unidirectional;
mod rings;
mod torus;
mod tree;

pub use group::{GridGroup, Half, Spread};
pub use ring::Ring;

use allrail_core::{Bandwidth, Bytes, FieldError, Time};

use crate::{CollectiveError, Program, Steps};

/// An all-reduce over ranks in a grid. Drivers ask it for steps, the verifier for its program. What it does
/// of other group collectives is its [`GridGroup`].
pub trait GridAllReduce: GridGroup {
    /// The tag in scenario files.
    fn tag(&self) -> &'static str;

    /// One line for the docs: what it does and where it comes from.
    fn about(&self) -> &'static str;

    /// Refuses grids that it cannot run on; the others of this trait are only asked for those it can.
    ///
    /// # Errors
    /// [`CollectiveError::Field`] with the reason and what to take instead.
    fn check(&self, rows: u32, columns: u32) -> Result<(), CollectiveError>;

    /// Its messages with the blocks that they carry.
    fn program(&self, rows: u32, columns: u32) -> Program;

    /// Its messages for a buffer of `size`, padded to whole blocks.
    fn steps(&self, rows: u32, columns: u32, size: Bytes) -> Box<dyn Steps>;

    /// What it costs on a torus.
    fn cost(&self, rows: u32, columns: u32) -> GridCost;

    /// Whose first half stands for a reduce-scatter, and whose second for an all-gather, where this
    /// all-reduce is chosen.
    fn halves(&self) -> &'static dyn GridAllReduce {
        &ring::Ring
    }
}

impl std::fmt::Debug for dyn GridAllReduce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tag())
    }
}

/// What an all-reduce of `S` bytes costs, in closed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridCost {
    /// Steps, each of which costs one latency.
    pub steps: u32,
    /// Bytes that the busiest NPU sends on all its links, as a fraction of `S`.
    pub sent: (u64, u64),
    /// On the links of a torus; `None` where messages cross several, which depends on the routing.
    pub link: Option<LinkCost>,
}

/// Bytes on the busiest directed link of a torus whose NPUs have four cables each. (A dimension of 2
/// has one cable in a fabric, for which these forms count two.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCost {
    /// In all, as a fraction of `S`.
    pub bytes: (u64, u64),
    /// The sum over the steps of the most that a link carries in that step, as a fraction of `S`.
    pub in_step: (u64, u64),
}

impl GridCost {
    /// Its time on a torus if all ranks keep step: steps · latency + `in_step` · size / bandwidth.
    /// `None` for an algorithm without that closed form, or beyond what [`Time`] holds.
    #[must_use]
    pub fn time(&self, size: Bytes, latency: Time, link: Bandwidth) -> Option<Time> {
        let (above, below) = self.link?.in_step;
        let bytes = u128::from(above).checked_mul(u128::from(size.count()))?;
        let serial = link.time_for_fraction(bytes, u128::from(below))?;
        latency.checked_mul(u64::from(self.steps))?.checked_add(serial)
    }

    /// How its time without latencies compares with `S/2` bytes a link, which is what a sum costs if
    /// an NPU sends 2S over its four links: p/(p − 1) for the best algorithms, as the last 1/p of a
    /// buffer need not be sent.
    #[must_use]
    pub fn share_of_peak(&self) -> Option<f64> {
        self.link.map(|link| link.in_step.1 as f64 / (2.0 * link.in_step.0 as f64))
    }
}

/// Every algorithm, in the order of the docs.
pub static ALL: &[&dyn GridAllReduce] = &[
    &rings::Rings,
    &torus::Torus,
    &ring::Ring,
    &ring_unidirectional::RingUnidirectional,
    &hierarchical::Hierarchical,
    &tree::Tree,
];

/// The algorithm with this tag.
///
/// # Errors
/// [`CollectiveError::UnknownAlgorithm`] with the known names.
pub fn named(name: &str) -> Result<&'static dyn GridAllReduce, CollectiveError> {
    ALL.iter().copied().find(|algorithm| algorithm.tag() == name).ok_or_else(|| {
        CollectiveError::UnknownAlgorithm {
            name: name.to_owned(),
            known: ALL.iter().map(|algorithm| algorithm.tag().to_owned()).collect(),
        }
    })
}

/// The most ranks of a grid: 8 blocks for each are still counted in 32 bits.
const MOST_RANKS: u64 = 1 << 24;

/// Refuses what is no grid, or one without `lines` to go along in both directions.
fn check_size(tag: &str, rows: u32, columns: u32, lines: bool) -> Result<(), CollectiveError> {
    let ranks = u64::from(rows) * u64::from(columns);
    if ranks < 2 {
        let why = "fewer than 2 ranks have nothing to reduce";
        return Err(refusal(tag, rows, columns, why, "take 2 ranks or more"));
    }
    if lines && (rows < 2 || columns < 2) {
        let why = "it needs 2 rows and 2 columns at least";
        return Err(refusal(tag, rows, columns, why, "take `ring`"));
    }
    if ranks > MOST_RANKS {
        let why = format!("a grid has {MOST_RANKS} ranks at most");
        return Err(refusal(tag, rows, columns, why, "take fewer rows or columns"));
    }
    Ok(())
}

fn refusal(
    tag: &str,
    rows: u32,
    columns: u32,
    why: impl Into<String>,
    hint: impl Into<String>,
) -> CollectiveError {
    CollectiveError::Field(FieldError::new(
        "traffic.algorithm",
        format!("{tag} on {rows}x{columns}"),
        why,
        hint,
    ))
}

/// What a rank must send at least, and with rings sends: `2(p − 1)/p` of the buffer.
fn least_sent(rows: u32, columns: u32) -> (u64, u64) {
    let p = u64::from(rows) * u64::from(columns);
    (2 * (p - 1), p)
}

/// One of `blocks` equal blocks of `size`, padded.
fn block(size: Bytes, blocks: u32) -> Bytes {
    Bytes::new(size.count().div_ceil(u64::from(blocks)))
}
