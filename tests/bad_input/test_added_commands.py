"""Packages whose commands cannot be used: each is named, and all other commands work."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from allrail.cli import added
from allrail.cli.verbs import HELP, OWN, SEPARATE

ROOT = Path(__file__).parents[2]
GOOD = "import click\n\n\n@click.command()\ndef command():\n    click.echo('ran')\n"


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Installs packages: files of a distribution in a folder on the path."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, points, text=GOOD, about="what it does", declared=None):
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(text)
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        summary = "" if about is None else f"Summary: {about}\n"
        folder.joinpath("METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{summary}"
        )
        lines = [f"{point} = {module}:command" for point in points]
        declared = "\n".join(["[allrail.commands]", *lines]) if declared is None else declared
        folder.joinpath("entry_points.txt").write_text(f"{declared}\n", encoding="latin-1")
        added.points.cache_clear()

    yield install
    added.points.cache_clear()
    for module in set(sys.modules) - before:
        if module.startswith("pack_"):
            del sys.modules[module]


def listed(allrail_cli):
    told = allrail_cli("--help")
    assert told.status == 0, told.stderr
    section = told.stdout.partition("From other packages:\n")[2].partition("\n\n")[0]
    return dict(line.split(maxsplit=1) for line in section.splitlines())


def others_work(allrail_cli):
    assert allrail_cli("fabric", "list").status == 0
    assert allrail_cli("good").stdout == "ran\n"
    mistyped = allrail_cli("god")
    assert mistyped.status == 2
    assert "did you mean `good`?" in mistyped.stderr
    inner = allrail_cli("advise")  # looks into every command for one within it
    assert "`allrail fabric advise`" in inner.stderr


BROKEN = {
    "a module that is not there": ("import pack_nowhere\n", "No module named 'pack_nowhere'"),
    "a syntax error": ("def command(:\n", "SyntaxError"),
    "no such name": ("", "has no attribute 'command'"),
    "an error of its own": ("raise RuntimeError('first\\nsecond')\n", "RuntimeError: first\n"),
    "an exit": ("import sys\nsys.exit(7)\n", "SystemExit: 7"),
    "a function": ("def command():\n    pass\n", "not a `click.Command`, but of type `function`"),
    "a class": ("import click\ncommand = click.Command\n", "not a `click.Command`"),
    "nothing": ("command = None\n", "not a `click.Command`, but of type `NoneType`"),
    "a terminal's code": ("raise RuntimeError('\\x1b[2J')\n", "RuntimeError: \\x1b[2J"),
}


@pytest.mark.parametrize(("text", "why"), BROKEN.values(), ids=BROKEN)
def test_a_package_that_cannot_be_used(packages, allrail_cli, text, why):
    packages("pack-good", ["good"])
    packages("pack-bad", ["bad"], text)
    assert listed(allrail_cli)["bad"] == "what it does"
    for words in (["bad"], ["bad", "--help"], ["help", "bad"]):
        told = allrail_cli(*words)
        assert (told.status, told.stdout) == (2, "")
        error, blank, hint = told.stderr.splitlines()
        assert error.startswith("error: allrail bad: ")
        assert "`pack-bad`" in error
        assert why in f"{error}\n"
        assert blank == ""
        assert "uninstall pack-bad`" in hint
    others_work(allrail_cli)


@pytest.mark.parametrize("name", ["simulate", "import", HELP])
def test_a_name_of_allrails_own_is_not_taken(packages, allrail_cli, name):
    before = allrail_cli(name, "--help").stdout
    packages("pack-good", ["good"])
    packages("pack-taker", [name], "raise RuntimeError('imported')\n")
    assert listed(allrail_cli)[name] == "not available: allrail has it, as does `pack-taker`"
    assert allrail_cli(name, "--help").stdout == before
    assert added.names().count(name) == 0
    others_work(allrail_cli)


def test_of_two_packages_with_one_name_neither_is_used(packages, allrail_cli):
    packages("pack-good", ["good"])
    packages("pack-one", ["mine"], "raise RuntimeError('imported')\n")
    packages("pack-two", ["mine"], "raise RuntimeError('imported')\n")
    both = {"`pack-one` and `pack-two`", "`pack-two` and `pack-one`"}
    said = listed(allrail_cli)["mine"]
    assert said in {f"not available: {pair} each add it" for pair in both}
    told = allrail_cli("mine")
    assert told.status == 2
    assert any(f"several packages add it: {pair}" in told.stderr for pair in both)
    assert "uninstall pack-" in told.stderr
    others_work(allrail_cli)


def test_a_package_twice_on_the_path_is_one(packages, allrail_cli, tmp_path, monkeypatch):
    """The first is taken, as imports do: a checkout before what is installed."""
    packages("pack-good", ["good"])
    second = tmp_path / "second" / "Pack.Good-2.0.dist-info"
    second.mkdir(parents=True)
    second.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: Pack.Good\nVersion: 2.0\n")
    second.joinpath("entry_points.txt").write_text("[allrail.commands]\ngood = pack_other:no\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(second.parent)])
    added.points.cache_clear()
    others_work(allrail_cli)


@pytest.mark.parametrize(
    ("about", "shown"),
    [
        (None, "`pack-good`"),
        ("word " * 40, "word word word word word word word word word word word word wor..."),
        ("\x1b[31mred", "\\x1b[31mred"),
    ],
    ids=["none", "long", "a terminal's code"],
)
def test_a_summary_is_one_line_of_the_page(packages, allrail_cli, about, shown):
    packages("pack-good", ["good"], about=about)
    assert listed(allrail_cli)["good"] == shown
    others_work(allrail_cli)


@pytest.mark.parametrize(
    "declared", ["allrail.commands", "[allrail.commands]\nno value", "\x00", "\xff"]
)
def test_a_file_of_entry_points_that_is_none_hides_no_other(packages, allrail_cli, declared):
    packages("pack-good", ["good"])
    packages("pack-bad", [], declared=declared)
    packages("pack-odd", ["odd"], declared="[allrail.commands]\nodd = no ! module")
    assert listed(allrail_cli).keys() >= {"good", "odd"}
    assert "`pack-odd` cannot be imported" in allrail_cli("odd").stderr
    others_work(allrail_cli)


def test_without_its_package_reproduce_says_what_to_install(allrail_cli, monkeypatch):
    monkeypatch.setattr(added, "points", dict)
    for words in (["reproduce"], ["reproduce", "themis"], ["help", "reproduce"]):
        told = allrail_cli(*words)
        assert (told.status, told.stdout) == (2, "")
        error, _, hint = told.stderr.splitlines()
        assert error.endswith("`allrail-reproduce`, which adds this command, is not installed")
        assert hint.endswith("install ./reproduce`")
    assert "reproduce" not in allrail_cli("--help").stdout


@pytest.mark.parametrize("name", SEPARATE)
def test_a_separate_package_is_in_the_folder_that_its_hint_names(name):
    project = tomllib.loads((ROOT / name / "pyproject.toml").read_text())["project"]
    assert project["name"] == SEPARATE[name]
    assert list(project["entry-points"][added.GROUP]) == [name]
    assert name not in OWN
