"""Write `keys/` and `choices.py` of `python/allrail/scenario` again, from the Rust core.

Names, types, defaults, ranges and descriptions are the core's alone (`_core.scenario_keys`). What
is here is which of them are parts of the tree in Python, and which keys people write otherwise than
the core reads them. `make docs` runs it before everything else; a test checks that the files
are current.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "python" / "allrail" / "scenario"

FILES = {
    "fabric": ("Dimension", "Fabric"),
    "schedule": ("Collective", "Schedule"),
    "compat": ("GroupSchedule", "Compat"),
    "parallelism": ("Parallelism",),
    "compute": ("Compute", "Straggler", "Jitter", "SlowLinks"),
    "workload": ("SparseGradient", "CompressionSpec", "Target", "Workload"),
    "traffic": ("Algorithms", "MessageSettings", "Traffic"),
}
"""Types of the core by the file that has their classes, each after those that it is made of."""
RENAMED = {"CompressionSpec": "Compression", "MessageSettings": "Messages"}
PARTS = {name: RENAMED.get(name, name) for names in FILES.values() for name in names}
"""Type of the core to class here."""

BASES = {"Fabric": "Described"}

OTHERWISE = {
    ("Schedule", "tensor"): "dict[str, Any], Policy('tensor_policies', 'schedule.tensor')",
    (
        "Schedule",
        "coordination",
    ): "dict[str, Any], Policy('coordinations', 'schedule.coordination')",
    ("Dimension", "fastest"): "dict[str, tuple[dict[str, str], ...]], FastestBySize()",
    ("Schedule", "algorithms"): "str | tuple[str, ...], PerDimension('schedule.algorithms')",
    ("Schedule", "programs"): "dict[str, Any], Programs()",
    ("Schedule", "algorithms_by_operation"): "dict[str, str | tuple[str, ...]], ByOperation()",
    ("Schedule", "active_chunks"): "int | str, CountOrWord(1, 'fill')",
    ("GroupSchedule", "algorithms"): "dict[str, str], OneByOperation()",
    ("Parallelism", "map"): "dict[str, tuple[int | str, ...]], Mapped()",
    ("Compute", "device"): "str | dict[str, Any], Device()",
    ("Compute", "peak"): "str, Rate()",
    ("Workload", "model"): "dict[str, Any], Model()",
    ("Target", "samples"): "int, Amount()",
    ("Target", "tokens"): "int, Amount()",
    ("Target", "steps"): "int, Amount()",
    ("Algorithms", "all_reduce"): "str, OneOf(table='grid_algorithms')",
    ("Algorithms", "groups"): "dict[str, str], ByGroup(pairs=False)",
    ("Algorithms", "shapes"): "dict[str, Any], ByGroup(pairs=True)",
    ("Traffic", "phases"): "int | None, Phases()",
    ("Traffic", "messages"): "tuple[Message, ...], Rows()",
}
"""Keys whose form in files is not the core's: their annotation."""

DEPENDS = {("Schedule", "order"): "order_of(data.get('policy', ''))"}
"""Defaults that another key decides, as the core's tables say."""

HEADER = '''"""{title} of a scenario: what it may say, its defaults and ranges.

Written by `make docs` from the Rust core's own structs (docs/scenario_keys.py); do not edit.
"""

from typing import Annotated, Any

from pydantic import Field

from allrail.scenario.algorithms import ByOperation, FastestBySize, OneByOperation, PerDimension
from allrail.scenario.fields import U64_MAX, Amount, Count, CountOrWord, Flag, Number, OneOf
from allrail.scenario.fields import Quantity, Rate, Text
from allrail.scenario.keys.compute import Compute, Jitter, SlowLinks, Straggler
from allrail.scenario.keys.parallelism import Parallelism
from allrail.scenario.node import Described, Node
from allrail.scenario.policies import Policy, order_of
from allrail.scenario.programs import Programs
from allrail.scenario.sugar import ByGroup, Device, Mapped, Message, Model, Phases, Rows
'''
"""With every import that a file may need; those that it does not are taken out."""

