"""Training steps, from YAML to JSON: the keys that are promised, and that runs repeat."""

from __future__ import annotations

import json
from math import prod

import pytest

import allrail
from allrail.base.errors import InputError
from allrail.scenario.models import load_model, model_names

# The keys as the project promised them, on a smaller fabric.
PROMISED = """\
schema_version: 1
fabric: 3D-SW_SW_SW_homo
workload: {model: resnet152, batch_per_replica: 32, precision: fp16, parallelism: {dp: 1024}, compute: {device: a100, efficiency: 0.5}, iterations: 4}
schedule: {policy: themis, order: smallest_first, chunks: 64,
           tensor: {policy: bytescheduler, partition: 4 MiB, credit: 16 MiB},
           coordination: {policy: cached, cycle: 1 ms}}
"""  # noqa: E501
FABRIC = {
    "name": "small",
    "dimensions": [
        {"kind": "switch", "size": 8, "bandwidth": "100 GB/s", "latency": "1 us"},
        {"kind": "switch", "size": 4, "bandwidth": "25 GB/s", "latency": "1 us"},
    ],
}
SMALL = {
    "schema_version": 1,
    "fabric": FABRIC,
    "workload": {"model": "resnet50", "compute": {"device": "a100"}},
    "schedule": {"policy": "themis", "chunks": 8},
}
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 1024,
}


def with_(**workload):
    return {**SMALL, "workload": {**SMALL["workload"], **workload}}


def without_host(result):
    return {key: value for key, value in result.to_dict().items() if key != "host"}


