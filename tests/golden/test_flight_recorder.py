"""Dumps of torch's Flight Recorder: made by torch, read without running anything of them."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

from allrail.base.errors import InputError
from allrail.formats.flight_recorder import is_dump, read_dumps, units
from allrail.formats.flight_trace import as_kineto
from allrail.formats.plain_pickle import load_plain

BODY = """
import sys, torch, torch.distributed as dist
import torch._C._distributed_c10d as c10d
rank, folder = int(sys.argv[1]), sys.argv[2]
if not hasattr(c10d, "_dump_fr_trace"):
    sys.exit(77)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
for size in (1 << 10, 1 << 10, 1 << 16):
    dist.all_reduce(torch.ones(size))
dist.all_gather_into_tensor(torch.empty(2000), torch.ones(1000))
dist.barrier()
open(f"{folder}/pickled_{rank}", "wb").write(c10d._dump_fr_trace())
open(f"{folder}/plain_{rank}.json", "wb").write(c10d._dump_fr_trace_json())
"""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """What torch dumps of two ranks over gloo: pickles, and JSON of the same."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("flight")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", BODY, str(rank), str(folder)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "100"},
        )
        for rank in range(2)
    ]
    if {rank.wait(timeout=120) for rank in ranks} != {0}:
        pytest.skip("this torch dumps no record of gloo")
    return folder


def timed(dumps, folder, *, ms):
    """The dumps that torch made, with durations as NCCL records them; gloo does not."""
    folder.mkdir()
    for rank in range(2):
        tree = load_plain((dumps / f"pickled_{rank}").read_bytes(), source="a dump")
        for place, entry in enumerate(tree["entries"]):
            entry |= {"duration_ms": ms(rank, place), "state": "completed"}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(tree, protocol=2))
    return folder


def test_both_forms_of_torch_say_the_same(dumps):
    pickled, plain = (
        [read_dumps([dumps / f"{form}_{rank}{ending}"])[0] for rank in range(2)]
        for form, ending in (("pickled", ""), ("plain", ".json"))
    )
    for one, other in zip(pickled, plain, strict=True):
        # The second dump may know of the end of a call that was going on in the first.
        calls = [[replace(call, completed=True) for call in each.calls] for each in (one, other)]
        assert (calls[0], one.rank) == (calls[1], other.rank)
    names = [call.name for call in pickled[0].calls]
    assert names[:4] == ["all_reduce", "all_reduce", "all_reduce", "all_gather"]
    assert (pickled[0].calls[2].inputs, pickled[0].calls[2].width) == ((1 << 16,), 4)
    assert sum(pickled[0].calls[3].outputs) == 2000


def test_all_ranks_say_whose_group_it_is(dumps, tmp_path):
    folder = timed(dumps, tmp_path / "all", ms=lambda *_: 1.0)
    assert is_dump(folder)
    found = read_dumps([folder])
    assert [one.rank for one in found] == [0, 1]
    assert found[0].groups["0"] == (0, 1)
    kernels = [one for one in as_kineto(found[0])["traceEvents"] if one["cat"] == "kernel"]
    assert kernels[0]["args"]["Process Group Ranks"] == [0, 1]


def test_expect_reads_the_quickest_rank(dumps, tmp_path, allrail_cli):
    folder = timed(dumps, tmp_path / "all", ms=lambda rank, place: 0.1 * (1 + rank) + 0.01 * place)
    words = ("expect", "dgx-h100", "--measured", str(folder), "--collective", "all_reduce")
    told = json.loads(allrail_cli(*words, "--json").stdout)
    rows = [(row["bytes"], row["measured_us"]) for row in told["rows"]]
    assert told["ranks"] == 2
    # Of 4 KiB there are two, 100 and 110 us.
    assert rows == [(4096, pytest.approx(105)), (1 << 18, pytest.approx(120))]


def test_verify_and_import_take_them_as_a_trace(dumps, tmp_path, allrail_cli):
    folder = timed(dumps, tmp_path / "all", ms=lambda *_: 1.0)
    told = json.loads(
        allrail_cli("import", str(folder), "-o", str(tmp_path / "o"), "--json").stdout
    )
    assert (told["source"], told["npus"]) == ("flight-recorder", 2)
    assert told["kept"]["collectives"] == 2 * 5
    verified = json.loads(
        allrail_cli("verify", str(folder), "--fabric", "dgx-h100", "--json").stdout
    )
    assert verified["ranks"] == 2
    names = {one["name"]: one["measured_ms"] for one in verified["exchanges"]}
    assert names["1 x all_gather, 2 ranks"] == pytest.approx(1.0)


@pytest.mark.parametrize("words", ["expect dgx-h100 --measured", "verify --fabric dgx-h100"])
def test_without_durations_it_is_said_how_to_record_them(dumps, allrail_cli, words):
    outcome = allrail_cli(*words.split(), str(dumps / "pickled_0"))
    assert outcome.status == 2
    assert "it has no durations" in outcome.stderr
    assert "TORCH_NCCL_ENABLE_TIMING=1" in outcome.stderr


def entry(name, sequence, *, message=False, ms=None, elements=8):
    return {
        "process_group": ("0", "default_pg"),
        "profiling_name": f"nccl:{name}",
        "collective_seq_id": sequence,
        "p2p_seq_id": sequence,
        "is_p2p": message,
        "input_sizes": [[elements]],
        "output_sizes": [[elements]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "time_created_ns": 1000 * sequence,
        "state": "completed",
        **({} if ms is None else {"duration_ms": ms}),
    }


def written(folder, rank, entries, ranks="[0, 1]"):
    folder.mkdir(exist_ok=True)
    tree = {"version": "2.4", "pg_config": {"0": {"ranks": ranks}}, "entries": entries}
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(tree, protocol=2))


