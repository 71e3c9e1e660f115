"""Every number that the five sources print has a row, or a reason why it needs none.

`benches/published` compares a folder of reference files with the rows of `reproduce`; here it must
find nothing, and find what is put in or taken out.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from reference import reference

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benches"))

from published import ledger, rows, sources  # noqa: E402

BOOK = ledger.read()


@pytest.fixture(scope="module")
def folder():
    return reference("hammingmesh.json").parent


@pytest.fixture(scope="module")
def claims(tmp_path_factory):
    """Without the reference, whose ASTRA-sim cases have rows of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("ALLRAIL_REFERENCE", raising=False)
        return rows.of_code(None)


@pytest.fixture(scope="module")
def whole(folder, claims):
    return claims | rows.of_cases(folder)


def test_no_number_is_without_a_row(folder, whole):
    found = ledger.compare(folder, whole, BOOK)
    assert found.without == []
    assert found.wrong == []
    assert {"bytescheduler.md", "horovod.md", "themis.md", "hammingmesh.json"} <= set(found.counts)
    assert all(found.counts[name]["rows"] for name in found.counts if name.endswith("m.json"))


def test_what_has_no_number_of_ours_says_which_input_is_missing(claims):
    missing = {case: claim.why for case, claim in claims.items() if not claim.computed}
    assert set(missing) == {
        "astra-sim: tutorial 3-1, themis + SCF, every NPU simulated",
        "horovod: ahead of tf.distribute, 1536 GPUs",
        "horovod: ahead of BytePS, 768 GPUs",
    }
    assert all(why.startswith("missing: ") for why in missing.values())


def copy(folder, tmp_path):
    """The files of the sources, to be edited."""
    for name in BOOK["sources"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(folder / name, tmp_path / name)
    return tmp_path


def test_a_number_more_in_a_text_is_noticed(folder, whole, tmp_path):
    """Wherever it stands, also under a heading whose numbers are no results."""
    edited = copy(folder, tmp_path)
    headings = []
    for name in BOOK["sources"]:
        if name.endswith(".md"):
            lines = []
            for line in (edited / name).read_text().splitlines():
                lines.append(line)
                if line.startswith("#"):
                    headings.append(f"{name}, {line.lstrip('# ')}: ")
                    lines.append("It gains 3.375 times.")
            (edited / name).write_text("\n".join(lines) + "\n")
    told = ledger.compare(edited, whole, BOOK).without
    assert len(headings) > 15
    for heading in headings:
        assert any(one.startswith(heading) for one in told), heading


def test_a_number_more_in_data_is_noticed(folder, whole, tmp_path):
    edited = copy(folder, tmp_path)
    tree = json.loads((edited / "hammingmesh.json").read_text())
    tree["table2_published"]["small"]["hx2mesh"][1] = 25.375
    tree["workloads"]["dlrm"]["runtime_ms"]["hx2mesh"] = 2.375
    tree["new"] = {"of the paper": 1.375}
    (edited / "hammingmesh.json").write_text(json.dumps(tree))
    cases = json.loads((edited / "astra-sim" / "expected.json").read_text())
    cases["cases"].append({"name": "another", "time_us": 7.375})
    (edited / "astra-sim" / "expected.json").write_text(json.dumps(cases))
    (edited / "another.md").write_text("It is 1.375 times as fast.\n")
    told = "\n".join(ledger.compare(edited, whole, BOOK).without)
    for number in ("25.375", "2.375", "1.375", "7.375", "another.md"):
        assert number in told


def test_a_row_less_is_noticed(folder, whole):
    gone = {
        "themis-workloads: GNMT, ideal largest speed-up": "1.81",
        "themis: mean utilisation, baseline": "56.31",
        "astra-sim: tutorial 3-1, baseline, ideal time": "13307.292",
        "horovod: STEMDL, cached, 1 ms, grouped, 27600 ranks, peak": "2.15",
        "hammingmesh: small 2D torus, cost": "2.5",
    }
    less = {name: claim for name, claim in whole.items() if name not in gone}
    assert len(less) == len(whole) - len(gone)
    told = ledger.compare(folder, less, BOOK).without
    for number in gone.values():
        assert any(f": {number}: no row" in one for one in told), number


def test_a_number_that_nobody_prints_is_noticed(folder, whole):
    claim = rows.Claim((1.375,), "ISCA'22, p. 1", computed=True, why="")
    found = ledger.compare(folder, whole | {"themis: of our own": claim}, BOOK)
    assert found.wrong == ["themis: of our own: 1.375 stands in no file, and `beyond` has no place"]


def test_what_is_a_number():
    text = (
        "VGG16 gains 7.8x, 97–125 % (SC'22, GPT-3, Hx2), of 1,024 NPUs .98 and 112.5M, 5..8, 4x4."
    )
    assert sources.NUMBER.findall(text) == ["7.8", "97", "125", "1,024", ".98", "112.5", "5", "8"]
    assert sources.value_of("1,024.5") == 1024.5


def test_every_pattern_of_the_ledger_is_of_a_row(claims):
    """Also where the reference is not at hand."""
    entries = [
        entry
        for file, places in BOOK["sources"].items()
        if not file.endswith(".json")
        for some in places.values()
        for entry in some
    ]
    for entry in [*entries, *BOOK["beyond"]]:
        asked = entry.get("rows", [])
        for pattern in [asked] if isinstance(asked, str) else asked:
            assert any(ledger._like(case, pattern) for case in claims), pattern