CHOICES = '''"""What some keys choose from, where people write it otherwise than the core reads it.

Written by `make docs` from the Rust core's own types (docs/scenario_keys.py); do not edit.
"""

from __future__ import annotations
'''

QUANTITIES = {"Time": "time", "Bytes": "size", "Bandwidth": "bandwidth"}
U64 = "uint64"


class Writer:
    """Turns the core's schemas into classes."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self.definitions = definitions

    def keys(self, file: str) -> str:
        """Return a file of `keys/`."""
        own = f"from allrail.scenario.keys.{file} "
        lines = HEADER.format(title=file.capitalize()).splitlines(keepends=True)
        header = "".join(line for line in lines if not line.startswith(own))
        return self.formatted(header + "".join(self.part(name) for name in FILES[file]))

    def choices(self) -> str:
        """Return `choices.py`."""
        operations = [one["const"] for one in flat(self.definitions["Operation"]["oneOf"])]
        placements = flat(self.definitions["Placement"]["anyOf"])
        named = [one["const"] for one in placements if one["const"] is not None]
        forms = {one["required"][0]: plain(one["description"]) for one in self.models()}
        return self.formatted(
            f"{CHOICES}\nOPERATIONS = {tuple(operations)!r}\nPLACEMENTS = {tuple(named)!r}\n"
            f'FORMS = {forms!r}\n"""How a model may be given in place."""\n'
        )

    def models(self) -> list[dict[str, Any]]:
        """Return the forms of a model."""
        forms: list[dict[str, Any]] = self.definitions["Model"]["oneOf"]
        return forms

    @staticmethod
    def formatted(text: str) -> str:
        """Return source as ruff writes it."""
        ruff = Path(sys.executable).with_name("ruff")
        for tool in (["check", "--quiet", "--fix", "--select=F401,I"], ["format"]):
            text = subprocess.run(  # noqa: S603, our own text
                [ruff, *tool, "--stdin-filename", FOLDER / "keys.py", "-"],
                input=text,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        return text

    def part(self, name: str) -> str:
        """Return the class of one of the core's types."""
        schema = self.definitions[name]
        about = schema["description"].split("\n\n")[0]
        required = schema.get("required", ())
        lines = [
            f"\n\nclass {PARTS[name]}({BASES.get(name, 'Node')}):",
            f'    """{plain(about)}"""\n',
        ]
        for key in schema["x-order"]:
            one = schema["properties"][key]
            annotation, absent = self.annotation(name, key, one)
            rest = [] if key in required else [self.default(name, key, one, absent=absent)]
            rest += [*self.lengths(one), f"description={wrapped(plain(one['description']))}"]
            lines.append(f"    {key}: {annotation} = Field({', '.join(rest)})")
        return "\n".join(lines) + "\n"

    def annotation(self, part: str, key: str, schema: dict[str, Any]) -> tuple[str, bool]:
        """Return a key's annotation, and whether it may be left out for None."""
        bare, absent = without_null(schema)
        otherwise = OTHERWISE.get((part, key))
        if otherwise is not None:
            absent = (absent or "type" not in schema) and not otherwise.startswith("int | None")
            absent = absent and key not in self.definitions[part].get("required", ())
            return f"Annotated[{otherwise}]" + (" | None" if absent else ""), absent
        return self.kind(bare) + (" | None" if absent else ""), absent

    def kind(self, schema: dict[str, Any]) -> str:
        """Return the annotation of a value."""
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name in QUANTITIES:
            positive = ", positive=True" if schema.get("x-positive") else ""
            return f"Annotated[str, Quantity('{QUANTITIES[name]}'{positive})]"
        if "x-table" in schema and schema.get("type") != "array":
            return f"Annotated[str, OneOf(table='{schema['x-table']}')]"
        if name in PARTS:
            return PARTS[name]
        if name:
            about = {key: one for key, one in schema.items() if key not in ("$ref", "description")}
            return self.kind({**self.definitions[name], **about})
        if "oneOf" in schema or "enum" in schema:
            names = schema.get("enum") or [one["const"] for one in flat(schema["oneOf"])]
            fixed = ", ".join(f"'{one}'" for one in names)
            return f"Annotated[str, OneOf({fixed}, what={schema['x-what']!r})]"
        return self.plain_kind(schema)

    def plain_kind(self, schema: dict[str, Any]) -> str:
        """Return the annotation of a value of JSON's own types."""
        kind = schema["type"]
        if kind == "array":
            items = schema["items"]
            if "x-table" in schema:
                items = {**items, "x-table": schema["x-table"]}
            size = schema.get("minItems") if schema.get("minItems") == schema.get("maxItems") else 0
            each = self.kind(items)
            return f"tuple[{', '.join([each] * size)}]" if size else f"tuple[{each}, ...]"
        if kind == "integer":
            high = [str(schema["maximum"])] if "maximum" in schema else []
            if not high and schema["format"] == U64:
                high = ["U64_MAX"]
            hint = [f"hint={schema['x-hint']!r}"] if "x-hint" in schema else []
            return f"Annotated[int, Count({', '.join([str(schema['minimum']), *high, *hint])})]"
        if kind == "number":
            words = {"exclusiveMinimum": "above", "minimum": "low"}
            bounds = [f"{word}={schema[key]}" for key, word in words.items() if key in schema]
            example = f"example='{schema['examples'][0]}'"
            return f"Annotated[float, Number({', '.join([*bounds, example])})]"
        return {"boolean": "Annotated[bool, Flag()]", "string": "Annotated[str, Text()]"}[kind]

    def default(self, part: str, key: str, schema: dict[str, Any], *, absent: bool) -> str:
        """Return a key's default, as an argument."""
        depends = DEPENDS.get((part, key))
        if depends is not None:
            return f"default_factory=lambda data: {depends}"
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name in PARTS:
            return f"default={PARTS[name]}()"
        value = schema.get("default")
        if value == [] and not absent:
            return "default=()"
        return f"default={value!r}"

    def lengths(self, schema: dict[str, Any]) -> list[str]:
        """Return the bounds of a list, as arguments."""
        words = {"minItems": "min_length", "maxItems": "max_length"}
        if schema.get("minItems") == schema.get("maxItems"):
            return []
        return [f"{word}={schema[key]}" for key, word in words.items() if key in schema]


