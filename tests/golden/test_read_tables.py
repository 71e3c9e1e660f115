"""Tables of other benchmarks, of several types, groups and outputs side by side."""

from __future__ import annotations

import json

import pytest

from allrail.base.errors import InputError
from allrail.measure.calibrate.read import read_tables
from allrail.measure.calibrate.table import AROUND, chosen
from reference import REFERENCE, needs

FIELD = REFERENCE / "field"
field = needs("field")

SIZES = [1 << power for power in range(20, 32, 2)]
RATE = 200.0
FIXED = 30.0
RANKS = {"all_reduce": 8, "all_gather": 16, "reduce_scatter": 6, "all_to_all": 32, "broadcast": 8}


def time_us(name, size, ranks, *, rate=RATE):
    return FIXED + AROUND[name](ranks) * size / rate / 1e3


def rank_line(rank, group, host):
    return f"#  Rank {rank:2} Group {group:2} Pid 10 on {host} device {rank % 8} [0x1b] NVIDIA H100"


def rows(*, ranks=8, name="all_reduce", dtype="float", redop="sum", rate=RATE, in_place="0"):
    lines = []
    for size in SIZES:
        time = time_us(name, size, ranks, rate=rate)
        alg = size / time / 1e3
        half = f"{time:.2f} {alg:.2f} {alg * AROUND[name](ranks):.2f}"
        lines.append(f"{size} {size // 4} {dtype} {redop} -1 {half} 0 {half} {in_place}")
    return lines


HEADER = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"


def nccl(placed, body):
    """An output: by rank, its group and host; and its rows."""
    listed = [rank_line(rank, *where) for rank, where in enumerate(placed)]
    return "\n".join(["# Using devices", *listed, HEADER, *body])


def tables(tmp_path, text, name="posted.txt"):
    path = tmp_path / name
    path.write_text(text)
    return read_tables(path)


