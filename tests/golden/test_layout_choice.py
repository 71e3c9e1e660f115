"""What `allrail plan --model` recommends, for which tool, of what is asked for."""

from __future__ import annotations

import json
import shlex
import signal
from dataclasses import replace

import pytest
import yaml

from allrail import _core, preset_names, simulate
from allrail.base.errors import InputError
from allrail.runtime.job import find_job
from allrail.scenario import load_any_fabric, load_fabric
from allrail.search.layouts import (
    TOOLS,
    Bounded,
    Job,
    Layout,
    Ranked,
    Trials,
    folded,
    parse_fixed,
    pessimistic,
    read_given,
    recommended,
    score,
    search,
    space,
    why_it_loses,
)
from allrail.search.layouts.answer import gap, no_tool
from allrail.search.layouts.asked import OfModel, job_of
from allrail.search.layouts.budget import Budget
from allrail.search.layouts.choice import may_be_recommended
from allrail.search.layouts.search import recomputations
from allrail.targets import apply_to, offers
from allrail.targets.decision import Decision

SIZES = {"layers": 4, "heads": 8, "hidden": 256, "vocabulary": 1000, "sequence_length": 512}
LARGE = {**SIZES, "layers": 24, "hidden": 4096, "heads": 32, "sequence_length": 8192}
SWITCHES = [
    {"kind": "switch", "size": 4, "bandwidth": "300 GB/s", "latency": "2 us"},
    {"kind": "switch", "size": 4, "bandwidth": "25 GB/s", "latency": "5 us"},
]
SMALL = ["--model", "gpt2", "--fabric", "dgx-a100", "--npus", "8", "--device", "a100"]


def a_job(sizes=SIZES, **more):
    known = {
        "model": {"transformer": sizes, "name": "small"},
        "fabric": {"dimensions": SWITCHES},
        "npus": 16,
        "inner": 4,
        "global_batch": 64,
        "compute": {"device": "a100"},
        "precision": "bf16",
        "dimensions": (4, 4),
    }
    return Job(**known | more)


def found_of(job, **more):
    return search(job, space(job, job.model["transformer"]).layouts, **more)


def ranked(step_s, memory_gb, **degrees):
    layout = Layout(
        **{"tp": 1, "pp": 1, "cp": 1, "ep": 1, "dp": 1, "zero": 0, "virtual": 1, "micro": 1}
        | degrees
    )
    return Ranked(layout, "none", step_s, 1 / step_s, memory_gb, (), ("dim1", 0.5))


def test_of_the_fastest_the_fewest_kinds_then_the_least_memory_is_recommended():
    kinds = ranked(1.0, 10, cp=2, dp=4)
    one = ranked(1.009, 60, dp=8)
    less = ranked(1.005, 50, dp=8, zero=3)
    slow = ranked(1.02, 5, dp=8, zero=2)
    assert recommended([kinds, one, less, slow]) is less
    assert recommended([kinds, one, slow]) is one
    assert recommended([kinds, slow]) is kinds


def test_what_is_recommended_a_tool_can_run_where_any_layout_can_be_run():
    fastest = ranked(0.9, 10, pp=8)
    runs = replace(ranked(1.0, 60, tp=2, dp=4), tools=("megatron",))
    simpler = replace(ranked(1.009, 50, dp=8), tools=("fsdp",))
    slow = replace(ranked(1.02, 5, dp=8, zero=2), tools=("fsdp",))
    assert recommended([fastest, runs, slow]) is runs
    assert recommended([fastest, runs, simpler, slow]) is simpler
    assert recommended([fastest]) is fastest

    def left(bound_s, **degrees):
        return Bounded(ranked(1.0, 1, **degrees).layout, "none", bound_s, 1.0)

    quick, unable = left(0.95, tp=4, pp=2), left(0.5, pp=2)
    may = [quick, unable, left(1.5, dp=8, zero=1)]
    # What may be faster than all that a tool can run is to be simulated, however many kinds it has.
    assert may_be_recommended(may, [fastest, runs], lambda one: one is not unable) == [quick]
    assert may_be_recommended(may, [fastest, slow], lambda _: False) == []


