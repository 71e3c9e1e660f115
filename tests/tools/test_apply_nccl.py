"""What `allrail apply` writes for NCCL's tuner is read by NCCL's example plugin as it is meant.

The plugin is built from a checkout that ALLRAIL_NCCL names; no GPU is needed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from allrail.targets import nccl
from allrail.targets.decision import Decision
from tools.layouts import layout

pytestmark = pytest.mark.long
ALL_REDUCE, ALL_GATHER = 4, 2
TREE, RING, SIMPLE = 0, 1, 2
ALGORITHMS, PROTOCOLS = 7, 3

_INIT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_size_t,
    ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip
_ASK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p,
    ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int),
)  # fmt: skip


class Plugin(ctypes.Structure):
    """`ncclTuner_v5_t`, as far as it is used."""

    _fields_ = (("name", ctypes.c_char_p), ("init", _INIT), ("ask", _ASK))


class Tuner:
    """NCCL's example plugin with a file, for a communicator."""

    def __init__(self, library, file, *, ranks, nodes):
        os.environ["NCCL_TUNER_CONFIG_FILE"] = str(file)
        self.plugin = Plugin.in_dll(ctypes.CDLL(str(library)), "ncclTunerPlugin_v5")
        self.context = ctypes.c_void_p()
        assert not self.plugin.init(self.context, 0, ranks, nodes, None, None, None)

    def preferred(self, collective, size):
        """The algorithms and protocols that it makes free, and how many channels it wants."""
        costs = ((ctypes.c_float * PROTOCOLS) * ALGORITHMS)(*[(7.0,) * PROTOCOLS] * ALGORITHMS)
        channels = ctypes.c_int(0)
        assert not self.plugin.ask(
            self.context, collective, size, 1, costs, ALGORITHMS, PROTOCOLS, 0, channels
        )
        free = [
            (one, other)
            for one in range(ALGORITHMS)
            for other in range(PROTOCOLS)
            if costs[one][other] == 0
        ]
        return free, channels.value


@pytest.fixture
def library(tmp_path):
    """The plugin, built as `nccl.env` says it."""
    checkout = os.environ.get("ALLRAIL_NCCL")
    if not checkout:
        pytest.skip("ALLRAIL_NCCL does not name a checkout of NVIDIA/nccl")
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    found = [Path(checkout, one, "example") for one in ("plugins/tuner", "ext-tuner")]
    folder = next(one for one in found if one.is_dir())
    source = tmp_path / "plugin.c"
    source.write_text((folder / "plugin.c").read_text().replace("nChannels = 1;", "nChannels = 0;"))
    built = tmp_path / "libnccl-tuner-example.so"
    build = ["cc", "-shared", "-fPIC", f"-I{folder / 'nccl'}", str(source), "-o", str(built)]
    subprocess.run(build, check=True)
    return built


def test_the_plugin_prefers_what_was_measured_and_leaves_the_rest(library, tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_TUNER_CONFIG_FILE", "")
    points = [{"from": "1 B", "algorithm": "double_binary_tree"}]
    points.append({"from": "64 MiB", "algorithm": "ring"})
    inner = {"kind": "switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"}
    outer = {"kind": "switch", "size": 4, "bandwidth": "50 GB/s", "latency": "5 us"}
    scenario = layout("llama3_8b", 32, tp=8, sp=True)
    scenario["fabric"] = {"dimensions": [{**inner, "fastest": {"all_reduce": points}}, outer]}
    scenario["schedule"] = {"algorithms": "auto"}
    text = nccl.files(Decision.of(scenario))["nccl_tuner.csv"]
    file = tmp_path / "nccl_tuner.csv"
    file.write_text(text)
    tuner = Tuner(library, file, ranks=8, nodes=1)
    for size in (64 * 2**20, 2**30, 6 * 2**30):
        assert tuner.preferred(ALL_REDUCE, size) == ([(RING, SIMPLE)], 0)
    for size in (8, 2**10, 2**16):
        assert tuner.preferred(ALL_REDUCE, size) == ([], 0)
    assert tuner.preferred(ALL_GATHER, 2**30) == ([], 0)
    rows = [line.split(",") for line in text.splitlines() if ",tree," in line]
    for row in rows:
        assert tuner.preferred(ALL_REDUCE, int(row[1])) == ([(TREE, SIMPLE)], 0)
    # Other communicators are not concerned.
    assert Tuner(library, file, ranks=4, nodes=4).preferred(ALL_REDUCE, 2**30) == ([], 0)
