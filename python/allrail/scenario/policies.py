"""Tensor schedulers and coordination: `schedule.tensor`, `schedule.coordination`.

Each is a policy with keys of its own, or its name alone. Which there are, and which keys each
takes, is the Rust core's: this file reads their JSON schemas from it, so that a new policy needs no
line here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from allrail.base.errors import did_you_mean, show
from allrail.scenario.fields import Table, _Field, more_of, names, refuse, renamed, table
from allrail.scenario.graph import check_mapping
from allrail.scenario.places import Places

_QUANTITIES = ("Bandwidth", "Bytes", "Time")


class Policy(_Field):
    """A name, or a mapping of `policy` and the keys of that policy."""

    def __init__(self, of: Table, key: str) -> None:
        self.of: Table = of
        self.key = key

    def check(self, value: Any) -> dict[str, Any]:
        """Return the mapping."""
        known = names(self.of)
        tree = {"policy": value} if isinstance(value, str) else value
        hint = f"for example `{self.key.rpartition('.')[2]}: {known[-1]}`"
        if not isinstance(tree, dict):
            refuse("it is neither a policy's name nor a mapping", hint=hint)
        policy = tree.get("policy")
        if policy is None:
            refuse("it has no `policy`", hint="the policies are " + ", ".join(known))
        if not isinstance(policy, str) or policy not in known:
            if hint := renamed(self.of, policy):
                refuse("there is no such policy", hint=hint)
            hint = did_you_mean(show(policy), known, others="the policies are")
            more = more_of(self.of)
            refuse("there is no such policy", hint=f"{hint}; {more}" if more else hint)
        schema = next(row["schema"] for row in _rows(self.of) if row["name"] == policy)
        keys = {key: one for key, one in tree.items() if key != "policy"}
        check_mapping(keys, schema, path=tuple(self.key.split(".")), places=Places())
        return {"policy": policy, **keys}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema: a name, or for each policy the keys that it reads."""
        rows = _rows(self.of)
        some = {key for row in rows for key in row.get("reads", ())}
        forms: list[dict[str, Any]] = [{"type": "string", "enum": names(self.of)}]
        for row in rows:
            properties = {
                key: _plain(one, row["schema"].get("$defs", {}))
                for key, one in row["schema"]["properties"].items()
                if key not in some or key in row["reads"]
            }
            forms.append(
                {
                    "type": "object",
                    "description": row["about"],
                    "properties": {"policy": {"const": row["name"]}, **properties},
                    "required": ["policy", *row["schema"].get("required", ())],
                    "additionalProperties": False,
                }
            )
        return {"anyOf": forms}


def order_of(policy: str) -> str:
    """Return the order that suits a chunk scheduler.

    Args:
        policy: Its name.
    """
    suits = {row["name"]: str(row["default_order"]) for row in table("policies")}
    return suits.get(policy, "fifo")


def keys_of(of: Table, policy: str) -> tuple[str, ...]:
    """Return the keys of its own that a policy reads; none of one that there is not.

    Args:
        of: The table that the policy is in.
        policy: Its name.
    """
    rows = (row for row in table(of) if row["name"] == policy)
    return tuple(next(rows, {}).get("reads", ()))


@cache
def _rows(of: Table) -> tuple[dict[str, Any], ...]:
    """The core's table, with schemas that `check_mapping` reads."""
    return tuple(
        {**row, "schema": {"properties": {}, **_without_null(row["schema"])}} for row in table(of)
    )


def _without_null(schema: Any) -> Any:
    """A schema in which what may be left out is not `null` instead."""
    if isinstance(schema, list):
        return [_without_null(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    forms = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(forms) == 1:
        about = {key: one for key, one in schema.items() if key not in ("anyOf", "default")}
        return _without_null({**forms[0], **about})
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        schema = {**schema, "type": kinds[0] if len(kinds) == 1 else kinds}
    return {
        key: _without_null(one)
        for key, one in schema.items()
        if not (key == "default" and one is None)
    }


def _plain(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A key's schema without references; what refers to a quantity is text."""
    if "description" in schema:
        schema = {**schema, "description": " ".join(str(schema["description"]).split())}
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        found = {"type": "string"} if name in _QUANTITIES else definitions[name]
        about = {key: one for key, one in schema.items() if key not in ("$ref", "default")}
        return {**_plain(found, definitions), **about}
    if "properties" in schema:
        inner = {key: _plain(one, definitions) for key, one in schema["properties"].items()}
        return {**schema, "properties": inner}
    return schema
