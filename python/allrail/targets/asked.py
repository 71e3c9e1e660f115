"""Files that make tools do what a scenario has decided: `allrail.apply`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from allrail.base.arguments import Names, PathLike, checked, several
from allrail.base.progress import Progress
from allrail.results.table import ToldTable
from allrail.scenario import ScenarioLike
from allrail.scenario.overrides import Sets
from allrail.targets import Written, apply_to


class Applied(ToldTable):
    """What was written for each tool: `files`, `why` there are none, what is `left` to others.

    Attributes:
        written: The same as records.
    """

    __slots__ = ("written",)
    PLOTTED: ClassVar[tuple[str, str]] = ("tool", "files")
    written: tuple[Written, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a tool."""
        return [
            {
                "tool": one.target,
                "files": ", ".join(map(str, one.files)),
                "why": one.why or None,
                "left": ", ".join(one.left),
            }
            for one in self.written
        ]


@checked
def apply(
    scenario: ScenarioLike,
    *,
    out: PathLike,
    sets: Sets = (),
    for_: Names = (),
    progress: Progress | None = None,
) -> Applied:
    """Write the files that make tools do what a scenario has decided.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        out: Folder for the files; it is made.
        sets: Overrides, such as `{"workload.parallelism.tp": 8}`.
        for_: Tools: `allrail`, `ddp`, `fsdp`, `megatron`, `torchtitan`, `nccl`; all that can do
            what was decided if none is named.
        progress: Called with what is done and the total, in simulations that it takes.

    Returns:
        By tool its `files`, `why` it has none, and what of the schedule is `left` to others.

    Raises:
        InputError: Something in the scenario is wrong, a tool is not known, or one that was named
            cannot do what was decided.

    Example:
        `allrail.apply("scenario.yaml", out="job", for_="megatron")["megatron"]["files"]`
    """
    written = apply_to(scenario, Path(out), targets=several(for_), sets=sets, progress=progress)
    applied = Applied(
        {
            one.target: {
                "files": [str(path) for path in one.files],
                "why": one.why or None,
                "left": list(one.left),
            }
            for one in written
        }
    )
    applied.written = tuple(written)
    return applied
