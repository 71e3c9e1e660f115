//! The numbers of the largest magnitude, with error feedback (Stich, Cordonnier and Jaggi,
//! NeurIPS 2018).
//!
//! Each of R ranks sends k = ⌈share · n⌉ of n numbers, of w bytes, and their places, of 4. A slot is
//! k · w bytes rounded up to 4, and 4 k, together a multiple of w. The runtime gathers by a sum over
//! a buffer with a slot for each rank.
//!
//! | | |
//! |---|---|
//! | bytes | R · slot; as it is where that is no less than n · w, or n ≥ 2³¹ |
//! | collectives | one all-reduce |
//! | before | gradient and error are read and their sum written: 3 n · w; a selection by radix reads it once a byte of a number (Alabi et al., JEA 2012): w · n · w; the buffer is written |
//! | after | the buffer is read, a gradient of zeros written, R · k of its numbers read and written, and copied to where it belongs: 3 n · w |

use allrail_collective::Operation;
use allrail_core::FieldError;

use super::{Compression, CompressionSpec, Exchange, Gradient, Known, Travel, memory, wrong};

const WORD: u64 = 4;

pub(super) const KNOWN: Known = Known {
    tag: "top_k",
    about: "the largest numbers of a gradient and their places; what is left out waits",
    parameters: &["share"],
    make,
};

fn make(spec: &CompressionSpec) -> Result<Box<dyn Compression>, FieldError> {
    let share = spec.share.unwrap_or(0.01);
    if !(share > 0.0 && share <= 1.0) {
        let hint = "above 0 and at most 1; 0.01 sends one number in a hundred";
        return Err(wrong("share", share, "it is no share of a gradient's numbers", hint));
    }
    Ok(Box::new(TopK { share }))
}

#[derive(Debug)]
struct TopK {
    share: f64,
}

impl Compression for TopK {
    fn travel(&self, gradient: &Gradient<'_>) -> Option<Travel> {
        let (numbers, width) = (gradient.numbers(), gradient.width);
        if numbers == 0 || numbers >= 1 << 31 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "below 2^31")]
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most as many"
        )]
        let kept = (self.share * numbers as f64).ceil() as u64;
        let slot = (kept * width).next_multiple_of(WORD) + kept * WORD;
        let bytes = gradient.ranks * slot.next_multiple_of(width.max(WORD));
        let whole = gradient.bytes();
        let before = memory((3 + width) * whole + bytes);
        let exchange = Exchange { operation: Operation::AllReduce, bytes, before };
        let after = memory(3 * whole + bytes + 2 * gradient.ranks * kept * width);
        (bytes < whole).then(|| Travel { exchanges: vec![exchange], after })
    }
}
