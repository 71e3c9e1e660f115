"""YAML 1.2 and JSON text to plain values, with the line of each.

Stricter than a YAML library on its own: scalars follow the 1.2 core schema (`no` is text, `012` is
twelve), a duplicate key is an error, tags are refused, nesting and aliases are bounded. JSON is
read as JSON, and its lines are found by reading it as YAML too, where that succeeds.
"""

from __future__ import annotations

import codecs
import difflib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

from allrail.base import stdin
from allrail.base.errors import InputError
from allrail.base.manifest import note_source
from allrail.base.stdin import STDIN
from allrail.scenario.places import Path, Place, Places, show_path

MAX_BYTES = 16 << 20
MAX_DEPTH = 64
MAX_VALUES = 200_000

_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **{"-" + word: -math.inf for word in (".inf", ".Inf", ".INF")},
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,1000}|0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)


def read_file(path: FilePath) -> tuple[Any, Places]:
    """Read a YAML or JSON file; `.json` is JSON, everything else YAML.

    Args:
        path: The file.

    Returns:
        Its value and where each part of it stands.

    Raises:
        InputError: The file cannot be read or is malformed.
    """
    source = stdin.NAME if path == STDIN else str(path)
    return read_text(read_bytes(path), source=source, json_only=path.suffix == ".json")


def read_bytes(
    path: FilePath,
    *,
    most: int = MAX_BYTES,
    lossy: bool = False,
    wanted: str = "a readable YAML or JSON file",
) -> str:
    """Read a file of text: UTF-8, or UTF-16 as Windows' shells write it.

    Args:
        path: The file; `-` is stdin.
        most: How large it may be, bytes.
        lossy: Whether bytes that are no UTF-8 are replaced instead of refused.
        wanted: What the hint asks for where it cannot be read.

    Raises:
        InputError: There is no such file, it is no text, or it is too large.
    """
    source = stdin.NAME if path == STDIN else str(path)
    if path != STDIN:
        note_source(path)
    try:
        if path == STDIN:
            data = stdin.read(most + 1)
        else:
            with path.open("rb") as file:
                data = file.read(most + 1)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError("there is no such file", source=source, hint=_near_files(path)) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"it cannot be read: {why}", source=source, hint=f"give {wanted}"
        ) from None
    if len(data) > most:
        why = f"it is larger than {most >> 20} MiB"
        raise InputError(why, source=source, hint="is it the right file?")
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig", "replace" if lossy else "strict")
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not UTF-8 text", source=source, hint="save it as UTF-8"
        ) from None


def read_text(text: str, *, source: str, json_only: bool = False) -> tuple[Any, Places]:
    """Read YAML or JSON text.

    Args:
        text: The text.
        source: What errors call it.
        json_only: Whether it must be JSON.

    Returns:
        Its value and where each part of it stands.

    Raises:
        InputError: The text is malformed.
    """
    if json_only:
        value = read_json(text, source)
        try:
            places = _Builder(text, source).document()[1]
        except InputError:  # JSON that is no YAML, such as one with tabs: no lines then
            places = Places({(): Place(source)})
        return value, places
    return _Builder(text, source).document()


def _near_files(path: FilePath) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return f"there is no folder `{path.parent}` either"
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean `{path.parent / near[0]}`?" if near else "check the path"


