"""`allrail reproduce --all`: every publication, and one page of all numbers."""

from __future__ import annotations

import json

import pytest

from allrail_reproduce import everything
from allrail_reproduce.published import THIS_ROW, fitted, number
from allrail_reproduce.rows import Reproduction, Row


def small(*rows):
    return lambda _reference, _progress: Reproduction("a paper", list(rows), ["a note"])


@pytest.fixture
def parts(monkeypatch):
    """Two publications instead of the real ones."""
    made = fitted("a", to=THIS_ROW)
    some = {
        "one": small(
            Row("met", 1.0, number(1.01, "p. 3"), "s"), Row("out", 1.0, number(2.0, "p. 4"), "s")
        ),
        "other": small(
            Row("fit", 2.0, number(2.0, "Table 1"), "s", made=made), Row("own", 3.0, None, "s")
        ),
    }
    monkeypatch.setattr(everything, "PARTS", some)


@pytest.mark.usefixtures("parts")
def test_each_has_its_folder_and_all_have_one_page(tmp_path, allrail_cli):
    told = allrail_cli("reproduce", "--all", "--out", str(tmp_path / "all"))
    assert told.status == 1, "a row is out"
    lines = [line.split() for line in told.stdout.splitlines()]
    assert ["one", "2", "1", "1", "0", "0", "0", "0"] in lines
    assert ["other", "0", "0", "0", "0", "1", "0", "1"] in lines
    for place in ("", "one", "other"):
        assert (tmp_path / "all" / place / "report.html").exists()
    page = json.loads((tmp_path / "all" / "reproduction.json").read_text())
    assert [row["case"] for row in page["rows"]] == [
        "one: met",
        "one: out",
        "other: fit",
        "other: own",
    ]
    assert page["misses"] == ["one: out"]
    assert page["notes"] == ["one: a note", "other: a note"]


@pytest.mark.usefixtures("parts")
def test_json_is_one_object(allrail_cli):
    told = allrail_cli("reproduce", "--all", "--json")
    assert len(json.loads(told.stdout)["rows"]) == 4


def test_without_anything_it_says_what_there_is(allrail_cli):
    told = allrail_cli("reproduce")
    assert told.status == 0
    assert "--all" in told.stdout


def test_every_verb_is_one_of_all():
    """What `reproduce` can do, `--all` does, but for verdicts, which need tables of the user's."""
    from allrail_reproduce.command import command

    parts = {name.partition("-workloads")[0] for name in everything.PARTS}
    assert parts | {"verdicts"} == set(command.commands)


def test_runs_of_a_reference_folder_are_judged_like_published_numbers(tmp_path, monkeypatch):
    """The packaged example's first two runs, in a folder of somebody's."""
    from allrail_reproduce.runs import EXAMPLE

    lines = EXAMPLE.read_text().splitlines()
    (tmp_path / "training_runs.csv").write_text("\n".join(lines[:3]) + "\n")
    monkeypatch.setenv("ALLRAIL_REFERENCE", str(tmp_path))
    found = everything.PARTS["runs"](everything.reference_folder(None), None)
    assert len(found.rows) == 2
    for row in found.rows:
        assert row.published is not None
        assert row.ok == (row.ours is not None and abs(row.difference) <= row.within)
