//! A product of matrices by its shape: tiles shared out over units, in waves, or the memory's bandwidth.
//!
//! With m × k times k × n, tiles of a × b, U units, peak P, part reached r, cache bandwidth C and memory
//! bandwidth M (both over all units, w bytes an element):
//!
//! ```text
//! one tile = max(2 · a · b · (k + FILL) / (r · P / U), (a + b) · k · w / (C / U))
//! compute  = ceil(m/a · n/b · copies / U) · one tile
//! memory   = copies · (m·k + k·n) · w + m·n · w_out) / M
//! time     = max(compute, memory) + start, of the tile that takes least
//! ```
//!
//! Waves and tiles are what makes small products slow (NVIDIA, "Matrix multiplication background", 2020).
//! `FILL` stands for filling a tile's pipeline and writing its result. It is fitted to single kernels: with it an
//! A100's 64 products of 2048 × 256 × 2048 come out at 145 TFLOP/s (130 in EleutherAI's cookbook,
//! `benchmarks/sizing/sample_results`), those of 2048 × 2048 × 256 at 221 (219), and those of XLA's
//! table of an H100 (`matmul_interpolator_data.h`, 32 shapes with an inner dimension of 256 to 4,096) 10 % too
//! fast on average, most where all is over in 10 µs.
//!
//! Operands whose rows are no multiple of 16 bytes cannot be fetched by tensor cores: these products run on the
//! vector units, at the peak of fp32. Where rows are a multiple of 16 bytes but not of 32, libraries take small
//! tiles on some devices, which reach a part of the rest (`half_aligned` of the device).
//!
//! Ignored: split-k beyond what `SPLITS` has, clocks, other kernels at the same time.

/// A product with weights (`rows` × `inputs` times `inputs` × `outputs`) of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of one sample, of all copies.
    pub rows: u64,
    /// The inner dimension.
    pub inputs: u64,
    /// Columns.
    pub outputs: u64,
    /// How many weights there are, each for its share of the rows.
    pub copies: u64,
    /// What tensor parallelism divides.
    pub split: Split,
    /// Whether it is computed in fewer bits, where a recipe says so.
    pub scaled: bool,
}

/// What tensor parallelism divides of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Nothing.
    None,
    /// The inner dimension.
    Inputs,
    /// The columns.
    Outputs,
}

/// Tiles that libraries have.
const TILES: &[(u64, u64)] =
    &[(256, 128), (128, 256), (128, 128), (256, 64), (128, 64), (64, 128), (64, 64)];

/// Into how many parts the inner dimension may be cut, so that more units have work.
const SPLITS: &[u64] = &[1, 2, 4, 8];

/// Inner elements' worth of time that a tile begins and ends in.
const FILL: f64 = 192.0;

/// The device, as a product of one format sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// FLOP/s that the best shape reaches, of all units.
    pub(crate) reached: f64,
    /// FLOP/s of what is not aligned.
    pub(crate) unaligned: f64,
    /// The part of `reached` where rows are a multiple of 16 bytes, but not of 32.
    pub(crate) half_aligned: f64,
    /// How many.
    pub(crate) units: f64,
    /// Bytes a second of the cache.
    pub(crate) cache: f64,
    /// Bytes a second of the memory.
    pub(crate) memory: f64,
    /// Bytes of an operand's element.
    pub(crate) width: f64,
}

/// Rows, columns, inner dimension, and how many of these.
pub(crate) type Shape = [u64; 4];

