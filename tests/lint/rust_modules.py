"""Which module of a crate names which, by `use` and by paths that begin with crate, super or self.

Tests do not count. A name that a module passes on (`pub use`) leads to the module that has it, and
what is found in the crate's root alone (`lib.rs`) leads nowhere.
"""

from __future__ import annotations

import re
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub )?mod \w+\s*(?:;|\{.*)", re.DOTALL)
_USE = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]*);", re.MULTILINE)
_WITHIN = frozenset({"crate", "super", "self"})
_PATH = re.compile(r"\b((?:crate|super)(?:::\w+)+)")

Module = tuple[str, ...]


def modules(source: Path) -> dict[Module, Path]:
    """The modules of a crate, as the parts of their paths; `()` is the crate itself.

    Args:
        source: Its folder `src`.
    """
    found = {}
    for path in sorted(source.rglob("*.rs")):
        parts = path.relative_to(source).with_suffix("").parts
        last = parts[-1]
        if last not in {"tests", "main"} and "tests" not in parts:
            found[parts[:-1] if last in {"mod", "lib"} else parts] = path
    return found


def arrows(source: Path) -> dict[str, set[str]]:
    """Each module to the modules of the same crate that it names.

    Args:
        source: The crate's folder `src`.
    """
    known = modules(source)
    text = {
        name: _TESTS.sub("", _COMMENT.sub("", path.read_text())) for name, path in known.items()
    }
    passed: dict[Module, dict[str, Module]] = {name: {} for name in known}
    named: dict[Module, list[Module]] = {name: [] for name in known}
    for name, body in text.items():
        for public, tree in _USE.findall(body):
            for path in _paths(re.sub(r"\s+", " ", tree)):
                if path[0] not in _WITHIN and (*name, path[0]) not in known:
                    continue  # of another crate
                target = _absolute(path, name)
                if public:
                    passed[name][path[-1]] = target
                else:
                    named[name].append(target)
        for found in _PATH.findall(_USE.sub("", body)):
            named[name].append(_absolute(tuple(found.split("::")), name))
    found_arrows: dict[str, set[str]] = {}
    for name, targets in named.items():
        needed = {_module(target, known, passed) for target in targets}
        needed = {one for one in needed if one != name and one}
        found_arrows["::".join(name) or "lib"] = {"::".join(one) for one in needed}
    return found_arrows


def _paths(tree: str) -> list[Module]:
    """The paths of a `use`: `a::{b, c::d as e}` is `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    start = tuple(part for part in head.strip().split("::") if part)
    if not brace:
        return [tuple(part.split(" as ")[0].strip() for part in start)]
    found, depth, item = [], 0, ""
    for sign in rest.rstrip().removesuffix("}") + ",":
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            found += [(*start, *path) for path in _paths(item)] if item.strip() else []
            item = ""
        else:
            item += sign
    return found


def _absolute(path: Module, at: Module) -> Module:
    here = at
    for place, part in enumerate(path):
        if part == "crate":
            here = ()
        elif part == "super":
            here = here[:-1]
        elif part != "self" or place:
            here = (*here, part)
    return here


def _module(target: Module, known: dict[Module, Path], passed: dict) -> Module:
    """The module that has what `target` names, through what others pass on."""
    for _ in range(9):
        place = target
        while place not in known:
            place = place[:-1]
        rest = target[len(place) :]
        if not rest or rest[0] not in passed[place]:
            return place
        target = (*passed[place][rest[0]], *rest[1:])
    return place
