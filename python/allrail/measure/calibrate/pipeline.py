"""About how long the default schedule takes: a closed form, with which fits begin.

    t = max(Σ_i (b_i + l_i), max_d (before_d + K · Σ_{i on d} b_i + behind_d))

Each of K chunks goes through stages i, one after the other: reduce-scatters outwards, all-gathers
inwards. A stage takes b_i for its bytes, in which it has its dimension to itself, and l_i for its
steps. The dimension that is busy for longest counts, with what the first chunk takes to get there
(before) and the last one from there on (behind). How many steps and bytes a stage has is asked of
the simulator. What is left out is how chunks wait for each other elsewhere: some percent, which
does not matter, as fits end with the simulator itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from allrail.measure.calibrate.predict import Stages, chunks_of

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
_OUTWARDS, _INWARDS = "reduce_scatter", "all_gather"
_FAST = 1e9
"""Bytes a µs: then steps are all that takes time."""
_LARGE = 1 << 20
"""Bytes of a rank."""


class Pipeline:
    """The default schedule on a part of a fabric.

    Args:
        collective: As of `COLLECTIVES`.
        part: How many of its ranks differ on each dimension.
        more: Further keys of every dimension, as of `Stages`.
    """

    def __init__(self, collective: str, part: Sequence[int], more: Mapping[str, Any]) -> None:
        on = [place for place, one in enumerate(part) if one > 1]
        kinds = {"all_reduce": (_OUTWARDS, _INWARDS)}.get(collective, (collective,))
        self._ranks = math.prod(part)
        # By stage its dimension, steps, and bytes over those of the collective.
        self._stages: list[tuple[int, float, float]] = []
        for kind in kinds:
            held, own = 1.0, []
            for place in on:
                steps, share = _of_stage(kind, part[place], more)
                own.append((place, steps, held * share))
                held /= part[place]
            self._stages += own if kind == _OUTWARDS else own[::-1]

    def time_us(self, rates: Sequence[float], latencies: Sequence[float], size: int) -> float:
        """Return about the time of a size, µs.

        Args:
            rates: Of each dimension, bytes a µs of one rank.
            latencies: Of each dimension, µs a step.
            size: Bytes, as nccl-tests count them.
        """
        chunks = chunks_of(size, self._ranks)
        places = [place for place, _, _ in self._stages]
        busy = [share * size / chunks / rates[place] for place, _, share in self._stages]
        late = [steps * latencies[place] for place, steps, _ in self._stages]
        ends = [0.0]
        for one, other in zip(busy, late, strict=True):
            ends.append(ends[-1] + one + other)
        found = ends[-1]
        for place in set(places):
            first = places.index(place)
            last = len(places) - 1 - places[::-1].index(place)
            mine = sum(one for one, at in zip(busy, places, strict=True) if at == place)
            behind = ends[-1] - ends[last] - busy[last]
            found = max(found, ends[first] + chunks * mine + behind)
        return found


def _of_stage(kind: str, ranks: int, more: Mapping[str, Any]) -> tuple[float, float]:
    """Steps of a stage, and its bytes over what it works on."""
    alone = Stages(kind, (ranks,), more)
    size = ranks * _LARGE
    return alone.time_us([_FAST], [1.0], ranks), alone.time_us([1.0], [0.0], size) / size
