"""Reads what people have measured: one file a form, in the order in which they are asked.

nccl-tests and their JSON, OSU's and Intel's MPI benchmarks, DeepSpeed's, PARAM's, PyTorch's, and
nccom-test's.
Dumps of torch's Flight Recorder are no text, and asked for first.
"""

from __future__ import annotations

from pathlib import Path

from allrail import stdin
from allrail.calibrate.read import deepspeed, imb, nccl_json, nccl_tests, nccom, others, param
from allrail.calibrate.read.flight import read_flight
from allrail.calibrate.table import Table
from allrail.errors import InputError
from allrail.formats.flight_recorder import HEAD, is_dump, is_recorded
from allrail.scenario.text import read_bytes

_LARGEST = 64 << 20
_BYTES = 1 << 50
_TIMES_US = (1e-3, 1e12)
"""What a size and a time can be, with room: a nanosecond to eleven days, of a petabyte."""
_FORMS = (
    (nccl_json.recognise, nccl_json.read),
    (others.recognise_osu, others.read_osu),
    (imb.recognise, imb.read),
    (deepspeed.recognise, deepspeed.read),
    (param.recognise, param.read),
    (nccom.recognise, nccom.read),
    (nccl_tests.recognise, nccl_tests.read),
    (others.recognise_torch, others.read_torch),
)
"""In the order in which they are asked."""


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
    for recognise, read in _FORMS:
        if recognise(text):
            return _possible(read(text, source))
    raise InputError(
        "it is of no form that is known",
        source=source,
        hint="nccl-tests (also `-J`), OSU, Intel MPI, DeepSpeed, PARAM, nccom-test and PyTorch",
    )


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
