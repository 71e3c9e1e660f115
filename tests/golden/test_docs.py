"""The documentation's links lead somewhere, every page is listed, and the site builds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import allrail
from functions import COMMANDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


commands = load("commands")
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*/README.md")])
FENCE = re.compile(r"^(```+|~~~+).*?^\1$", re.MULTILINE | re.DOTALL)


def name(page):
    return str(page.relative_to(ROOT))


@cache
def anchors(page):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    found = []
    for heading in re.findall(r"^#{1,6} (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        again = sum(one == slug or re.fullmatch(rf"{slug}-\d+", one) is not None for one in found)
        found.append(f"{slug}-{again}" if again else slug)
    return set(found)


def links(page):
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    return [one for one in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in one]


def wrong(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_file():
            yield f"{link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert list(wrong(page)) == []


def test_a_wrong_link_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`: three\n\n[a](#one-two-three) [b](#four) [c](no.md) [d](page.md#one)\n\n"
        "```text\n# no heading\n[e](gone.md)\n```\n"
    )
    assert [one.split(":")[0] for one in wrong(page)] == ["#four", "no.md", "page.md#one"]


def test_every_page_is_in_the_index():
    index = DOCS / "README.md"
    listed = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    assert set(PAGES) - listed == {index}


TOPS = ("crates", "docs", "python", "reproduce", "tests")
LINES = {"README.md": 150, "ARCHITECTURE.md": 200, "CONTRIBUTING.md": 150, "CHANGELOG.md": 60}
"""How long the pages at the root may be: who opens one reads it whole."""


@pytest.mark.parametrize("name", LINES)
def test_pages_at_the_root_stay_short(name):
    assert len((ROOT / name).read_text().splitlines()) <= LINES[name]


def test_the_change_log_begins_with_the_version_of_the_tree():
    heading = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading[1].split()[0] == allrail.__version__


def test_readme_shows_a_picture_and_an_answer_that_is_checked():
    """What it prints is compared by test_commands, which leaves out what takes long."""
    text = (ROOT / "README.md").read_text()
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert len(pictures) == 1
    assert (ROOT / pictures[0]).stat().st_size < 200_000
    parts = [one for one in commands.parts(text) if isinstance(one, commands.Command)]
    shown = [one for one in parts if one.shown and not one.begins(commands.LONG | commands.NEVER)]
    assert [" ".join(one.text.split()[:2]) for one in shown] == ["allrail plan", "allrail apply"]


def test_the_glossary_has_forty_terms_at_most_each_explained_and_placed():
    rows = re.findall(
        r"^\| (.+) \| (.+) \| (.+) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE
    )
    terms = [term for term, *_ in rows[1:]]
    assert 0 < len(terms) <= 40
    assert len(set(terms)) == len(terms)
    assert all(len(meaning) > 20 and field.strip() for _, meaning, field in rows[1:])


def test_each_file_that_architecture_names_is_there():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    read = re.findall(r"^\d\. `([^`]+)`", text, re.MULTILINE)[:6]
    assert [path for path in read if not (ROOT / path).is_file()] == []
    rooms = re.findall(
        r"^\| (`[^|]+`) \|", text[text.index("| in `python/allrail`") :], re.MULTILINE
    )
    named = [one.strip("`/") for row in rooms for one in row.split(", ")]
    assert "torch" in named
    assert [one for one in named if not (ROOT / "python" / "allrail" / one).exists()] == []
    listed = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert {path.name for path in (ROOT / "crates").iterdir()} == set(listed)


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/extending/code.md"])
def test_each_source_that_a_page_names_is_there(page):
    sources = [one for top in TOPS for one in (ROOT / top).rglob("*.*")]
    there = {one.name for one in sources if one.suffix in {".py", ".rs"}}
    named = re.findall(r"`[\w./]*?(\w+\.(?:py|rs))`", (ROOT / page).read_text())
    assert len(named) > 20
    assert set(named) - there == set()


def test_each_table_of_results_has_a_target_and_a_verdict():
    """Tables without one have no target: schedules beside each other, and where it was tested."""
    text = (DOCS / "results.md").read_text()
    heads = re.findall(r"^(\|.*\|)\n\|[-|]+\|$", text, re.MULTILINE)
    judged = [head for head in heads if "target" in head]
    assert len(heads) - len(judged) == 2
    assert all("met?" in head for head in judged)
    assert all(re.search(r"measured|computed|mean error", head) for head in judged)


def test_the_python_reference_has_every_public_name():
    page = (DOCS / "reference" / "python.md").read_text()
    named, module = set(), ""
    for directive, what in re.findall(r"^\.\. (\w+):: ([\w.]+)", page, re.MULTILINE):
        if directive == "currentmodule":
            module = what
        elif directive.startswith("auto"):
            named.add(what if what.startswith("allrail.") else f"{module}.{what}")
    torch = (ROOT / "python" / "allrail" / "torch" / "__init__.py").read_text()
    exported = re.search(r"^__all__ = \[(.*?)\]", torch, re.MULTILINE | re.DOTALL)[1]
    public = {f"allrail.{one}" for one in allrail.__all__ if not one.startswith("__")}
    public |= {f"allrail.torch.{one}" for one in re.findall(r'"(\w+)"', exported)}
    for name, command in COMMANDS.items():  # of commands within commands
        space, _, inner = name.rpartition(" ")
        if hasattr(command.callback, "function") and space:
            public -= {f"allrail.{space}"}
            public |= {f"{getattr(allrail, space).__name__}.{inner}"}
    handle = "allrail.runtime.handle.Handle"
    # An error that both modules export stands with the errors.
    assert named - {handle} == public - {"allrail.torch.TrainingError"}


@pytest.mark.skipif(importlib.util.find_spec("furo") is None, reason="needs the extra `docs`")
def test_the_site_builds_without_a_warning(tmp_path):
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs"]
    done = subprocess.run(
        [*sphinx, "-d", tmp_path / "trees", ".", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "docs/README.html" in (tmp_path / "site" / "index.html").read_text()
    # What only this run of Python knows is nobody's reference.
    assert " at 0x" not in (tmp_path / "site" / "docs" / "reference" / "python.html").read_text()
    # What is linked and no page comes along.
    assert list((tmp_path / "site" / "_downloads").rglob("scenario.schema.json"))
