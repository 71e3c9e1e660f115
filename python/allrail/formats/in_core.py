"""What the core refuses of foreign files, explained."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail import _core
from allrail.scenario.explain import from_core
from allrail.scenario.places import Places

if TYPE_CHECKING:
    from allrail.scenario.places import Places


@contextmanager
def in_core(places: Places, folder: Path | None = None) -> Iterator[None]:
    """Explain what the core refuses.

    Args:
        places: Of the scenario that it was given.
        folder: Where it writes: what the system refuses it there is told as Python tells it.

    Raises:
        InputError: The core refuses what it was given.
        OSError: The system refused it a file in `folder`.
    """
    try:
        yield
    except _core.InputError as error:
        told = json.loads(str(error.args[0]))
        number = re.search(r"\(os error (\d+)\)", told["why"])
        if folder and number and str(told.get("value", "")).startswith(str(folder)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None
        raise from_core(error, places=places) from None


def ask(what: str, request: str, *, folder: Path | None = None) -> dict[str, Any]:
    """Return what a function of the core answers.

    Args:
        what: The function.
        request: As JSON.
        folder: Where it writes.

    Raises:
        InputError: It refuses what it was given.
    """
    with in_core(Places(), folder):
        told: dict[str, Any] = json.loads(getattr(_core, what)(request))
    return told