def test_coalesced_calls_are_one_kernel(tmp_path, allrail_cli):
    calls = [entry("all_reduce", 1, elements=100), entry("all_reduce", 1, elements=300)]
    last = {**entry("coalesced", 1, ms=2.0), "input_sizes": [], "output_sizes": []}
    written(tmp_path / "d", 0, [*calls, last, entry("all_reduce", 2, ms=1.0)])
    [dump] = read_dumps([tmp_path / "d"])
    assert [(len(one.calls), one.duration_us) for one in units(dump)] == [(2, 2000), (1, 1000)]
    told = json.loads(
        allrail_cli("import", str(tmp_path / "d"), "-o", str(tmp_path / "o"), "--json").stdout
    )
    assert (told["kept"]["collectives"], told["measured"]) == (2, {})
    run = json.loads(allrail_cli("simulate", told["scenario"], "--json").stdout)
    assert round(run["dimensions"][0]["bytes_per_npu"]) == 1600 + 32


def test_messages_meet(tmp_path, allrail_cli):
    written(tmp_path / "d", 0, [entry("send 0->1", 1, message=True, ms=1.0, elements=10)])
    written(tmp_path / "d", 1, [entry("recv 1<-0", 1, message=True, ms=1.0, elements=10)])
    told = json.loads(
        allrail_cli("import", str(tmp_path / "d"), "-o", str(tmp_path / "o"), "--json").stdout
    )
    assert (told["kept"]["messages"], told["measured"]) == (2, {})


def test_ranks_are_cut_to_what_all_of_them_still_have(tmp_path):
    for rank, (first, last) in enumerate(((1, 9), (4, 12))):
        written(tmp_path / "d", rank, [entry("all_reduce", i, ms=1.0) for i in range(first, last)])
    kept = [[call.sequence for call in one.calls] for one in read_dumps([tmp_path / "d"])]
    assert kept == [list(range(4, 9))] * 2


class _Runs:
    def __reduce__(self):
        return (os.system, ("touch pwned",))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_of_a_pickle_is_run(tmp_path, monkeypatch, protocol, inside):
    monkeypatch.chdir(tmp_path)
    tree = {"pg_config": {}, "entries": [_Runs()]} if inside else _Runs()
    with pytest.raises(InputError, match="is not run"):
        load_plain(pickle.dumps(tree, protocol=protocol), source="x")
    assert not (tmp_path / "pwned").exists()


def bombs():
    """Small files that hold trees without an end."""
    twice = b"".join(b"q%c0(h%ch%ct" % (i, i, i) for i in range(60))
    yield b"\x80\x02K\x01" + twice + b"."  # a tuple of twice a tuple of ...
    yield b"\x80\x02}K\x01" + twice + b"K\x02s."  # as a key, which is hashed
    yield b"\x80\x02}(K\x01" + twice + b"K\x02u."
    yield b"\x80\x02]q\x00h\x00a."  # a list that holds itself
    yield b"\x80\x02}q\x00X\x01\x00\x00\x00ah\x00s."


@pytest.mark.parametrize("data", [*bombs()])
def test_a_tree_without_an_end_is_refused_at_once(data):
    with pytest.raises(InputError, match="is not run"):
        load_plain(data, source="x")


def test_a_list_may_be_named_twice():
    frames = [{"name": "forward", "line": 3}]
    tree = {"entries": [{"frames": frames}, {"frames": frames}] * 1000}
    assert load_plain(pickle.dumps(tree, protocol=2), source="x") == tree


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x02}",
        b"\x80\x02r\xff\xff\xff\xff.",  # 64 GiB of memory in C
        b"\x80\x02X\xff\xff\xff\x7fabc",
        b"\x80\x02h\x05.",
        b"\x80\x02]]R.",
        b"\x80\x02K\x01K\x02s.",
    ],
)
def test_what_is_no_whole_pickle_is_one_message(data):
    with pytest.raises(InputError, match="no whole pickle"):
        load_plain(data, source="x")


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"pg_config": {}, "entries": []}, "no communication"),
        ({"pg_config": {}, "entries": [1]}, "not as torch writes"),
        ({"pg_config": 3, "entries": [{}]}, "not as torch writes"),
        ({"pg_config": {}, "entries": [entry("all_reduce", 1, elements=-5)]}, "not as torch"),
        ({"pg_config": {}, "entries": [entry("all_reduce", 1, elements=1 << 70)]}, "not as torch"),
        ({"pg_config": {}, "entries": [entry("x", 1) | {"profiling_name": []}]}, "not as torch"),
        ({"pg_config": {}, "entries": [entry("x", 1) | {"process_group": [[]]}]}, "not as torch"),
    ],
)
def test_entries_that_cannot_be_are_one_message(tmp_path, allrail_cli, tree, told):
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(pickle.dumps(tree, protocol=2))
    outcome = allrail_cli("verify", str(file), "--fabric", "dgx-h100")
    assert outcome.status == 2
    assert told in outcome.stderr


def test_dumps_whose_names_say_no_rank_are_asked_for_it(tmp_path):
    written(tmp_path, 0, [entry("all_reduce", 1, ms=1.0)])
    (tmp_path / "a").write_bytes((tmp_path / "nccl_trace_rank_0").read_bytes())
    with pytest.raises(InputError, match="of which rank"):
        read_dumps([tmp_path])
