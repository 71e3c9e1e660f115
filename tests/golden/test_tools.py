"""What tools can do: one table, which `apply` keeps to; ranks are numbered as tools number them."""

from __future__ import annotations

import pytest

from allrail.runtime.job import find_job
from allrail.search.layouts.mapping import block, numberings
from allrail.search.layouts.tools import TOOLS, tools_for
from allrail.targets import apply_to

QWEN = {"kv_heads": 4, "heads": 64, "sequence_length": 4096}


def asked(precision="bf16", recipe="plain", launch="compiled", **parallelism):
    compute = {"recipe": recipe, "launch": launch}
    return {"precision": precision, "compute": compute, "parallelism": parallelism}


@pytest.mark.parametrize(
    ("workload", "tools"),
    [
        (asked(dp=8), {"allrail", "ddp", "megatron", "torchtitan"}),
        (asked(dp=8, zero=2), {"fsdp", "megatron", "torchtitan"}),
        (asked(dp=8, zero=3), {"fsdp", "megatron", "torchtitan"}),
        (asked(dp=8, zero=1), {"megatron"}),
        (asked(dp=2, tp=4), {"megatron", "torchtitan"}),
        (asked(dp=2, tp=4, recompute="selective"), {"megatron"}),
        (asked(dp=2, tp=4, recompute="alternate"), {"torchtitan"}),
        (asked(dp=2, pp=4, schedule="zero_bubble", launch="eager"), {"torchtitan"}),
        # A pass that is cut in two is not compiled.
        (asked(dp=2, pp=4, schedule="zero_bubble", launch="compiled"), set()),
        (asked(dp=2, pp=4, schedule="dual_pipe"), set()),
        (asked(dp=2, pp=4, launch="graph"), {"megatron"}),
        (asked(dp=2, ep=4, zero=2), {"megatron", "torchtitan"}),
        (asked(dp=2, ep=4, tp=2, zero=2), {"megatron"}),
        (asked(dp=8, recipe="mxfp8"), {"allrail", "ddp", "megatron"}),
        (asked(dp=8, recipe="fp8_rowwise"), {"allrail", "ddp", "torchtitan"}),
        (asked(dp=8, precision="fp16"), {"allrail", "ddp", "megatron"}),
        (asked(dp=8, precision="fp8"), set()),
        # Four heads of keys: Megatron-LM gives two ranks the same, torchtitan does not.
        (asked(tp=8), {"megatron"}),
    ],
)
def test_a_tool_stands_by_what_it_can_do(workload, tools):
    assert set(tools_for(workload, sizes=QWEN)) == tools


def test_what_it_lacks_is_said():
    assert TOOLS["ddp"].lacks(asked(tp=2)) == "DDP has no `tp: 2`"
    assert "`ep`" in TOOLS["torchtitan"].lacks(asked(dp=8, ep=2))
    assert "heads of keys" in TOOLS["megatron"].lacks(asked(tp=2), sizes={"kv_heads": 3})
    assert "`cp: 2`" in TOOLS["megatron"].lacks(asked(cp=2), sizes={"sequence_length": 4098})


@pytest.mark.parametrize(
    ("parallelism", "dimensions", "expected"),
    [
        # Both on the outer dimension: no matter.
        ({"tp": 4, "pp": 2, "dp": 2}, (4, 4), ("pp", "dp")),
        ({"tp": 2, "pp": 2, "dp": 4}, (4, 4), ("pp",)),
        ({"tp": 2, "pp": 2, "dp": 4, "map": {"tp": [0], "pp": [1]}}, (4, 4), ()),
        (
            {"tp": 2, "pp": 2, "dp": 4}
            | {"map": {"tp": ["0[:2]"], "dp": ["0[2:]", "1[0:2]"], "pp": ["1[2:]"]}},
            (4, 4),
            ("dp",),
        ),
        ({"tp": 4, "dp": 4, "map": {"dp": [0], "tp": [1]}}, (4, 4), ()),
        # A part of the fabric, 4 x 2 of it; of one that has no such block nothing is known.
        ({"tp": 2, "pp": 2, "dp": 2}, (4, 4), ("pp",)),
        ({"tp": 2, "pp": 2, "dp": 11}, (4, 4), ("pp", "dp")),
    ],
)
def test_numberings_of_ranks_are_told_apart(parallelism, dimensions, expected):
    degrees = [parallelism.get(axis, 1) for axis in ("tp", "pp", "dp")]
    npus = degrees[0] * degrees[1] * degrees[2]
    assert numberings(parallelism, dimensions, npus) == expected


@pytest.mark.parametrize(
    ("dimensions", "ranks", "together", "taken"),
    [
        ((8, 128), 64, 1, (8, 8)),
        ((8, 128), 4, 1, (4, 1)),
        ((42, 25), 64, 8, (32, 2)),
        ((6, 4), 8, 4, (4, 2)),
        ((4, 4), 44, 1, None),
    ],
)
def test_a_job_takes_a_block_of_a_fabric(dimensions, ranks, together, taken):
    assert block(dimensions, ranks, together) == taken


def test_the_runtime_gets_the_part_of_a_fabric_that_its_job_takes(tmp_path):
    scenario = {
        "schema_version": 1,
        "fabric": "dgx-h100",
        "workload": {
            "model": "resnet50",
            "batch_per_replica": 32,
            "parallelism": {"dp": 32},
            "compute": {"device": "h100"},
        },
        "schedule": {"algorithms": ["ring", "ring"]},
    }
    apply_to(scenario, tmp_path / "many", targets=["allrail"])
    many = find_job(tmp_path / "many" / "allrail.yaml").settings(rank=0, ranks=32)
    assert [one["size"] for one in many["dimensions"]] == [8, 4]
    one_node = {"workload.parallelism.dp": 4}
    apply_to(scenario, tmp_path / "few", targets=["allrail"], sets=one_node)
    few = find_job(tmp_path / "few" / "allrail.yaml").settings(rank=0, ranks=4)
    assert [one["size"] for one in few["dimensions"]] == [4]


def test_apply_keeps_to_the_table_and_to_the_numbering(tmp_path):
    switch = {"kind": "switch", "size": 4, "bandwidth": "100 GB/s", "latency": "1 us"}
    scenario = {
        "schema_version": 1,
        "fabric": {"dimensions": [switch, switch]},
        "workload": {
            "model": "gpt2_xl",
            "global_batch": 16,
            "precision": "bf16",
            "parallelism": {"tp": 1, "pp": 4, "dp": 4, "microbatches": 4},
            "compute": {"device": "h100"},
        },
    }
    written = {one.target: one for one in apply_to(scenario, tmp_path / "inside")}
    assert "outside" in written["torchtitan"].why
    flags = (tmp_path / "inside" / "megatron.args").read_text()
    assert "--use-tp-pp-dp-mapping" in flags
    turned = {"workload.parallelism.map": {"dp": [0], "pp": [1]}}
    written = {one.target: one for one in apply_to(scenario, tmp_path / "outside", sets=turned)}
    assert written["torchtitan"].files
    flags = (tmp_path / "outside" / "megatron.args").read_text()
    assert "--use-tp-pp-dp-mapping" not in flags