@pytest.mark.parametrize("top", [1, 4])
def test_a_schedule_that_no_tool_has_is_not_recommended(top):
    job = a_job({**SIZES, "layers": 8}, npus=4, global_batch=16, dimensions=(4, 4))
    every = search(job, space(job, job.model["transformer"]).layouts, top=top)
    alone = a_job(
        {**SIZES, "layers": 8},
        npus=4,
        global_batch=16,
        fixed={"schedule": "dual_pipe", "pp": 4},
    )
    found = search(alone, space(alone, alone.model["transformer"]).layouts, top=top)
    assert every.recommended.tools
    assert not found.recommended.tools
    [note] = no_tool(alone, found)
    assert "Megatron-LM has no `schedule: dual_pipe`" in note
    assert "torchtitan has no `schedule: dual_pipe`" in note
    # Where it is the fastest, the row beside it is starred, and the gap is said.
    first = replace(found.ranked[0], step_s=every.recommended.step_s / 2)
    both = replace(every, ranked=(first, *every.ranked))
    assert both.recommended == every.recommended
    [note] = no_tool(job, both)
    assert note.startswith(f"{first.layout.name} is 100.0 % faster than ")


def test_rows_that_take_as_long_are_not_told_apart():
    first, same = ranked(20_000.0, 10, dp=8), ranked(20_000.0, 11, dp=8, zero=1)
    assert gap(first, same) == "dp8,zero1,mb1 takes as long as dp8,mb1"
    later = replace(same, step_s=22_500.0)
    assert gap(first, later) == "the second-best costs 2,500 s a step, 12.5 %"
    assert why_it_loses(later, first) == "computing +2,500 s"


def test_layouts_that_are_one_but_for_their_name_share_a_row():
    first, same = ranked(1.0, 10, dp=8), ranked(1.0, 10, dp=8, head=1)
    other = ranked(1.0, 11, dp=8, zero=1)
    rows = folded([same, other, first])
    assert [(row.ranked, row.others) for row in rows] == [(first, (same,)), (other, ())]
    # Not where different tools can do them.
    assert len(folded([replace(same, tools=("megatron",)), first])) == 2


def test_what_is_ranked_leaves_the_headroom_free():
    for headroom in (0.05, 0.3):
        job = a_job(LARGE, global_batch=128, headroom=headroom)
        found = found_of(job, top=3)
        capacity = found.ranked[0].capacity_gb
        fitting = (*found.ranked, *found.pruned)
        assert fitting
        assert all(one.memory_gb <= (1 - headroom) * capacity for one in fitting)
        assert all(one.needed / 1e9 > (1 - headroom) * capacity for one in found.too_large)


def test_only_recomputation_that_saves_something_is_tried():
    fused = a_job(LARGE)
    layouts = space(fused, LARGE).layouts
    assert recomputations(fused, Trials(fused, layouts[0]), layouts) == [
        "none",
        "alternate",
        "full",
    ]
    unfused = a_job(LARGE, compute={"device": "a100", "attention": "unfused"})
    assert recomputations(unfused, Trials(unfused, layouts[0]), layouts)[:2] == [
        "none",
        "selective",
    ]
    megatron = a_job(LARGE, tool="megatron")
    assert "alternate" not in recomputations(megatron, Trials(megatron, layouts[0]), layouts)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_gets_only_what_apply_writes_files_for(tool, tmp_path):
    job = a_job(tool=tool, model={"transformer": SIZES, "name": "gpt2"})
    found = found_of(job, top=2)
    for one in found.ranked[:2]:
        assert tool in one.tools
        count = one.layout.microbatches(job)
        tree = one.layout.scenario(job, recompute=one.recompute, microbatches=count)
        [written] = apply_to(tree, tmp_path / one.layout.name, targets=[tool])
        assert written.files


@pytest.mark.parametrize("tool", TOOLS)
def test_a_plan_for_a_tool_has_no_schedule_that_its_files_do_not_say(tool, folder, allrail_cli):
    asked = ["plan", *SMALL, "--global-batch", "64", "--for", tool, "--top", "1"]
    told = allrail_cli(*asked, "--json", "--out", "best.yaml")
    assert told.status == 0, told.stderr
    [schedules] = json.loads(told.stdout)["schedules"]
    decided = yaml.safe_load((folder / "best.yaml").read_text()).get("schedule", {})
    assert decided == schedules["schedule"]
    [written] = apply_to(folder / "best.yaml", folder / "job", targets=[tool])
    assert written.files
    assert written.left == ()
    if tool in ("fsdp", "torchtitan"):  # both leave collectives and gradients' order to others
        assert schedules["tried"] == 0
    if tool in ("allrail", "ddp"):
        assert schedules["tried"] > 0