def read_json(text: str, source: str, *, finite: bool = False) -> Any:
    """Read JSON text; a key that stands twice is a mistake.

    Args:
        text: The text.
        source: What errors call it.
        finite: Whether `NaN` and numbers beyond all bounds are refused here.

    Raises:
        InputError: It is not JSON, or nested too deeply.
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(items)
        if len(value) != len(items):
            keys = [key for key, _ in items]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InputError(
                "the key stands twice", source=source, field=twice, hint="keep one of them"
            )
        return value

    def number(word: str) -> float:
        value = float(word)
        if not math.isfinite(value):
            raise InputError(
                "it is no finite number", source=source, value=word, hint="write a number"
            )
        return value

    checks: dict[str, Any] = {"parse_constant": number, "parse_float": number} if finite else {}
    try:
        return json.loads(text, object_pairs_hook=pairs, **checks)
    except json.JSONDecodeError as error:
        raise InputError(
            f"it is not JSON: {error.msg} in column {error.colno}",
            source=source,
            line=error.lineno,
            hint="strings and keys stand in double quotes, and no comma before `}` or `]`",
        ) from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "it is not JSON that can be read: nested too deeply or a number too long",
            source=source,
            hint=f"at most {MAX_DEPTH} levels are taken",
        ) from None


class _Builder:
    """Builds one document's value from the parser's events, without recursion in C."""

    def __init__(self, text: str, source: str) -> None:
        import yaml

        self._yaml = yaml
        self._source = source
        self._places = Places()
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=loader))

    def document(self) -> tuple[Any, Places]:
        """Return the only document's value and places."""
        yaml = self._yaml
        self._places.known[()] = Place(self._source)
        event = self._next()
        while not isinstance(event, (yaml.DocumentStartEvent, yaml.StreamEndEvent)):
            event = self._next()
        if isinstance(event, yaml.StreamEndEvent):
            raise InputError("it is empty", source=self._source, hint="see `allrail schema`")
        value = self._value(self._next(), (), 0)
        while not isinstance(event, yaml.StreamEndEvent):
            event = self._next()
            if isinstance(event, yaml.DocumentStartEvent):
                raise self._error(event, "it holds a second document", "one document a file")
        return value, self._places

    def _next(self) -> Any:
        try:
            return next(self._events)
        except self._yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            why = error.problem or error.context or "it cannot be parsed"
            raise InputError(
                f"it is not YAML: {why}",
                source=self._source,
                line=mark.line + 1 if mark else None,
                hint="check indentation, colons, quotes and brackets there and just above",
            ) from None
        except self._yaml.YAMLError as error:
            raise InputError(
                f"it is not YAML: {' '.join(str(error).split())}",
                source=self._source,
                hint="is it a text file?",
            ) from None

    def _error(self, event: Any, why: str, hint: str, path: Path = ()) -> InputError:
        return InputError(
            why,
            hint=hint,
            source=self._source,
            line=_line(event),
            field=show_path(path),
        )

    def _value(self, event: Any, path: Path, depth: int) -> Any:
        yaml = self._yaml
        if depth > MAX_DEPTH:
            raise self._error(event, f"it is nested more than {MAX_DEPTH} deep", "flatten it")
        before = self._count
        self._count += 1
        if not path or path not in self._places.known:  # a key's line is known already
            self._places.known[path] = Place(self._source, _line(event))
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._error(
                    event, f"`*{event.anchor}` is not defined above", "define it with `&`", path
                )
            value, size = self._anchors[event.anchor]
            self._bound(event, size)
            return value
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event, path)
        else:
            if event.tag is not None and event.tag != "!":
                raise self._error(event, f"the tag `{event.tag}` is not taken", "remove it", path)
            if isinstance(event, yaml.SequenceStartEvent):
                value = self._sequence(path, depth)
            else:
                value = self._mapping(path, depth)
        self._bound(event, 0)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._count - before)
        return value

    def _bound(self, event: Any, more: int) -> None:
        self._count += more
        if self._count > MAX_VALUES:
            raise self._error(event, f"it holds more than {MAX_VALUES} values", "split it")

    def _sequence(self, path: Path, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), self._yaml.SequenceEndEvent):
            items.append(self._value(event, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := self._next(), self._yaml.MappingEndEvent):
            if not isinstance(event, self._yaml.ScalarEvent):
                raise self._error(event, "a key must be text", "write `key: value`", path)
            key = event.value
            inner = (*path, key)
            if key in items:
                raise self._error(event, "the key stands twice", "keep one of them", inner)
            self._places.known[inner] = Place(self._source, _line(event))
            items[key] = self._value(self._next(), inner, depth + 1)
        return items

    def _scalar(self, event: Any, path: Path) -> Any:
        if event.tag is not None and event.tag != "!":
            raise self._error(event, f"the tag `{event.tag}` is not taken", "remove it", path)
        text = event.value
        if event.style or event.tag == "!":  # quoted, or a block of text
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            return int(text, base)
        if _FLOAT.fullmatch(text):
            return float(text)
        return text


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
