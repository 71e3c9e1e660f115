//! Two narrow matrices (Vogels, Karimireddy and Jaggi, NeurIPS 2019, algorithms 1 and 2).
//!
//! A gradient of n rows and, its other axes together, m columns, at rank r; in fp32 where its
//! numbers have less than 4 bytes, so v = max(w, 4) bytes a number.
//!
//! | | |
//! |---|---|
//! | bytes | r · n · v, then r · m · v; as it is where these are more than half of n · m · w, or it has one axis |
//! | collectives | two all-reduces, one after the other |
//! | before the first | M = G + error: reads n · m (w + v), writes n · m · v; P = M Q: 2 n m r FLOPs, reads n · m · v |
//! | before the second | P made orthonormal by reflections: 4 n r² FLOPs (Golub and Van Loan, §5.2); Q = Mᵀ P: 2 n m r, reads n · m · v; error = M - P Qᵀ: 2 n m r, reads and writes n · m · v |
//! | after | P Qᵀ: 2 n m r FLOPs, writes n · m · v, reads it and writes n · m · w |

use allrail_collective::Operation;
use allrail_core::FieldError;

use super::{Compression, CompressionSpec, Exchange, Gradient, Known, Travel, wrong};
use crate::device::Cost;

pub(super) const KNOWN: Known = Known {
    tag: "power_sgd",
    about: "gradients of matrices as products of two narrow ones; what is left out waits",
    parameters: &["rank"],
    make,
};

fn make(spec: &CompressionSpec) -> Result<Box<dyn Compression>, FieldError> {
    let rank = spec.rank.unwrap_or(4);
    if rank == 0 {
        let hint = "1 or more: 1, 2 and 4 are usual";
        return Err(wrong("rank", rank, "it is no rank of a matrix", hint));
    }
    Ok(Box::new(PowerSgd { rank: u64::from(rank) }))
}

#[derive(Debug)]
struct PowerSgd {
    rank: u64,
}

impl Compression for PowerSgd {
    fn travel(&self, gradient: &Gradient<'_>) -> Option<Travel> {
        let (rows, rest) = gradient.shape.split_first()?;
        let (rows, columns, r) = (*rows, rest.iter().product::<u64>(), self.rank);
        let (narrow, wide) = (gradient.width, gradient.width.max(4));
        let sent = rows.saturating_add(columns).saturating_mul(r).saturating_mul(2 * wide);
        if rest.is_empty() || sent > gradient.bytes() || gradient.bytes() == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let cost = |flops: u64, bytes: u64| Cost { flops: flops as f64, bytes: bytes as f64 };
        let all = rows * columns;
        let product = 2 * all * r;
        let exchange =
            |bytes: u64, before: Cost| Exchange { operation: Operation::AllReduce, bytes, before };
        let first = cost(product, all * (narrow + 3 * wide));
        let second = cost(2 * product + 4 * rows * r * r, 3 * all * wide);
        Some(Travel {
            exchanges: vec![exchange(rows * r * wide, first), exchange(columns * r * wide, second)],
            after: cost(product, all * (2 * wide + narrow)),
        })
    }
}
