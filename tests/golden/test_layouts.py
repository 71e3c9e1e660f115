"""`allrail plan --model`: every layout once, a ranking that `simulate` confirms, why none is."""

from __future__ import annotations

import json

import pytest
import yaml

from allrail import simulate
from allrail.search.layouts import Job, Layout, search, space

SIZES = {"layers": 4, "heads": 8, "hidden": 256, "vocabulary": 1000, "sequence_length": 512}
FABRIC = {
    "dimensions": [
        {"kind": "switch", "size": 4, "bandwidth": "300 GB/s", "latency": "2 us"},
        {"kind": "switch", "size": 4, "bandwidth": "25 GB/s", "latency": "5 us"},
    ]
}


def a_job(**more):
    known = {
        "model": {"transformer": SIZES, "name": "small"},
        "fabric": FABRIC,
        "npus": 16,
        "inner": 4,
        "global_batch": 64,
        "compute": {"device": "a100"},
        "precision": "bf16",
    }
    return Job(**known | more)


@pytest.mark.parametrize("npus", [1, 2, 8, 16])
def test_degrees_multiply_to_the_npus_and_no_layout_comes_twice(npus):
    job = a_job(npus=npus)
    found = space(job, SIZES).layouts
    assert len(set(found)) == len(found)
    for one in found:
        assert one.tp * one.pp * one.cp * one.ep * one.dp == npus
        assert one.tp <= job.inner
        assert one.pp * one.virtual <= SIZES["layers"]
        assert one.microbatches(job) * one.micro * one.dp * one.ep == job.global_batch


def test_experts_are_cut_by_what_divides_them():
    found = space(a_job(), {**SIZES, "experts": {"count": 4}}).layouts
    assert {one.ep for one in found} == {1, 2, 4}


def test_every_layout_is_ranked_or_said_why_not():
    job = a_job()
    every = space(job, SIZES).layouts
    found = search(job, every)
    told = [one.layout for one in found.ranked]
    told += [one.layout for one in found.pruned]
    told += [one.layout for one in found.too_large]
    told += [layout for layout, _ in found.refused]
    assert found.pruned
    assert sorted(map(repr, told)) == sorted(map(repr, every))
    rates = [one.tokens_per_s_per_npu for one in found.ranked]
    assert rates == sorted(rates, reverse=True)


def test_the_best_is_what_simulate_says_it_is():
    job = a_job()
    best = search(job, space(job, SIZES).layouts).ranked[0]
    count = best.layout.microbatches(job)
    tree = best.layout.scenario(job, recompute=best.recompute, microbatches=count)
    told = simulate(tree)
    assert best.step_s == pytest.approx(told.step_time_us / 1e6, rel=0.02)
    assert best.tokens_per_s_per_npu == pytest.approx(
        told.throughput.tokens_per_s_per_npu, rel=0.02
    )
    assert best.memory_gb == pytest.approx(told.memory_per_npu_bytes / 1e9, rel=0.02)


def test_the_command_says_what_was_not_tried_and_why(allrail_cli):
    arguments = ["--model", "gpt2_xl", "--fabric", "dgx-a100", "--npus", "8", "--device", "a100"]
    told = json.loads(
        allrail_cli("plan", *arguments, "--global-batch", "16", "--top", "3", "--json").stdout
    )
    assert told["layouts"] == told["simulated"] + len(told["pruned"]) + len(told["too_large"])
    third = told["ranked"][2]["step_s"]
    assert len(told["ranked"]) == 3
    assert all(bound > third for bound in told["pruned"].values())
    assert told["not_tried"]["tensor parallelism divides the heads"] > 0
    assert told["schedules"][0]["step_s"] <= told["schedules"][0]["before_s"]
    every = json.loads(
        allrail_cli(
            "plan", *arguments, "--global-batch", "16", "--exhaustive", "--schedules", "0", "--json"
        ).stdout
    )
    assert not every["pruned"]
    assert every["ranked"][:3] == told["ranked"]


@pytest.mark.parametrize(
    ("inside", "places"),
    [("", None), ("dp", {"tp": ["0[1:2]"], "dp": ["0[2:4]", "1[1:2]"], "pp": ["1[2:4]"]})],
)
def test_dp_lies_inside_of_pp_where_that_is_another_dimension(inside, places):
    job = a_job(dimensions=(4, 4))
    found = [
        one
        for one in space(job, SIZES).layouts
        if (one.tp, one.pp, one.dp, one.inside) == (2, 2, 4, inside)
    ]
    assert found
    tree = found[0].scenario(job, recompute="none", microbatches=4)
    assert tree["workload"]["parallelism"].get("map") == places
    simulate(tree)