def test_what_a_tool_says_of_schedules_is_what_apply_says(folder):
    tree = {
        "schema_version": 1,
        "fabric": {"dimensions": SWITCHES},
        "workload": {
            "model": {"transformer": SIZES},
            "global_batch": 64,
            "compute": {"device": "a100"},
            "parallelism": {"dp": 16},
        },
    }
    tried = [
        {"chunks": 8},
        {"algorithms": "auto"},
        {"tensor": {"policy": "ddp"}},
        {"tensor": {"policy": "priority"}},
        {"tensor": {"policy": "bytescheduler", "partition": "4 MiB", "credit": "16 MiB"}},
        {"tensor": {"policy": "fifo", "exchange": "parameter_server"}},
        {"algorithms": ["ring", "ring"], "tensor": {"policy": "priority"}},
    ]
    decision = Decision.of(tree)
    assert not any(offers(tool, decision, {"policy": "baseline"}) for tool in TOOLS)
    said = set()
    for tool in TOOLS:
        sharded = {**tree["workload"]["parallelism"], "zero": 3 if tool == "fsdp" else 0}
        own = {**tree, "workload": {**tree["workload"], "parallelism": sharded}}
        decision = Decision.of(own)
        for number, schedule in enumerate(tried):
            try:
                where = folder / f"{tool}-{number}"
                [written] = apply_to({**own, "schedule": schedule}, where, targets=[tool])
                carried = not written.left
            except InputError:
                carried = False
            assert offers(tool, decision, schedule) is carried, (tool, schedule)
            said.add((tool, carried))
    assert ("allrail", True) in said
    assert ("allrail", False) in said


@pytest.mark.parametrize(
    ("tool", "schedule", "status", "words"),
    [
        (
            "megatron",
            "tensor={policy: fifo, exchange: parameter_server}",
            2,
            "leave `schedule.tensor.exchange` out",
        ),
        ("megatron", "chunks=8", 0, "# not in the files for `megatron`: schedule.chunks: 8"),
        ("allrail", "chunks=8", 0, ""),
        ("any", "chunks=8", 0, ""),
    ],
)
def test_a_schedule_of_ones_own_is_held_against_the_tool(
    tool, schedule, status, words, folder, allrail_cli
):
    more = ["--for", tool, "--set", f"schedule.{schedule}", "--top", "1", "--schedules", "0"]
    told = allrail_cli("plan", *SMALL, *more)
    assert told.status == status, told.stderr
    assert words in told.stdout + told.stderr
    assert ("not in the files" in told.stdout) is words.startswith("# not")


def test_a_plan_for_the_runtime_is_a_job_of_its_ranks(folder, allrail_cli):
    asked = ["--model", "gpt2", "--fabric", "dgx-h100", "--npus", "32", "--global-batch", "64"]
    told = allrail_cli(
        "plan", *asked, "--for", "allrail", "--schedules", "0", "--out", "b.yaml", "--json"
    )
    assert told.status == 0, told.stderr
    assert all("allrail" in one["tools"] for one in json.loads(told.stdout)["ranked"])
    told = allrail_cli("apply", "b.yaml", "--for", "allrail", "--out", "job")
    assert told.status == 0, told.stderr
    settings = find_job(folder / "job" / "allrail.yaml").settings(rank=0, ranks=32)
    assert [one["size"] for one in settings["dimensions"]] == [8, 4]


def test_replicas_lie_inside_of_a_pipeline_on_a_part_of_a_fabric_too():
    job = a_job(npus=8, tool="torchtitan", fixed={"tp": 2, "pp": 2})
    found = found_of(job, top=1)
    assert {one.layout.inside for one in found.ranked} == {"dp"}
    assert not found.refused


def test_what_is_fixed_is_in_every_layout():
    fixed = parse_fixed(["tp=2,pp=2", "mb=4,zero=1"])
    assert fixed == {"tp": 2, "pp": 2, "micro_batch": 4, "zero": 1}
    found = space(a_job(fixed=fixed), SIZES).layouts
    assert {(one.tp, one.pp, one.micro, one.zero) for one in found} == {(2, 2, 4, 1)}
    # Beyond what is tried unasked: two machines share a layer, states are cut in a pipeline.
    wide = space(a_job(fixed={"tp": 8}), SIZES).layouts
    assert {one.tp for one in wide} == {8}
    assert space(a_job(fixed={"zero": 3, "pp": 2}), SIZES).layouts
    three = space(a_job(fixed={"schedule": "gpipe", "pp": 4}), SIZES).layouts
    assert {one.schedule for one in three} == {"gpipe"}


