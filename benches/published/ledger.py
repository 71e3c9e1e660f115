"""What becomes of each number of the sources: `ledger.yaml`, read and compared with the rows.

    file:
      heading (or its beginning):
        - {numbers: 97 125, rows: "bytescheduler: VGG16, MXNet, PS, RDMA, *"}
        - {numbers: 64 16, input: reproduce/allrail_reproduce/grid.py}
        - {rest: 12, other: measured by the folder's own prototype}

In JSON entries have `path`, with `*` for any key and `**` for any rest; the first that fits counts.
An entry says one of

- `rows`: patterns of rows, one of which must publish the number (`times` it, where units differ;
  or, `derived`, say in its source that its own comes of it); of a path, `{0}`, `{1}`, ... are its
  keys, by `names` where that has them;
- `input`: the file of this repository in which it is an input of rows;
- `other`: why it is no result of a source: a word, a formula, a count of the reference's own.

`rest` stands for as many numbers of the heading as no other entry names, so that a number more is
noticed. `beyond` lists numbers that no file of the folder has, with the place that has them and
their rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from published.rows import Claim
from published.sources import NUMBER, Printed, files, numbers, value_of

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).with_name("ledger.yaml")
SCALES = (1, 100, 1e-6, 1e-9)
"""What units of rows may differ by: per cent, millions, billions."""
KINDS = ("rows", "input", "other")


@dataclass
class Found:
    """What a comparison shows.

    Attributes:
        counts: By file: numbers that have a row, are an input, are something else.
        without: Numbers without a row, each with its file and place.
        wrong: What the ledger says and is not so.
    """

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every number has a row, or a reason why it needs none."""
        return not self.without and not self.wrong


def read(path: Path = LEDGER) -> dict[str, Any]:
    """Return the ledger.

    Args:
        path: Its file.
    """
    tree: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tree


def compare(folder: Path, rows: Mapping[str, Claim], ledger: Mapping[str, Any]) -> Found:
    """Compare the numbers of a folder with the rows.

    Args:
        folder: The reference.
        rows: What each row publishes, by `publication: case`.
        ledger: What becomes of each number.
    """
    found = Found()
    known, apart = ledger["sources"], ledger["not_sources"]
    for name in files(folder):
        if name in known:
            _file(name, numbers(folder / name), known[name], rows, ledger, found)
        elif not any(fnmatchcase(name, pattern) for pattern in apart):
            found.without.append(f"{name}: the ledger does not know this file")
    found.wrong += [
        f"{name}: there is no such file" for name in known if not (folder / name).exists()
    ]
    _backwards(folder, rows, ledger, found)
    return found


def _file(
    name: str,
    printed: list[Printed],
    entries: Any,
    rows: Mapping[str, Claim],
    ledger: Mapping[str, Any],
    found: Found,
) -> None:
    counts = found.counts.setdefault(name, Counter())
    if isinstance(entries, list):
        for one in printed:
            entry = next((e for e in entries if _on_path(one, e)), None)
            if entry is None:
                found.without.append(f"{name}, {one.place}: {one.text}")
            else:
                _judge(name, one, entry, rows, ledger, found, counts)
        return
    places = {one.place for one in printed}
    for place in sorted(places):
        here = [one for one in printed if one.place == place]
        heading = next(
            (h for h in entries if h and place.startswith(h)), "" if "" in entries else None
        )
        if heading is None:
            found.without += [f"{name}, {place}: {one.text}" for one in here]
        else:
            _section(name, here, entries[heading], rows, ledger, found, counts)
    for heading in entries:
        if not any(place.startswith(heading) for place in places):
            found.wrong.append(f"{name}: there is no heading `{heading}` with numbers")


def _section(
    name: str,
    here: list[Printed],
    entries: list[dict[str, Any]],
    rows: Mapping[str, Claim],
    ledger: Mapping[str, Any],
    found: Found,
    counts: Counter[str],
) -> None:
    left = Counter(one.text for one in here)
    place = here[0].place
    for entry in entries:
        for text in str(entry.get("numbers", "")).split():
            if not left[text]:
                found.wrong.append(f"{name}, {place}: {text} is not there (any more)")
                continue
            left[text] -= 1
            _judge(name, Printed(place, text), entry, rows, ledger, found, counts)
    rest = list(left.elements())
    told = next((entry for entry in entries if "rest" in entry), None)
    if told is not None and told["rest"] == len(rest):
        for text in rest:
            _judge(name, Printed(place, text), told, rows, ledger, found, counts)
    elif told is not None:
        found.without.append(f"{name}, {place}: {len(rest)} other numbers, not {told['rest']}")
    else:
        found.without += [f"{name}, {place}: {text}" for text in rest]


