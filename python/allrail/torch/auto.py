"""Ways to exchange gradients, and which of them is the fastest for a job: tried, not predicted.

| way | gradients | the optimizer's step |
|---|---|---|
| `overlap` | cut into pieces, the most urgent first | when the next forward pass needs it |
| `reduce_scatter` | the same; an all-gather yields to every reduce-scatter | the same |
| `barrier` | whole, as they become ready | after all of them |
| `plain` | in buckets over torch.distributed, as `DistributedDataParallel` | the same |

`Auto` makes `timed.WARM` steps of each way that are not measured, then `timed.STEPS` that are. Of
each rank the median counts, and of these that of the slowest rank. Then the fastest way stays; if
none is faster than `plain` by `MARGIN`, `plain`. What a change of ways means: `switch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from allrail.base.errors import InputError
from allrail.torch.scheduled import Scheduled
from allrail.torch.switch import Maker, Way
from allrail.torch.timed import STEPS, Timed

MARGIN = 0.02
"""By how much of its time another way must be faster than `plain`."""


WAYS = (
    Way("overlap", ordered=True),
    Way("reduce_scatter", settings={"order": "gather_late"}),
    Way(
        "barrier",
        crosses=False,
        settings={"tensor": "fifo", "partition": None, "tensor_keys": {}},
    ),
    Way("plain", crosses=False, ordered=True, plain=True),
)
AUTO = "auto"
BUCKETS = (1 << 20, 25 << 20)
"""Of `plain`: the first one, and the others, bytes."""


def ways_of(exchange: str, *, native: bool) -> tuple[Way, ...]:
    """Return the ways that a job file asks for: one, or for `auto` all that the transport has.

    Args:
        exchange: As in the job file.
        native: Whether gradients travel over allrail's own transport.

    Raises:
        InputError: The transport does not have it.
    """
    had = tuple(way for way in WAYS if native or way.ordered)
    if exchange == AUTO:
        return had
    for way in had:
        if way.name == exchange:
            return (way,)
    raise InputError(
        "process groups of torch.distributed launch in one order on all ranks, and none may yield",
        field="exchange",
        value=exchange,
        hint="`transport: native`, or one of "
        + ", ".join(f"`{way.name}`" for way in had)
        + "; with `schedule.tensor.barrier: true` `overlap` ends each pass with all gradients",
    )


def fastest(times: Mapping[str, float]) -> str:
    """Return the way that stays.

    Args:
        times: Of each way that was tried, how long a step takes, in any unit.
    """
    best = min(times, key=lambda name: times[name])
    plain = times.get("plain")
    return best if plain is None or times[best] < plain * (1 - MARGIN) else "plain"


class Auto(Timed):
    """Tries ways one after the other, and goes on with the fastest.

    Args:
        ways: What is tried.
        maker: As of `Switch`.
    """

    def __init__(
        self,
        ways: Sequence[Way],
        maker: Maker,
    ) -> None:
        super().__init__(maker)
        self._left = list(ways)
        self._ways = {way.name: way for way in ways}
        self._times: dict[str, float] = {}
        self._begin(self._left.pop(0))

    def _measured(self, steps: list[float]) -> Scheduled | None:
        """This way was measured: go on to the next one, or to the fastest."""
        name, agreement = self._way.name, self._agreement
        self._times[name] = agreement.on("time of a step", 1e3 * median(steps), max)
        if self._left:
            return self._begin(self._left.pop(0))
        best = fastest(self._times)
        self._say(_said(best, self._times, agreement.ranks))
        return None if best == name else self._begin(self._ways[best])


def _said(best: str, times: Mapping[str, float], ranks: int) -> str:
    rest = ", ".join(f"`{name}` {times[name]:.2f}" for name in times if name != best)
    kept = "the fastest"
    if best == "plain" and times[best] > min(times.values()):
        kept = f"no other is faster by {100 * MARGIN:.0f} %"
    return (
        f"gradients go by `{best}`, {kept}: {times[best]:.2f} ms a step; {rest} (medians of {STEPS}"
        f" steps, the slowest of {ranks} ranks)"
    )