@pytest.mark.parametrize(
    ("fixed", "said"),
    [("tp=0", "whole number"), ("tpp=2", "`tp`"), ("tp", "no value"), ("zero=x", "whole number")],
)
def test_what_cannot_be_fixed_is_refused(fixed, said):
    with pytest.raises(InputError) as error:
        parse_fixed([fixed])
    assert said in f"{error.value} {error.value.hint}"


def test_fixed_degrees_that_make_no_layout_are_told():
    with pytest.raises(InputError, match="degrees"):
        space(a_job(fixed={"dp": 3}), SIZES)
    with pytest.raises(InputError, match="heads"):
        space(a_job(fixed={"tp": 16}), SIZES)
    with pytest.raises(InputError, match="DDP"):
        space(a_job(fixed={"tp": 2}, tool="ddp"), SIZES)
    with pytest.raises(InputError, match="recompute"):
        found_of(a_job(fixed={"recompute": "alternate"}, tool="megatron"))


def test_a_layout_of_one_s_own_is_judged_beside_the_best(tmp_path):
    job = a_job()
    best = found_of(job, top=1).ranked[0]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"tp": 4, "sp": True, "pp": 4, "micro_batch": 1}))
    mine = score(job, read_given(path, job))
    count = 64
    own = {"tp": 4, "sp": True, "pp": 4, "dp": 1, "microbatches": count}
    tree = best.layout.scenario(job, recompute="none", microbatches=1)
    tree["workload"] |= {"batch_per_replica": 64, "parallelism": own}
    assert mine.step_s == pytest.approx(simulate(tree).step_time_us / 1e6, rel=0.03)
    assert mine.step_s > best.step_s
    assert why_it_loses(mine, best)
    # The best one's own scenario is as good as it is.
    count = best.layout.microbatches(job)
    tree = best.layout.scenario(job, recompute=best.recompute, microbatches=count)
    path.write_text(yaml.safe_dump(tree))
    same = score(job, read_given(path, job))
    assert same.step_s == best.step_s
    assert same.memory_gb == best.memory_gb


def test_a_layout_that_does_not_fit_is_judged_too(tmp_path):
    job = a_job({**LARGE, "layers": 96}, global_batch=16)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"parallelism": {"dp": 16}, "micro_batch": 1}))
    mine = score(job, read_given(path, job))
    assert mine.memory_gb > mine.capacity_gb


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"tp": 3}, "15 NPUs"),
        ({"tp": 1, "dp": 1}, "1 NPU,"),
        ({"tp": 4, "micro_batch": 3}, "evenly"),
        ({"tp": "four"}, "whole number"),
        ([1], "mapping"),
    ],
)
def test_a_layout_that_is_none_is_refused(tmp_path, tree, said):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(InputError, match=said):
        read_given(path, a_job())


def test_a_slower_network_takes_as_long_or_longer():
    job = a_job()
    found = found_of(job, top=3)
    trials = Trials(job, found.ranked[0].layout)
    network = pessimistic(trials, found.ranked[:3])
    for one in found.ranked[:3]:
        assert network.steps_s[one.layout.name] >= one.step_s
    assert max(network.steps_s.values()) > min(one.step_s for one in found.ranked[:3])
    measured = {"dimensions": SWITCHES, "error": 0.5}
    job = a_job(fabric=measured)
    slow = pessimistic(Trials(job, found.ranked[0].layout), found.ranked[:1])
    assert "50 %" in slow.words


def test_a_part_of_each_bandwidth_is_carried():
    fabric = load_fabric("dgx-a100")
    half = fabric.carrying([0.5, 1])
    was, now = (one.dimensions[0].bandwidth for one in (fabric, half))
    assert (was, now) == ("25 GB/s", f"{25 * 8 * 10**9 // 2} b/s")
    assert half.dimensions[0].latency == fabric.dimensions[0].latency