def _judge(
    name: str,
    one: Printed,
    entry: Mapping[str, Any],
    rows: Mapping[str, Claim],
    ledger: Mapping[str, Any],
    found: Found,
    counts: Counter[str],
) -> None:
    [kind] = [kind for kind in KINDS if kind in entry]
    counts[kind] += 1
    where = f"{name}, {one.place}: {one.text}"
    if kind == "input" and not (ROOT / entry["input"]).exists():
        found.wrong.append(f"{where}: there is no `{entry['input']}`")
    if kind != "rows":
        return
    value = one.value * float(entry.get("times", 1))
    derived = bool(entry.get("derived"))
    cases = _cases(one, entry, rows, ledger)
    if not any(_publishes(rows[case], value, derived=derived) for case in cases):
        counts[kind] -= 1
        found.without.append(f"{where}: no row of `{entry['rows']}` has it")


def _cases(
    one: Printed, entry: Mapping[str, Any], rows: Mapping[str, Claim], ledger: Mapping[str, Any]
) -> list[str]:
    patterns = entry["rows"]
    keys = [str(ledger["names"].get(key, key)) for key in one.place.split("/")]
    asked = [patterns] if isinstance(patterns, str) else patterns
    filled = [pattern.format(*keys) if "path" in entry else pattern for pattern in asked]
    return [case for case in rows if any(_like(case, pattern) for pattern in filled)]


def _like(text: str, pattern: str) -> bool:
    """As in a shell, but for brackets, which names have."""
    return _pattern(pattern).match(text) is not None


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern.replace("[", "[[]")))


def _on_path(one: Printed, entry: Mapping[str, Any]) -> bool:
    """Whether an entry is of this path, and of this number if it names some."""
    if "numbers" in entry and one.text not in str(entry["numbers"]).split():
        return False
    keys, parts = one.place.split("/"), entry["path"].split("/")
    if parts[-1] == "**":
        parts.pop()
        keys = keys[: len(parts)]
    return len(keys) == len(parts) and all(map(fnmatchcase, keys, parts))


def _publishes(claim: Claim, value: float, *, derived: bool) -> bool:
    """Whether a row has a number, or its source says that it was derived from it."""
    told = [*claim.ends, *(map(value_of, NUMBER.findall(claim.source)) if derived else ())]
    return any(_key(one) == _key(value) for one in told)


def _key(value: float) -> str:
    return f"{value:.9g}"


def _backwards(
    folder: Path, rows: Mapping[str, Claim], ledger: Mapping[str, Any], found: Found
) -> None:
    """Every number that a row publishes stands in the folder, or in a place that is named."""
    known = {
        _key(one.value * scale)
        for name in ledger["sources"]
        if (folder / name).exists()
        for one in numbers(folder / name)
        for scale in SCALES
    }
    for case, claim in rows.items():
        publication, _, _ = case.partition(":")
        if publication not in ledger["publications"]:
            continue
        entries = [entry for entry in ledger["beyond"] if _like(case, entry["rows"])]
        texts = " ".join(str(entry.get("numbers", "")) for entry in entries).split()
        free = any("numbers" not in entry for entry in entries)
        allowed = known | {_key(value_of(text)) for text in texts}
        found.wrong += [
            f"{case}: {end:g} stands in no file, and `beyond` has no place"
            for end in claim.ends
            if not free and _key(end) not in allowed
        ]
    for entry in ledger["beyond"]:
        for text in str(entry.get("numbers", "")).split():
            cases = [case for case in rows if _like(case, entry["rows"])]
            value = value_of(text)
            if not any(_publishes(rows[case], value, derived=False) for case in cases):
                found.without.append(f"{entry['place']}: {text}: no row of `{entry['rows']}`")
