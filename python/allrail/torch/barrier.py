"""Where a step needs a whole view of the gradients or parameters: said once, counted always.

A *barrier* is a wait for everything that is in flight. Training with one in each step is right,
and as fast as it would be without crossing steps: gradients still travel during the backward pass.
What is lost is the overlap with the next forward pass. So the first of a kind is a warning that
says what asked for it.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType


class BarrierWarning(UserWarning):
    """Something in the script waits for all gradients or all parameters."""


WHY = {
    "gradient": "a gradient was read before the next backward pass (clipping, unscaling and logging"
    " do so), and has to be complete",
    "optimizer": "the optimizer's step is not made parameter by parameter",
    "own step": "the step of the optimizer's class was called directly, such as by a function that"
    " was compiled before `allrail.torch.schedule`",
    "step hook": "a hook of the optimizer runs after its step, and may read every parameter",
    "closure": "the optimizer's step was given a closure, which runs the model again",
    "scaler": "the optimizer unscales gradients within its step",
    "zero_grad": "`zero_grad` of a module that was not scheduled itself reads every gradient",
    "state_dict": "`state_dict` reads every parameter",
    "load_state_dict": "`load_state_dict` writes every parameter",
    "evaluation": "the model was run without gradients",
    "copy": "a parameter was copied or saved",
    "synchronize": "`synchronize` was called",
    "parameter": "a parameter, or its state in the optimizer, was read or written before the next"
    " forward pass needed it (averages or clipping of weights, logging)",
    "alias": "something beside the model holds the memory of a parameter (`p.data`, a `state_dict`,"
    " an array of NumPy, a graph that is kept), and may read or write it",
    "compiled": "a compiled function was called before the next forward pass, and may use any"
    " parameter",
    "fork": "a process was forked",
}
_ASKED_FOR = frozenset(
    {"state_dict", "load_state_dict", "evaluation", "copy", "synchronize", "closure", "fork"}
)


@dataclass
class Barriers:
    """Counts the steps that had a barrier, by what caused it.

    Attributes:
        loud: Whether this process warns; one of a job is enough.
        counts: How many steps had a barrier of this kind.
    """

    loud: bool
    counts: dict[str, int] = field(default_factory=dict)
    _noted: set[str] = field(default_factory=set)
    _explained: int = 0

    def note(self, cause: str, detail: str = "") -> None:
        """A barrier takes place; count it once for a round of gradients, and warn of it once.

        Args:
            cause: A key of `WHY`.
            detail: What is known beyond that.
        """
        if cause in self._noted or self._explained:
            return
        self._noted.add(cause)
        first = cause not in self.counts
        self.counts[cause] = self.counts.get(cause, 0) + 1
        if first and self.loud and cause not in _ASKED_FOR:
            because = WHY[cause] + (f" ({detail})" if detail else "")
            warnings.warn(
                f"this step waits for all gradients: {because}; results are the same, the overlap"
                " with the next forward pass is lost. This is said once",
                BarrierWarning,
                stacklevel=depth_of_script(),
            )

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Within it, what waits has been noted already."""
        self._explained += 1
        try:
            yield
        finally:
            self._explained -= 1

    def next_round(self) -> None:
        """All gradients were sent: what follows waits for these."""
        self._noted.clear()


def depth_of_script() -> int:
    """How many calls up the user's own code is, as `stacklevel` of a warning in the caller."""
    frame: FrameType | None = sys._getframe(2)
    depth = 2
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in {"allrail", "torch"}:
            return depth
        frame = frame.f_back
        depth += 1
    return 1
