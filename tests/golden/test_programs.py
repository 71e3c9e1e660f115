"""MSCCL's programs (XML) as algorithms of dimensions: in every network model, plan and job."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

import allrail
from allrail import _core
from allrail.base.errors import InputError
from allrail.results.plans import Plan
from allrail.runtime.job import find_job
from allrail.scenario.load import load_scenario
from allrail.search.sweeps.evaluate import evaluate
from allrail.search.sweeps.study import load_study

_spec = importlib.util.spec_from_file_location(
    "msccl_programs", Path(__file__).with_name("test_msccl.py")
)
msccl = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(msccl)
"""Writes programs."""

NETWORK_MODELS = ("dims", "links", "flows", "packets")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a ring, an exchange of all pairs and an all-gather are."""
    (tmp_path / "ring.xml").write_text(msccl.ring(4))
    (tmp_path / "pairs.xml").write_text(msccl.pairs(4))
    (tmp_path / "gather.xml").write_text(msccl.gather(4))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return tmp_path


def scenario(folder, algorithms, *, kinds=("switch",), size="4 MiB", more="", **schedule):
    """A scenario's file beside the programs; every dimension joins four."""
    told = {"algorithms": list(algorithms), "chunks": 1, **schedule}
    dimensions = [
        {"kind": kind, "size": 4, "bandwidth": "100 GB/s", "latency": "1 us"} for kind in kinds
    ]
    path = folder / "scenario.yaml"
    operation = "all_gather" if "gather.xml" in algorithms else "all_reduce"
    path.write_text(
        "schema_version: 1\n"
        f"fabric: {json.dumps({'name': 'own', 'dimensions': dimensions})}\n"
        f"collective: {{kind: {operation}, size: {size}}}\n"
        f"schedule: {json.dumps(told)}\n{more}"
    )
    return path


def refused(*arguments, **options) -> str:
    with pytest.raises(InputError) as caught:
        allrail.simulate(scenario(*arguments, **options))
    return str(caught.value)


@pytest.mark.parametrize("kind", ["ring", "switch", "fully_connected"])
@pytest.mark.parametrize("network_model", NETWORK_MODELS)
def test_a_ring_takes_what_our_ring_takes(folder, network_model, kind):
    named = [
        allrail.simulate(
            scenario(folder, [name], kinds=[kind]), sets={"network_model": network_model}
        )
        for name in ("ring.xml", "ring_unidirectional")
    ]
    assert named[0].time_us == pytest.approx(named[1].time_us, rel=1e-9)
    assert named[0].dimensions[0].algorithm == "ring.xml"


@pytest.mark.parametrize("network_model", NETWORK_MODELS)
def test_others_run_in_every_network_model(folder, network_model):
    for name, bytes_sent in (("pairs.xml", 3 * (4 << 20)), ("gather.xml", 3 << 20)):
        result = allrail.simulate(scenario(folder, [name]), sets={"network_model": network_model})
        assert result.dimensions[0].bytes_per_npu == bytes_sent


def test_one_of_several_dimensions_reduces_whole(folder):
    two = {"kinds": ("switch", "switch"), "composition": "merged"}
    merged = allrail.simulate(scenario(folder, ["ring", "pairs.xml"], **two))
    whole = allrail.simulate(scenario(folder, ["ring", "ring.xml"], **two))
    ours = allrail.simulate(scenario(folder, ["ring", "ring_unidirectional"], **two))
    assert whole.time_us == ours.time_us < merged.time_us
    both = allrail.simulate(
        scenario(folder, ["pairs.xml"] * 2, kinds=two["kinds"], composition="sequential")
    )
    assert both.dimensions[0].algorithm == both.dimensions[1].algorithm == "pairs.xml"


def test_messages_are_proved_with_the_plan(folder):
    two = {"kinds": ("switch", "switch"), "composition": "merged"}
    loaded = load_scenario(scenario(folder, ["direct", "ring.xml"], **two))
    proof = json.loads(_core.verify(loaded.to_json()))
    # Of 16 ranks; the last dimension's ring takes 6 steps between two of one.
    assert (proof["ranks"], proof["steps"], proof["schedules"]) == (16, 8, 1)


def test_a_plan_needs_no_other_file(folder):
    path = scenario(folder, ["ring.xml"])
    before = allrail.simulate(path)
    kept = folder / "elsewhere" / "plan.json"
    allrail.plan(path).save(kept)
    for file in folder.glob("*.xml"):
        file.unlink()
    plan = Plan.load(kept)
    (one,) = plan.plans
    assert one["algorithms"] == ["ring.xml"]
    assert list(one["programs"]) == ["ring.xml"]
    assert len(one["programs"]["ring.xml"]["steps"]) == 6
    # What a scenario leaves open, a plan decides.
    open_ = scenario(folder, ["auto"])
    assert allrail.simulate(open_, plan=plan).time_us == before.time_us
    # A plan that lost a message is refused, and says which.
    tree = json.loads(kept.read_text())
    tree["plans"][0]["programs"]["ring.xml"]["steps"][2].pop()
    kept.write_text(json.dumps(tree))
    with pytest.raises(InputError, match=r"ring\.xml.*no right program"):
        allrail.simulate(open_, plan=kept)


