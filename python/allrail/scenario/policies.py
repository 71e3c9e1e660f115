"""Tensor schedulers and coordination: `schedule.tensor`, `schedule.coordination`.

Each is a policy with keys of its own, or its name alone. Which there are, and which keys each
takes, is the Rust core's: this file reads their JSON schemas from it, so that a new policy needs no
line here.
"""

from __future__ import annotations

from typing import Any

from allrail.errors import did_you_mean, show
from allrail.scenario.fields import Table, _Field, names, refuse, table
from allrail.scenario.places import Places


class Policy(_Field):
    """A name, or a mapping of `policy` and the keys of that policy."""

    def __init__(self, of: Table, key: str) -> None:
        self.of: Table = of
        self.key = key

    def check(self, value: Any) -> dict[str, Any]:
        """Return the mapping."""
        from allrail.scenario.graph import check_mapping

        known = names(self.of)
        tree = {"policy": value} if isinstance(value, str) else value
        hint = f"for example `{self.key.rpartition('.')[2]}: {known[-1]}`"
        if not isinstance(tree, dict):
            refuse("it is neither a policy's name nor a mapping", hint=hint)
        policy = tree.get("policy")
        if policy is None:
            refuse("it has no `policy`", hint="the policies are " + ", ".join(known))
        if not isinstance(policy, str) or policy not in known:
            refuse(
                "there is no such policy",
                hint=did_you_mean(show(policy), known, others="the policies are"),
            )
        schema = next(row["schema"] for row in table(self.of) if row["name"] == policy)
        keys = {key: one for key, one in tree.items() if key != "policy"}
        full = {**schema, "properties": schema.get("properties", {})}
        check_mapping(keys, full, path=tuple(self.key.split(".")), places=Places())
        return {"policy": policy, **keys}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema."""
        forms: list[dict[str, Any]] = [{"type": "string", "enum": names(self.of)}]
        for row in table(self.of):
            properties = row["schema"].get("properties", {})
            forms.append(
                {
                    "type": "object",
                    "description": row["about"],
                    "properties": {
                        "policy": {"const": row["name"]},
                        **{key: _plain(one) for key, one in properties.items()},
                    },
                    "required": ["policy", *row["schema"].get("required", ())],
                    "additionalProperties": False,
                }
            )
        return {"anyOf": forms}


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A key's schema without references: what refers to a quantity is text."""
    if "$ref" in schema:
        return {"type": "string", **{key: one for key, one in schema.items() if key != "$ref"}}
    forms = schema.get("anyOf")
    if forms and any("$ref" in form for form in forms):
        rest = {key: one for key, one in schema.items() if key != "anyOf"}
        return {**rest, "type": "string"}
    return schema
