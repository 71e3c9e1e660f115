"""Arguments of the public functions, checked before anything is done with them.

A parameter of one name is the same thing in every function (`scenario`, `sets`, `progress`), so
what it may be stands here once:

    @checked
    def simulate(scenario: ScenarioLike, *, sets: Sets = (), ...): ...

What is in a scenario or a study is checked where it is read.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from allrail.base.errors import InputError, show

P = ParamSpec("P")
T = TypeVar("T")

_MAX_COUNT = 1 << 31
_MAX_NAME = 255
"""Bytes of a part of a path (NAME_MAX of <limits.h>)."""


class Kind(NamedTuple):
    """What an argument may be.

    Attributes:
        is_it: Whether a value is that.
        what: It in words.
        example: One that works.
    """

    is_it: Callable[[Any], bool]
    what: str
    example: str


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_scenario(value: object) -> bool:
    return _is_path(value) or isinstance(value, Mapping) or _is_ours(value, "Scenario")


def _is_ours(value: object, name: str) -> bool:
    """Whether a value is of a class of allrail, which is not imported for it."""
    classes = ((one.__name__, one.__module__) for one in type(value).__mro__)
    return any(called == name and home.startswith("allrail.") for called, home in classes)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def _is_sets(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) for key in value)
    # What can be gone through once only is not looked at here.
    several = isinstance(value, (list, tuple, set, frozenset))
    return _is_list(value) and not (several and not all(isinstance(one, str) for one in value))  # type: ignore[attr-defined]


def _is_each(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and _is_list(one) for key, one in value.items()
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_COUNT


WHOLE = "a whole number"
_SCENARIO = "a path, a mapping, or a `Scenario`"
KINDS: Mapping[str, Kind] = {
    "scenario": Kind(_is_scenario, _SCENARIO, '"scenario.yaml"'),
    "scenarios": Kind(_is_list, f"a list: of each {_SCENARIO}", '["scenario.yaml"]'),
    "bases": Kind(
        lambda value: _is_scenario(value) or _is_list(value),
        f"{_SCENARIO}, or a list of them",
        '"scenario.yaml"',
    ),
    "sets": Kind(
        _is_sets, "a mapping of paths to values, or texts", '{"schedule.policy": "themis"}'
    ),
    "each": Kind(_is_each, "a mapping of paths to lists of values", '{"schedule.chunks": [4, 8]}'),
    "values": Kind(_is_list, "a list of values", '["baseline", "themis"]'),
    "plan": Kind(
        lambda value: _is_path(value) or _is_ours(value, "Plan"),
        "a path or a `Plan`",
        '"plan.json"',
    ),
    "timeline": Kind(
        lambda value: isinstance(value, bool) or _is_count(value),
        "True, False, or how many stages at most",
        "True",
    ),
    "progress": Kind(callable, "a function of two numbers", "print"),
    "threads": Kind(_is_count, WHOLE, "4"),
    "workers": Kind(_is_count, WHOLE, "4"),
    "fabric": Kind(
        lambda value: (
            _is_path(value) or _is_ours(value, "Fabric") or _is_ours(value, "GraphFabric")
        ),
        "a preset's name, a path, or a `Fabric`",
        '"tutorial-8x8x8"',
    ),
    "name": Kind(lambda value: isinstance(value, str), "a text", '"gpt"'),
    "path": Kind(_is_path, "a path", '"file.py"'),
    "out": Kind(_is_path, "a path", '"out"'),
    "folder": Kind(_is_path, "a path", '"out"'),
    "job": Kind(
        lambda value: _is_path(value) or isinstance(value, Mapping),
        "a path or a mapping",
        '"allrail.yaml"',
    ),
    "study": Kind(
        lambda value: _is_path(value) or isinstance(value, Mapping),
        "a path or a mapping",
        '"study.yaml"',
    ),
    "ray": Kind(lambda value: isinstance(value, str), "an address", '"auto"'),
    "trials": Kind(_is_count, WHOLE, "12"),
    "seed": Kind(lambda value: type(value) is int, WHOLE, "0"),
    "names": Kind(_is_sets, "a list of texts", '["all"]'),
    "result": Kind(lambda value: _is_ours(value, "TrainingResult"), "a `TrainingResult`", "None"),
    "barrier": Kind(lambda value: isinstance(value, bool), "True or False", "True"),
}
"""By the name of a parameter. None is taken where it is the default."""

PathLike = str | os.PathLike[str]
"""A file or a folder."""
Names = str | Iterable[str]
"""One name, or several."""


def several(names: Names) -> tuple[str, ...]:
    """Return one name, or several, as a tuple.

    Args:
        names: Names.
    """
    return (names,) if isinstance(names, str) else tuple(names)


def is_usable_path(value: object) -> bool:
    """Return whether a value is a path that a file may have.

    Args:
        value: Any.
    """
    if not _is_path(value):
        return False
    try:
        name = os.fsencode(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return bool(name) and b"\0" not in name and max(map(len, name.split(b"/"))) <= _MAX_NAME


def _is_number(value: object) -> bool:
    return type(value) is float or _is_count(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _are_names(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    )


_PATH = Kind(is_usable_path, "a path", '"out"')
_NAMES = Kind(_are_names, "a text, or a list of texts", '["megatron"]')
FILES = Kind(
    lambda value: (
        isinstance(value, (list, tuple)) and bool(value) and all(map(is_usable_path, value))
    ),
    "a path, or a list of paths",
    '"rank0.json.gz"',
)
ANNOTATED: Mapping[str, Kind] = {
    "bool": Kind(lambda value: isinstance(value, bool), "True or False", "True"),
    "int": Kind(lambda value: type(value) is int and abs(value) < 1 << 63, WHOLE, "4"),
    "float": Kind(_is_number, "a number", "0.9"),
    "str": Kind(_is_text, "a text", '"1 MiB"'),
    "list[FailedRow]": Kind(lambda value: isinstance(value, list), "a list", "[]"),
    "PathLike": _PATH,
    "Names": _NAMES,
    "Bases": KINDS["bases"],
    "Each": Kind(lambda value: value == () or _is_each(value), *KINDS["each"][1:]),
}
"""By the annotation of a parameter whose name says nothing in `KINDS`."""


def check(name: str, value: object, *, kind: Kind | None = None) -> None:
    """Refuse an argument that is of another kind.

    Args:
        name: Of the parameter.
        value: Its argument.
        kind: What it may be; as `KINDS` says for its name if None.

    Raises:
        InputError: It is not.
    """
    wanted = kind or KINDS[name]
    if not wanted.is_it(value):
        if type(value) is int and value < 0 and wanted.what == WHOLE:
            raise InputError(
                "it is below 0",
                field=name,
                value=show(value),
                hint=f"for example `{wanted.example}`",
            )
        raise InputError(
            f"it is of type {type(value).__name__}, and must be {wanted.what}",
            field=name,
            value=show(value),
            hint=f"for example `{name}={wanted.example}`",
        )


def _kind_of(parameter: inspect.Parameter) -> Kind | None:
    text = parameter.annotation if isinstance(parameter.annotation, str) else ""
    by_text = ANNOTATED.get(text.removesuffix(" | None"))
    if by_text is not None and text[0].isupper():  # a name that says more than the parameter's
        return by_text
    return KINDS.get(parameter.name) or by_text


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Check the arguments of a function, by the names of its parameters.

    Args:
        function: A public function.
    """
    signature = inspect.signature(function)
    known = {
        name: (parameter.default is None, kind)
        for name, parameter in signature.parameters.items()
        if (kind := _kind_of(parameter)) is not None
    }

    @wraps(function)
    def with_checks(*args: P.args, **kwargs: P.kwargs) -> T:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in known and not (value is None and known[name][0]):
                check(name, value, kind=known[name][1])
        return function(*args, **kwargs)

    return with_checks
