//! Where the elements of a chunk lie, and which of them a rank holds between its stages.
//!
//! A chunk is divided into *cells*, one for each combination of coordinates on the dimensions that it
//! scatters or gathers over. Between two stages a rank holds, on each of these dimensions, all cells or
//! those of its own coordinate. What a stage exchanges are *digits*: those of the held cells that have
//! one coordinate on its dimension, laid end to end and cut into equal parts.

use std::ops::Range;

use super::buffer::cut;
use crate::rank::shard;

/// A dimension over which the cells of a chunk are spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) dimension: usize,
    pub(super) size: u32,
    pub(super) coordinate: u32,
    /// Whether the rank holds only its own coordinate's cells now.
    pub(super) own: bool,
}

/// How the cells of a chunk lie, counted from where the chunk begins: chunks of one layout differ only
/// in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layout {
    /// One after the other in `length` elements, cut at granules.
    Together {
        /// Elements of the chunk.
        length: u64,
    },
    /// One in each shard of the buffer, `length` elements long, at the same place of each shard.
    InShards {
        /// Elements of a whole shard.
        each: u64,
        /// How many of the first shards are whole.
        whole: u32,
        /// Elements of a cell there.
        length: u64,
        /// Elements of the cell in the next shard, which ends earlier; the rest are empty.
        last: u64,
    },
}

impl Layout {
    /// Of a chunk that takes `range` of each of the `ranks` shards of `elements`.
    pub(super) fn in_shards(elements: u64, ranks: u32, range: &Range<u64>) -> Self {
        let each = shard(elements, 0, ranks).end;
        let length = range.end - range.start;
        let whole = elements.checked_div(each).unwrap_or(0);
        Self::InShards {
            each,
            whole: u32::try_from(whole).expect("no more than there are ranks"),
            length,
            last: (elements - whole * each).saturating_sub(range.start).min(length),
        }
    }
}

/// The cells of a chunk.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// The one whose coordinate changes fastest from cell to cell is first.
    pub(super) axes: Vec<Axis>,
    pub(super) layout: Layout,
    pub(super) granule: u64,
}

impl Cells {
    fn count(&self) -> u32 {
        self.axes.iter().map(|axis| axis.size).product()
    }

    /// The elements of cells `first .. first + count`, which must follow each other.
    fn range(&self, first: u32, count: u32) -> Range<u64> {
        let all = self.count();
        match self.layout {
            Layout::Together { length } => {
                let at = |cell: u32| cut(length, self.granule, u64::from(cell), u64::from(all));
                at(first)..at(first + count)
            }
            Layout::InShards { each, whole, length, last } => {
                let start = each.saturating_mul(u64::from(first));
                let end = match (first + count).checked_sub(whole + 1) {
                    None => start + each * u64::from(count - 1) + length,
                    Some(_) if first <= whole => each * u64::from(whole) + last,
                    Some(_) => start,
                };
                start..end
            }
        }
    }

    /// Whether one cell begins where the one before it ends.
    fn contiguous(&self) -> bool {
        match self.layout {
            Layout::Together { .. } => true,
            Layout::InShards { each, length, .. } => length == each,
        }
    }

    /// Appends the held elements whose coordinate on `dimension` is `coordinate` (if the chunk is
    /// spread over it; else all that are held), ascending, without empty ranges.
    pub(super) fn held(&self, dimension: usize, coordinate: u32, out: &mut Vec<Range<u64>>) {
        let contiguous = self.contiguous();
        let (mut base, mut run, mut stride) = (0u32, 1u32, 1u32);
        // (stride, size) of the axes to be gone through one by one, the fastest first.
        let mut loops: Vec<(u32, u32)> = Vec::with_capacity(self.axes.len());
        for axis in &self.axes {
            if axis.dimension == dimension {
                base += coordinate * stride;
            } else if axis.own {
                base += axis.coordinate * stride;
            } else if contiguous && run == stride {
                run *= axis.size;
            } else {
                loops.push((stride, axis.size));
            }
            stride *= axis.size;
        }
        let first = out.len();
        let rounds: u32 = loops.iter().map(|(_, size)| size).product();
        for round in 0..rounds {
            let (mut rest, mut cell) = (round, base);
            for (stride, size) in &loops {
                cell += rest % size * stride;
                rest /= size;
            }
            push(out, first, self.range(cell, run));
        }
    }
}

/// Appends `range`; to the last of those from `first` on, if it goes on there.
pub(super) fn push(out: &mut Vec<Range<u64>>, first: usize, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    match out[first..].last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => out.push(range),
    }
}

/// Appends part `part` of `parts` of `runs` laid end to end.
pub(super) fn slice(
    runs: &[Range<u64>],
    (part, parts): (u32, u32),
    granule: u64,
    first: usize,
    out: &mut Vec<Range<u64>>,
) {
    if parts == 1 {
        for run in runs {
            push(out, first, run.clone());
        }
        return;
    }
    let length: u64 = runs.iter().map(|run| run.end - run.start).sum();
    let at = |place: u32| cut(length, granule, u64::from(place), u64::from(parts));
    let (from, to) = (at(part), at(part + 1));
    let mut before = 0;
    for run in runs {
        let after = before + (run.end - run.start);
        let (low, high) = (from.clamp(before, after), to.clamp(before, after));
        push(out, first, run.start + (low - before)..run.start + (high - before));
        before = after;
    }
}
