"""Which job a scenario has: a collective, a training step or traffic, by its key; exactly one."""

from __future__ import annotations

from collections.abc import Iterable

from allrail.base.errors import InputError

NAMES = ("collective", "traffic", "workload")
KINDS = "`collective`, `workload` or `traffic`"
"""The kinds, as messages list them."""
_EXAMPLES = {
    "collective": "collective: {kind: all_reduce, size: 1 GiB}",
    "traffic": "traffic: {pattern: all_to_all, size: 1 MiB}",
}
"""Of the job that most have on dimensions, and on switches and cables."""


def check_one(given: Iterable[str], *, graph: bool) -> None:
    """Refuse a scenario with no job, or with several.

    Args:
        given: Its keys.
        graph: Whether its fabric is one of switches and cables.

    Raises:
        InputError: It has none or several.
    """
    there = set(given)
    found = [name for name in NAMES if name in there]
    if len(found) > 1:
        raise two(found)
    if not found:
        job = "traffic" if graph else "collective"
        hint = f"a job is one of {KINDS}; for example `{_EXAMPLES[job]}`"
        raise InputError("it is missing", hint=hint, field=job)


def two(found: list[str]) -> InputError:
    """Return the error of a scenario with several jobs.

    Args:
        found: Their keys.
    """
    one, other = found[:2]
    return InputError(
        f"a scenario has either `{one}` or `{other}`", hint="leave one of them out", field=other
    )
