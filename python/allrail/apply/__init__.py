"""What changes the real thing: files for the tools that train, from what a scenario has decided.

`decision.py` is what a scenario says, with what it leaves out filled in; each tool has a file
beside it that turns a `Decision` into the text of files, or says why it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from allrail.apply import ddp, fsdp, job_file, megatron, nccl, torchtitan
from allrail.apply.decision import Decision, Inapplicable
from allrail.errors import InputError, did_you_mean
from allrail.scenario import ScenarioLike
from allrail.scenario.overrides import Sets

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
    """

    target: str
    files: tuple[Path, ...]
    why: str = ""


def apply(
    scenario: ScenarioLike,
    folder: Path,
    *,
    targets: Iterable[str] = (),
    sets: Sets = (),
) -> list[Written]:
    """Write the files that make tools do what a scenario has decided.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        folder: Where the files go; it is made.
        targets: For which tools, of `TARGETS`; all that can if none is named.
        sets: Overrides, such as `{"workload.parallelism.tp": 8}`.

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
    decision = Decision.of(scenario, sets=sets)
    texts: dict[str, dict[str, str] | Inapplicable] = {}
    for name in named or TARGETS:
        try:
            texts[name] = TARGETS[name].files(decision)
        except Inapplicable as why:
            if named:
                raise InputError(
                    str(why), source="--for", value=name, hint="leave it out, or change the layout"
                ) from None
            texts[name] = why
    return [_write(name, found, folder) for name, found in texts.items()]


def _write(name: str, found: dict[str, str] | Inapplicable, folder: Path) -> Written:
    from allrail.files import write_text

    if isinstance(found, Inapplicable):
        return Written(name, (), str(found))
    paths = []
    for file, text in found.items():
        path = folder / file
        write_text(path, text)
        paths.append(path)
    return Written(name, tuple(paths))