def place(kind, ranks, machine):
    """The group and the host of each rank."""
    return {
        "one group": [(0, f"n{rank // machine}") for rank in range(ranks)],
        "rails": [(rank % machine, f"n{rank // machine}") for rank in range(ranks)],
        "a group a machine": [(rank // machine, f"n{rank // machine}") for rank in range(ranks)],
        "pairs in a machine": [(rank // 2, f"n{rank // machine}") for rank in range(ranks)],
    }[kind]


@pytest.mark.parametrize(
    ("kind", "ranks", "hosts", "groups"),
    [
        ("one group", 32, 4, 1),
        ("rails", 4, 4, 8),
        ("a group a machine", 8, 1, 4),
        ("pairs in a machine", 2, 1, 16),
    ],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_ranks_and_hosts_are_those_of_a_group(tmp_path, kind, ranks, hosts, groups, form):
    placed = place(kind, 32, 8)
    if form == "text":
        [found] = tables(tmp_path, nccl(placed, rows(ranks=ranks)))
    else:
        devices = [
            {"rank": rank, "group": group, "hostname": host}
            for rank, (group, host) in enumerate(placed)
        ]
        results = []
        for size in SIZES:
            time = time_us("all_reduce", size, ranks)
            alg = size / time / 1e3
            half = {"time": time, "alg_bw": alg, "bus_bw": alg * AROUND["all_reduce"](ranks)}
            results.append({"size": size, "type": "float", "redop": "sum", "out_of_place": half})
        tree = {"args": ["all_reduce_perf"], "config": {"devices": devices}, "results": results}
        [found] = tables(tmp_path, json.dumps(tree))
    assert (found.ranks, found.hosts, found.groups) == (ranks, hosts, groups)


def test_one_gpu_of_each_machine(tmp_path):
    placed = [(0, f"n{rank}") for rank in range(8)]
    [found] = tables(tmp_path, nccl(placed, rows(ranks=8)))
    assert (found.ranks, found.hosts, found.groups) == (8, 8, 1)


def test_a_shortened_list_does_not_say_how_large_groups_are(tmp_path):
    text = nccl(place("rails", 32, 8), rows(ranks=4))
    kept = [line for line in text.splitlines() if "Rank" not in line or "Rank 31" in line]
    [found] = tables(tmp_path, "\n".join(kept))
    assert (found.ranks, found.hosts, found.groups) == (4, None, 1)


def test_types_and_reductions_are_tables_of_their_own(tmp_path, allrail_cli):
    kinds = [("float", "sum", 200.0), ("fp8_e4m3", "sum", 90.0), ("float", "max", 199.0)]
    body = [
        line for dtype, redop, rate in kinds for line in rows(dtype=dtype, redop=redop, rate=rate)
    ]
    found = tables(tmp_path, nccl(place("one group", 8, 8), body))
    assert [(one.dtype, one.redop) for one in found] == [kind[:2] for kind in kinds]
    assert [one.best_busbw for one in found] == pytest.approx([k[2] for k in kinds], rel=0.01)
    # Interleaved they are the same.
    mixed = [
        line
        for lines in zip(*(rows(dtype=k[0], redop=k[1], rate=k[2]) for k in kinds), strict=True)
        for line in lines
    ]
    again = tables(tmp_path, nccl(place("one group", 8, 8), mixed))
    assert [one.rows for one in again] == [one.rows for one in found]
    with pytest.raises(InputError) as caught:
        chosen(found, source="f")
    assert "1 is all_reduce over 8 ranks of float of sum" in caught.value.why
    assert "--type" in str(caught.value.hint)
    [fp8] = chosen(found, source="f", dtype="fp8_e4m3")
    assert fp8.dtype == "fp8_e4m3"
    with pytest.raises(InputError, match="no table is what"):
        chosen(found, source="f", dtype="fp8")
    told = allrail_cli(
        "calibrate", "network", str(tmp_path / "posted.txt"), "--type", "fp8_e4m3", "--json"
    )
    assert json.loads(told.stdout)["ranks"] == 8


@pytest.mark.parametrize("between", ["    ", " | ", "\t"])
def test_outputs_side_by_side_are_tables_of_their_own(tmp_path, between):
    left = nccl(place("one group", 8, 8), rows(ranks=8))
    right = nccl(place("one group", 16, 8), rows(ranks=16, rate=120.0))
    left = "# Collective test starting: all_reduce_perf\n" + left
    right = "# Collective test starting: all_gather_perf\n" + "\n".join(
        [*right.splitlines()[: 1 + 16], HEADER, *rows(ranks=16, name="all_gather", rate=120.0)]
    )
    both = [left.splitlines(), right.splitlines()]
    longest = max(map(len, both))
    # As `paste` or a table of two columns has them: the tables themselves begin on the same line.
    padded = [
        [*one[:2], *one[2 : -1 - len(SIZES)], *[""] * (longest - len(one)), *one[-1 - len(SIZES) :]]
        for one in both
    ]
    text = "\n".join(between.join(lines) for lines in zip(*padded, strict=True))
    found = tables(tmp_path, text)
    assert [(one.collective, one.ranks, len(one.rows)) for one in found] == [
        ("all_reduce", 8, len(SIZES)),
        ("all_gather", 16, len(SIZES)),
    ]
    assert found[1].best_busbw == pytest.approx(120, rel=0.01)


def test_what_was_forced_is_read(tmp_path):
    text = nccl(place("one group", 8, 8), rows())
    for line, name in [
        ("mpirun -x NCCL_ALGO=Ring ./all_reduce_perf -g 8", "ring"),
        ("n1:10:10 [0] NCCL INFO NCCL_ALGO set by environment to Tree", "tree"),
        ("NCCL_ALGO=Ring,Tree", None),
        ("NCCL_ALGO=^NVLS", None),
        ("NCCL_ALGO=allreduce:tree;allgather:ring", None),
        ("", None),
    ]:
        [found] = tables(tmp_path, f"{line}\n{text}")
        assert found.algorithm == name, line


def deepspeed(name, ranks, *, unit="Gbps", raw=False):
    lines = [
        f"---- Performance of {name} on {ranks} devices {'-' * 40}",
        f"Size (Bytes)  Description  Duration  Throughput ({unit})  BusBW ({unit})",
        "-" * 80,
    ]
    told = {"pt2pt": "sendrecv"}.get(name, name)
    for size in SIZES:
        time = time_us(told, size, ranks)
        scale = 8 if unit == "Gbps" else 1
        alg = scale * size / time / 1e3
        bus = alg * AROUND[told](ranks)
        # One rank's part is what an all-gather describes.
        part = size // ranks if name == "all_gather" else size
        shown = (
            f"{time:.3f}" if raw else (f"{time:.3f} us" if time < 1e3 else f"{time / 1e3:.3f} ms")
        )
        said = str(part) if raw else f"{part / (1 << 20):.2f} MB"
        lines.append(f"{said:<20} {f'{part // 2}x2':25s} {shown:20s} {alg:.3f}   {bus:.3f}")
    return "\n".join(lines)


def check(found, name, ranks):
    assert (found.collective, found.ranks) == (name, ranks)
    assert [row.bytes for row in found.rows] == SIZES
    for row in found.rows:
        assert row.time_us == pytest.approx(time_us(name, row.bytes, ranks or 2), rel=0.01)


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "all_to_all", "broadcast", "pt2pt"])
@pytest.mark.parametrize(("unit", "raw"), [("Gbps", False), ("GBps", False), ("Gbps", True)])
def test_deepspeeds_tables(tmp_path, name, unit, raw):
    ranks = 2 if name == "pt2pt" else 16
    [found] = tables(tmp_path, deepspeed(name, ranks, unit=unit, raw=raw))
    check(found, "sendrecv" if name == "pt2pt" else name, ranks)


def test_deepspeeds_tables_of_one_file(tmp_path):
    text = deepspeed("all_reduce", 8) + "\n" + deepspeed("all_gather", 8)
    assert [one.collective for one in tables(tmp_path, text)] == ["all_reduce", "all_gather"]


def param(name, ranks, *, short=False):
    told = {"all_to_allv": "all_to_all", "all_gather_base": "all_gather"}.get(name, name)
    lines = ["\tCOMMS-RES  size (B)  nElementsPerRank  Latency(us):p50 p75 p95 Min Max AlgBW BusBW"]
    for size in SIZES:
        time = time_us(told, size, ranks)
        alg = size / time / 1e3
        rates = f"{alg:.3f} {alg * AROUND[told](ranks):.3f}"
        times = f"{time:.1f} {time:.1f} {time * 1.1:.1f} {time * 0.9:.1f} {time * 1.2:.1f}"
        body = rates if short else f"{size // 4 // ranks} {times} {rates} 0.0 0.0"
        lines.append(f"0: \tCOMMS-RES-{name}-float32   {size}  {body}")
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["all_reduce", "all_gather_base", "all_to_allv", "reduce_scatter"])
@pytest.mark.parametrize("short", [False, True])
def test_params_tables(tmp_path, name, short):
    [found] = tables(tmp_path, param(name, 16, short=short))
    check(found, {"all_to_allv": "all_to_all", "all_gather_base": "all_gather"}.get(name, name), 16)
    assert found.dtype == "float32"


def imb(name, ranks, part, *, one_time=False):
    lines = ["#-----", f"# Benchmarking {name} ", f"# #processes = {ranks} ", "#-----"]
    head = "t[usec]   Mbytes/sec" if one_time else "t_min[usec]  t_max[usec]  t_avg[usec]"
    lines.append(f"       #bytes #repetitions  {head}")
    lines.append("            0         1000         0.06         0.06         0.06")
    told = IMB[name][0]
    for size in SIZES:
        time = time_us(told, size, ranks)
        times = f"{time:.2f} 99.0" if one_time else f"{time * 0.9:.2f} {time:.2f} {time * 0.95:.2f}"
        lines.append(f"{size // part:>13}          100 {times}")
    return "\n".join([*lines, ""])


IMB = {
    "Allreduce": ("all_reduce", 1),
    "Allgather": ("all_gather", 16),
    "Alltoall": ("all_to_all", 16),
    "Reduce_scatter": ("reduce_scatter", 1),
    "Bcast": ("broadcast", 1),
    "Sendrecv": ("sendrecv", 1),
}


@pytest.mark.parametrize("name", IMB)
def test_intels_mpi_benchmarks(tmp_path, name):
    told, part = IMB[name]
    [found] = tables(tmp_path, imb(name, 16, part))
    check(found, told, 16)


def test_a_run_of_intels_benchmarks_has_a_table_for_each_count(tmp_path):
    text = "# Intel(R) MPI Benchmarks 2021\n" + "".join(imb("Allreduce", n, 1) for n in (2, 4, 16))
    assert [one.ranks for one in tables(tmp_path, text)] == [2, 4, 16]
    multi = imb("Allreduce", 2, 1).replace(
        "# #processes = 2", "# ( 8 groups of 2 processes each running simultaneous ) "
    )
    [found] = tables(tmp_path, multi)
    assert (found.ranks, found.groups) == (2, 8)


def test_osu_counts_what_one_rank_brings(tmp_path):
    text = "# OSU MPI Allgather Latency Test v7\n# Size Avg\n" + "\n".join(
        f"{size // 8} {time_us('all_gather', size, 8):.2f}" for size in SIZES
    )
    [found] = chosen(tables(tmp_path, text), source="f", ranks=8)
    check(found, "all_gather", 8)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("---- Performance of all_reduce on 8 devices ---\n", "no row of a size, a duration"),
        ("\tCOMMS-RES  size (B)\n\tCOMMS-RES-all_reduce-float32 x\n", "no `COMMS-RES` row"),
        ("# Benchmarking Allreduce\n#bytes #repetitions t_min[usec] t_max[usec]\n", "no row of a"),
    ],
)
def test_tables_without_rows_are_said(tmp_path, text, why):
    with pytest.raises(InputError, match=why):
        tables(tmp_path, text)