def without_null(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema of what is not null, and whether null was taken."""
    kind = schema.get("type")
    if isinstance(kind, list) and "null" in kind:
        (only,) = (one for one in kind if one != "null")
        return {**schema, "type": only}, True
    forms = schema.get("anyOf", [])
    if any(one.get("type") == "null" for one in forms):
        (only,) = (one for one in forms if one.get("type") != "null")
        rest = {key: one for key, one in schema.items() if key != "anyOf"}
        return {**only, **rest}, True
    return schema, False


def flat(forms: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices of an enum, of which some may be listed together."""
    return [{"const": name} for one in forms for name in one.get("enum", [one.get("const")])]


def plain(text: str) -> str:
    """Return text on one line."""
    return " ".join(text.split())


def wrapped(text: str) -> str:
    """Return text as literals of at most a line each."""
    lines = textwrap.wrap(text, 74, drop_whitespace=False, break_on_hyphens=False)
    return " ".join(json.dumps(line, ensure_ascii=False) for line in lines)


def files() -> dict[Path, str]:
    """Return what the files should hold."""
    from allrail import _core

    writer = Writer(json.loads(_core.scenario_keys()))
    parts = {FOLDER / "keys" / f"{file}.py": writer.keys(file) for file in FILES}
    return {**parts, FOLDER / "choices.py": writer.choices()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(path)
