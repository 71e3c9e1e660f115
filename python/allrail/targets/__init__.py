"""What changes the real thing: files for the tools that train, from what a scenario has decided.

`decision.py` is what a scenario says, with what it leaves out filled in; each tool has a file
beside it that turns a `Decision` into the text of files, or says why it cannot. `keys.py` has what
becomes of each key of `schedule`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError, did_you_mean
from allrail.base.files import staged_folder
from allrail.base.manifest import reading
from allrail.base.progress import Progress
from allrail.scenario import ScenarioLike
from allrail.scenario.overrides import Sets
from allrail.targets import ddp, fsdp, job_file, megatron, nccl, torchtitan
from allrail.targets.decision import Decision, Inapplicable
from allrail.targets.keys import decided, keep_to

TARGETS = {
    "allrail": job_file,
    "ddp": ddp,
    "fsdp": fsdp,
    "megatron": megatron,
    "torchtitan": torchtitan,
    "nccl": nccl,
}
"""By name: a module with `ABOUT` and `files`."""


@dataclass(frozen=True, slots=True)
class Written:
    """What was written for a tool.

    Attributes:
        target: The tool.
        files: What was written for it; nothing where it cannot do what was decided.
        why: Why nothing was.
        left: Decisions that the files do not carry: it leaves them to others, such as the library
            that runs its collectives.
    """

    target: str
    files: tuple[Path, ...]
    why: str = ""
    left: tuple[str, ...] = ()


def apply_to(
    scenario: ScenarioLike,
    folder: Path,
    *,
    targets: Iterable[str] = (),
    sets: Sets = (),
    progress: Progress | None = None,
) -> list[Written]:
    """Write the files that make tools do what a scenario has decided.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        folder: Where the files go; it is made.
        targets: For which tools, of `TARGETS`; all that can if none is named.
        sets: Overrides, such as `{"workload.parallelism.tp": 8}`.
        progress: Told how far the simulations are that it takes.

    Returns:
        What was written for each.

    Raises:
        InputError: Something in the scenario is wrong, a tool is not known, or one that was named
            cannot do what was decided.
    """
    named = list(dict.fromkeys(targets))
    for name in named:
        if name not in TARGETS:
            raise InputError(
                "no such tool is known",
                source="--for",
                value=name,
                hint=did_you_mean(name, TARGETS),
            )
    with reading():
        decision = Decision.of(scenario, sets=sets, progress=progress)
        return _write(decision, named, folder)


def offers(tool: str, decision: Decision, schedule: Mapping[str, Any]) -> bool:
    """Whether a tool's files say another schedule, all of it.

    Args:
        tool: Of `TARGETS`.
        decision: What a scenario has decided.
        schedule: Keys of `schedule` that take the place of the scenario's.
    """
    tree = {**decision.tree, "schedule": {**decision.schedule, **schedule}}
    changed = replace(decision, tree=tree)
    if decided(changed) == decided(decision):
        return False
    try:
        left = keep_to(tool, changed)
        if not left and hasattr(TARGETS[tool], "check"):
            TARGETS[tool].check(changed)
    except Inapplicable:
        return False
    return not left


def _write(decision: Decision, named: list[str], folder: Path) -> list[Written]:
    texts: dict[str, dict[str, str] | Inapplicable] = {}
    left: dict[str, tuple[str, ...]] = {}
    for name in named or TARGETS:
        try:
            texts[name] = TARGETS[name].files(decision)
            left[name] = keep_to(name, decision)
        except Inapplicable as why:
            if named:
                raise InputError(str(why), source="--for", value=name, hint=why.hint) from None
            texts[name] = why
    written = []
    with ExitStack() as moved:  # of all tools or of none
        for name, found in texts.items():
            if isinstance(found, Inapplicable):
                written.append(Written(name, (), str(found)))
                continue
            staged = moved.enter_context(staged_folder(folder, f"apply {name}"))
            for file, text in found.items():
                (staged / file).write_text(text, encoding="utf-8", newline="\n")
            files = tuple(folder / file for file in found)
            written.append(Written(name, files, left=left[name]))
    return written
