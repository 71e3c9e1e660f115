"""Reads what people have measured: one file a form, in the order in which they are asked.

nccl-tests and their JSON, OSU's and Intel's MPI benchmarks, DeepSpeed's, PARAM's, PyTorch's, and
nccom-test's.
Dumps of torch's Flight Recorder are no text, and asked for first.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from allrail.base import stdin
from allrail.base.errors import InputError
from allrail.formats.flight_recorder import HEAD, is_dump, is_recorded
from allrail.measure.calibrate.read import (
    deepspeed,
    deepspeed_log,
    imb,
    nccl_json,
    nccl_tests,
    nccom,
    osu,
    param,
    torch_bench,
)
from allrail.measure.calibrate.read.flight import read_flight
from allrail.measure.calibrate.table import Table
from allrail.scenario.text import read_bytes

_LARGEST = 64 << 20
_BYTES = 1 << 50
_TIMES_US = (1e-3, 1e12)
"""What a size and a time can be, with room: a nanosecond to eleven days, of a petabyte."""
_FORMS = (
    (nccl_json.recognise, nccl_json.read),
    (osu.recognise, osu.read),
    (imb.recognise, imb.read),
    (deepspeed.recognise, deepspeed.read),
    (deepspeed_log.recognise, deepspeed_log.read),
    (param.recognise, param.read),
    (nccom.recognise, nccom.read),
    (nccl_tests.recognise, nccl_tests.read),
    (torch_bench.recognise, torch_bench.read),
)
"""In the order in which they are asked."""
_OTHERS = (
    (
        re.compile(r"#bytes\s+#iterations\s+(?:BW peak|t_min)"),
        "it is of perftest, which measures two interfaces and no collective",
        "`--nic '400 Gb/s'` takes what an interface carries, beside a table of nccl-tests",
    ),
    (
        re.compile(r"NCCL INFO \w+: (?:opCount|\d+ Bytes)"),
        "it is a log of NCCL, which has calls and no times",
        "run nccl-tests on the job's ranks, or give the folder of its Flight Recorder dumps",
    ),
)
"""What other tools print that measures no collective."""


def read_tables(path: Path) -> list[Table]:
    """Return the tables of a file.

    Args:
        path: What somebody measured; of Flight Recorder's dumps also the folder.

    Raises:
        InputError: It cannot be read, is of no form that is known, or says that it is wrong.
    """
    source = stdin.NAME if path == stdin.STDIN else str(path)
    if path == stdin.STDIN and is_recorded(stdin.read(HEAD)):
        path = stdin.spooled()
    if is_dump(path):
        return _possible(read_flight(path))
    text = read_bytes(path, most=_LARGEST, lossy=True, wanted="the output of nccl-tests")
    if not text.strip():
        raise InputError("it is empty", source=source, hint="give the output of nccl-tests")
    text = _printed(text)
    for recognise, read in _FORMS:
        if recognise(text):
            return _possible(read(text, source))
    for words, why, hint in _OTHERS:
        if words.search(text):
            raise InputError(why, source=source, hint=hint)
    raise InputError(
        "it is of no form that is known",
        source=source,
        hint="nccl-tests (also `-J`), OSU, Intel MPI, DeepSpeed, PARAM, nccom-test and PyTorch",
    )


def _printed(text: str) -> str:
    """What a program printed, where a harness keeps that in its JSON; else the text itself."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        left = [json.loads(text)]
    except (ValueError, RecursionError):
        return text
    if isinstance(left[0], dict) and "results" in left[0]:
        return text
    found = []
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += list(one.values())[::-1]
        elif isinstance(one, list):
            left += one[::-1]
        elif isinstance(one, str) and "\n" in one:
            found.append(one)
    printed = "\n".join(found)
    return printed if any(recognise(printed) for recognise, _ in _FORMS) else text


def _possible(tables: list[Table]) -> list[Table]:
    """Refuse what no machine measures."""
    low, high = _TIMES_US
    for table in tables:
        for row in table.rows:
            if not (low <= row.time_us <= high and 1 <= row.bytes <= _BYTES):
                raise InputError(
                    f"{row.time_us:.3g} µs for {row.bytes:.3g} bytes cannot be",
                    source=table.source,
                    hint="give the output as it was printed",
                )
    return tables
