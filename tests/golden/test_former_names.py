"""A name of before is refused with the name of today; words of other tools are understood."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import allrail
from allrail.output.schemas import schema
from allrail.scenario.fields import names, table
from allrail.scenario.former import MOVED, RENAMED
from allrail.scenario.keys.compat import Compat

COLLECTIVE = {
    "schema_version": 1,
    "fabric": "2D-SW_SW",
    "collective": {"kind": "all_reduce", "size": "1 MB"},
}
STEP = {
    "schema_version": 1,
    "fabric": "2D-SW_SW",
    "network_model": "dims",
    "workload": {
        "model": "vgg16",
        "batch_per_replica": 1,
        "precision": "fp16",
        "parallelism": {"dp": 1024},
        "compute": {"device": "a100", "efficiency": 0.5},
    },
}
TRAFFIC = {"pattern": "uniform", "size": "1 MiB"}


def refused(scenario):
    with pytest.raises(allrail.InputError) as told:
        allrail.load_scenario(scenario)
    return told.value


def former(of):
    """Pairs of a name before and the name of today."""
    pairs = [(row["formerly"], row["name"]) for row in table(of) if row.get("formerly")]
    assert pairs
    return pairs


@pytest.mark.parametrize(("before", "now"), former("policies"))
def test_a_chunk_scheduler(before, now):
    error = refused({**COLLECTIVE, "schedule": {"policy": before}})
    assert (error.field, error.hint) == ("schedule.policy", f"it was renamed: write `{now}`")
    assert before not in names("policies")
    allrail.load_scenario({**COLLECTIVE, "schedule": {"policy": now}})


@pytest.mark.parametrize(("before", "now"), former("coordinations"))
@pytest.mark.parametrize("form", [str, lambda name: {"policy": name}], ids=["name", "mapping"])
def test_a_coordination(before, now, form):
    error = refused({**STEP, "schedule": {"coordination": form(before)}})
    assert error.hint == f"it was renamed: write `{now}`"
    scenario = allrail.load_scenario({**STEP, "schedule": {"coordination": form(now)}})
    assert scenario.schedule.coordination == {"policy": now}


@pytest.mark.parametrize(("before", "now"), RENAMED.items())
def test_a_key(before, now, allrail_cli, tmp_path):
    """In a file, an override and a grid; the name of today is a key, the one before is none."""
    text = json.dumps(schema("scenario"))
    assert f'"{now}"' in text
    assert f'"{before}"' not in text
    file = tmp_path / "s.yaml"
    path = f"workload.{before}" if now in STEP["workload"] else before
    value = {**STEP, **STEP["workload"]}[now]
    file.write_text(yaml.safe_dump(STEP).replace(f"{now}:", f"{before}:"))
    line = next(
        number
        for number, text in enumerate(file.read_text().splitlines(), 1)
        if f"{before}:" in text
    )
    told = allrail_cli("simulate", str(file))
    assert told.status == 2
    where = f"error: {file}:{line}: `{path}` is `{value}`"
    hint = f"hint: it was renamed: write `{now}`"
    assert told.stderr == f"{where}: there is no such key\n\n{hint}\n"
    file.write_text(yaml.safe_dump(STEP))
    assert hint in allrail_cli("simulate", str(file), "--set", f"{path}={value}").stderr
    if now not in STEP["workload"]:
        return
    model = {"layers": [{"name": "a", "parameters": 1, "flops": 1}]}
    file = tmp_path / "model.yaml"
    file.write_text(yaml.safe_dump({"model": model, "defaults": {before: 1}}))
    error = refused({**STEP, "workload": {**STEP["workload"], "model": str(file)}})
    assert error.hint == f"it was renamed: write `{now}`"


@pytest.mark.parametrize(
    ("place", "before"), [(place, key) for place, keys in MOVED.items() for key in keys]
)
def test_a_key_that_moved(place, before):
    value = {before: {"algorithms": {}} if before == "groups" else "queue"}
    error = refused({**STEP, place: {**STEP.get(place, {}), **value}})
    assert (error.field, error.why) == (f"{place}.{before}", "there is no such key")
    now = error.hint.removeprefix("it was renamed: write `").removesuffix("`")
    top, key = now.split(".")
    assert (top, key in Compat.model_fields) == ("compat", True)


OTHER = [
    ({"world": "dims"}, "world", "it was renamed: write `network_model`"),
    ({"backend": "links"}, "backend", "did you mean `network_model`?"),
    ({"topology": "2D-SW_SW"}, "topology", "did you mean `fabric`?"),
    ({"training": {"model": "vgg16"}}, "training", "did you mean `workload`?"),
    ({"collectives": {}}, "collectives", "did you mean `collective`?"),
    ({"scheduler": {"policy": "themis"}}, "scheduler", "did you mean `schedule`?"),
    ({"policy": "themis"}, "policy", "did you mean `schedule.policy`?"),
    ({"parallelism": {"dp": 8}}, "parallelism", "did you mean `workload.parallelism`?"),
    ({"seeds": 3}, "seeds", "did you mean `seed`?"),
    ({"job": "training"}, "job", "its own key: `collective`, `workload` or `traffic`"),
    ({"kind": "collective"}, "kind", "its own key: `collective`, `workload` or `traffic`"),
    (
        {"inference": {}},
        "inference",
        "a job is one of `collective`, `workload` or `traffic`;",
    ),
    ({"zzz": 1}, "zzz", "the keys here are: `schema_version`, `fabric`"),
]


@pytest.mark.parametrize(("more", "field", "hint"), OTHER, ids=[one[1] for one in OTHER])
def test_a_word_for_a_key(more, field, hint):
    for base in (COLLECTIVE, {"schema_version": 1, "fabric": "2D-SW_SW"}):
        error = refused({**base, **more})
        assert (error.why, error.field) == ("there is no such key", field)
        assert hint in error.hint


@pytest.mark.parametrize(
    ("tree", "field", "hint"),
    [
        ({"dp": 8}, "workload.dp", "did you mean `workload.parallelism.dp`?"),
        ({"batch": 8}, "workload.batch", "did you mean"),
        ({"network_model": "dims"}, "workload.network_model", "did you mean `network_model`?"),
    ],
)
def test_a_key_at_another_place(tree, field, hint):
    error = refused({**STEP, "workload": {**STEP["workload"], **tree}})
    assert error.field == field
    assert hint in error.hint


JOBS = {
    "collective": COLLECTIVE["collective"],
    "traffic": TRAFFIC,
    "workload": STEP["workload"],
}


@pytest.mark.parametrize("broken", [False, True], ids=["whole", "broken"])
@pytest.mark.parametrize("fabric", ["2D-SW_SW", "hx2mesh-1k"])
@pytest.mark.parametrize(
    ("one", "other"),
    [("collective", "traffic"), ("collective", "workload"), ("traffic", "workload")],
)
def test_two_jobs_in_one_file(one, other, fabric, broken, allrail_cli, tmp_path):
    """Whatever else is wrong with either: which of them is meant comes first."""
    job = {"nonsense": 1} if broken else JOBS[other]
    file = tmp_path / "two.yaml"
    parts = {"schema_version": 1, "fabric": fabric, one: JOBS[one], other: job}
    file.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in parts.items()))
    told = allrail_cli("simulate", str(file))
    why = f"error: {file}:4: `{other}`: a scenario has either `{one}` or `{other}`\n"
    assert (told.status, told.stderr) == (2, f"{why}\nhint: leave one of them out\n")
    assert f"a scenario has either `{one}`" in str(refused(parts))


@pytest.mark.parametrize(
    ("fabric", "field", "example"),
    [
        ("2D-SW_SW", "collective", "collective: {kind: all_reduce, size: 1 GiB}"),
        ("hx2mesh-1k", "traffic", "traffic: {pattern: all_to_all, size: 1 MiB}"),
    ],
)
def test_no_job(fabric, field, example, tmp_path):
    error = refused({"schema_version": 1, "fabric": fabric})
    assert (error.field, error.why) == (field, "it is missing")
    assert "`collective`, `workload` or `traffic`" in error.hint
    assert f"`{example}`" in error.hint
    allrail.load_scenario({"schema_version": 1, "fabric": fabric, **yaml.safe_load(example)})


def test_a_part_of_a_job_that_is_missing_is_explained_for_its_place():
    error = refused({**COLLECTIVE, "collective": {}})
    assert (error.field, error.hint) == ("collective.kind", "for example `kind: all_reduce`")
    error = refused({**COLLECTIVE, "fabric": {"dimensions": [{"size": 8}]}})
    assert "a `ring`" in error.hint


def test_no_tracked_scenario_uses_a_name_of_before():
    root = Path(allrail.__file__).parents[2]
    for folder in ("examples", "docs", "python/allrail/presets"):
        for path in (root / folder).rglob("*"):
            if path.suffix in {".yaml", ".md"}:
                text = path.read_text(encoding="utf-8")
                assert not [before for before in RENAMED if before in text], path