def test_a_budget_that_is_over_leaves_what_is_known():
    job = a_job()
    every = space(job, SIZES).layouts
    found = search(job, every, budget=Budget(1e-9))
    assert "is over" in found.stopped
    assert found.ranked
    seen = len(found.ranked) + len(found.left) + len(found.too_large) + len(found.refused)
    assert seen + found.unseen == len(every)
    assert not found.pruned
    assert not search(job, every, top=1, budget=Budget(1e6)).stopped


def test_a_part_of_a_budget_is_over_before_it(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    whole = Budget(20.0)
    part = whole.first(0.5)
    clock[0] = 11.0
    assert part.used == pytest.approx(1.1)
    assert whole.used == pytest.approx(0.55)
    assert part.words == whole.words == "the time budget of 20 s is over"
    assert Budget(None).first(0.5).used == 0


def test_overrides_are_of_every_layout_and_of_what_is_written(folder, allrail_cli):
    sets = ["--set", "workload.optimizer=momentum", "--set", "workload.compute.memory=60 GB"]
    sets += ["--set", "fabric.dimensions[0].bandwidth=100 GB/s"]
    sets += ["--set", "workload.parallelism.overlap_gradients=false"]
    told = allrail_cli("plan", *SMALL, *sets, "--top", "2", "--json", "--out", "best.yaml")
    assert told.status == 0, told.stderr
    found = json.loads(told.stdout)
    assert {one["capacity_gb"] for one in found["ranked"]} == {60.0}
    tree = yaml.safe_load((folder / "best.yaml").read_text())
    assert tree["workload"]["optimizer"] == "momentum"
    assert tree["workload"]["parallelism"]["overlap_gradients"] is False
    assert tree["fabric"]["dimensions"][0]["bandwidth"] == "100 GB/s"
    [best] = [one for one in found["ranked"] if one["name"] == found["recommended"]]
    tuned = found["schedules"][0]
    assert tuned["before_s"] == best["step_s"]
    again = simulate(tree).step_time_us / 1e6
    assert again == pytest.approx(tuned["step_s"], rel=0.02)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("workload.parallelism.tp=8", "`--fix tp=...`"),
        ("workload.precision=fp16", "`--precision`"),
        ("network_model=links", "leave it out"),
    ],
)
def test_what_is_searched_is_not_overridden(allrail_cli, path, hint):
    told = allrail_cli("plan", *SMALL, "--set", path)
    assert told.status == 2
    assert hint in told.stderr


def test_rows_say_tools_memory_and_capacity(allrail_cli, folder):
    (folder / "mine.yaml").write_text("tp: 4\nsp: true\n")
    more = ["--precision", "fp16", "--launch", "eager", "--score", "mine.yaml", "--headroom", "10"]
    told = allrail_cli("plan", *SMALL, *more, "--top", "3", "--schedules", "0")
    assert told.status == 0, told.stderr
    header, *rows = told.stdout.splitlines()
    assert header.split()[6:9] == ["memory_GB", "capacity_GB", "tools"]
    assert sum("*" in row for row in rows if row[0] != "#") == 1
    assert any(row.startswith("mine ") for row in rows)
    assert any("10 % stay free" in row for row in rows)
    assert any(row.startswith("# mine takes") for row in rows)


def test_the_hint_for_more_npus_than_a_fabric_has_works_when_typed(allrail_cli):
    asked = ["plan", "--model", "gpt2", "--fabric", "dgx2", "--npus", "512", "--for", "ddp"]
    told = allrail_cli(*asked)
    assert told.status == 2
    [hint] = [line for line in told.stderr.splitlines() if line.startswith("hint:")]
    said = shlex.split(hint.split("`")[3])
    told = allrail_cli(*asked, *said, "--top", "1", "--schedules", "0")
    assert told.status == 0, told.stderr
    # What is known of the error is the last line.
    assert told.stdout.splitlines()[-1].startswith("# error: ")


def test_what_is_ended_shows_what_it_had(folder, allrail_cli, monkeypatch):
    """The signal comes once the first layouts are simulated, however long that takes."""
    simulate, times = Trials.simulate, []

    def ended_at_the_second(self, some, **more):
        times.append(len(some))
        if len(times) == 2:
            signal.raise_signal(signal.SIGTERM)
        return simulate(self, some, **more)

    monkeypatch.setattr(Trials, "simulate", ended_at_the_second)
    told = allrail_cli("plan", *SMALL, "--exhaustive", "--json", "--out", "best.yaml")
    assert told.status == 143
    found = json.loads(told.stdout)
    assert found["stopped"] == "terminated"
    assert len(found["ranked"]) == times[0]
    assert found["left"]
    # What was best was there before the end, too.
    assert yaml.safe_load((folder / "best.yaml").read_text())["workload"]["model"] == "gpt2"
    assert len(times) == 2