def test_another_program_gives_another_key(folder):
    path = scenario(folder, ["ring.xml"])
    keys = [allrail.plan(path).plans[0]["key"] for _ in range(2)]
    (folder / "ring.xml").write_text(msccl.pairs(4))
    assert keys[0] == keys[1] != allrail.plan(path).plans[0]["key"]


def test_a_training_step_takes_one_for_its_kind_of_collective(folder):
    tree = {
        "schema_version": 1,
        "fabric": {
            "dimensions": [{"kind": "switch", "size": 4, "bandwidth": "10 GB/s", "latency": "5 us"}]
        },
        "workload": {"model": "resnet50", "batch_per_replica": 8, "compute": {"device": "v100"}},
        # One stage, as the program is.
        "schedule": {"chunks": 1, "composition": "merged"},
    }
    times = {}
    for name in (str(folder / "ring.xml"), "ring_unidirectional"):
        for network_model in ("dims", "links"):
            sets = {
                "schedule.algorithms_by_operation": {"all_reduce": [name]},
                "network_model": network_model,
            }
            times[name, network_model] = allrail.simulate(tree, sets=sets).step_time_us
    for network_model in ("dims", "links"):
        ours, own = (
            times["ring_unidirectional", network_model],
            times[str(folder / "ring.xml"), network_model],
        )
        assert own == pytest.approx(ours, rel=1e-6)


def test_the_command_line_names_one_from_where_it_is(folder, allrail_cli, monkeypatch):
    path = scenario(folder, ["ring"])
    monkeypatch.chdir(folder)
    outcome = allrail_cli("simulate", str(path), "--set", "schedule.algorithms=[pairs.xml]")
    assert outcome.status == 0, outcome.stderr
    assert "pairs.xml" in outcome.stdout
    outcome = allrail_cli(
        "compare", str(path), "--each", "schedule.algorithms=[ring.xml],[pairs.xml],[ring]"
    )
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.count(".xml") == 2


RING, PAIRS = msccl.ring(4), msccl.pairs(4)
LAST = 'type="r" srcbuf="i" srcoff="2"'

# A program that is wrong or does not fit, what else differs, and parts of what is told.
WRONG = [
    (RING[:200], {}, ["schedule.algorithms[0]", "`own.xml`", "it is no XML"]),
    (msccl.without(RING, "<step.*" + LAST + ".*/>"), {}, ["line", "nobody receives", "GPU 3"]),
    (msccl.swap(RING, 'type="rrs"', 'type="rcs"'), {}, ["line", "`all_reduce` needs chunk"]),
    (msccl.swap(RING, LAST, LAST.replace("r", "nop", 1)), {}, ["nobody receives"]),
    (msccl.ring(8), {}, ["`own.xml`", "a program for 8 ranks, and 4 run it", "for 4 ranks"]),
    (msccl.gather(4), {}, ["`own.xml`", "it does not do `all_reduce`"]),
    (
        msccl.swap(RING, "inplace", 'minBytes="1024" maxBytes="1048576" inplace'),
        {},
        ["`own.xml`", "for 1 KiB to 1 MiB", "4 MiB"],
    ),
    (
        RING,
        {"kinds": ("switch", "switch"), "after": ["ring"]},
        ["reduce_scatter", "policy: baseline"],
    ),
    (RING, {"names": ["other.xml"]}, ["schedule.algorithms[0]", "no such file"]),
    (RING, {"names": ["own.txt"]}, ["schedule.algorithms[0]", "it is not an algorithm"]),
    (re.sub(r'depid="2" deps="1"', 'depid="-1" deps="-1"', PAIRS, count=1), {}, ["line", "GPU 0"]),
]


