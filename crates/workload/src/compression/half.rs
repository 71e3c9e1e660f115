//! Two bytes a number: `fp16` and `bf16`.
//!
//! | | |
//! |---|---|
//! | bytes | 2 n of n · w; nothing changes where w ≤ 2 |
//! | collectives | one all-reduce, in the smaller type |
//! | before | reads n · w bytes, writes 2 n |
//! | after | reads 2 n bytes, writes n · w |

use allrail_collective::Operation;

use super::{Compression, Exchange, Gradient, Known, Travel, memory};

pub(super) const FP16: Known = Known {
    tag: "fp16",
    about: "gradients travel as IEEE half precision",
    parameters: &[],
    make: |_| Ok(Box::new(Half)),
};

pub(super) const BF16: Known = Known {
    tag: "bf16",
    about: "gradients travel as bfloat16",
    parameters: &[],
    make: |_| Ok(Box::new(Half)),
};

#[derive(Debug)]
struct Half;

impl Compression for Half {
    fn travel(&self, gradient: &Gradient<'_>) -> Option<Travel> {
        let small = 2 * gradient.numbers();
        let both = memory(small + gradient.bytes());
        let exchange = Exchange { operation: Operation::AllReduce, bytes: small, before: both };
        (gradient.width > 2 && small > 0).then(|| Travel { exchanges: vec![exchange], after: both })
    }
}