def test_the_promised_keys_work_as_they_are(folder, allrail_cli):
    (folder / "step.yaml").write_text(PROMISED)
    outcome = allrail_cli("simulate", "step.yaml", "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    tree = json.loads(outcome.stdout)
    assert {
        *("step_time_us", "compute_us", "exposed_communication_us", "exposed_us", "dimensions"),
        *("critical_path", "memory_per_npu_bytes"),
    } <= set(tree)
    assert (tree["npus"], tree["iterations"]) == (1024, 4)
    assert (tree["tensor_policy"], tree["coordination"]) == ("bytescheduler", "cached")
    assert isinstance(tree["critical_path"], list)
    assert [one["name"] for one in tree["dimensions"]] == ["dim1", "dim2", "dim3"]
    # 60.2 M parameters: 2 bytes, gradients as many, and 12 for Adam with an fp32 copy.
    assert tree["memory"]["parameters"] == pytest.approx(2 * 60.2e6, rel=0.01)
    assert tree["memory"]["optimizer"] == pytest.approx(12 * 60.2e6, rel=0.01)


@pytest.mark.parametrize(
    ("change", "of"),
    [
        ("workload.batch_per_replica=64", 2.0),
        ("workload.compute.scale=3", 3.0),
    ],
)
def test_an_override_changes_compute(change, of):
    plain = allrail.simulate(with_(batch_per_replica=32, optimizer="none"))
    changed = allrail.simulate(with_(batch_per_replica=32, optimizer="none"), sets=[change])
    assert changed.compute_us == pytest.approx(of * plain.compute_us, rel=0.1)


# Steps that are written out bring their own number of ranks.
WRITTEN_OUT = [name for name in model_names() if name.startswith("hammingmesh_")]


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_steps_run_on_a_fabric_of_their_shape(name):
    ranks = [size for axis in load_model(name)["steps"]["ranks"] for size in axis.values()]
    dimension = {"kind": "switch", "bandwidth": "200 GB/s", "latency": "1 us"}
    fabric = {"dimensions": [{**dimension, "size": size} for size in ranks]}
    one = {"schema_version": 1, "fabric": fabric, "workload": {"model": name, "iterations": 1}}
    result = allrail.simulate(one)
    assert result.npus == prod(ranks)
    assert result.step_time_us > result.compute_us > 0


@pytest.mark.parametrize("name", [name for name in model_names() if name not in WRITTEN_OUT])
def test_every_model_runs(name):
    one = {**SMALL, "workload": {"model": name, "compute": {"device": "h100"}}}
    result = allrail.simulate(one)
    assert result.step_time_us >= result.bound_step_time_us > 0
    assert all(one.bytes_per_npu > 0 for one in result.dimensions)


@pytest.mark.parametrize(
    "parallelism",
    [
        {"dp": 32},
        {"tp": 8},
        {"tp": 8, "sp": True},
        {"tp": 2, "pp": 4, "dp": 4, "microbatches": 8},
        {"pp": 4, "schedule": "gpipe"},
        {"pp": 2, "schedule": "interleaved", "microbatches": 8},
        {"pp": 4, "schedule": "chimera"},
        {"zero": 1},
        {"zero": 2},
        {"zero": 3},
        {"tp": 4, "dp": 8, "map": {"tp": ["0[0:4]"], "dp": ["0[4:8]", 1]}},
    ],
    ids=str,
)
def test_every_layout_runs(parallelism):
    one = with_(model="transformer_big", parallelism=parallelism, batch_per_replica=32)
    result = allrail.simulate(one)
    assert result.step_time_us >= result.compute_us
    kinds = {name for name, us in result.exposed_us.items() if us > 0}
    assert ("tensor" in kinds) == (parallelism.get("tp", 1) > 1)
    assert len(result.actors) == parallelism.get("pp", 1)
    assert result.memory is not None


def test_the_network_model_and_the_promised_tensor_schedulers(folder):
    for tensor in ("fifo", "ddp", "fusion", "priority", "bytescheduler"):
        one = {**SMALL, "schedule": {"policy": "themis", "chunks": 4, "tensor": tensor}}
        assert allrail.simulate(one).tensor_policy == tensor
    for policy in ("none", "central", "cached", "tree", "agreed"):
        one = {**SMALL, "schedule": {"chunks": 4, "coordination": policy}}
        assert allrail.simulate(one).coordination == policy


def test_a_hugging_face_config_is_a_model(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "config.json").write_text(json.dumps(CONFIG))
    compute = "compute: {device: a100}"
    work = f"{{model: mine/config.json, batch_per_replica: 4, sequence_length: 512, {compute}}}"
    text = f"schema_version: 1\nfabric: dgx2\nworkload: {work}\n"
    (folder / "step.yaml").write_text(text)
    loaded = allrail.load_scenario("step.yaml")
    assert loaded.workload.title == "mine"
    result = allrail.simulate(loaded)
    # 2 embeddings, and per layer attention (q, o full, k, v half) and three matrices.
    count = 2 * 32000 * 512 + 4 * (3 * 512 * 512 + 3 * 512 * 1376 + 2 * 512) + 512
    assert result.memory.parameters == 2 * count


@pytest.mark.parametrize(
    "named", ["mine", "mine/", "{hugging_face: mine}", "{hugging_face: mine/config.json}"]
)
def test_a_hugging_face_folder_is_a_model(folder, named):
    (folder / "mine").mkdir()
    (folder / "mine" / "config.json").write_text(json.dumps(CONFIG))
    (folder / "mine" / "tokenizer.json").write_text("{}")
    text = f"schema_version: 1\nfabric: dgx2\nworkload: {{model: {named}, batch_per_replica: 4, "
    (folder / "step.yaml").write_text(text + "compute: {device: a100}}\n")
    loaded = allrail.load_scenario("step.yaml")
    assert loaded.workload.title == "mine"
    assert loaded.workload.model["hugging_face"] == CONFIG


def test_a_model_s_path_starts_at_the_scenario_and_that_of_an_override_here(folder):
    (folder / "deep").mkdir()
    (folder / "deep" / "config.json").write_text(json.dumps(CONFIG))
    (folder / "here.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 2}))
    text = "schema_version: 1\nfabric: dgx2\nworkload: {model: config.json, batch_per_replica: 4, "
    text += "compute: {device: a100}}\n"
    (folder / "deep" / "step.yaml").write_text(text)
    four = allrail.simulate("deep/step.yaml")
    two = allrail.simulate("deep/step.yaml", sets={"workload.model": "here.json"})
    assert two.memory.parameters < four.memory.parameters


def test_a_model_s_defaults_hold_until_something_is_said():
    plain = allrail.load_scenario(SMALL).workload.whole
    assert plain.batch_per_replica == 64
    said = allrail.load_scenario(with_(batch_per_replica=8))
    assert said.workload.whole.batch_per_replica == 8
    # What the last model set does not stay with the next one.
    other = allrail.load_scenario(allrail.load_scenario(SMALL), sets={"workload.model": "dlrm"})
    assert other.workload.whole.batch_per_replica == 512


def test_an_astra_sim_file_is_a_model(folder):
    (folder / "files").mkdir()
    rows = [f"layer{i} -1 1000 NONE 0 1000 NONE 0 1000 ALLREDUCE 1048576 10" for i in range(3)]
    (folder / "files" / "mine.txt").write_text("\n".join(["DATA", "3", *rows]) + "\n")
    text = f"schema_version: 1\nfabric: {json.dumps(FABRIC)}\n"
    work = "{model: {astra_sim: mine.txt}, iterations: 3}"
    (folder / "files" / "step.yaml").write_text(f"{text}workload: {work}\n")
    result = allrail.simulate("files/step.yaml")
    assert result.compute_us == pytest.approx(8)  # the first layer has no input gradient
    assert result.exposed_us.data == pytest.approx(result.exposed_communication_us) != 0
    assert allrail.load_scenario("files/step.yaml").workload.title == "mine"


def test_many_at_once_are_the_same_as_one_by_one():
    scenarios = [with_(batch_per_replica=batch) for batch in (1, 8, 32)]
    together = allrail.simulate_many(scenarios, threads=2)
    alone = [allrail.simulate(one) for one in scenarios]
    assert [without_host(one) for one in together] == [without_host(one) for one in alone]


def test_one_of_many_that_is_wrong_is_named():
    with pytest.raises(InputError) as told:
        allrail.simulate_many([SMALL, with_(parallelism={"dp": 31})])
    assert told.value.index == 1
    assert told.value.field.startswith("workload.parallelism")


def test_what_ifs_are_keys_of_a_scenario_too():
    (flag,) = allrail.what_if(SMALL, ["dim2_x2"])
    key = allrail.simulate({**SMALL, "what_if": "dim2_x2"})
    assert without_host(flag.result) == without_host(key)
    fabric = {**FABRIC, "dimensions": [dict(one) for one in FABRIC["dimensions"]]}
    fabric["dimensions"][1]["bandwidth"] = "50 GB/s"
    doubled = allrail.simulate({**SMALL, "fabric": fabric})
    assert doubled.step_time_us == key.step_time_us


def test_a_step_over_an_assumed_utilisation():
    """Half of the bandwidth takes twice as long; all of it is the ideal schedule."""
    steps = {x: allrail.simulate({**SMALL, "what_if": {"utilisation": x}}) for x in (0.25, 0.5, 1)}
    ideal = allrail.simulate({**SMALL, "what_if": "ideal_schedule"})
    assert steps[1].step_time_us == ideal.step_time_us
    exposed = [one.exposed_communication_us for one in steps.values()]
    assert exposed == sorted(exposed, reverse=True)
    assert exposed[0] - exposed[1] == pytest.approx(2 * (exposed[1] - exposed[2]), rel=0.01)


@pytest.mark.parametrize(
    "compute",
    [
        {"device": "a100", "scale": 0.01},
        {"device": "a100", "forward": "1 ns", "backward": "1 ns"},
        {"device": "a100"},
    ],
    ids=str,
)
def test_computing_that_no_such_device_could_do_is_told(compute):
    step = {
        "schema_version": 1,
        "fabric": "dgx2",
        "workload": {"model": "transformer_base", "compute": compute},
    }
    result = allrail.simulate(step)
    told = [note for note in result.notes if "no such device is that fast" in note]
    assert len(told) == (len(compute) > 1), result.notes
    assert result.beyond_peak == bool(told)


def test_switches_that_sum_halve_what_gradients_wait_for():
    """In `flows`, over any fabric whose NPUs hang below switches."""
    leaves = {f"x{i}": [f"n{4 * i + j}" for j in range(4)] for i in range(4)}
    own = {
        "topology": "graph",
        "npus": [npu for npus in leaves.values() for npu in npus],
        "switches": [*leaves, "root"],
        "link": {"bandwidth": "10 GB/s"},
        "links": [{"from": npu, "to": leaf} for leaf, npus in leaves.items() for npu in npus]
        + [{"from": leaf, "to": "root", "bandwidth": "40 GB/s"} for leaf in leaves],
    }
    tree = {"topology": "fat_tree", "npus": 16, "switch_radix": 8, "levels": 2}
    layers = {"model": "vgg16", "batch_per_replica": 1, "parallelism": {"dp": 16}}
    layers["compute"] = {"device": "h100", "efficiency": 1.0}
    # A graph is no product of dimensions: its job's steps are written out.
    written = [{"compute": "1 us"}, {"all_reduce": 25_000_000, "over": "all", "tensor": 0}]
    steps = {"ranks": [{"rank": 16}], "element": "4 B", "groups": {"all": ["rank"]}}
    steps |= {"steps": {"npu": written}}
    for fabric, workload in ((tree, layers), (own, {"model": {"steps": steps}})):
        scenario = {
            "schema_version": 1,
            "fabric": {**fabric, "in_network_reduction": True},
            "workload": workload,
            "network_model": "flows",
            "messages": {"algorithms": {"all_reduce": "ring"}},
        }
        ring = allrail.simulate(scenario)
        summed = {"messages.algorithms.all_reduce": "in_network"}
        switches = allrail.simulate(scenario, sets=summed)
        share = switches.exposed_communication_us / ring.exposed_communication_us
        assert 0.4 < share < 0.65, (fabric["topology"], share)
        for changed, told in [
            ({"network_model": "packets"}, "network_model: flows"),
            ({"fabric": {**fabric, "in_network_reduction": False}}, "in_network_reduction: true"),
            ({"fabric": {"topology": "torus", "shape": [4, 4]}}, "in_network_reduction: true"),
        ]:
            with pytest.raises(InputError) as refused:
                allrail.simulate({**scenario, **changed}, sets=summed)
            assert refused.value.field == "messages.algorithms.all_reduce"
            assert told in (refused.value.hint or "")


def test_all_what_ifs():
    names = [one.name for one in allrail.what_if(SMALL)]
    assert names == [
        *("infinite_bandwidth", "ideal_schedule", "dim1_x2", "dim2_x2", "no_straggler")
    ]


def test_all_what_ifs_of_a_topology_are_those_that_its_network_model_can_make(folder, allrail_cli):
    torus = {**SMALL, "fabric": {"topology": "torus", "shape": [4, 4]}, "network_model": "flows"}
    names = [one.name for one in allrail.what_if(torus)]
    assert names == ["infinite_bandwidth", "ideal_schedule", "no_straggler"]
    (folder / "torus.json").write_text(json.dumps(torus))
    refused = allrail_cli("simulate", "torus.json", "--set", "what_if=dim1_x2")
    assert refused.status == 2
    assert "cables have bandwidths" in refused.stderr
    table = allrail_cli("simulate", "torus.json").stdout
    assert "NPU_to_NPU" in table


def test_compare_sets_a_row_against_the_first_that_differs_in_the_schedule_alone():
    each = {
        "workload.model": ["resnet50", "transformer_base"],
        "schedule.policy": ["baseline", "themis"],
        "schedule.tensor": ["fifo", "bytescheduler"],
    }
    rows = allrail.compare(SMALL, each=each)
    assert len(rows) == 8
    for half in (rows[:4], rows[4:]):
        assert half[0].speedup == 1
        for row in half:
            ratio = half[0].result.step_time_us / row.result.step_time_us
            assert row.speedup == pytest.approx(ratio)
    assert rows[4].result.step_time_us != rows[0].result.step_time_us


def test_a_report_compares_samples_a_second(folder, allrail_cli):
    (folder / "mine.json").write_text(json.dumps(SMALL))
    batches = ("--each", "workload.batch_per_replica=8,16", "--out", "out")
    outcome = allrail_cli("compare", "mine.json", *batches)
    assert outcome.status == 0, outcome.stderr
    gain = outcome.stdout.splitlines()[2].split()[2]
    page = (folder / "out" / "report.html").read_text()
    assert float(gain) > 1, "the larger batch takes longer, and trains more samples a second"
    assert f"{gain} times the samples a second of" in page
    assert f">{gain}<" in page
    assert "actor that ends last" not in page


def test_compare_without_schedules_sets_networks_against_each_other():
    each = {"workload.batch_per_replica": [256, 512], "fabric": ["today", "3D-SW_SW_SW_homo"]}
    rows = allrail.compare(with_(model="dlrm"), each=each)
    times = [row.result.step_time_us for row in rows]
    speedups = [1, times[0] / times[1], 1, times[2] / times[3]]
    assert [row.speedup for row in rows] == pytest.approx(speedups)
    assert speedups[1] != 1


def test_the_scenario_s_own_tensor_scheduler_keeps_its_keys():
    tensor = {"policy": "bytescheduler", "partition": "1 MiB", "credit": "2 MiB"}
    one = {**SMALL, "schedule": {"chunks": 4, "tensor": tensor}}
    rows = allrail.compare(one, each={"schedule.tensor": ["fifo", "bytescheduler"]})
    assert [row.scenario.schedule.tensor for row in rows] == [{"policy": "fifo"}, tensor]


def test_compare_prints_a_line_a_variant(folder, allrail_cli):
    (folder / "mine.json").write_text(json.dumps(SMALL))
    outcome = allrail_cli(
        *("compare", "mine.json", "--policy", "baseline,themis"),
        *("--model", "resnet50,vgg16", "--tensor", "fifo,priority"),
    )
    lines = [line.split() for line in outcome.stdout.splitlines() if not line.startswith("#")]
    assert lines[0][:5] == ["model", "policy", "tensor", "step_time_us", "speedup"]
    assert [line[:3] for line in lines[1:4]] == [
        ["resnet50", "baseline", "fifo"],
        ["resnet50", "baseline", "priority"],
        ["resnet50", "themis", "fifo"],
    ]
    assert len(lines) == 9
    both = allrail_cli(
        "compare", "mine.json", "mine.json", "--each", "workload.batch_per_replica=1,2"
    )
    # A heading, four rows, where they come from, what is known of their error.
    assert len(both.stdout.splitlines()) == 7


def test_the_table_names_what_the_json_holds(folder, allrail_cli):
    (folder / "mine.json").write_text(json.dumps(SMALL))
    tree = json.loads(allrail_cli("simulate", "mine.json", "--what-if", "all", "--json").stdout)
    table = allrail_cli("simulate", "mine.json", "--what-if", "all").stdout
    assert f"{tree['step_time_us']:.3f}" in table
    assert tree["critical_path_in_words"] in table
    for one in tree["what_ifs"]:
        assert f"{one['step_time_us']:.3f}" in table
        assert one["name"] in table
    assert "predicted in network model `dims`" in table


def test_out_writes_everything_and_the_next_run_replaces_it(folder, allrail_cli):
    (folder / "mine.json").write_text(json.dumps(SMALL))
    assert allrail_cli("simulate", "mine.json", "--out", "out").status == 0
    first = {path.name for path in (folder / "out").iterdir()}
    assert {"report.html", "trace.json.gz", "step.png", "timeline.parquet", "kineto"} <= first
    assert allrail_cli("compare", "mine.json", "--out", "out").status == 0
    second = {path.name for path in (folder / "out").iterdir()}
    assert "breakdown.png" in second
    assert not {"trace.json.gz", "step.png", "timeline.parquet", "kineto"} & second


def test_what_is_of_one_kind_refuses_the_others():
    collective = {"kind": "all_reduce", "size": "1 MB"}
    collectives = {"schema_version": 1, "fabric": "dgx2", "collective": collective}
    for verb, scenario, field in (
        (allrail.plan, SMALL, "workload"),
        (allrail.what_if, collectives, "collective"),
    ):
        with pytest.raises(InputError) as told:
            verb(scenario)
        assert told.value.field == field
        assert "`allrail simulate`" in told.value.hint


def test_several_iterations_are_measured_without_the_first():
    result = allrail.simulate(with_(iterations=4))
    assert len(result.steps_us) == result.iterations == 4
    assert result.first_step_time_us == result.steps_us[0]
    assert result.step_time_us == pytest.approx(sum(result.steps_us[1:]) / 3)


DECODER = {"layers": 4, "hidden": 512, "heads": 8, "vocabulary": 1000, "sequence_length": 1024}


def computed(*, compute=None, **transformer) -> float:
    """µs of computing of a small transformer on an H100."""
    device = {"device": "h100", **(compute or {})}
    model = {"transformer": {**DECODER, **transformer}}
    scenario = with_(model=model, compute=device, batch_per_replica=4)
    return allrail.simulate(scenario).compute_us


def test_positions_are_turned_where_there_are_no_others():
    turned, plain = computed(), computed(rotary=False)
    assert turned > plain
    assert computed(rotary=True) == turned
    assert computed(positions=1024) < computed(positions=1024, rotary=True)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bloom", "n_layer": 4, "n_head": 8},
        {"model_type": "mpt", "n_layers": 4, "n_heads": 8, "d_model": 512},
        {"model_type": "falcon", "num_hidden_layers": 4, "num_attention_heads": 8, "alibi": True},
    ],
)
def test_models_with_alibi_turn_nothing(config):
    known = {"hidden_size": 512, "vocab_size": 1000, **config}
    at = {"sequence_length": 1024, "compute": {"device": "h100"}, "batch_per_replica": 4}
    step = allrail.simulate(with_(model={"hugging_face": known}, **at))
    # One family that turns has the same products but for its norms and gate: so more than by these.
    shown = allrail.simulate(
        with_(model={"hugging_face": {**known, "model_type": "gpt_neox", "intermediate_size": 2048,
                                      "num_hidden_layers": 4, "num_attention_heads": 8,
                                      "max_position_embeddings": 1024}}, **at)
    )  # fmt: skip
    assert shown.compute_us > 1.03 * step.compute_us


def test_an_encoder_without_a_head_sees_all_of_its_tokens():
    encoder = computed(head="none")
    assert encoder == computed(head="none", causal=False)
    assert encoder > computed(head="none", causal=True)
    assert computed(causal=True) == computed()
    assert computed(causal=False) > computed()


def test_a_slower_memory_is_slower_with_kernels_too():
    usual, slow = computed(), computed(compute={"memory_bandwidth": "1 TB/s"})
    assert slow > 1.2 * usual
    assert computed(compute={"memory_bandwidth": "3.35 TB/s"}) == pytest.approx(usual, rel=0.01)


def test_pieces_of_stages_without_a_pipeline_are_said_to_change_nothing():
    of = {"schedule": "interleaved", "virtual_stages": 2}
    model = {"model": {"transformer": DECODER}, "batch_per_replica": 4}
    plain = allrail.simulate(with_(**model))
    step = allrail.simulate(with_(**model, parallelism=of))
    assert step.step_time_us == plain.step_time_us
    assert any("`virtual_stages`" in note for note in step.notes)
    piped = allrail.simulate(with_(**model, parallelism={**of, "pp": 2}))
    assert not any("`virtual_stages`" in note for note in piped.notes)
