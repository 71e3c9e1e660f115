"""Outputs of OSU's, Intel's and DeepSpeed's tools as logs have them, and what is no table."""

from __future__ import annotations

import json

import pytest

from allrail.base.errors import InputError
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.table import AROUND

SIZES = (1 << 10, 1 << 16, 1 << 20)


def tables(tmp_path, text):
    path = tmp_path / "posted.txt"
    path.write_text(text)
    return read_tables(path)


def osu(title, *, head="# Size       Avg Latency(us)", row="{size:<24}{time:.2f}"):
    rows = [row.format(size=size, time=10 + size / 1e4) for size in SIZES]
    return "\n".join([f"# OSU {title} v7.5", "# Datatype: MPI_CHAR.", head, *rows, ""])


OSU = {
    "MPI Allreduce Latency Test": "all_reduce",
    "MPI-CUDA Allgather Latency Test": "all_gather",
    "MPI All-to-All Personalized Exchange Latency Test": "all_to_all",
    "MPI Broadcast Latency Test": "broadcast",
    "MPI Reduce_scatter Latency Test": "reduce_scatter",
    "MPI Persistent Allreduce Latency Test": "all_reduce",
    "NCCL-CUDA Allreduce Latency Test": "all_reduce",
    "XCCL Reduce Latency Test": "reduce",
    "MPI Latency Test": "sendrecv",
    "MPI Scatter Latency Test": None,
}


@pytest.mark.parametrize("title", OSU)
def test_osus_collectives_by_their_titles(tmp_path, title):
    [found] = tables(tmp_path, osu(title))
    assert found.collective == OSU[title]
    assert [(row.bytes, row.time_us) for row in found.rows] == [
        (size, pytest.approx(10 + size / 1e4, abs=0.01)) for size in SIZES
    ]
    assert found.ranks == (2 if found.collective == "sendrecv" else None)


def test_of_osus_tests_that_do_not_block_the_time_without_computing_counts(tmp_path):
    head = "# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)"
    row = "{size}      99.00     88.00    {time:.2f}     4.95"
    [found] = tables(tmp_path, osu("MPI Non-blocking Allreduce Latency Test", head=head, row=row))
    assert found.collective == "all_reduce"
    assert found.rows[0].time_us == pytest.approx(10.1)


def test_a_log_of_several_of_osus_tests_with_their_commands(tmp_path):
    text = "".join(
        f"mpirun --hostfile h -np {ranks} -x A=1 /opt/omb/mpi/osu_{name}\n{osu(title)}"
        for ranks, name, title in (
            (8, "bw", "MPI Bandwidth Test"),
            (8, "latency", "MPI Latency Test"),
            (16, "allgather", "MPI Allgather Latency Test"),
        )
    )
    found = tables(tmp_path, text)
    assert [(one.collective, one.ranks) for one in found] == [("sendrecv", 2), ("all_gather", 16)]
    # What one rank brings, times the ranks.
    assert found[1].rows[0].bytes == 16 << 10


def test_a_result_that_osu_has_found_wrong_is_refused(tmp_path):
    text = osu("MPI Allreduce Latency Test", row="{size}   {time:.2f}    Fail")
    with pytest.raises(InputError, match="its values are wrong at 1,024 bytes"):
        tables(tmp_path, text)


def test_what_a_harness_keeps_of_an_output_is_read(tmp_path):
    kept = {"host": "a", "runs": [{"rc": 0, "stdout": osu("MPI Allreduce Latency Test")}]}
    [found] = tables(tmp_path, json.dumps(kept))
    assert (found.collective, len(found.rows)) == ("all_reduce", 3)


def imb(name, columns, row, *, ranks=16):
    lines = [f"# Benchmarking {name}", f"# #processes = {ranks}", columns]
    return "\n".join([*lines, *(row.format(size=size, time=size / 1e3) for size in SIZES), ""])


NEW = "#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]"
PLAIN = "{size} 1000 0.10 {time:.2f} 0.11"


@pytest.mark.parametrize(
    ("name", "columns", "row"),
    [
        ("Allreduce", NEW, PLAIN),
        (
            "Allreduce",
            "#Benchmarking        #procs       #bytes #repetitions  t_min[usec]  t_max[usec]",
            "Allreduce       16     {size}         1000       0.10       {time:.2f}",
        ),
        (
            "Iallreduce",
            "#bytes #repetitions t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]",
            "{size} 1000 9.99 {time:.2f} 4.12 49.00",
        ),
    ],
)
@pytest.mark.parametrize(
    "tag", ["", "00:55:22  ", "2024-01-31T10:00:00.1234567Z ", "[1,0]<stdout>:"]
)
def test_intels_benchmarks_of_any_version_out_of_logs(tmp_path, name, columns, row, tag):
    text = "".join(f"{tag}{line}\n" for line in imb(name, columns, row).splitlines())
    [found] = tables(tmp_path, text)
    assert (found.collective, found.ranks) == ("all_reduce", 16)
    assert [row.time_us for row in found.rows] == [round(size / 1e3, 2) for size in SIZES]


