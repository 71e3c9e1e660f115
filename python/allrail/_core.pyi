"""The Rust core. Text in, text out: scenarios, plans and results are JSON."""

from collections.abc import Callable
from typing import Literal

__all__ = [
    "InputError",
    "advise",
    "algorithms",
    "check_plan",
    "format_quantity",
    "orders",
    "parse_quantity",
    "plan",
    "plan_key",
    "plan_schema",
    "policies",
    "simulate",
    "simulate_many",
    "verify",
    "version",
    "worlds",
]

class InputError(ValueError):
    """A mistake in what was given; `args[0]` is JSON with `field`, `value`, `why`, `hint`."""

def simulate(
    scenario: str,
    plan: str | None = None,
    timeline: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> str: ...
def simulate_many(
    scenarios: list[str],
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]: ...
def plan(scenario: str) -> str: ...
def plan_key(scenario: str) -> str: ...
def check_plan(plan: str, scenario: str | None = None) -> None: ...
def plan_schema() -> str: ...
def parse_quantity(kind: Literal["time", "size", "bandwidth"], text: str) -> int: ...
def format_quantity(kind: Literal["time", "size", "bandwidth"], value: int) -> str: ...
def algorithms() -> str: ...
def policies() -> str: ...
def orders() -> str: ...
def worlds() -> str: ...
def advise(fabric: str) -> str: ...
def verify(scenario: str) -> str: ...
def version() -> str: ...