def test_the_head_takes_the_place_of_layers():
    wide = {**SIZES, "layers": 16, "vocabulary": 9_000}
    job = a_job(model={"transformer": wide, "name": "wide"})
    found = {
        one.head: one.workload(job, recompute="none", microbatches=8)["parallelism"]
        for one in space(job, wide).layouts
        if (one.tp, one.pp, one.virtual, one.schedule) == (1, 2, 1, "")
    }
    assert found[1]["ends_as_layers"]
    assert found[3]["stages"] == [10, 6]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(tp=1, pp=4, cp=1, ep=1, dp=4, zero=1, virtual=1, micro=1),
        Layout(tp=2, pp=2, cp=1, ep=1, dp=4, zero=0, virtual=2, micro=1),
        Layout(tp=4, pp=1, cp=1, ep=1, dp=4, zero=3, virtual=1, micro=2),
    ],
)
def test_a_step_from_few_microbatches_is_that_of_all(layout):
    job = a_job(global_batch=128)
    [one] = search(job, [layout]).ranked
    tree = layout.scenario(job, recompute=one.recompute, microbatches=layout.microbatches(job))
    assert one.step_s == pytest.approx(simulate(tree).step_time_us / 1e6, rel=0.03)


def test_the_least_recomputation_that_fits_is_taken():
    # So much that some layouts fit only without what can be computed again.
    large = {**SIZES, "layers": 24, "hidden": 4096, "heads": 32, "sequence_length": 8192}
    job = a_job(model={"transformer": large, "name": "large"}, global_batch=128)
    found = search(job, space(job, large).layouts)
    fitting = (*found.ranked, *found.pruned)
    assert len({one.recompute for one in fitting}) > 1
    # What an allocator holds in vain is shown, and is no reason.
    assert all(one.memory_gb <= 1.1 * 81_920 * 2**20 / 1e9 for one in fitting)


def test_the_command_writes_the_best_scenario(tmp_path, allrail_cli):
    out = tmp_path / "best.yaml"
    arguments = ["--model", "gpt2_xl", "--fabric", "dgx-a100", "--npus", "4", "--device", "a100"]
    told = allrail_cli("plan", *arguments, "--global-batch", "8", "--out", str(out), "--json")
    assert told.status == 0, told.stderr
    found = json.loads(told.stdout)
    best = found["ranked"][0]
    tree = yaml.safe_load(out.read_text())
    assert simulate(tree).step_time_us / 1e6 == pytest.approx(
        found["schedules"][0]["step_s"], rel=0.02
    )
    assert found["schedules"][0]["name"] == best["name"]
    shown = allrail_cli("plan", *arguments, "--global-batch", "8", "--top", "3")
    assert (
        len([line for line in shown.stdout.splitlines() if ",mb" in line and line[0] != "#"]) == 3
    )
    assert "uncalibrated" in shown.stdout


def test_a_configuration_of_hugging_face_is_laid_out(folder, allrail_cli):
    (folder / "mine").mkdir()
    sizes = {
        "model_type": "llama",
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    }
    (folder / "mine" / "config.json").write_text(json.dumps(sizes))
    job = ["--fabric", "dgx-h100", "--npus", "4"]
    for model in ("mine", "mine/config.json"):
        # Files are named as the scenario sees them, wherever that is written.
        told = allrail_cli("plan", "--model", model, *job, "--out", "deep/best.yaml", "--json")
        assert told.status == 0, told.stderr
        # What the file leaves open is said, as a simulation of the best says it.
        assert any("`tie_word_embeddings`" in note for note in json.loads(told.stdout)["notes"])
        assert allrail_cli("simulate", "deep/best.yaml").status == 0
    written = allrail_cli("apply", "deep/best.yaml", "--for", "megatron", "--out", "job")
    assert written.status == 0, written.stderr
    assert "--num-query-groups 4" in (folder / "job" / "megatron.args").read_text()
    (folder / "mine" / "config.json").write_text(json.dumps({**sizes, "hidden_size": "wide"}))
    refused = allrail_cli("plan", "--model", "mine", *job)
    assert (refused.status, "hidden_size" in refused.stderr) == (2, True)