@field
@pytest.mark.parametrize(
    ("file", "name", "ranks", "busbw"),
    [
        ("m_deepspeed.txt", "all_reduce", 16, 370),
        ("n_param.txt", "all_reduce", 16, 370),
        ("o_imb.txt", "all_reduce", 16, 12),
        ("j_sendrecv.txt", "sendrecv", 16, 48),
    ],
)
def test_tables_from_the_field(file, name, ranks, busbw):
    [found] = read_tables(FIELD / "11-other-benchmarks" / file)
    assert (found.collective, found.ranks) == (name, ranks)
    assert found.best_busbw == pytest.approx(busbw, rel=0.01)


@field
def test_types_from_the_field():
    found = read_tables(FIELD / "10-types-in-one-table" / "k_alltypes.txt")
    rates = {one.dtype: one.best_busbw for one in found}
    assert list(rates) == ["int8", "half", "float", "double", "bfloat16", "fp8_e4m3"]
    assert rates["fp8_e4m3"] == pytest.approx(200, rel=0.01)


@field
def test_rails_from_the_field():
    [found] = read_tables(FIELD / "03-rail-groups-nccl" / "h_split.txt")
    assert (found.ranks, found.hosts, found.groups) == (2, 2, 8)


@pytest.mark.parametrize("rate", [1e9, 1 << 30], ids=["GB", "GiB"])
@pytest.mark.parametrize(
    ("command", "name", "ranks", "hosts"),
    [
        ("nccom-test -r 2 allr", "all_reduce", 2, 1),
        ("NEURON_RT_X=1 nccom-test -r 64 -N 2 -b 8 -d fp32 allr --hosts a b", "all_reduce", 64, 2),
        ("nccom-test --nworkers 32 --check allg", "all_gather", 32, 1),
        ("nccom-test --nworkers=32 --nnodes=1 redsct", "reduce_scatter", 32, 1),
    ],
)
def test_tables_of_nccom_test(tmp_path, command, name, ranks, hosts, rate):
    """Bandwidths are in GiB or GB a second, by version; a table of 2 ranks was taken for 15."""
    wide = "--check" in command
    head = "size(B) count(elems) total_input_size(B) type time:avg(us) algbw(GB/s) busbw(GB/s)"
    lines = [f"$ {command}", head if wide else head.replace("total_input_size(B) ", "")]
    for size in SIZES:
        alg = size / time_us(name, size, ranks) / 1e3 * 1e9 / rate
        words = f"{size} {size} {size if wide else ''} uint8 {time_us(name, size, ranks):.2f}"
        lines.append(f"{words} {alg:.2f} {alg * AROUND[name](ranks):.2f}")
    lines.append("Avg bus bandwidth:      40.6901GB/s")
    [table] = tables(tmp_path, "\n".join(lines))
    assert (table.collective, table.ranks, table.hosts) == (name, ranks, hosts)
    assert [row.bytes for row in table.rows] == SIZES
    assert table.rows[-1].time_us == pytest.approx(time_us(name, SIZES[-1], ranks), abs=0.01)


def test_a_table_of_nccom_test_without_its_command_asks_for_ranks(tmp_path):
    text = "size(B) count(elems) type time(us) algbw(GB/s) busbw(GB/s)\n1024 256 fp32 58 0.02 0.02"
    [table] = tables(tmp_path, text)
    assert (table.collective, table.ranks) == (None, None)
    with pytest.raises(InputError, match="no row"):
        tables(tmp_path, "size(B) count(elems) type time(us)\n33554432 Failure running")
