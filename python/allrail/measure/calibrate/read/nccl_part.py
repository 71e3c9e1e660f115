"""What has been seen of one output of nccl-tests, and the tables that it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from allrail.base.errors import InputError
from allrail.base.units import show_count
from allrail.measure.calibrate.read.nccl_rows import Found, number_of, whole_of
from allrail.measure.calibrate.read.programs import MISTAKES
from allrail.measure.calibrate.table import Row, Table, bounds, ranks_of

_ZERO = 0.005
"""GB/s: less is printed as 0.00."""
_AGREE = 0.25
"""How far sweeps of one table may be from each other, to be measurements of one thing."""


@dataclass
class Part:
    """What has been seen of an output.

    Attributes:
        told: How many ranks an earlier table of the file had, where this one lists none.
        name: The collective, where a line names it.
        algorithm: The one that the tool was made to run, where a line names it.
        headers: The words of the header.
        rows: As printed.
        listed: By rank, its group and its host.
        device: The first rank's.
        cut: How many rows were cut off.
        twice: Whether a rank is listed twice.
    """

    told: int | None = None
    name: str | None = None
    algorithm: str | None = None
    headers: list[str] = field(default_factory=list)
    rows: list[Found] = field(default_factory=list)
    listed: dict[int, tuple[int | None, str]] = field(default_factory=dict)
    device: str = ""
    cut: int = 0
    twice: bool = False

    def beside(self) -> Part:
        """Return what stands beside it, of which only the header is known."""
        return Part(headers=self.headers, algorithm=self.algorithm)

    def list_rank(self, rank: int, group: int | None, host: str, device: str) -> None:
        """Take a line of the list of ranks.

        Args:
            rank: Of the job.
            group: The one that it communicates in; None where the column is missing.
            host: Its machine.
            device: What the driver calls its GPU.
        """
        self.twice = self.twice or rank in self.listed
        self.listed[rank] = (group, host)
        self.device = self.device or " ".join(device.split()).rstrip("\\\"',| ")

    def add(self, row: Found, source: str, number: int) -> None:
        """Take a row.

        Args:
            row: As printed.
            source: The file, for messages.
            number: Of its line.

        Raises:
            InputError: Its result was wrong.
        """
        for *_, behind in row.halves:
            # Without a header a whole number is a count: an error of old versions has an exponent.
            counts = "wrong" in " ".join(self.headers)
            wrong = number_of(behind) if counts else None if self.headers else whole_of(behind)
            if wrong:
                raise InputError(
                    f"{wrong:.0f} of its values are wrong at {row.bytes:,} bytes",
                    source=source,
                    line=number,
                    hint=MISTAKES,
                )
        self.rows.append(row)

    def tables(self, source: str) -> list[Table]:
        """Return its tables: one for each type, reduction and number of ranks.

        Args:
            source: The file.

        Raises:
            InputError: Each process ran alone.
        """
        kinds: dict[tuple[str, str], list[Found]] = {}
        for row in self.rows:
            kinds.setdefault((row.dtype, row.redop), []).append(row)
        return [table for rows in kinds.values() for table in self._of_kind(source, rows)]

    def _of_kind(self, source: str, rows: list[Found]) -> list[Table]:
        sweeps = _sweeps(rows)
        ratios = [_ratio(row) for row in rows]
        if len(sweeps) == 1:
            by: dict[int | None, list[int]] = {}
            repeated = len({row.bytes for row in rows}) < len(rows)
            if repeated and bounds(ratios) is None:
                for place, (alg, bus) in enumerate(ratios):
                    name = self.name or self._guess(rows[place], bus / max(alg, _ZERO))
                    by.setdefault(ranks_of(name or "", [(alg, bus)]), []).append(place)
            places = list(by.values()) or [list(sweeps[0])]
            return [self._table(source, [rows[one] for one in each]) for each in places]
        if bounds(ratios) is not None and _alike(rows, sweeps):
            note = f"{len(sweeps)} sweeps follow each other: each size's median counts"
            return [self._table(source, rows, note)]
        note = f"one of {len(sweeps)} runs under one header, which differ"
        return [self._table(source, [rows[place] for place in each], note) for each in sweeps]

    def _table(self, source: str, rows: Sequence[Found], note: str | None = None) -> Table:
        ratios = [_ratio(row) for row in rows]
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
            notes.append(
                show_count(self.cut, "row was cut off or changed", "rows were cut off or changed")
            )
        # Of fast rows: the others' bandwidths have too few digits.
        fastest = max(rate for rate, _ in ratios)
        fast = [each for each in ratios if each[0] >= fastest / 4]
        rates = [sum(each) for each in zip(*fast, strict=True)]
        # All printed as 0.00, they tell nothing.
        name = self.name or (self._guess(rows[-1], rates[1] / rates[0]) if rates[0] > 0 else None)
        members = Members.of(self.listed)
        told = members.ranks or self.told
        counted = None if name is None else ranks_of(name, fast, told)
        if told and counted and told != counted:
            notes.append(f"listed: {told} ranks; the bandwidths are of {counted}, which count")
        ranks = counted or told
        complete = ranks == members.ranks and members.complete and not self.twice
        if complete and members.groups > 1:
            notes.append(
                f"{members.groups} groups of {ranks} ranks at once, each on"
                f" {show_count(members.hosts, 'machine')}"
            )
        return Table(
            collective=name,
            ranks=ranks,
            hosts=members.hosts if complete else None,
            device=self.device,
            rows=tuple(
                Row(row.bytes, row.halves[0][0], row.halves[1][0] if len(row.halves) > 1 else None)
                for row in sorted(rows, key=lambda row: row.bytes)
            ),
            source=source,
            notes=tuple(notes),
            groups=members.groups if complete else 1,
            dtype=rows[0].dtype,
            redop=rows[0].redop,
            algorithm=self.algorithm,
        )

    def _guess(self, row: Found, ratio: float) -> str | None:
        """From the columns and the bandwidths, where the output does not say its name."""
        sums = "sum" in row.words
        rooted = "root" in self.headers and "-1" not in row.words
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
        return "all_to_all" if old or row.words.count("N/A") == 1 else "all_gather"


@dataclass(frozen=True, slots=True)
class Members:
    """Who took part: of the group of the first rank, where ranks are in several.

    Attributes:
        ranks: Of the group; None where the list does not say.
        hosts: On how many machines these are.
        groups: How many there are.
        complete: Whether every rank is listed, and the groups are of one size.
    """

    ranks: int | None
    hosts: int
    groups: int
    complete: bool

    @classmethod
    def of(cls, listed: dict[int, tuple[int | None, str]]) -> Members:
        """Return who took part.

        Args:
            listed: By rank, its group (None where nothing says) and its host.
        """
        if not listed:
            return cls(None, 0, 1, complete=False)
        # People shorten the list; its last line still says how many there were.
        last = max(listed) + 1
        whole = last == len(listed)
        sizes = Counter(group for group, _ in listed.values())
        first = listed[min(listed)][0]
        hosts = len({host for group, host in listed.values() if group == first})
        if len(sizes) == 1:
            return cls(last, hosts, 1, complete=whole)
        alike = len(set(sizes.values())) == 1
        return cls(sizes[first] if whole else None, hosts, len(sizes), complete=whole and alike)


def _ratio(row: Found) -> tuple[float, float]:
    """Algorithm and bus bandwidth, GB/s."""
    return row.halves[0][1], row.halves[0][2]


def _sweeps(rows: Sequence[Found]) -> list[range]:
    """Where sizes begin again another sweep does."""
    sizes = [row.bytes for row in rows]
    again = [place for place in range(1, len(sizes)) if sizes[place] < sizes[place - 1]]
    return [range(*ends) for ends in pairwise([0, *again, len(sizes)])]


def _alike(rows: Sequence[Found], sweeps: Iterable[range]) -> bool:
    """Whether sweeps took the same time at the sizes that they share."""
    begin, *others = sweeps
    first = {rows[place].bytes: rows[place].halves[0][0] for place in begin}
    off = [
        abs(rows[place].halves[0][0] / first[rows[place].bytes] - 1)
        for sweep in others
        for place in sweep
        if rows[place].bytes in first
    ]
    return bool(off) and median(off) <= _AGREE
