"""A network of the testbed: a switch to which every worker has one cable of a given rate."""

from __future__ import annotations

import os
from dataclasses import dataclass

from testbed.namespaces import configure, enter_new

_SECONDS_QUEUED = 0.02
"""How much a cable may hold back before it drops: as switches do, a few round trips."""

_LEAST_BURST, _MOST_BURST = 128 * 1024, 1024 * 1024


@dataclass(frozen=True)
class Network:
    """One switch.

    Attributes:
        rate: Of each worker's cable, in bits a second, both ways; `None`: no limit.
        delay: Seconds that a frame takes from one cable to another, beside its queues.
    """

    rate: int | None = None
    delay: float = 0.0

    def shaped(self, device: str) -> list[str]:
        """Return the commands of `tc` that give a device this rate.

        A token bucket of a millisecond: small enough that what is sent is even, large enough for
        the 64 KiB packets that the kernel hands a device at once.

        Args:
            device: Its name in this namespace.
        """
        if self.rate is None:
            return []
        burst = min(max(self.rate // 8 // 1000, _LEAST_BURST), _MOST_BURST)
        latency = round(_SECONDS_QUEUED * 1000)
        return [
            f"qdisc add dev {device} root tbf rate {self.rate}bit burst {burst} latency {latency}ms"
        ]


def why_not() -> str | None:
    """Return why this machine can have no testbed, or `None` if it can.

    A child tries it: one namespace, one pair of devices, one token bucket.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        said = ""
        try:
            enter_new()
            configure("ip", ["link add one type veth peer name two"])
            configure("tc", Network(10**9).shaped("one"))
        except (OSError, RuntimeError) as error:
            said = f"no network namespaces with shaped links here: {error}"
        os.write(write, said.encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said or None