impl Rates {
    /// Seconds, without the start.
    ///
    /// `lines`: elements of a row of the operands as they lie in memory.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn seconds(&self, [m, n, k, copies]: Shape, lines: &[u64]) -> f64 {
        if m == 0 || n == 0 || k == 0 || copies == 0 {
            return 0.0;
        }
        let [rows, columns, inner, count] = [m, n, k, copies].map(|size| size as f64);
        let operands = rows * inner + inner * columns;
        // A result has two bytes at least.
        let bytes = count * (operands * self.width + rows * columns * self.width.max(2.0));
        let memory = bytes / self.memory;
        let aligned = |to: f64| lines.iter().all(|size| (*size as f64 * self.width) % to == 0.0);
        if !aligned(16.0) {
            return memory.max(2.0 * rows * columns * inner * count / self.unaligned);
        }
        let part = if aligned(32.0) { 1.0 } else { self.half_aligned };
        let (rate, cache) = (part * self.reached / self.units, self.cache / self.units);
        let of = |(a, b): (u64, u64), split: u64| {
            let part = inner / split as f64;
            let tiles = m.div_ceil(a) as f64 * n.div_ceil(b) as f64 * count * split as f64;
            let (a, b) = (a as f64, b as f64);
            let compute = 2.0 * a * b * (part + FILL) / rate;
            let tile = compute.max((a + b) * part * self.width / cache);
            // What was cut is summed, in four bytes.
            let sums = if split == 1 { 0.0 } else { 8.0 * rows * columns * count * split as f64 };
            (tiles / self.units).ceil() * tile + sums / self.memory
        };
        let all = TILES.iter().flat_map(|tile| SPLITS.iter().map(|split| of(*tile, *split)));
        memory.max(all.fold(f64::INFINITY, f64::min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An A100: 312 TFLOP/s, of which 87 % are reached.
    const RATES: Rates = Rates {
        reached: 271e12,
        unaligned: 19.5e12,
        half_aligned: 0.55,
        units: 108.0,
        cache: 7.2e12,
        memory: 1.8e12,
        width: 2.0,
    };

    fn rate([m, n, k, copies]: Shape) -> f64 {
        let flops = 2.0 * (m * n * k * copies) as f64;
        flops / RATES.seconds([m, n, k, copies], &[n, k]) / 1e12
    }

    #[test]
    fn large_products_come_near_what_is_reached_and_none_is_above() {
        assert!(rate([8192, 8192, 8192, 1]) > 240.0, "{}", rate([8192, 8192, 8192, 1]));
        for shape in [[64, 64, 64, 1], [4096, 1024, 512, 8], [123, 4567, 89, 3], [1 << 12; 4]] {
            assert!(rate(shape) <= 271.0, "{shape:?}: {}", rate(shape));
        }
    }

    #[test]
    fn one_tile_more_than_the_units_have_costs_a_wave() {
        // 108 tiles of 256 × 128 are one wave.
        let (full, more) =
            (RATES.seconds([256 * 12, 128 * 9, 8192, 1], &[]), [256 * 12, 128 * 10, 8192, 1]);
        assert!(RATES.seconds(more, &[]) > 1.2 * full);
    }

    #[test]
    fn a_narrow_product_is_bound_by_memory() {
        let bytes = 2.0 * (8.0 * 4096.0 + 4096.0 * 4096.0 + 8.0 * 4096.0);
        let found = RATES.seconds([8, 4096, 4096, 1], &[4096]);
        assert!((found / (bytes / 1.8e12) - 1.0).abs() < 0.3, "{found}");
    }

    #[test]
    fn rows_of_sixteen_bytes_are_slower_than_of_thirty_two() {
        let (whole, half) = (rate([4096, 1808, 8192, 1]), rate([4096, 1800, 8192, 1]));
        assert!((half / whole - 0.55).abs() < 0.02, "{whole} {half}");
    }

    #[test]
    fn a_shallow_product_is_as_slow_as_published() {
        // EleutherAI's cookbook, an A100 whose largest product reaches 255: attention's two of 64 heads of 256.
        let rates = Rates { reached: 255e12, ..RATES };
        for (shape, published) in [([2048, 2048, 256, 64], 130.0), ([2048, 256, 2048, 64], 219.0)] {
            let flops = 2.0 * shape.iter().product::<u64>() as f64;
            let ours = flops / rates.seconds(shape, &[]) / 1e12;
            assert!((ours / published - 1.0).abs() < 0.15, "{shape:?}: {ours}, not {published}");
        }
    }

    #[test]
    fn what_is_not_aligned_runs_without_tensor_cores() {
        assert!(rate([2048, 2048, 108, 64]) < 19.6);
        assert!(rate([2048, 2048, 112, 64]) > 60.0);
    }
}
