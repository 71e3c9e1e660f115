"""Mistakes in the job file: one error that names file, line and key, and says what to do."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest

from allrail import _core
from allrail.base.errors import InputError
from allrail.results.plans import Plan
from allrail.runtime.job import find_job

TWO = "{kind: switch, size: 2, bandwidth: 1 Gb/s, latency: 50 us}"
FABRIC = f"fabric: {{dimensions: [{TWO}, {TWO}]}}\n"

TABLE = Path(__file__).with_name("job.txt").read_text()
ROWS = re.findall(r"(?ms)^\$ cat allrail.yaml\n(.+?)^error: (.+?\n\nhint: .+?)$", TABLE)


def test_the_table_is_read_whole():
    assert len(ROWS) == TABLE.count("error: ") == 21
    assert len(set(ROWS)) == 21


def write(folder, text, *, fabric=FABRIC):
    path = folder / "allrail.yaml"
    path.write_text(f"schema_version: 1\n{text}\n{fabric}")
    return path


def refused(folder, text, *, fabric=FABRIC, **here):
    with pytest.raises(InputError) as caught:
        find_job(write(folder, text, fabric=fabric)).settings(**{"rank": 0, "ranks": 4, **here})
    return caught.value


@pytest.mark.parametrize(("text", "answered"), ROWS, ids=[text.strip() for text, _ in ROWS])
def test_a_mistake_in_the_file_is_an_error(text, answered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = str(refused(Path(), text.rstrip("\n")))
    open_ended = answered.endswith(" ...")
    assert said.startswith(answered[:-3]) if open_ended else said == answered


# What `schedule.algorithms` says, what the message names, what the hint does.
ALGORITHMS = [
    ("[rings, ring]", "`schedule.algorithms", "ring"),
    ("best", "`schedule.algorithms`", "`[...]`"),
    ("3", "neither `auto` nor", "`[...]`"),
    ("[auto]", "`schedule.algorithms`", "dimension"),
    ("[auto, rng]", "`rng`", "double_binary_tree"),
    ("[ring]", "`schedule.algorithms", "dimension"),
]


@pytest.mark.parametrize(("algorithms", "named", "hint"), ALGORITHMS)
def test_algorithms_that_are_none(algorithms, named, hint, tmp_path):
    error = refused(tmp_path, f"schedule: {{algorithms: {algorithms}}}")
    assert "allrail.yaml:2: " in error.message
    assert named in error.message
    assert hint in error.hint


def test_the_fabric_is_of_another_size(tmp_path):
    error = refused(tmp_path, "", ranks=8)
    assert "`fabric` is `2×2`: it joins 4 ranks, and this job has 8" in error.message
    assert "start 4 processes" in error.hint


def test_the_fabric_is_wrong_in_itself(tmp_path):
    fabric = "fabric:\n  dimensions:\n    - {kind: star, size: 4}\n"
    error = refused(tmp_path, "", fabric=fabric)
    assert "allrail.yaml:5: `fabric.dimensions[0].kind`" in error.message
    error = refused(tmp_path, "", fabric="fabric: tutorial-8x8x\n")
    assert "`fabric` is `tutorial-8x8x`" in error.message
    assert "tutorial-8x8x8" in error.hint


def test_ranks_on_several_hosts_need_a_network_and_a_secret(tmp_path):
    error = refused(tmp_path, "", one_host=False)
    assert "`interfaces`" in error.message
    assert "interfaces: [eth0]" in error.hint
    # Not an address of this machine: nobody has bound it yet.
    error = refused(tmp_path, "interfaces: [203.0.113.7]", one_host=False)
    assert "`secret`" in error.message
    assert "openssl rand -hex 32" in error.hint


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = find_job(write(tmp_path, f"port: {port}")).settings(rank=0, ranks=4)
        with pytest.raises(_core.InputError) as caught:
            _core.Node(json.dumps(settings))
    told = json.loads(caught.value.args[0])
    assert told["value"] == f"127.0.0.1:{port}"
    assert "another process listens there" in told["why"]
    assert "leave it out" in told["hint"]


SECRETS = [
    ("missing", None, "No such file"),
    ("a folder", "folder", "Is a directory"),
]


@pytest.mark.parametrize(("name", "kind", "why"), SECRETS, ids=[row[0] for row in SECRETS])
def test_a_secret_that_cannot_be_read(name, kind, why, tmp_path, monkeypatch):
    monkeypatch.delenv("ALLRAIL_SECRET_FILE", raising=False)
    if kind == "folder":
        (tmp_path / "mine").mkdir()
    job = find_job(write(tmp_path, "secret: mine"))
    with pytest.raises(InputError) as caught:
        job.secret()
    assert "allrail.yaml:2: `secret`" in caught.value.message
    assert why in caught.value.message
    monkeypatch.setenv("ALLRAIL_SECRET_FILE", str(tmp_path / "other"))
    with pytest.raises(InputError, match="`ALLRAIL_SECRET_FILE`"):
        job.secret()


def test_a_secret_is_long_and_its_owner_s_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("ALLRAIL_SECRET_FILE", raising=False)
    job = find_job(write(tmp_path, "secret: mine"))
    secret = tmp_path / "mine"
    secret.write_text("5a" * 32 + "\n")
    secret.chmod(0o644)
    with pytest.warns(RuntimeWarning, match="chmod 600"):
        assert job.secret() == "5a" * 32
    secret.chmod(0o600)
    secret.write_text("5a")
    for text, why in [("5a", "guessed"), ("not hex" * 9, "characters"), ("", "guessed")]:
        secret.write_text(text)
        with pytest.raises(InputError) as caught:
            job.settings(rank=0, ranks=4, secret=job.secret())
        assert "`secret`" in caught.value.message
        assert why in caught.value.message
        assert "5a5a" not in str(caught.value)


def a_plan(folder, fabric=FABRIC, size="16 MiB"):
    scenario = folder / "scenario.yaml"
    text = f"collective: {{kind: all_reduce, size: {size}}}\nschedule: {{chunks: 4}}\n"
    scenario.write_text(f"schema_version: 1\n{fabric}{text}")
    import allrail

    allrail.plan(scenario).save(folder / "plan.json")


def test_a_plan_for_another_fabric(tmp_path):
    a_plan(tmp_path, FABRIC.replace("1 Gb/s", "2 Gb/s"))
    error = refused(tmp_path, "plan: plan.json")
    assert "allrail.yaml:2: `plan.fabric.dimensions[0].bandwidth`" in error.message
    assert "allrail plan" in error.hint


def test_a_plan_for_another_number_of_ranks(tmp_path):
    a_plan(tmp_path, f"fabric: {{dimensions: [{TWO.replace('2', '8', 1)}]}}\n")
    error = refused(tmp_path, "plan: plan.json")
    assert "`plan.fabric` is `8`" in error.message
    assert "2×2 = 4" in error.message
    error = refused(tmp_path, "plan: plan.json", fabric="")
    assert "joins 8 ranks, and this job has 4" in error.message


def test_a_plan_that_is_none(tmp_path):
    assert "there is no such file" in refused(tmp_path, "plan: plan.json").message
    a_plan(tmp_path)
    tree = Plan.load(tmp_path / "plan.json").to_dict()
    for change, why in [({"schema_version": 2}, "2"), ({"plans": 3}, "malformed")]:
        (tmp_path / "plan.json").write_text(json.dumps(tree | change))
        error = refused(tmp_path, "plan: plan.json")
        assert why in error.message
        assert "plan.json" in str(error)
        assert "allrail plan" in error.hint


def test_where_the_file_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ALLRAIL_JOB", raising=False)
    chunks = lambda: find_job().settings(rank=0, ranks=4)["chunks"]  # noqa: E731
    assert chunks() == 16
    write(tmp_path, "schedule: {chunks: 3}")
    assert chunks() == 3
    (tmp_path / "other.yaml").write_text("schema_version: 1\nschedule: {chunks: 5}\n")
    monkeypatch.setenv("ALLRAIL_JOB", "other.yaml")
    assert chunks() == 5
    given = find_job({"schema_version": 1, "schedule": {"chunks": 7}})
    assert given.settings(rank=0, ranks=4)["chunks"] == 7
    monkeypatch.setenv("ALLRAIL_JOB", "none.yaml")
    with pytest.raises(InputError, match="there is no such file"):
        find_job()


def test_a_fabric_and_a_plan_are_found_beside_the_file(tmp_path, monkeypatch):
    folder = tmp_path / "inner"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    (folder / "mine.yaml").write_text(f"dimensions: [{TWO}, {TWO}]\n")
    a_plan(folder)
    job = find_job(write(folder, "plan: plan.json", fabric="fabric: mine.yaml\n"))
    settings = job.settings(rank=3, ranks=4)
    assert [one["size"] for one in settings["dimensions"]] == [2, 2]
    assert settings["order"] == "planned"
    assert _core.parse_quantity("size", settings["partition"]) == 16 << 20
    assert len(settings["plans"]) == 1
    assert os.fspath(job.folder) == os.fspath(folder)
