"""What nccl-tests and rccl-tests print, of any version and as people paste it.

Versions differ in their columns (`redop`, `root`, `error` or `#wrong`, timestamps, per-iteration
times); people leave some out, indent, and tag lines; logs put times and names before them. So
columns are not counted: a row has a size, and behind it twice a time, an algorithm bandwidth and a
bus bandwidth, of which the second is the size over the first. That holds in every version, and
tells microseconds from milliseconds. Where the size is says what follows it: a count and a type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from statistics import median

from allrail.calibrate.read.lines import plain as _plain
from allrail.calibrate.read.programs import COLLECTIVES, MISTAKES, PROGRAM
from allrail.calibrate.table import Row, Table, bounds, ranks_of
from allrail.errors import InputError

_HEADER = re.compile(r"\bsize\b.*\btime\b.*\balgbw\b.*\bbusbw\b")
_RANK = re.compile(
    r"Rank\s+(?P<rank>\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+device\s+\d+"
    r"\s+\[[^]]*\]\s*(?P<device>.*)$"
)
_FAILED = re.compile(r"\bOut of bounds values\s*:\s*(\d+)\s+FAILED")
_STARTS = re.compile(r"\bnThreads?\b.*\bminBytes\b")
_NEAR = 0.02
"""How far a printed bandwidth may be from size over time, for rounding."""
_ZERO = 0.005
"""GB/s: less is printed as 0.00."""
_AGREE = 0.25
"""How far sweeps of one table may be from each other, to be measurements of one thing."""


def recognise(text: str) -> bool:
    """Whether a text is of this kind."""
    return any(_HEADER.search(line.lower()) for line in text.splitlines()) or any(
        _row(_plain(line)) for line in text.splitlines()
    )


def read(text: str, source: str) -> list[Table]:
    """Return the tables of an output: one for each header that rows follow.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: A row's result was wrong, or there is no row.
    """
    made: list[Table] = []
    part = _Part()
    for number, line in enumerate(text.splitlines(), 1):
        plain = _plain(line)
        named = PROGRAM.search(plain)
        rank = _RANK.search(plain)
        failed = _FAILED.search(plain)
        if failed:
            raise InputError(
                f"{failed[1]} of its values are wrong", source=source, line=number, hint=MISTAKES
            )
        if part.rows and (rank or _STARTS.search(plain)):
            # Another run begins, and what it lists is its own.
            made += part.tables(source)
            part = _Part()
        if _HEADER.search(plain.lower()):
            if part.rows:
                made += part.tables(source)
                part = _Part(told=part.told or (made[-1].ranks if made else None))
            part.headers = re.findall(r"[^\s,;|]+", plain.lower())
        elif named:
            if part.rows:
                made += part.tables(source)
                part = _Part()
            part.name = COLLECTIVES[named[1]]
        elif rank:
            part.twice = part.twice or int(rank["rank"]) in part.ranks
            part.ranks.add(int(rank["rank"]))
            part.hosts.add(rank["host"])
            part.device = part.device or " ".join(rank["device"].split()).rstrip("\\\"',| ")
        elif (found := _row(plain)) is not None:
            part.add(found, plain, source, number)
        elif re.match(r"\d{4,}\s+\d+\s", plain):
            part.cut += 1
    if part.rows:
        made += part.tables(source)
    if not made:
        raise InputError(
            "there is no row with a size, a time and bandwidths",
            source=source,
            hint="give the whole output of nccl-tests, with its table",
        )
    return made


_Found = tuple[int, list[tuple[float, float, float, str]]]
"""The size, and of each half: µs, algorithm and bus bandwidth, and the word behind."""


def _row(plain: str) -> _Found | None:
    for spelled in _spellings(plain):
        found = _of(spelled.split())
        if found is not None:
            return found
    return None


def _spellings(plain: str) -> Iterator[str]:
    """As it stands; with decimal commas; with commas between columns."""
    yield plain
    if any(sign in plain for sign in ",;|"):
        apart = re.sub("[;|]", " ", plain)
        yield re.sub(r"(?<=\d),(?=\d)", ".", apart)
        yield apart.replace(",", " ")


def _of(words: list[str]) -> _Found | None:
    """A row of columns: behind its size a count and a type, if they are there."""
    places = [
        place
        for place in range(len(words) - 5)
        if words[place + 2][0].isalpha() and all(map(_is_whole, words[place : place + 2]))
    ]
    # Some leave those out, and some add a column before the size.
    for first in places or range(min(2, len(words))):
        size = _whole(words[first])
        if not size:
            continue
        halves = []
        at = first + 1
        while at + 2 < len(words):
            found = _half(size, words[at : at + 3])
            if found is None:
                at += 1
                continue
            # Where that column was left out, what is behind is the other half.
            other = _half(size, words[at + 3 : at + 6]) if at + 5 < len(words) else None
            behind = words[at + 3] if at + 3 < len(words) and other is None else ""
            halves.append((*found, behind))
            at += 3
        if halves:
            return size, halves[:2]
    return None


def _half(size: int, words: list[str]) -> tuple[float, float, float] | None:
    numbers = [_number(word) for word in words]
    time, algbw, busbw = numbers
    if time is None or algbw is None or busbw is None or time <= 0 or algbw < 0 or busbw < 0:
        return None
    if busbw > 2.01 * algbw + 0.01 or "." not in words[1]:
        return None
    for unit in (1.0, 1e3):
        rate = size / (time * unit) / 1e3
        if not rate:
            continue
        # Printed with two digits behind the point.
        if abs(rate - algbw) <= 0.0051 + _NEAR * algbw:
            return time * unit, algbw, busbw
        # Before June 2020 an all-gather's was that of the bus, in both columns.
        share = algbw / rate
        ranks = round(1 / (1 - share)) if share < 0.995 else 0
        if words[1] == words[2] and ranks > 1 and abs(share * ranks / (ranks - 1) - 1) < _NEAR:
            return time * unit, rate, busbw
    return None


def _is_whole(word: str) -> bool:
    return _whole(word) is not None


def _whole(word: str) -> int | None:
    digits = word.replace("_", "").replace(",", "")
    whole = digits.isascii() and digits.isdigit() and len(digits) < 19
    return int(digits) if whole else None


def _number(word: str) -> float | None:
    try:
        number = float(word.replace("_", ""))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


class _Part:
    """What has been seen of a table."""

    def __init__(self, told: int | None = None) -> None:
        self.name: str | None = None
        self.told = told
        self.headers: list[str] = []
        self.rows: list[Row] = []
        self.ranks: set[int] = set()
        self.hosts: set[str] = set()
        self.device = ""
        self.cut = 0
        self.twice = False
        self.ratios: list[tuple[float, float]] = []
        self.words: list[str] = []

    def add(self, found: _Found, plain: str, source: str, number: int) -> None:
        size, halves = found
        for *_, behind in halves:
            # Without a header a whole number is a count: an error of old versions has an exponent.
            counts = "wrong" in " ".join(self.headers)
            wrong = _number(behind) if counts else None if self.headers else _whole(behind)
            if wrong:
                raise InputError(
                    f"{wrong:.0f} of its values are wrong at {size:,} bytes",
                    source=source,
                    line=number,
                    hint=MISTAKES,
                )
        self.words = plain.split()
        self.ratios.append((halves[0][1], halves[0][2]))
        second = halves[1][0] if len(halves) > 1 else None
        self.rows.append(Row(size, halves[0][0], second))

    def tables(self, source: str) -> list[Table]:
        """Return its table; where rows are of several numbers of ranks, one for each."""
        sweeps = self._sweeps()
        if len(sweeps) == 1:
            by: dict[int | None, list[int]] = {}
            repeated = len({row.bytes for row in self.rows}) < len(self.rows)
            if repeated and bounds(self.ratios) is None:
                for place, (alg, bus) in enumerate(self.ratios):
                    name = self.name or self._guess(bus / max(alg, _ZERO))
                    by.setdefault(ranks_of(name or "", [(alg, bus)]), []).append(place)
            parts = list(by.values()) or [list(sweeps[0])]
            return [self._table(source, places) for places in parts]
        if bounds(self.ratios) is not None and self._alike(sweeps):
            note = f"{len(sweeps)} sweeps follow each other: each size's median counts"
            return [self._table(source, range(len(self.rows)), note)]
        note = "one of {} runs under one header, which differ"
        return [self._table(source, one, note.format(len(sweeps))) for one in sweeps]

    def _sweeps(self) -> list[range]:
        """Where sizes begin again another sweep does."""
        sizes = [row.bytes for row in self.rows]
        again = [place for place in range(1, len(sizes)) if sizes[place] < sizes[place - 1]]
        return [range(*ends) for ends in pairwise([0, *again, len(sizes)])]

    def _alike(self, sweeps: list[range]) -> bool:
        """Whether sweeps took the same time at the sizes that they share."""
        first = {self.rows[place].bytes: self.rows[place].time_us for place in sweeps[0]}
        off = [
            abs(self.rows[place].time_us / first[self.rows[place].bytes] - 1)
            for sweep in sweeps[1:]
            for place in sweep
            if self.rows[place].bytes in first
        ]
        return bool(off) and median(off) <= _AGREE

    def _table(self, source: str, places: Iterable[int], note: str | None = None) -> Table:
        rows = [self.rows[place] for place in places]
        ratios = [self.ratios[place] for place in places]
        if all(bus == 0 for _, bus in ratios) and max(alg for alg, _ in ratios) > 10 * _ZERO:
            raise InputError(
                "each process ran alone: the bus bandwidth is 0",
                source=source,
                hint="build nccl-tests with MPI=1, and start it by mpirun or srun",
            )
        notes = [] if note is None else [note]
        if self.twice:
            notes.append("ranks are listed twice: several processes ran, each on its own")
        if self.cut:
            notes.append(f"{self.cut} rows were cut off or changed")
        # Of fast rows: the others' bandwidths have too few digits.
        fastest = max(rate for rate, _ in ratios)
        fast = [each for each in ratios if each[0] >= fastest / 4]
        rates = [sum(each) for each in zip(*fast, strict=True)]
        # All printed as 0.00, they tell nothing.
        name = self.name or (self._guess(rates[1] / rates[0]) if rates[0] > 0 else None)
        # People shorten the list; its last line still says how many there were.
        told = max(self.ranks) + 1 if self.ranks else self.told
        counted = None if name is None else ranks_of(name, fast, told)
        if told and counted and told != counted:
            notes.append(f"{told} ranks are listed, the bandwidths are of {counted}: these count")
        ranks = counted or told
        complete = ranks == len(self.ranks) and not self.twice
        return Table(
            collective=name,
            ranks=ranks,
            hosts=len(self.hosts) if complete else None,
            device=self.device,
            rows=tuple(sorted(rows, key=lambda row: row.bytes)),
            source=source,
            notes=tuple(notes),
        )

    def _guess(self, ratio: float) -> str | None:
        """From the columns and the bandwidths, where the output does not say its name."""
        sums = "sum" in self.words
        rooted = "root" in self.headers and "-1" not in self.words
        if ratio > 1.001:
            return "all_reduce"
        if ratio > 0.999:
            if rooted:
                return "reduce" if sums else "broadcast"
            # Of two ranks an all-reduce's is 1, too.
            return "all_reduce" if sums else None
        if sums:
            return "reduce_scatter"
        # Its columns are those of a reduction, left empty; in place it is not checked.
        old = "redop" in self.headers and "root" not in self.headers
        return "all_to_all" if old or self.words.count("N/A") == 1 else "all_gather"
