"""Mistakes in workloads: told once, with their place, value and a hint; exit status 2."""

from __future__ import annotations

import pytest

BASE = """\
schema_version: 1
fabric:
  dimensions:
    - {kind: switch, size: 8, bandwidth: 100 GB/s, latency: 1 us}
    - {kind: switch, size: 4, bandwidth: 50 GB/s, latency: 1 us}
workload:
  model: resnet50
  batch_per_replica: 32
  precision: fp16
  parallelism: {dp: 32, tp: 1, map: {dp: [0, 1]}}
  compute: {device: a100, efficiency: 0.5}
  iterations: 2
  jitter: {deviation: 0.01}
  stragglers: [{ranks: [3], factor: 1.5}]
schedule:
  policy: themis
  tensor: {policy: bytescheduler, partition: 4 MiB, credit: 16 MiB}
"""

# What is written in the file, what instead, the field, a part of the message.
CASES = [
    # The model.
    ("model: resnet50", "model: resnet51", "workload.model", "mean `resnet"),
    ("  model: resnet50\n", "", "workload.model", "missing"),
    ("model: resnet50", "model: 50", "workload.model", "neither a name"),
    ("model: resnet50", "model: {tracce: et/mine}", "workload.model", "mean `trace`?"),
    ("model: resnet50", "model: {trace: a, layers: []}", "workload.model", "exactly one"),
    ("model: resnet50", "model: {}", "workload.model", "exactly one"),
    ("model: resnet50", "model: nowhere/config.json", "workload.model", "no such"),
    ("model: resnet50", "model: {hugging_face: 5}", "workload.model", "expected a map"),
    ("batch_per_replica: 32", "batch_per_replica: 0", "workload.batch_per_replica", "below 1"),
    (
        "batch_per_replica: 32",
        "batch_per_replica: 32\n  global_batch: 100",
        "workload.global_batch",
        "write 1024, or leave out",
    ),
    ("batch_per_replica: 32", "global_batch: 100", "workload.global_batch", "a multiple of 32"),
    ("batch_per_replica: 32", "global_batch: 0", "workload.global_batch", "below 1"),
    (
        "batch_per_replica: 32",
        "batch_per_replica: 32\n  micro_batch: 5",
        "workload.micro_batch",
        "a replica has 32 samples",
    ),
    (
        "batch_per_replica: 32",
        "batch_per_npu: 32",
        "workload.batch_per_npu",
        "it was renamed: write `batch_per_replica`",
    ),
    ("batch_per_replica: 32", "batch_per_replica: 3.5", "workload.batch_per_replica", "whole"),
    (
        "batch_per_replica: 32",
        "batch_per_gpu: 32",
        "workload.batch_per_gpu",
        "mean `batch_per_replica`?",
    ),
    ("precision: fp16", "precision: fp15", "workload.precision", "mean `fp1"),
    ("iterations: 2", "iterations: 0", "workload.iterations", "below 1"),
    ("iterations: 2", "iterations: 100000", "workload.iterations", "10,000"),
    # The layout.
    ("dp: 32", "ddp: 32", "workload.parallelism.ddp", "mean `dp`?"),
    ("dp: 32", "dp: 31", "workload.parallelism", "no block of 8 × 4 = 32 NPUs"),
    ("dp: 32", "dp: 64", "workload.parallelism", "32"),
    (
        "dp: 32, tp: 1, map: {dp: [0, 1]}",
        "tp: 5",
        "workload.parallelism.dp",
        "`dp: 6` leaves the last 2",
    ),
    ("tp: 1", "tp: 0", "workload.parallelism.tp", "below 1"),
    ("tp: 1", "zero: 4", "workload.parallelism.zero", "above 3"),
    ("tp: 1", "sp: 1", "workload.parallelism.sp", "neither"),
    ("tp: 1", "schedule: 1f2b", "workload.parallelism.schedule", "mean `1f1b`?"),
    ("tp: 1", "schedule: dual_pipes", "workload.parallelism.schedule", "mean `dual_pipe`?"),
    ("tp: 1", "cp: 0", "workload.parallelism.cp", "below 1"),
    ("tp: 1", "context: all", "workload.parallelism.context", "`all_gather`"),
    ("tp: 1", "context: all_gather", "workload.parallelism.context", "on one rank"),
    ("tp: 1", "async_tp: true", "workload.parallelism.async_tp", "`sp: true`"),
    ("tp: 1", "reshard: false", "workload.parallelism.reshard", "`zero: 3` alone"),
    ("tp: 1", "prefetch: -1", "workload.parallelism.prefetch", "below 0"),
    ("tp: 1", "shard: 8", "workload.parallelism.shard", "without `zero`"),
    ("tp: 1", "zero: 1, shard: 5", "workload.parallelism.shard", "no factor of the 32"),
    ("tp: 1", "reduce: never", "workload.parallelism.reduce", "`step`"),
    ("tp: 1", "overlap_parameters: false", "workload.parallelism.overlap_parameters", "`zero: 2`"),
    ("tp: 1", "capacity_factor: 0", "workload.parallelism.capacity_factor", "not above 0"),
    ("tp: 1", "capacity_factor: 1.5", "workload.parallelism.capacity_factor", "no experts"),
    ("tp: 1", "expert_nodes: 2", "workload.parallelism.expert_nodes", "lies on 1 node "),
    ("map: {dp: [0, 1]}", "map: [0, 1]", "workload.parallelism.map", "mapping"),
    ("map: {dp: [0, 1]}", "map: {ddp: [0]}", "workload.parallelism.map", "mean `dp`?"),
    ("map: {dp: [0, 1]}", "map: {dp: [-1]}", "workload.parallelism.map", "no dimension"),
    ("map: {dp: [0, 1]}", "map: {dp: [0, 7]}", "workload.parallelism.map", "7"),
    ("map: {dp: [0, 1]}", 'map: {dp: [0, "1[0:3]"]}', "workload.parallelism.map", "3"),
    ("map: {dp: [0, 1]}", 'map: {dp: [0, "one"]}', "workload.parallelism.map", "one"),
    # Compute.
    ("device: a100", "device: a101", "workload.compute.device", "a100"),
    ("device: a100", "peak: 312", "workload.compute.peak", "unit"),
    ("efficiency: 0.5", "efficiency: 0", "workload.compute.efficiency", "not above 0"),
    ("efficiency: 0.5", "efficiency: .nan", "workload.compute.efficiency", "finite"),
    ("efficiency: 0.5", "forward: -1 ms", "workload.compute.forward", "negative"),
    ("efficiency: 0.5", "memory: 80", "workload.compute.memory", "unit"),
    ("deviation: 0.01", "deviation: -1", "workload.jitter.deviation", "below 0"),
    ("factor: 1.5", "factor: 0", "workload.stragglers[0].factor", "not above 0"),
    ("ranks: [3]", "ranks: []", "workload.stragglers[0].ranks", "empty"),
    ("ranks: [3]", "ranks: [32]", "workload.stragglers", "32"),
    ("jitter:", "slow_links: {share: 0.1}\n  jitter:", "workload.slow_links.factor", "missing"),
    (
        "jitter:",
        "slow_links: {share: 1.5, factor: 0.5}\n  jitter:",
        "workload.slow_links.share",
        "a part of all links",
    ),
    (
        "jitter:",
        "slow_links: {share: 0.1, factor: 2}\n  jitter:",
        "workload.slow_links.factor",
        "0.001 to 1",
    ),
    (
        "jitter:",
        "slow_links: {share: 0.1, factor: 0.5, dimensions: [2]}\n  jitter:",
        "workload.slow_links.dimensions",
        "0 to 1",
    ),
    (
        "jitter:",
        "slow_links: {share: 0.1, factor: 0.5, dimension: 0}\n  jitter:",
        "workload.slow_links.dimension",
        "mean `dimensions`?",
    ),
    ("jitter:", "updates: sometimes\n  jitter:", "workload.updates", "a time of updates"),
    # The schedule.
    ("policy: bytescheduler,", "policy: bytescheduller,", "schedule.tensor", "`bytescheduler`?"),
    ("policy: bytescheduler, ", "", "schedule.tensor", "no `policy`"),
    ("partition: 4 MiB", "partitions: 4 MiB", "schedule.tensor.partitions", "mean `partition`?"),
    ("partition: 4 MiB", "partition: 4", "schedule.tensor.partition", "unit"),
    ("partition: 4 MiB", "partition: 0 B", "schedule.tensor.partition", "a byte"),
    ("partition: 4 MiB", "bucket: 25 MiB", "schedule.tensor.bucket", "`ddp`"),
    ("partition: 4 MiB", "exchange: server", "schedule.tensor.exchange", "parameter_server"),
    ("partition: 4 MiB", "partition: 1 B", "schedule.tensor.partition", "partitions"),
    ("credit: 16 MiB", "credit: 0 B", "schedule.tensor.credit", "nothing is ever sent"),
    ("credit: 16 MiB", "barrier: maybe", "schedule.tensor.barrier", "maybe"),
    ("credit: 16 MiB", "start_overhead: 2 h", "schedule.tensor.start_overhead", "not a unit"),
    ("credit: 16 MiB", "partition_overhead: 4000 s", "schedule.tensor.partition_overhead", "hour"),
    # Parameter servers.
    ("credit: 16 MiB", "servers: {count: 4}", "schedule.tensor.servers", "no servers"),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {count: 0}",
        "schedule.tensor.servers.count",
        "65,536",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {counts: 4}",
        "schedule.tensor.servers.counts",
        "mean `count`?",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {host: 3 GB}",
        "schedule.tensor.servers.host",
        "/s",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {sum: 0 GB/s}",
        "schedule.tensor.servers.sum",
        "0",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {colocated: false, bandwidth: 0 GB/s}",
        "schedule.tensor.servers.bandwidth",
        "0",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {bandwidth: 1 GB/s}",
        "schedule.tensor.servers.bandwidth",
        "colocated: false",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {placement: byteps, colocated: false}",
        "schedule.tensor.servers.placement",
        "every worker's machine",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {placement: turn}",
        "schedule.tensor.servers.placement",
        "in_turn",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {host_sum: 1 GB/s}",
        "schedule.tensor.servers.host_sum",
        "local: host",
    ),
    (
        "credit: 16 MiB",
        "exchange: parameter_server, servers: {in_order: first}",
        "schedule.tensor.servers.in_order",
        "first",
    ),
    ("schedule:", "what_if: {utilisation: 1.5}\nschedule:", "what_if", "for example `0.6`"),
    ("schedule:", "what_if: {utilisation: 0}\nschedule:", "what_if", "for example `0.6`"),
    ("schedule:", "what_if: {utilization: 0.5}\nschedule:", "what_if", "the assumptions are"),
    ("schedule:", "what_if: dim3_x2\nschedule:", "what_if", "`dim1` to `dim2`"),
    ("schedule:", "what_if: no_stragglers\nschedule:", "what_if", "mean `no_straggler`?"),
    ("schedule:", "collective: {kind: all_reduce, size: 1 MB}\nschedule:", "workload", "either"),
    ("schedule:", "network_model: dim\nschedule:", "network_model", "mean `dims`?"),
]


