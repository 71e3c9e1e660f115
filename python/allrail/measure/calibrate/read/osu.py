"""Tables of OSU's micro-benchmarks: latency tests of collectives, over MPI, NCCL and others.

Sizes are those of one rank: what it brings to an all-gather or sends to each in an all-to-all, and
the buffer elsewhere. Times are the mean over ranks; of tests that do not block, the one without
computing (`Pure Comm.`). How many ranks took part says the command alone, where a log has it.
`osu_latency`, half of a round trip between two ranks, counts as `sendrecv`; tests of bandwidth keep
many messages on the way and tell no time of one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from allrail.base.errors import InputError
from allrail.measure.calibrate.read.lines import plain
from allrail.measure.calibrate.read.programs import MISTAKES
from allrail.measure.calibrate.table import Row, Table

_TEST = re.compile(r"\bOSU (?:MPI|NCCL|RCCL|XCCL|HCCL)(?:-\w+)?\s+(?P<name>.*?)\s*Test\b")
_LATENCY = re.compile(
    r"(?:(?:Non-blocking|Persistent)\s+)?(?P<name>.*?)\s*(?:Personalized Exchange\s+)?Latency$",
    re.IGNORECASE,
)
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "all-to-all": "all_to_all",
    "all-to-allv": "all_to_all",
    "alltoall": "all_to_all",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "": "sendrecv",
}
"""Ours, by OSU's names in lower case; the nameless one is between two ranks."""
_PER_RANK = ("all_gather", "all_to_all")
_COMMAND = re.compile(
    r"\b(?:mpirun|mpiexec|srun)\b.*\s(?:-np?|--ntasks)[ =](?P<ranks>\d{1,9})\s.*\bosu_"
)
_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]*)?")


@dataclass
class _Seen:
    """A latency test, as far as it was read.

    Attributes:
        name: Our collective; None of one that we have not.
        ranks: As the command says; None where none does.
        column: Of a row, where its time is.
        rows: By size.
    """

    name: str | None
    ranks: int | None
    column: int = 1
    rows: list[Row] = field(default_factory=list)


def recognise(text: str) -> bool:
    """Whether a text is OSU's."""
    return _TEST.search(text) is not None


def read(text: str, source: str) -> list[Table]:
    """Return the tables of OSU's latency tests.

    Args:
        text: What was printed.
        source: The file, for messages.

    Raises:
        InputError: It has no row, or says that a result was wrong.
    """
    made: list[_Seen] = []
    others: list[str] = []
    now: _Seen | None = None
    ranks: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        words = plain(line)
        if test := _TEST.search(words):
            latency = _LATENCY.match(test["name"])
            now = None
            if latency is None:
                others.append(test["name"])
            else:
                now = _Seen(_COLLECTIVES.get(latency["name"].lower()), ranks)
                made.append(now)
        elif command := _COMMAND.search(words):
            now, ranks = None, int(command["ranks"])
        elif now is None:
            continue
        elif words.startswith("Size"):
            heads = re.split(r"\s{2,}", words)
            now.column = next((p for p, one in enumerate(heads) if one.startswith("Pure Comm")), 1)
        elif row := _row(words.split(), now.column):
            if "Fail" in words.split():
                raise InputError(
                    f"its values are wrong at {row.bytes:,} bytes",
                    source=source,
                    line=number,
                    hint=MISTAKES,
                )
            now.rows.append(row)
    found = [_table(one, source) for one in made if one.rows]
    if not found:
        raise InputError(
            f"it is OSU's {others[0]} test, which says no time of a size"
            if others and not made
            else "it has no row of a size and a latency",
            source=source,
            hint="give the output of a latency test, such as `osu_allreduce` or `osu_latency`",
        )
    return found


def _row(words: list[str], column: int) -> Row | None:
    """A row; none of 0 bytes, which have no bandwidth."""
    if len(words) <= column or not _WHOLE.fullmatch(words[0]):
        return None
    time = float(words[column]) if _NUMBER.fullmatch(words[column]) else 0.0
    return Row(int(words[0]), time) if time > 0 and int(words[0]) else None


def _table(seen: _Seen, source: str) -> Table:
    return Table(
        seen.name,
        2 if seen.name == "sendrecv" else seen.ranks,
        None,
        "",
        tuple(sorted(seen.rows, key=lambda row: row.bytes)),
        source,
        per_rank=seen.name in _PER_RANK,
    ).counted()
