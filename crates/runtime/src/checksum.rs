//! Checksums: CRC-32C of what goes over a wire, CRC-64/NVME of the memory that ranks compare.
//!
//! A frame's header has a checksum of its own, and so has every control message. The elements of a data frame
//! are followed by theirs (`TRAILER` bytes), because it is computed while they leave, a window at a time, so
//! that they are read from the cache twice and from memory once; the receiver computes it as they come. It is
//! compared before the frame counts as combined: nothing that depends on these elements goes on, no exchange
//! is over with them, and the job ends.
//!
//! A CRC of 32 bits finds every single flipped bit, every burst of up to 32 bits, and misses one in 2³² of all
//! other changes. It is computed with the processor's own instructions (`crc-fast`: carry-less multiplication
//! of up to 512 bits at once, PMULL on ARM), else by tables.
//!
//! Links that protect what they carry have no trailers (`Link::protects`):
//! TLS authenticates every record, and shared memory never leaves the host's own memory, where its bytes are
//! as safe as the tensors that they come from.

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of the checksum behind the elements of a frame.
pub(crate) const TRAILER: usize = 4;

/// The CRC-32C of bytes.
#[must_use]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC-64/NVME of bytes: what ranks compare of their parameters.
#[must_use]
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The CRC-32C of bytes that come one piece after the other.
#[derive(Clone)]
pub(crate) struct Running(Digest);

impl Running {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all that was added since it was new.
    pub(crate) fn value(&self) -> u32 {
        self.0.finalize() as u32
    }

    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn checksums_are_the_published_ones() {
        // RFC 3720, appendix B.4, and the check value of CRC-64/NVME.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46dd_794e);
        assert_eq!(crc64(b"123456789"), 0xae8b_1486_0a79_9888);
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(
            bytes in proptest::collection::vec(any::<u8>(), 0..5000),
            cuts in proptest::collection::vec(0usize..5000, 0..4),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut sum = Running::new();
            sum.add(b"of a frame before");
            sum.reset();
            cuts.windows(2).for_each(|cut| sum.add(&bytes[cut[0]..cut[1]]));
            prop_assert_eq!(sum.value(), crc32c(&bytes));
        }

        #[test]
        fn one_wrong_bit_is_seen(
            bytes in proptest::collection::vec(any::<u8>(), 1..5000),
            bit in any::<proptest::sample::Index>(),
        ) {
            let mut wrong = bytes.clone();
            let bit = bit.index(8 * bytes.len());
            wrong[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(crc32c(&wrong), crc32c(&bytes));
            prop_assert_ne!(crc64(&wrong), crc64(&bytes));
        }
    }
}
