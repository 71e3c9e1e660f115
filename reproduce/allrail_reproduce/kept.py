"""Results that are kept on disk as they come, so that a long reproduction goes on where it stopped.

A result is kept under a hash of its scenario, of the fabric that the scenario names, and of the
core that computed it: the core's version and its compiled file, so that no result of another build
is ever taken for this one's. Files are in `reproduce/` of the cache's folder
(`allrail.results.plans`), written whole or not at all; one that cannot be read counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.base.files import write_cached
from allrail.results.plans import cache_folder, core
from allrail.scenario import load_any_fabric


class Kept:
    """The results of this core, by scenario.

    Args:
        read: Whether results that are there already are taken; new ones are kept in any case.
    """

    def __init__(self, *, read: bool = True) -> None:
        self._folder = cache_folder() / "reproduce"
        self._read = read

    def get(self, scenario: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a scenario, if it is there.

        Args:
            scenario: What would be simulated.
        """
        if not self._read:
            return None
        try:
            tree = json.loads(self._path(scenario).read_text(encoding="utf-8"))
            result = tree["result"] if tree["scenario"] == scenario else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return result if isinstance(result, dict) else None

    def put(self, scenario: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Keep the result of a scenario.

        Args:
            scenario: What was simulated.
            result: What came out, as plain values.
        """
        document = {"core": core(), "scenario": scenario, "result": result}
        with contextlib.suppress(InputError):  # a cache that cannot be written is no cache
            write_cached(self._path(scenario), json.dumps(document, ensure_ascii=False) + "\n")

    def _path(self, scenario: Mapping[str, Any]) -> Path:
        fabric = scenario["fabric"]
        what = [core(), scenario, _preset(fabric) if isinstance(fabric, str) else ""]
        text = json.dumps(what, sort_keys=True, ensure_ascii=False)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


@cache
def _preset(name: str) -> str:
    """The keys of a preset: its file may change while its name stays."""
    return load_any_fabric(name).model_dump_json()
