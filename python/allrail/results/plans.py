"""Plans as data, and the cache that keeps the expensive ones.

A plan is kept under a hash of everything that the planner reads and of its version, in
`$ALLRAIL_CACHE`, else `$XDG_CACHE_HOME/allrail`, else `~/.cache/allrail`. Files there are only ever
replaced whole; one that cannot be read, or that the core refuses, counts as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from allrail import _core
from allrail.base.errors import InputError, show
from allrail.base.files import write_cached, write_text
from allrail.results.answer import Answer
from allrail.scenario.fields import table
from allrail.scenario.text import read_bytes

if TYPE_CHECKING:
    from allrail.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class Plan(Answer):
    """A scenario's plans, one per collective.

    Attributes:
        text: The JSON text of the plan file.
        source: Where it was read from; may be empty.
        cached: Whether it came from the cache.
    """

    text: str
    source: str = ""
    cached: bool = False

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check a plan file.

        Args:
            path: The file.

        Raises:
            InputError: It cannot be read, or is not a plan.
        """
        plan = cls(read_bytes(Path(path)), source=str(path))
        try:
            _core.check_plan(plan.text)
        except _core.InputError as error:
            raise plan.explain(error) from None
        return plan

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan file, indented for people, whole or not at all.

        Args:
            path: The file.

        Raises:
            InputError: It cannot be written.
        """
        write_text(Path(path), json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """Return the plan file's JSON object."""
        tree: dict[str, Any] = json.loads(self.text)
        return tree

    @property
    def plans(self) -> list[dict[str, Any]]:
        """One `CollectivePlan` per collective, as JSON objects."""
        plans: list[dict[str, Any]] = self.to_dict()["plans"]
        return plans

    def explain(self, error: Exception) -> InputError:
        """Say in our words what the core refused about this plan.

        Args:
            error: The core's `InputError`.
        """
        told = json.loads(str(error.args[0]))
        value = told.get("value")
        return InputError(
            told["why"],
            hint=told.get("hint") or "make it again with `allrail plan`",
            source=self.source,
            field=told.get("field") or "",
            value=None if value in (None, "") else show(value),
        )


def is_cached(scenario: Scenario) -> bool:
    """Return whether the scenario's plans are worth keeping: their planning is expensive.

    A policy may search; a planned order for a network model of messages is fixed by a run there.

    Args:
        scenario: What would be planned.
    """
    rows = {row["name"]: row for row in table("policies")}
    network_models = {row["name"]: row for row in table("network_models")}
    orders = {row["name"]: row for row in table("orders")}
    planned = orders[scenario.schedule.order]["keeps_to_plans"]
    runs = planned and network_models[scenario.network_model].get("messages")
    return bool(runs or rows[scenario.schedule.policy].get("expensive"))


def plan_for(
    scenario: Scenario, *, cache: bool = True, progress: Callable[[float, int], None] | None = None
) -> Plan:
    """Plan a scenario, or take its plan from the cache.

    Args:
        scenario: What to plan.
        cache: Whether the cache may be read and written.
        progress: Told how far it is.

    Raises:
        _core.InputError: The core refuses the scenario.
    """
    text = scenario.to_json()
    if not (cache and is_cached(scenario)):
        return Plan(_core.plan(text, progress))
    path = cache_folder() / "plans" / f"{_core.plan_key(text)}.json"
    kept = _read(path, text)
    if kept is not None:
        return Plan(kept, cached=True)
    made = _core.plan(text, progress)
    with contextlib.suppress(InputError):  # a cache that cannot be written is no cache
        write_cached(path, made)
    return Plan(made)


def cache_folder() -> Path:
    """Return the folder of the cache; it need not exist."""
    named = os.environ.get("ALLRAIL_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "allrail"


@cache
def core() -> str:
    """Return what tells one build of the core from every other."""
    compiled = Path(str(_core.__file__)).read_bytes()
    return f"{_core.version()} {hashlib.sha256(compiled).hexdigest()[:16]}"


def _read(path: Path, scenario: str) -> str | None:
    try:
        text = path.read_text(encoding="utf-8")
        _core.check_plan(text, scenario)
    except (OSError, UnicodeDecodeError, _core.InputError):
        return None
    return text