@pytest.mark.parametrize(("old", "new", "field", "told"), CASES, ids=str)
def test_is_told_once_with_its_place(folder, allrail_cli, old, new, field, told):
    assert old in BASE
    (folder / "step.yaml").write_text(BASE.replace(old, new, 1))
    outcome = allrail_cli("simulate", "step.yaml")
    assert (outcome.status, outcome.stdout) == (2, "")
    message, _, hint = outcome.stderr.partition("\n\nhint: ")
    assert message.startswith("error: step.yaml"), outcome.stderr
    assert message.count("\n") == 0
    assert field in message
    assert hint.strip()
    assert told in outcome.stderr


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("simulate", "step.yaml", "--what-if", "infinite_bandwith"), "mean `infinite_bandwidth`?"),
        (("simulate", "step.yaml", "--what-if", "dim3_x2"), "`dim2_x2`"),
        (("simulate", "step.yaml", "--plan", "plan.json"), "plans every collective"),
        (("plan", "step.yaml"), "workload"),
        (("compare", "step.yaml", "--size", "1MB"), "no `collective`"),
        (("compare", "step.yaml", "--tensor", "lifo,fif"), "mean `fifo`?"),
        (("compare", "step.yaml", "--model", "resnet51"), "mean `resnet"),
        (("compare",), "file is missing"),
    ],
    ids=str,
)
def test_a_verb_tells_too(folder, allrail_cli, args, told):
    (folder / "step.yaml").write_text(BASE)
    outcome = allrail_cli(*args)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert told in outcome.stderr


@pytest.mark.parametrize("key", ["tensor: fifo", "algorithms_by_operation: {broadcast: auto}"])
def test_only_a_workload_has_tensors(folder, allrail_cli, key):
    text = "schema_version: 1\nfabric: dgx2\ncollective: {kind: all_reduce, size: 1 MB}\n"
    (folder / "one.yaml").write_text(f"{text}schedule: {{{key}}}\n")
    outcome = allrail_cli("simulate", "one.yaml")
    assert outcome.status == 2
    assert "only a `workload` has it" in outcome.stderr
    flag = allrail_cli("simulate", "one.yaml", "--what-if", "all")
    assert flag.status == 2


def test_files_of_several_kinds_are_not_compared(folder, allrail_cli):
    (folder / "step.yaml").write_text(BASE)
    text = "schema_version: 1\nfabric: dgx2\ncollective: {kind: all_reduce, size: 1 MB}\n"
    (folder / "one.yaml").write_text(text)
    outcome = allrail_cli("compare", "step.yaml", "one.yaml")
    assert outcome.status == 2
    assert "jobs of several kinds" in outcome.stderr