@pytest.mark.parametrize("name", preset_names())
def test_the_device_is_the_fabric_s_and_the_note_says_where_it_comes_from(name):
    """Over all presets: a device that is known, and a word on what nobody asked for."""
    fabric = load_any_fabric(name)
    asked = OfModel("gpt2", name, 4, 4, None, None)
    job = job_of(None, asked, example="")
    device = job.compute["device"]
    assert device == (fabric.device or "h100")
    assert device in {one["name"] for one in json.loads(_core.devices())}
    [said, *more] = job.assumed
    assert said.startswith(f"device: {device}, ")
    assert ("assumed" in said) is (fabric.device is None)
    assert [words.split(",")[0] for words in more] == (
        ["precision: fp16"] if device == "v100" else []
    )
    assert job.precision == ("fp16" if device == "v100" else "bf16")
    # What is asked for is not commented on.
    own = job_of(None, replace(asked, device="b200", precision="bf16"), example="")
    assert (own.compute["device"], own.precision, own.assumed) == ("b200", "bf16", ())


def test_machines_of_a_known_device_name_it():
    named = {name: load_any_fabric(name).device for name in preset_names()}
    machines = {"a100": "a100", "h100": "h100", "b200": "b200", "gb200": "gb200", "v100": "v100"}
    for word, device in {**machines, "v5p": "tpu_v5p", "dgx2": "v100"}.items():
        own = [device for name, device in named.items() if word in name.split("-")]
        own += [named["tpu-v5p-cube"]] if word == "v5p" else []
        assert set(own) == {device}, word


@pytest.mark.parametrize(
    ("npus", "said"),
    [
        (1, None),
        (2, None),
        (8, None),
        (12, "6 x 2 of 8 x 128"),
        (24, None),
        (96, None),
        (100, "5 x 20 of 8 x 128"),
        (1024, None),
    ],
)
def test_npus_that_do_not_fill_machines_are_told(npus, said):
    job = job_of(None, OfModel("gpt2", "dgx-h100", npus, None, None, "h100"), example="")
    assert len(job.assumed) == (said is not None)
    assert all(f": {said} are taken" in words for words in job.assumed)


def test_a_plan_says_which_device_it_took(allrail_cli, folder):
    short = ["--model", "gpt2", "--npus", "2", "--global-batch", "2", "--top", "1"]
    short += ["--schedules", "0"]
    told = allrail_cli("plan", *short, "--fabric", "v100-pcie", "--out", "b.yaml")
    assert told.status == 0, told.stderr
    assert "# device: v100, which the fabric `v100-pcie` names (--device)" in told.stdout
    assert "# precision: fp16, as v100 has no bf16 (--precision)" in told.stdout
    tree = yaml.safe_load((folder / "b.yaml").read_text())["workload"]
    assert (tree["compute"]["device"], tree["precision"]) == ("v100", "fp16")
    told = allrail_cli("plan", *short, "--fabric", "today", "--json")
    [note] = [one for one in json.loads(told.stdout)["notes"] if one.startswith("device: ")]
    assert note == "device: h100, assumed: the fabric `today` names none (--device)"
    # `require` takes the same, and its JSON is JSON.
    asked = ["--model", "gpt2", "--fabric", "dgx-a100", "--npus", "2", "--throughput", "0.5x-ideal"]
    notes = json.loads(allrail_cli("require", *asked, "--json").stdout)["notes"]
    assert "device: a100, which the fabric `dgx-a100` names (--device)" in notes
    assert notes[0].startswith("the recommended layout: ")


def test_a_fabric_s_device_is_one_that_is_known(folder):
    dimensions = [{"kind": "switch", "size": 4, "bandwidth": "25 GB/s", "latency": "2 us"}]
    (folder / "mine.yaml").write_text(yaml.safe_dump({"device": "h10", "dimensions": dimensions}))
    with pytest.raises(InputError, match="a preset of a device") as error:
        load_any_fabric("mine.yaml")
    assert "did you mean `h100`" in error.value.hint
