"""What every part of the tree is made on: immutable, unknown keys refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from allrail.scenario.fields import Flag, OneOf, Text, refuse

SCHEMA_VERSION = 1


def _version(value: Any) -> int:
    if isinstance(value, bool) or value != SCHEMA_VERSION or not isinstance(value, int):
        refuse("this version reads schema 1 only", hint=f"write `schema_version: {SCHEMA_VERSION}`")
    return SCHEMA_VERSION


SchemaVersion = Annotated[Literal[1], BeforeValidator(_version)]


def plain(value: Any) -> Any:
    """Return a tree with Python's numbers and lists in the place of NumPy's.

    Args:
        value: A mapping, a list or a value; others than NumPy's stay as they are.
    """
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
    # NumPy need not be installed for it.
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value


class Node(BaseModel):
    """Base of the tree: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Described(Node):
    """What a fabric's file says for people."""

    schema_version: SchemaVersion = Field(default=1, exclude=True, description="Always 1.")
    about: Annotated[str, Text()] = Field(default="", exclude=True, description="What it is.")
    calibrated: Annotated[bool, Flag()] = Field(
        default=False,
        exclude=True,
        description="Whether its numbers were measured on the hardware that it names.",
    )
    device: Annotated[str, OneOf(table="devices")] | None = Field(
        default=None,
        exclude=True,
        description="The preset of what computes in this machine, such as `h100`: what `plan` and "
        "`require` take without `--device`.",
    )
    sources: dict[str, Annotated[str, Text()]] = Field(
        default={}, exclude=True, description="Where its numbers come from, by key."
    )
