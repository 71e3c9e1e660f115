"""How results are printed: a module for each kind of job, imported when there is one to print."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_VIEWS = {"collective": "collectives", "workload": "training", "traffic": "traffic"}
"""By the kind of the job: each has `show`, `show_comparison` and, of ASTRA-sim's, `show_case`."""


def view_of(kind: str) -> Any:
    """Return the module that prints results of a kind.

    Args:
        kind: `collective`, `workload` or `traffic`.
    """
    return import_module(f"allrail.cli.{_VIEWS[kind]}")
