"""`allrail apply` drops no decision of `schedule` in silence: for every key and every tool.

A key with another value than its default is in the tool's files, refused with a line that names
what the tool lacks, or named in the tool's line of output. The keys are those that scenarios have:
a new one fails here until `targets/keys.py` says what becomes of it, and `SAMPLES` tries it.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from allrail.base.errors import InputError
from allrail.output.schemas import schema
from allrail.runtime.job import find_job
from allrail.targets import TARGETS
from allrail.targets.decision import Decision, Inapplicable
from allrail.targets.keys import FATES, Fate, at, decided, keep_to, schedule_keys

WIDTHS = (64, 300, 300, 40)
SWITCH = {"kind": "switch", "bandwidth": "10 Gb/s", "latency": "10 us"}
TWO = [{**SWITCH, "size": 2}, {**SWITCH, "size": 2}]
ONE = [{**SWITCH, "size": 2}]
CUT = {"policy": "bytescheduler", "partition": "64 KiB"}
FUSED = {"policy": "fusion"}
BUCKETS = {"policy": "ddp", "bucket": "200 KiB"}
SERVERS = {**CUT, "exchange": "parameter_server"}
CACHED = {"policy": "cached"}
PROGRAM = {
    "operation": "all_reduce",
    "ranks": 2,
    "blocks": 2,
    "steps": [
        [
            {"from": 0, "to": 1, "blocks": [1], "adds": True},
            {"from": 1, "to": 0, "blocks": [0], "adds": True},
        ],
        [{"from": 0, "to": 1, "blocks": [0]}, {"from": 1, "to": 0, "blocks": [1]}],
    ],
}


def tensor(key, value, base):
    return {"tensor": {**base, key: value}}, {"tensor": base}


def agreed(key, value, base=CACHED):
    return {"coordination": {**base, key: value}}, {"coordination": base}


def alone(key, value, **beside):
    return {**beside, key: value}, beside


def compat(keys, **beside):
    """What stands beside the schedule, under `compat`."""
    return {**beside, "compat": keys}, beside


SAMPLES = {
    "policy": alone("policy", "round_robin"),
    "order": alone("order", "lifo"),
    "chunks": alone("chunks", 7),
    "compat.cut": compat({"cut": "rest"}),
    "smallest_chunk": alone("smallest_chunk", "8 KiB"),
    "threshold": alone("threshold", 3, policy="themis"),
    "active_chunks": alone("active_chunks", 2),
    "send_ahead": alone("send_ahead", "128 KiB"),
    "endpoint_delay": alone("endpoint_delay", "1 us"),
    "programs": (
        {"programs": {"mine": PROGRAM}, "algorithms": ["mine"]},
        {"algorithms": ["ring"]},
    ),
    "algorithms": alone("algorithms", ["direct", "ring"]),
    "algorithms_by_operation": alone("algorithms_by_operation", {"all_reduce": ["ring", "ring"]}),
    "collective_order": alone("collective_order", "lifo"),
    "compat.communicators": compat({"communicators": "queue"}),
    "composition": alone("composition", "merged"),
    "compat.loads": compat({"loads": "zero"}, policy="themis"),
    "compat.issue": compat({"issue": "in_turn"}, tensor={"policy": "fifo", "barrier": False}),
    "compat.message_endpoint_delay": compat({"message_endpoint_delay": "1 us"}),
    "compat.groups.algorithms": compat({"groups": {"algorithms": {"all_reduce": "direct"}}}),
    "compat.groups.endpoint_delay": compat({"groups": {"endpoint_delay": "1 us"}}),
    "accept_plan": alone("accept_plan", "same_shape"),
    "tensor.policy": ({"tensor": CUT}, {}),
    "tensor.partition": tensor("partition", "128 KiB", CUT),
    "tensor.credit": tensor("credit", "256 KiB", CUT),
    "tensor.bucket": tensor("bucket", "300 KiB", BUCKETS),
    "tensor.first_bucket": tensor("first_bucket", "200 KiB", BUCKETS),
    "tensor.threshold": tensor("threshold", "1 MiB", FUSED),
    "tensor.cycle": tensor("cycle", "3 ms", FUSED),
    "tensor.groups": tensor("groups", 2, FUSED),
    "tensor.barrier": tensor("barrier", False, {"policy": "fifo"}),
    "tensor.start_overhead": tensor("start_overhead", "10 us", CUT),
    "tensor.partition_overhead": tensor("partition_overhead", "10 us", CUT),
    "tensor.exchange": ({"tensor": SERVERS}, {"tensor": CUT}),
    "tensor.backup_workers": tensor("backup_workers", 1, {"policy": "fifo"}),
    "tensor.servers.count": tensor("servers", {"count": 1}, SERVERS),
    "tensor.servers.colocated": tensor("servers", {"colocated": False}, SERVERS),
    "tensor.servers.big_array": tensor("servers", {"big_array": "1 MiB"}, SERVERS),
    "tensor.servers.host": tensor("servers", {"host": "10 GB/s"}, SERVERS),
    "tensor.servers.sum": tensor("servers", {"sum": "10 GB/s"}, SERVERS),
    "tensor.servers.in_order": tensor("servers", {"in_order": True}, SERVERS),
    "tensor.servers.placement": tensor("servers", {"placement": "hash"}, SERVERS),
    "tensor.servers.synchronous": tensor("servers", {"synchronous": False}, SERVERS),
    "tensor.servers.local": tensor("servers", {"local": "host", "host": "10 GB/s"}, SERVERS),
    "tensor.servers.copy": tensor("servers", {"copy": "10 GB/s"}, SERVERS),
    "tensor.servers.host_sum": (
        {"tensor": {**SERVERS, "servers": {"local": "host", "host_sum": "10 GB/s"}}},
        {"tensor": {**SERVERS, "servers": {"local": "host"}}},
    ),
    "tensor.servers.bandwidth": (
        {"tensor": {**SERVERS, "servers": {"colocated": False, "bandwidth": "10 Gb/s"}}},
        {"tensor": {**SERVERS, "servers": {"colocated": False}}},
    ),
    "coordination.policy": ({"coordination": CACHED}, {}),
    "coordination.cycle": agreed("cycle", "3 ms"),
    "coordination.threshold": agreed("threshold", "1 MiB"),
    "coordination.cache": agreed("cache", 7),
    "coordination.fan_out": agreed("fan_out", 3),
    "coordination.stall": agreed("stall", "30 s"),
    "coordination.stall_shutdown": agreed("stall_shutdown", "90 s"),
    "coordination.patience": agreed("patience", "30 s"),
    "coordination.groups": agreed("groups", 2),
    "coordination.collectives": agreed("collectives", "all"),
    "coordination.latency": agreed("latency", {"wire": "5 us"}),
    "coordination.skew": agreed("skew", "10 us"),
}
"""By key: a schedule in which it is decided, and the same without it."""

ON_ONE = ("programs", *(key for key in SAMPLES if key.startswith(("tensor.exch", "tensor.serv"))))
"""Where the sample is of one dimension."""
LAYOUTS = {"fsdp": {"zero": 3}, "torchtitan": {"zero": 2}}
GPT = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 128, "sequence_length": 64}


def scenario(tool, key, schedule):
    """A step of the layout that a tool can do; of a transformer, where it builds one."""
    linear = {
        "layers": [
            {"name": f"layer{at}", "dense": {"inputs": inputs, "outputs": outputs}}
            for at, (inputs, outputs) in enumerate(pairwise(WIDTHS))
        ]
    }
    builds = tool in ("megatron", "torchtitan")
    return {
        "schema_version": 1,
        "fabric": {"dimensions": ONE if key in ON_ONE else TWO},
        **({"network_model": "links"} if key.startswith("compat.groups.") else {}),
        "workload": {
            "model": {"transformer": GPT} if builds else linear,
            "batch_per_replica": 4,
            "precision": "bf16",
            "gradient_precision": "fp32",
            "parallelism": LAYOUTS.get(tool, {}),
            "compute": {"device": "a100"},
            "iterations": 1,
        },
        "schedule": {of: value for of, value in schedule.items() if of != "compat"},
        "compat": schedule.get("compat", {}),
    }


@cache
def written(tool, key, *, decide):
    """Files by name, the lines beside them, and why there are none."""
    schedule = SAMPLES[key][0 if decide else 1]
    if tool == "nccl" and "algorithms" not in {**schedule, **SAMPLES[key][0]}:
        schedule = {**schedule, "algorithms": ["ring"] * (1 if key in ON_ONE else 2)}
    try:
        decision = Decision.of(scenario(tool, key, schedule))
    except InputError as error:
        return {}, (), str(error)
    if decide:
        assert key in decided(decision), f"{key}: the sample does not decide it"
    try:
        texts = TARGETS[tool].files(decision)
        return texts, keep_to(tool, decision), ""
    except Inapplicable as why:
        return {}, (), f"{why} {why.hint}"


def names_in(value):
    """Names in a value of the schedule, each in quotes as messages have it."""
    found = value if isinstance(value, (list, dict)) else []
    return [f"`{one}`" for one in found if isinstance(one, str)]


def test_every_key_of_the_schedule_is_known_and_tried():
    keys = set(schedule_keys())
    assert keys == set(SAMPLES), "a new key needs a sample"
    for tool in TARGETS:
        assert keys == set(FATES[tool]), f"apply/keys.py says of each key what {tool} does with it"


def test_the_keys_are_those_of_the_scenario_s_schema():
    definitions = schema("scenario")["$defs"]
    top = set(definitions["Schedule"]["properties"])
    found = {key.partition(".")[0] for key in schedule_keys()} - {"compat"}
    assert found == top
    beside = {key.split(".")[1] for key in schedule_keys() if key.startswith("compat.")}
    assert beside == set(definitions["Compat"]["properties"])
    for part in ("tensor", "coordination"):
        forms = definitions["Schedule"]["properties"][part]
        forms = [one for one in forms["anyOf"] if "properties" in one]
        named = {key for form in forms for key in form["properties"]}
        ours = {key.split(".")[1] for key in schedule_keys() if key.startswith(f"{part}.")}
        assert ours == named


@pytest.mark.parametrize("key", SAMPLES)
@pytest.mark.parametrize("tool", TARGETS)
def test_a_decision_is_in_the_files_or_in_a_line(tool, key):
    texts, left, why = written(tool, key, decide=True)
    before, _, refused_before = written(tool, key, decide=False)
    said = any(line.startswith(f"{at(key)}: ") for line in left)
    if FATES[tool][key] is Fate.MODEL:
        assert bool(texts) == bool(before)
        assert not said
        return
    if refused_before and why:
        # It is part of what is refused already, and the line names that.
        assert "schedule." in why
        return
    value = SAMPLES[key][0].get(key.split(".")[0])
    refused = bool(why) and any(word in why for word in (at(key), *names_in(value)))
    differs = bool(texts) and texts != before
    assert said or refused or differs, f"{tool} drops `{at(key)}`: {why}"


@pytest.mark.parametrize("key", [key for key in SAMPLES if key != "programs"])
def test_the_runtime_reads_what_is_carried(tmp_path, key):
    jobs = []
    for decide in (True, False):
        texts, _, why = written("allrail", key, decide=decide)
        if why:
            return
        (tmp_path / str(decide)).mkdir()
        for name, text in texts.items():
            (tmp_path / str(decide) / name).write_text(text)
        jobs.append(find_job(tmp_path / str(decide) / "allrail.yaml"))
    ranks = 2 if key in ON_ONE else 4
    for job in jobs:
        assert job.settings(rank=ranks - 1, ranks=ranks)["ranks"] == ranks
    # What ranks compare has every key of the file.
    differ = jobs[0].alike() != jobs[1].alike()
    assert differ == (FATES["allrail"][key] is not Fate.MODEL)
