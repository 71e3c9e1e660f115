"""What is sent on a graph fabric: the key `traffic`; its keys are the core's.

Which keys belong to which pattern, and what the built network refuses, is the Rust core's to check.
"""

from __future__ import annotations

from pydantic import Field

from allrail.scenario.keys import traffic as keys


class Traffic(keys.Traffic):
    """Who sends how much to whom."""

    file: str | None = Field(
        default=None,
        exclude=True,
        description="trace: a file with these rows instead, CSV with a header or YAML; its path "
        "starts at the scenario's folder.",
    )
