"""Files that look like a trace of PyTorch, and are of another tool: told as what they are.

By a file's name where no other tool writes such a name, else by what stands in its first 64 KiB.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from allrail.base.errors import InputError

_HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class _Lookalike:
    """Another tool's file.

    Attributes:
        names: Endings of its name.
        words: A pattern of what is in it; None where its name says enough.
        why: What it is.
        hint: What to do.
    """

    names: tuple[str, ...]
    words: bytes | None
    why: str
    hint: str


_JSON = (".json", ".json.gz", ".jsonl", ".jsonlines")
_PROFILE = 'profile the job with PyTorch\'s profiler: `prof.export_chrome_trace("rank0.json.gz")`'
_JAX = (
    "traces of PyTorch are read; of a JAX job, describe the model in a scenario (`allrail schema`)"
)
_NSIGHT = "it is an export of Nsight Systems, whose kernels say no sizes of communication"
_ROCPROF = "it is output of AMD's rocprof, whose kernels say no sizes of communication"
_KNOWN = (
    _Lookalike(
        (".json",),
        rb'"workload_graph"|"NodeType"|"COMP_NODE"',
        "it is a Chakra trace as JSON, whose forms differ from tool to tool",
        "give the `.et` that it was made of",
    ),
    _Lookalike(
        _JSON,
        rb'"hlo_op"|"hlo_module"|"/device:[A-Z]+|"/host:(?:CPU|metadata)"',
        "it is a trace of XLA's profiler (JAX, TensorFlow), which holds no sizes of communication",
        _JAX,
    ),
    _Lookalike(
        (".xplane.pb",), None, "it is a profile of XLA (JAX, TensorFlow), and no trace", _JAX
    ),
    _Lookalike(
        (".nsys-rep", ".qdrep", ".ncu-rep"),
        None,
        "it is a report of NVIDIA's Nsight, which only Nsight reads",
        _PROFILE,
    ),
    _Lookalike((".sqlite", ".db"), rb"CUPTI_ACTIVITY|NVTX_EVENTS", _NSIGHT, _PROFILE),
    _Lookalike((".sqlite", ".db"), rb"rocpd_", _ROCPROF, _PROFILE),
    _Lookalike(
        (".sqlite", ".db"),
        rb"^SQLite",
        "it is a database, such as Nsight Systems and rocprof write, and says no sizes of"
        " communication",
        _PROFILE,
    ),
    _Lookalike(_JSON, rb'"rocprofiler-sdk-tool"', _ROCPROF, _PROFILE),
    _Lookalike(
        _JSON,
        # The profiler of PyTorch logs names of CUPTI into its own traces.
        rb'(?s)^(?!.*"traceEvents")(?=.*(?:"(?:CudaEvent|NvtxEvent|TraceProcessEvent|ProcessEvent)"'
        rb'|"ThreadNames"|CUPTI_ACTIVITY_KIND|NVTX_EVENTS))',
        _NSIGHT,
        _PROFILE,
    ),
    _Lookalike(
        (".json",),
        rb'(?s)^(?=.*"gpus"\s*:)(?=.*"(?:threadblocks|channels|input_chunks|inputChunks)")',
        "it is an execution plan of MSCCL++ (how one collective runs), and no trace of a job",
        "a program of MSCCL is named in a scenario: `schedule: {algorithms: [FILE.xml]}`",
    ),
    _Lookalike(
        (".xml",),
        rb"<algo\b",
        "it is an algorithm of MSCCL (how one collective runs), and no trace of a job",
        "a program of MSCCL is named in a scenario: `schedule: {algorithms: [FILE.xml]}`",
    ),
    _Lookalike(
        _JSON,
        rb"NEGOTIATE_(?:ALLREDUCE|ALLGATHER|BROADCAST)",
        "it is a timeline of Horovod, which holds no sizes",
        _PROFILE,
    ),
)


def check_lookalike(file: Path) -> None:
    """Refuse a file that another tool wrote, in words that say which.

    Args:
        file: What is to be imported.

    Raises:
        InputError: It is of a tool that is known, and whose files are no traces of a job.
    """
    named = [one for one in _KNOWN if file.name.endswith(one.names)]
    head = _head(file) if any(one.words for one in named) else b""
    for one in named:
        if one.words is None or re.search(one.words, head):
            raise InputError(one.why, hint=one.hint, source=str(file))


def _head(file: Path) -> bytes:
    """The first bytes, unpacked."""
    try:
        with file.open("rb") as opened:
            packed = opened.read(2) == b"\x1f\x8b"
        with gzip.open(file) if packed else file.open("rb") as begun:
            return begun.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return b""
