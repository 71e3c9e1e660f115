"""What rank 0 of Horovod has to do without the response cache: its queue, network and parse costs.

All of it is measured or published, and nothing is fitted. `make bench-requests HOROVOD=FOLDER`
measures it again.

A request, by `benches/horovod_requests/rank_zero.cc` over Horovod's own `message.cc`, and by
`crates/coordinate/examples/coordinator_cost.rs` over allrail's `central` (800 ranks that ask for 7
tensors each in a cycle, about what a backward pass of ResNet-50 makes ready in 5 ms; the least of
all rounds; one core of a Xeon of 2023), in ns:

| part | with a thread cache | without | allrail's own |
|---|---|---|---|
| parse: gathered into one buffer, unpacked, copied, let go of | 222 | 431 | 164 |
| queue: message table, stall inspector, comparing, the response | 203 | 251 | 68 |
| bytes | 164 | 164 | 76 |

allrail's requests name a tensor by a number and a hash; its signature goes with the first.

Without the allocator's thread cache is how Summit's system was (RHEL 7 with glibc 2.17; 2.26
brought it). All tensors in one cycle instead of 7 cost 0.71 and 1.0 us, as they leave the caches.
Missing: how much slower a core of a POWER9 is.

A message (LogGP), in us:

| of | send | receive | wire | GB/s |
|---|---|---|---|---|
| MPI, QDR | 1.14 | 1.17 | 3.55 | 2.0 |
| MPI, EDR | 1.14 | 1.17 | 1 | 12.5 |
| Gloo | 2.1 | 2.0 | 10.9 | 5 |

- MPI: Netgauge over MVAPICH and QDR InfiniBand (codes-org/codes, `tests/ng-mpi-tukey.dat`, 64 B);
  the wire is half a round trip less both sides' work. With EDR, which Summit has, the wire is below
  1 us (MVAPICH2 at SC'18).
- Gloo: an all-reduce of four machines over TCP and 40 Gb/s takes 195 us (`allreduce_ring_chunked`,
  facebookincubator/gloo, `README.md`), 13 messages one after another; what calls of sockets take
  for one of them is measured (`benches/horovod_requests/sockets.py`), the wire is the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Requests:
    """What a request costs rank 0.

    Attributes:
        name: For tables.
        parse_ns: Gathered, unpacked, copied.
        queue_ns: Table, comparing, the response.
        bytes: On the wire.
    """

    name: str
    parse_ns: int
    queue_ns: int
    bytes: int = 164


@dataclass(frozen=True, slots=True)
class Messages:
    """What a message costs (LogGP).

    Attributes:
        name: For tables.
        send_ns: Work of its sender.
        receive_ns: Work of its receiver.
        wire_ns: Between them.
        bandwidth: How fast its bytes leave.
    """

    name: str
    send_ns: int
    receive_ns: int
    wire_ns: int
    bandwidth: str


@dataclass(frozen=True, slots=True)
class Costs:
    """Of requests and messages together."""

    requests: Requests
    messages: Messages

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.requests.name}, {self.messages.name}"

    @property
    def latency(self) -> dict[str, Any]:
        """As `schedule.coordination.latency`."""
        return {
            "wire": f"{self.messages.wire_ns} ns",
            "bandwidth": self.messages.bandwidth,
            "send": f"{self.messages.send_ns} ns",
            "receive": f"{self.messages.receive_ns} ns",
            "entry": f"{self.requests.parse_ns + self.requests.queue_ns} ns",
            "entry_bytes": f"{self.requests.bytes} B",
        }


THREAD_CACHE = Requests("thread cache", 222, 203)
NO_CACHE = Requests("no thread cache", 431, 251)
OWN = Requests("allrail's own", 164, 68, 76)
"""For comparison: what a job under `coordination: central` has, not Horovod's."""
EDR = Messages("MPI on EDR", 1140, 1170, 1000, "12.5 GB/s")
MPI = Messages("MPI on QDR", 1140, 1170, 3550, "2 GB/s")
GLOO = Messages("Gloo on TCP", 2100, 2000, 10_900, "5 GB/s")

SUMMIT = Costs(NO_CACHE, EDR)
OTHERS = (
    Costs(THREAD_CACHE, EDR),
    Costs(NO_CACHE, MPI),
    Costs(NO_CACHE, GLOO),
    Costs(OWN, EDR),
)


@dataclass(frozen=True, slots=True)
class Load:
    """What rank 0 does for the requests and lists of a step.

    Attributes:
        cycles: In which ranks spoke.
        network_us: Taking in a list of every other rank, each cycle, and sending the answer.
        parse_us: Of all requests.
        queue_us: Of all requests.
    """

    cycles: float
    network_us: float
    parse_us: float
    queue_us: float

    @property
    def whole_us(self) -> float:
        """All of it."""
        return self.network_us + self.parse_us + self.queue_us


def load(costs: Costs, *, ranks: int, tensors: int, messages: float) -> Load:
    """Return the work of rank 0 in a step of `central`.

    Args:
        costs: Of requests and messages.
        ranks: How many.
        tensors: Of a step, from each rank.
        messages: That all ranks exchanged in a step: a list up and an answer down for each of the
            others in a cycle.
    """
    others = ranks - 1
    cycles = messages / (2 * others)
    asked = others * tensors
    answers = min(2, others)  # those of a binary tree
    each = others * costs.messages.receive_ns + answers * costs.messages.send_ns
    return Load(
        cycles,
        cycles * each / 1e3,
        asked * costs.requests.parse_ns / 1e3,
        asked * costs.requests.queue_ns / 1e3,
    )
