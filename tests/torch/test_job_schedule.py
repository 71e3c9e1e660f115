"""What `allrail apply` writes of a scenario's `schedule` is what the runtime does, on processes."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")
from torch import nn  # noqa: E402

import allrail.torch as art  # noqa: E402
from allrail.base.errors import InputError  # noqa: E402
from allrail.targets import apply_to  # noqa: E402
from allrail.torch import ordered  # noqa: E402

WIDTHS = (64, 128, 128, 8)
SWITCH = {"kind": "switch", "bandwidth": "10 Gb/s", "latency": "10 us"}
GRADIENTS = [4 * size for width, out in pairwise(WIDTHS) for size in (width * out, out)]
"""Bytes, in the order of the forward pass: weight and bias of each layer."""
KINDS = ("weight", "bias")


def job_of(folder, schedule, sizes=(2,)):
    """The job file that `apply` writes for a schedule."""
    layers = [
        {"name": f"layer{at}", "dense": {"inputs": inputs, "outputs": outputs}}
        for at, (inputs, outputs) in enumerate(pairwise(WIDTHS))
    ]
    scenario = {
        "schema_version": 1,
        "fabric": {"dimensions": [{**SWITCH, "size": size} for size in sizes]},
        "workload": {
            "model": {"layers": layers},
            "batch_per_replica": 8,
            "precision": "fp32",
            "compute": {"device": "a100"},
        },
        "schedule": schedule,
    }
    (written,) = apply_to(scenario, folder, targets=["allrail"])
    assert not written.left
    return str(written.files[0])


class Spy:
    """A node that counts what it hands out: bytes that are not over, and tensors of operations."""

    def __init__(self, node):
        self.node, self.sizes, self.under_way, self.most = node, {}, 0, 0
        self.operations = []

    def __getattr__(self, name):
        return getattr(self.node, name)

    def next_launches(self, timeout):
        launches = self.node.next_launches(timeout)
        for launch in launches:
            size = 4 * (launch.end - launch.start)
            self.sizes[launch.number] = size
            self.under_way += size
            keys = tuple(key for key, *_ in launch.slices)
            self.operations.append(
                (keys, sum(4 * (end - start) for _, start, end in launch.slices))
            )
        self.most = max(self.most, self.under_way)
        return launches

    def finished(self, number):
        self.under_way -= self.sizes.pop(number)
        self.node.finished(number)


def trained(rank, job, steps=3):
    """What training leaves, and what was seen of the transport."""
    spies = []

    class Watched(ordered.Carrier):
        def __init__(self, node, *rest):
            spies.append(Spy(node))
            super().__init__(spies[-1], *rest)

    plain, ordered.Carrier = ordered.Carrier, Watched
    torch.manual_seed(rank)  # ranks begin apart, and take rank 0's parameters
    layers = [part for pair in pairwise(WIDTHS) for part in (nn.Linear(*pair), nn.Tanh())]
    model = nn.Sequential(*layers)
    model, optimizer = art.schedule(model, torch.optim.Adam(model.parameters()), job=job)
    scheduled = art._of(model)[0]
    carrier = scheduled._carrier
    draw = torch.Generator().manual_seed(100 + rank)
    said = []
    for _ in range(steps):
        loss = model(torch.randn(8, WIDTHS[0], generator=draw)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        art.synchronize(model)
        report = carrier.report()
        said.append((report.get("coordination"), report.get("frozen")))
    left = torch.cat([each.detach().flatten() for each in model.parameters()]).double()
    seen = {
        "transport": type(carrier).__name__,
        "settings": carrier.settings,
        "crosses": scheduled._crosses,
        "said": said,
        "most": spies[0].most if spies else None,
        "operations": spies[0].operations if spies else None,
        "names": getattr(carrier, "_names", None),
        "unpredicted": art.report(model).unpredicted,
    }
    if seen["transport"] == "Native":
        timeline = carrier.timeline()
        seen["partitions"] = [one["bytes"] for one in timeline["partitions"]]
    art.release(model)
    ordered.Carrier = plain
    return left.sum().item(), seen


def trained_on_four(rank, job, steps):
    """Of its own, as ranks stay for a function."""
    return trained(rank, job, steps)


@pytest.fixture(scope="module")
def train(ranks_of):
    """Train on ranks that stay; what each leaves is what a job without a file leaves."""
    plain = {}

    def run(job, ranks=2, steps=3):
        pool = ranks_of({2: trained, 4: trained_on_four}[ranks], ranks=ranks)
        if (ranks, steps) not in plain:
            plain[ranks, steps] = pool({"schema_version": 1}, steps)[0][0]
        answers = pool(job, steps)
        assert len({left for left, _ in answers}) == 1
        assert answers[0][0] == pytest.approx(plain[ranks, steps], abs=1e-4)
        # The simulator takes what the runtime has run.
        assert not answers[0][1]["unpredicted"]
        return answers[0][1]

    return run


@pytest.mark.parametrize(("credit", "held"), [("16 KiB", 16 << 10), ("1 MiB", 1 << 20)])
def test_no_more_than_the_credit_is_under_way(tmp_path, train, credit, held):
    tensor = {"policy": "bytescheduler", "partition": "8 KiB", "credit": credit}
    seen = train(job_of(tmp_path, {"tensor": tensor}))
    assert seen["transport"] == "Ordered"
    assert seen["crosses"]
    # The largest gradient is 64 KiB: all of its pieces start where the credit lets them.
    assert seen["most"] <= held
    assert seen["most"] >= min(held, 64 << 10)


def of_gradients(seen):
    """Operations of gradients, as sets of places among them, in the order of the forward pass."""
    places = {f"{2 * at}.{kind}": 2 * at + (kind == "bias") for at in range(3) for kind in KINDS}
    names = {key: places.get(name) for key, name in seen["names"].items()}
    found = [[names[key] for key in keys] for keys, _ in seen["operations"]]
    return [frozenset(keys) for keys in found if None not in keys]


def check_halves(operations):
    """Each operation is one of two groups that have half of the gradients each."""
    groups = set(operations)
    assert sorted(len(group) for group in groups) == [3, 3]
    assert frozenset.union(*groups) == frozenset(range(6))


def test_fusion_packs_up_to_its_threshold(tmp_path, train):
    tensor = {"policy": "fusion", "threshold": "5 KiB", "cycle": "300 ms"}
    seen = train(job_of(tmp_path, {"tensor": tensor}))
    assert not seen["crosses"], "the next pass waits for all of them, as it is simulated"
    packed = [operation for operation in of_gradients(seen) if len(operation) > 1]
    assert packed, "within a third of a second several are ready"
    assert all(sum(GRADIENTS[place] for place in each) <= 5 << 10 for each in packed)


def test_groups_of_fusion_travel_whole(tmp_path, train):
    tensor = {"policy": "fusion", "threshold": "1 KiB", "cycle": "1 ms", "groups": 2}
    seen = train(job_of(tmp_path, {"tensor": tensor}))
    check_halves(of_gradients(seen))


@pytest.mark.parametrize("policy", ["central", "tree", "cached", "agreed"])
def test_ranks_agree_by_the_coordination_that_is_named(tmp_path, train, policy):
    coordination = {"policy": policy, "threshold": "1 KiB", "groups": 2}
    coordination |= {} if policy == "agreed" else {"cycle": "2 ms"}
    seen = train(job_of(tmp_path, {"coordination": coordination}), steps=8)
    assert seen["settings"]["coordination"]["policy"] == policy
    words = [count for count, _ in seen["said"]]
    assert all(after > before for before, after in pairwise(words)), "ranks talk in every step"
    assert not any(frozen for _, frozen in seen["said"])
    check_halves(of_gradients(seen))


def test_partitions_of_priority_go_one_at_a_time(tmp_path, train):
    tensor = {"policy": "priority", "partition": "8 KiB"}
    seen = train(job_of(tmp_path, {"tensor": tensor}))
    assert seen["transport"] == "Ordered"
    assert seen["most"] <= 8 << 10


def test_buckets_are_those_of_the_scenario(tmp_path, train):
    tensor = {"policy": "ddp", "bucket": "20 KiB", "first_bucket": "2 KiB"}
    seen = train(job_of(tmp_path, {"tensor": tensor}))
    assert seen["transport"] == "Native"
    assert not seen["crosses"]
    buckets, bound = [0], 2 << 10
    for size in reversed(GRADIENTS):
        buckets[-1] += size
        if buckets[-1] >= bound:
            buckets, bound = [*buckets, 0], 20 << 10
    assert set(seen["partitions"]) - {4 * len(GRADIENTS)} == set(buckets) - {0}


def test_servers_are_ranks_in_their_turn(tmp_path, train):
    tensor = {"policy": "bytescheduler", "partition": "8 KiB", "exchange": "parameter_server"}
    seen = train(job_of(tmp_path, {"tensor": tensor}))
    assert seen["transport"] == "Native"
    assert seen["settings"]["algorithms"] == ["parameter_server"]


def test_a_barrier_may_be_added_and_left_out(tmp_path, train):
    cut = {"policy": "bytescheduler", "partition": "8 KiB", "barrier": True}
    assert not train(job_of(tmp_path / "cut", {"tensor": cut}))["crosses"]
    whole = {"policy": "fifo", "barrier": False}
    seen = train(job_of(tmp_path / "whole", {"tensor": whole}))
    assert seen["crosses"]
    assert seen["settings"]["tensor"] == "fifo"


def test_whole_all_reduces_on_the_last_dimension_run_and_are_simulated(tmp_path, train):
    schedule = {
        "algorithms": ["ring", "parameter_server"],
        "chunks": 4,
        "tensor": {"policy": "bytescheduler", "partition": "8 KiB"},
    }
    seen = train(job_of(tmp_path, schedule, sizes=(2, 2)), ranks=4)
    assert seen["settings"]["algorithms"] == ["ring", "parameter_server"]


REFUSED = {
    "a credit over native": (
        {"transport": "native", "schedule": {"tensor": {"credit": "1 MiB"}}},
        ("`schedule.tensor.credit` is `1 MiB`", "`transport: c10d`"),
    ),
    "fusion over native": (
        {"transport": "native", "schedule": {"tensor": {"policy": "fusion"}}},
        ("`schedule.tensor.policy` is `fusion`", "`transport: c10d`"),
    ),
    "coordination over native": (
        {"transport": "native", "schedule": {"coordination": {"policy": "cached"}}},
        ("`schedule.coordination` is `cached`", "leave `schedule.coordination` out"),
    ),
    "a policy that a barrier replaces": (
        {"exchange": "barrier", "schedule": {"tensor": {"policy": "ddp"}}},
        ("`schedule.tensor.policy` is `ddp`", "`schedule.tensor.barrier: true`"),
    ),
    "a schedule of plain buckets": (
        {"exchange": "plain", "schedule": {"chunks": 4}},
        ("`schedule`: gradients go in buckets", "`exchange: plain`"),
    ),
    "another order than that of the way": (
        {"exchange": "reduce_scatter", "schedule": {"order": "fifo"}},
        ("`schedule.order` is `fifo`", "`exchange: overlap`"),
    ),
    "a barrier that the way has": (
        {"exchange": "barrier", "schedule": {"tensor": {"barrier": False}}},
        ("`schedule.tensor.barrier` is `false`", "`exchange: overlap`"),
    ),
    "a key of another policy": (
        {"schedule": {"tensor": {"policy": "fifo", "credit": "1 MiB"}}},
        ("`schedule.tensor.credit`", "bytescheduler"),
    ),
}


def refused(rank, keys):
    model = nn.Linear(8, 8)
    try:
        art.schedule(
            model, torch.optim.SGD(model.parameters(), lr=0.1), job={"schema_version": 1, **keys}
        )
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", REFUSED)
def test_a_job_that_would_drop_a_key_is_refused_by_its_name(ranks_of, name):
    keys, words = REFUSED[name]
    for said in ranks_of(refused)(keys):
        assert all(word in said for word in words), said


def test_keys_that_process_groups_decide_are_warned_of(ranks_of):
    (said, other) = ranks_of(warned)()
    assert "`schedule.order`, `schedule.send_ahead`" in said
    assert "`transport: native`" in said
    assert not other, "one rank says it"


def warned(rank):
    import warnings

    keys = {"transport": "c10d", "schedule": {"order": "fifo", "send_ahead": "32 KiB"}}
    model = nn.Linear(8, 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        art.schedule(
            model, torch.optim.SGD(model.parameters(), lr=0.1), job={"schema_version": 1, **keys}
        )
    art.release(model)
    return "\n".join(str(one.message) for one in caught if "process groups" in str(one.message))