@pytest.mark.parametrize(("text", "options", "told"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_named(folder, allrail_cli, text, options, told):
    (folder / "own.xml").write_text(text)
    options = {"names": ["own.xml"], "after": [], **options}
    names = [*options.pop("names"), *options.pop("after")]
    path = scenario(folder, names, **options)
    outcome = allrail_cli("simulate", str(path))
    assert outcome.status == 2, outcome.stdout
    assert "Traceback" not in outcome.stderr
    for part in (*told, "hint: "):
        assert part in outcome.stderr


def test_what_needs_scratch_buffers_is_refused_with_its_step(folder):
    """Each buffer goes round a ring of three, and is added everywhere."""
    gpus = []
    for rank in range(3):
        one = [
            msccl.step(0, "s", ("i", 0), ("s", 0)),
            msccl.step(1, "rcs", ("i", 0), ("s", 0)),
            msccl.step(2, "r", ("i", 0), ("s", 1)),
            msccl.step(3, "re", ("s", 0), ("i", 0)),
            msccl.step(4, "re", ("s", 1), ("i", 0)),
        ]
        gpus.append([msccl.block(0, one, send=(rank + 1) % 3, receive=(rank - 1) % 3)])
    (folder / "own.xml").write_text(msccl.program("allreduce", 1, gpus))
    told = refused(folder, ["own.xml"])
    assert "line 25: step 3 (`re`) of block 0 of GPU 2: it adds two chunks 0" in told
    assert "and is passed on" in told
    assert "the collective of a trace" in told


SWAP = {
    "operation": "all_reduce",
    "ranks": 4,
    "blocks": 1,
    "steps": [
        [{"from": one, "to": one ^ far, "blocks": [0], "adds": True} for one in range(4)]
        for far in (1, 2)
    ],
}


def test_one_may_be_written_in_place(folder):
    own = {"swap": SWAP}
    result = allrail.simulate(scenario(folder, ["swap"], programs=own))
    assert result.dimensions[0].bytes_per_npu == 2 * (4 << 20)
    lost = {**SWAP, "steps": [SWAP["steps"][0][1:], SWAP["steps"][1]]}
    told = refused(folder, ["swap"], programs={"swap": lost})
    assert "scenario.yaml:4: `schedule.programs`" in told
    assert "`swap`: it is no right program for `all_reduce`: " in told
    assert "lacks the contributions" in told
    misspelt = {"operaton": "all_reduce", **{key: SWAP[key] for key in SWAP if key != "operation"}}
    assert "`operaton`" in refused(folder, ["swap"], programs={"swap": misspelt})
    assert "`swap` is a program of this" in refused(folder, ["swop"], programs=own)
    assert "is no program" in refused(folder, ["swap"], programs={"swap": 3})


def job(folder, schedule):
    dimension = "{kind: switch, size: 4, bandwidth: 1 Gb/s, latency: 50 us}"
    path = folder / "allrail.yaml"
    path.write_text(
        f"schema_version: 1\nfabric: {{dimensions: [{dimension}]}}\n"
        f"schedule: {json.dumps(schedule)}\n"
    )
    return find_job(path)


def test_a_job_s_ranks_have_the_program_and_compare_it(folder):
    one = job(folder, {"algorithms": ["ring.xml"]})
    settings = one.settings(rank=0, ranks=4)
    assert settings["algorithms"] == ["ring.xml"]
    assert settings["programs"]["ring.xml"]["ranks"] == 4
    (folder / "ring.xml").write_text(msccl.pairs(4))
    other = job(folder, {"algorithms": ["ring.xml"]})
    differing = {key for key, said in one.alike().items() if other.alike()[key] != said}
    assert differing == {"schedule.programs"}
    # A group of three of them cannot run it.
    assert one.within(3).settings(rank=0, ranks=3)["algorithms"] == "auto"
    assert one.within(4).settings(rank=0, ranks=4)["algorithms"] == ["ring.xml"]


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        ({"algorithms": ["eight.xml"]}, ["schedule.algorithms[0]", "for 8 ranks", "joins 4"]),
        ({"algorithms": ["wrong.xml"]}, ["allrail.yaml:3", "line", "needs chunk"]),
        ({"algorithms": ["nothing.xml"]}, ["allrail.yaml:3", "no such file"]),
    ],
)
def test_a_job_says_what_is_wrong(folder, schedule, told):
    (folder / "eight.xml").write_text(msccl.ring(8))
    (folder / "wrong.xml").write_text(msccl.swap(RING, 'type="rrs"', 'type="rcs"'))
    with pytest.raises(InputError) as caught:
        job(folder, schedule).settings(rank=0, ranks=4)
    for part in told:
        assert part in str(caught.value)


def test_a_study_reads_them_from_its_folder(folder):
    path = scenario(folder, ["ring"])
    study = folder / "study.yaml"
    study.write_text(
        f"schema_version: 1\nscenario: {path.name}\n"
        "axes:\n  schedule.algorithms: [[ring.xml], [pairs.xml], [ring_unidirectional]]\n"
    )
    read = load_study(study)
    # A worker elsewhere has what it needs, and no file.
    for file in folder.glob("*.xml"):
        file.unlink()
    points = range(len(read.points))
    times = [evaluate(read.base, read.points.sets(one))["time_us"] for one in points]
    assert times[0] == times[2] != times[1]
