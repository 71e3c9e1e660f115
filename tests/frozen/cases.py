"""A case: files in a folder of its own, and the commands that run there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SIMULATE = ("simulate", "scenario.yaml")


@dataclass(frozen=True)
class Case:
    """What is frozen under one name."""

    name: str
    """Its group and its name within it, such as `examples/03-plan-and-reuse`."""
    commands: tuple[tuple[str, ...], ...]
    """The arguments of `allrail`, one tuple a command; they run one after the other."""
    made: Mapping[str, str] = field(default_factory=dict)
    """Files made for this case, name to text. They are kept with its results."""
    copied: tuple[Path, ...] = ()
    """Files and folders that are copied in."""
    foreign: bool = False
    """Whether copied scenarios lie outside this tree: their keys are renamed like made ones'."""

    @property
    def group(self) -> str:
        """The first part of the name."""
        return self.name.split("/")[0]

    def lay_out(self, folder: Path) -> None:
        """Put the files into `folder`."""
        for name, text in self.made.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for source in self.copied:
            if source.is_dir():
                shutil.copytree(source, folder / source.name, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(source, folder / source.name)


def scenario(name: str, tree: Mapping[str, object]) -> Case:
    """A case that simulates one scenario.

    Args:
        name: Of the case.
        tree: The scenario.
    """
    text = yaml.safe_dump({"schema_version": 1, **tree}, sort_keys=False, width=100)
    return Case(name, (SIMULATE,), {"scenario.yaml": text})
