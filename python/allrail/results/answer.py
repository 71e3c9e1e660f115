"""What a function of `allrail` answers: data, of which terminals, pages and pictures are made."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from allrail.base import late

MAX_SLICES = 300_000
"""Of all timelines of a folder: as many as a page draws (`MOST_SPANS` of its timeline)."""


def renderers() -> Any:
    """Return the module that writes, draws and shows answers; nothing of it is needed before."""
    return late.found("renderers")


class Answer(ABC):
    """The answer of a command, as data.

    `allrail.X(...).to_json()` is what `allrail X ... --json` prints.
    """

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""

    def to_json(self) -> str:
        """Return it as the JSON text of `--json`."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False)

    @property
    def exit_status(self) -> int:
        """Status with which its command ends: 1 where a check failed, else 0."""
        return 0


class Told(Answer, dict[str, Any]):
    """An answer that is a mapping: the object of `--json` itself."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        return dict(self)
