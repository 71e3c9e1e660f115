"""Reads what people have measured: nccl-tests, their JSON, OSU's tests, PyTorch's benchmarks."""

from __future__ import annotations

from pathlib import Path

from allrail.calibrate.read import nccl_json, nccl_tests, others
from allrail.calibrate.table import Table
from allrail.errors import InputError

_LARGEST = 64 << 20
_FORMS = (
    (nccl_json.recognise, nccl_json.read),
    (others.recognise_osu, others.read_osu),
    (nccl_tests.recognise, nccl_tests.read),
    (others.recognise_torch, others.read_torch),
)
"""In the order in which they are asked."""


def read_tables(path: Path) -> list[Table]:
    """Return the tables of a file.

    Args:
        path: What somebody measured.

    Raises:
        InputError: It cannot be read, is of no form that is known, or says that it is wrong.
    """
    source = str(path)
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError("it is larger than 64 MB", source=source, hint="give the table alone")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"it cannot be read: {why}", source=source) from None
    if not text.strip():
        raise InputError("it is empty", source=source, hint="give the output of nccl-tests")
    for recognise, read in _FORMS:
        if recognise(text):
            return read(text, source)
    raise InputError(
        "it is of no form that is known",
        source=source,
        hint="nccl-tests (their output, or `-J`), OSU's latency tests, PyTorch's all_reduce_bench",
    )
