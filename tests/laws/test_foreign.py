"""Text that others wrote: what shows it acts on nothing in it.

Names with control characters, marks that turn text round and formulas go through every way to a
person: errors, tables, JSON, CSV, reports, pictures.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import unicodedata
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allrail
from allrail.base.errors import InputError, TrainingError
from allrail.base.foreign import cell, in_json, printable
from allrail.output import write_results
from allrail.output.frames import write_frame

EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\x9b31m\u202eexe.\u2066\u200b\x00\x7f\ud800<b>&$x^{"
NAMED = EVIL.replace("\x00", "").replace("\ud800", "")
"""What a scenario may hold: YAML and Unicode have neither."""


def harmful(text: str, *, lines: bool = False) -> list[str]:
    kept = "\n\t" if lines else ""
    return [
        character
        for character in text
        if character not in kept
        and (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
            or unicodedata.bidirectional(character)
            in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        )
    ]


@given(st.text(alphabet=st.characters(codec=None)))
def test_printable_text_has_nothing_that_acts_and_the_rest_as_it_was(text):
    shown = printable(text)
    assert harmful(shown) == []
    assert harmful(printable(text, lines=True), lines=True) == []
    shown.encode()
    if not harmful(text) and not re.search("[\u061c\u200b\u200e\u200f\u2060\ufeff]", text):
        assert shown == text


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_has_the_same_values_and_nothing_that_acts(tree):
    text = in_json(json.dumps(tree, ensure_ascii=False, indent=1))
    assert harmful(text, lines=True) == []
    assert json.loads(text) == tree


NUMBERS = ["-1.5", "+3", "-1e-9", "-0", "-.5", "-12%", "-", "inf", "-inf", "nan"]
FORMULAS = [
    *("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "=-1", "--1"),
    *("-1.5.2", "-1e", "+1 2", "\uff1d1+1", "-inf()", "=nan"),
]


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_stay_numbers(text):
    assert cell(text) == text


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_becomes_text(text):
    assert cell(text) == f"'{text}"


@given(st.lists(st.text(alphabet="=+-@\t\r\n0123456789.e%infa ,'\""), min_size=1))
def test_a_table_and_a_single_cell_follow_one_rule(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("csv")
    frame = pl.DataFrame({"text": texts, "number": [-1.5] * len(texts)})
    write_frame(frame, folder=folder, name="t")
    with (folder / "t.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows[1:]] == [cell(text) for text in texts]
    assert {row[1] for row in rows[1:]} == {"-1.5"}
    assert pl.read_parquet(folder / "t.parquet").equals(frame)
    assert not any(re.match(r"[=+\-@\t\r]", row[0]) for row in rows[1:] if not _is_number(row[0]))


def _is_number(text):
    return re.fullmatch(r"[+-]?[\d.]*(e[+-]?\d+)?%?|[+-]|[+-]?(inf|nan)", text) is not None


def test_errors_show_it():
    for error in (
        InputError(EVIL, hint=EVIL, source=EVIL, field=EVIL, value=EVIL),
        TrainingError(EVIL, field=EVIL, hint=EVIL),
    ):
        lines = str(error).split("\n\nhint: ")
        assert len(lines) == 2
        assert harmful("".join(lines)) == []
        assert "\\x1b" in lines[0]
        assert "\\u202e" in lines[1]


SCENARIO = {
    "schema_version": 1,
    "fabric": {
        "name": NAMED,
        "dimensions": [{"kind": "ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 us"}],
    },
    "collective": {"kind": "all_reduce", "size": "1 MB"},
    "schedule": {"policy": "baseline", "chunks": 2},
}


def test_commands_print_it(folder, allrail_cli):
    (folder / "s.json").write_text(json.dumps(SCENARIO))
    (folder / "wrong.json").write_text(json.dumps(SCENARIO | {NAMED: 1}))
    (folder / "w2.json").write_text(json.dumps({**SCENARIO, "schedule": {"policy": NAMED}}))
    for words in (
        ("simulate", "s.json"),
        ("simulate", "s.json", "--json"),
        ("compare", "s.json", "--policy", "baseline,themis"),
        ("simulate", "wrong.json"),
        ("simulate", "w2.json"),
        ("simulate", "s.json", "--set", f"{NAMED}=1"),
        (NAMED,),
        ("simulate", NAMED),
        ("simulate", "s.json", f"--{NAMED}"),
    ):
        outcome = allrail_cli(*words)
        assert harmful(outcome.stdout, lines=True) == [], words
        assert harmful(outcome.stderr, lines=True) == [], words
        assert "owned" in outcome.stderr or "s.json" in words[1:2], words


def test_reports_pictures_and_tables_show_it(tmp_path):
    scenario = allrail.load_scenario(SCENARIO)
    name = f"={NAMED}"
    result = allrail.simulate(scenario, timeline=True, cache=False)
    write_results(tmp_path / "out", results={name: result}, scenarios={name: scenario})
    page = (tmp_path / "out" / "report.html").read_text()
    assert harmful(page, lines=True) == []
    assert "<b>&" not in page
    for picture in (tmp_path / "out").glob("*.svg"):
        text = picture.read_text()
        assert harmful(text, lines=True) == [], picture
        ET.fromstring(text)
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[1][0] == f"'{name}"
    assert harmful(result._repr_html_(), lines=True) == []


def test_words_of_a_peer_are_escaped_in_warnings_and_tracebacks():
    script = (
        "import json\n"
        "from allrail.runtime.nodes import raise_from, warn_of\n"
        f"evil = {EVIL!r}\n"
        "class Node:\n"
        "    def take_warnings(self): return [evil]\n"
        "warn_of(Node())\n"
        "raise_from(RuntimeError(json.dumps({'what': evil, 'tensor': evil, 'hint': evil})))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    told = io.TextIOWrapper(io.BytesIO(done.stderr), encoding="utf-8").read()
    shown = "".join(line for line in told.splitlines(keepends=True) if "evil = " not in line)
    assert "TrainingError" in shown
    assert harmful(shown, lines=True) == []