def test_one_process_alone_sends_nothing(tmp_path):
    with pytest.raises(InputError, match="one process took part"):
        tables(tmp_path, imb("Allreduce", NEW, PLAIN, ranks=1))
    both = imb("Allreduce", NEW, PLAIN, ranks=1) + imb("Allreduce", NEW, PLAIN, ranks=4)
    assert [one.ranks for one in tables(tmp_path, both)] == [4]


TIMES = {"all_reduce": 4000.0, "all_gather_into_tensor": 80.0, "reduce_scatter_tensor": 9690.0}
SENT = {"all_reduce": 512, "all_gather_into_tensor": 6, "reduce_scatter_tensor": 678.86}
"""MB of 1,024s, of the tensor that a rank hands in."""


def logged(name, ranks, *, doubled):
    """Size in MB, time in ms and both bandwidths, as versions of DeepSpeed's logger count them."""
    size, time = SENT[name] * 2**20, TIMES[name] / 1e3
    factor = 2 if doubled or name == "all_reduce" else ranks if "gather" in name else 1
    alg = factor * size * 8 / time / 1e6
    return SENT[name], time, alg, alg * (ranks - 1) / ranks


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("doubled", [False, True])
@pytest.mark.parametrize("calls", [False, True])
def test_the_log_of_deepspeeds_collectives(tmp_path, name, doubled, calls):
    size, time, alg, bus = logged(name, 16, doubled=doubled)
    if calls:
        text = (
            f"[2024-01-01 10:00:00,123] [INFO] [Rank 0] rank=0 | comm op: {name} | time (ms):"
            f" {time:.2f} | msg size: {size} MB | algbw (Gbps): {alg:.2f} | busbw (Gbps): {bus:.2f}"
        )
    else:
        text = (
            "Comm. Op   Message Size   Count   Total Latency(ms)   Avg Latency(ms)"
            "   tput_avg (Gbps)   busbw_avg (Gbps)\n"
            f"{name} | [Caller Func: step]\n"
            f"           0B     2      0.19      0.10     0.00    0.00\n"
            f"           {size} MB  24  99.0  {time:.2f}  {alg:.2f}  {bus:.2f}\n"
            "barrier\n           0B     3      5.41      1.80     0.00    0.00\n"
        )
    [found] = tables(tmp_path, text)
    collective = name.removesuffix("_tensor").removesuffix("_into")
    assert (found.collective, found.ranks) == (collective, 16)
    [row] = found.rows
    # An all-gather's is a part.
    assert row.bytes == round(size * 2**20) * (16 if collective == "all_gather" else 1)
    assert row.time_us == pytest.approx(TIMES[name], rel=2e-3)
    expected = AROUND[collective](16) * row.bytes / TIMES[name] / 1e3
    assert found.best_busbw == pytest.approx(expected, rel=2e-3)
    assert "waiting" in found.notes[0]


def test_a_log_of_barriers_alone_is_no_table_of_two_bytes(tmp_path):
    text = (
        "Comm. Op  Message Size  Count  Total Latency(ms)  Avg Latency(ms)\n"
        "barrier\n      0B     3      5.41      1.80     0.00    0.00\n"
    )
    with pytest.raises(InputError, match="no call of a collective"):
        tables(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        (
            "#bytes  #iterations  BW peak[Gb/sec]\n65536 5000 380.4 380.2 0.72\n",
            "perftest",
            "--nic",
        ),
        (
            "n1:1:9 [0] NCCL INFO AllReduce: opCount 5 sendbuff 0x7f count 1048576 datatype 7\n",
            "calls and no times",
            "run nccl-tests",
        ),
        (osu("MPI Bandwidth Test"), "OSU's Bandwidth test", "osu_latency"),
    ],
)
def test_what_measures_no_collective_is_told_as_what_it_is(tmp_path, text, why, hint):
    with pytest.raises(InputError, match=why) as failed:
        tables(tmp_path, text)
    assert hint in str(failed.value.hint)


def test_rows_of_another_tool_beside_a_table_are_not_rows_that_were_cut_off(tmp_path):
    table = "# size count type redop root time algbw busbw #wrong\n" + "".join(
        f"{size} {size // 4} float sum -1 {size / 1e4:.2f} 10.00 17.50 0\n"
        for size in (1 << 20, 1 << 24, 1 << 28)
    )
    other = "#bytes  #iterations  BW peak[Gb/sec]\n 65536      5000     380.44   380.29  0.72\n"
    [found] = tables(tmp_path, table + other)
    assert found.notes == ()
    [found] = tables(tmp_path, table + "  1073741824     268435456     float\n")
    assert found.notes == ("1 row was cut off or changed",)
