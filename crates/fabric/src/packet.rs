//! Packets of known networks: how many bytes one carries at most, and how many are its headers.
//!
//! A link's rate counts both, so that of a line rate `payload / (payload + header)` is carried (the goodput).
//! Large transfers fill their packets; smaller packets, and what a message says once (RETH of RDMA, 16 B),
//! are ignored, as is the line code: nominal rates count what is behind it.

use allrail_core::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network whose packets are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a kind of packet"))]
pub enum Packet {
    /// Between dies of one package.
    OnChip,
    /// NVIDIA's `NVLink`.
    Nvlink,
    /// PCI Express.
    Pcie,
    /// `InfiniBand`.
    Infiniband,
    /// RDMA over Ethernet.
    Roce,
    /// TCP over Ethernet.
    Tcp,
}

/// One line of the table of packets.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Known {
    /// Which.
    pub name: Packet,
    /// Bytes that a full packet carries.
    pub payload: u64,
    /// Bytes of its headers, and of what else is on the link for it.
    pub header: u64,
    /// What it is, what its headers are, and the source.
    pub about: &'static str,
}

const fn known(name: Packet, payload: u64, header: u64, about: &'static str) -> Known {
    Known { name, payload, header, about }
}

/// All packets that are known, in the order of [`Packet`].
pub const KNOWN: [Known; 6] = [
    known(
        Packet::OnChip,
        64,
        4,
        "dies of one package: flits of 68 B with 2 B of header and 2 B of CRC (UCIe 1.1, section 3.3)",
    ),
    known(
        Packet::Nvlink,
        256,
        16,
        "NVLink: one flit of header before 16 of data, 16 B each (Foley and Danskin, IEEE Micro 37(2), 2017)",
    ),
    known(
        Packet::Pcie,
        256,
        24,
        "PCI Express: framing and link layer 8 B, header of a write 16 B (Neugebauer et al., SIGCOMM'18)",
    ),
    known(
        Packet::Infiniband,
        4096,
        26,
        "InfiniBand, MTU 4,096: LRH 8 B, BTH 12, ICRC 4, VCRC 2 (InfiniBand Architecture Specification, volume 1)",
    ),
    known(
        Packet::Roce,
        4096,
        82,
        "RoCEv2, MTU 4,096: preamble 8 B, Ethernet 18, gap 12, IPv4 20, UDP 8, BTH 12, ICRC 4 (IBTA, annex A17; \
         IEEE 802.3)",
    ),
    known(
        Packet::Tcp,
        1448,
        90,
        "TCP, MTU 1,500: preamble 8 B, Ethernet 18, gap 12, IPv4 20, TCP with time stamps 32 (RFC 9293, RFC 7323; \
         IEEE 802.3)",
    ),
];

impl Packet {
    /// Bytes that a full packet carries, and bytes of its headers.
    #[must_use]
    pub const fn sizes(self) -> (Bytes, Bytes) {
        let known = KNOWN[self as usize];
        (Bytes::new(known.payload), Bytes::new(known.header))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_in_its_line() {
        for (place, known) in KNOWN.iter().enumerate() {
            assert_eq!(known.name as usize, place);
            let sizes = (Bytes::new(known.payload), Bytes::new(known.header));
            assert_eq!(known.name.sizes(), sizes);
            assert!(known.header < known.payload, "{}", known.about);
        }
    }
}
