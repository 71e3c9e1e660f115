"""A planted cycle, import, word and key are found; no page names a key that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allrail.base import late
from allrail.output.schemas import schema
from lint import (
    counts,
    graph,
    keys,
    layers,
    private_names,
    python_imports,
    rust_modules,
    sizes,
    words,
)

ROOT = Path(__file__).parents[2]


def written(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


BASE = {
    "one/__init__.py": "",
    "one/low.py": "import os\n",
    "one/a/__init__.py": "from one import low\n",
    "one/a/deep.py": "from . import other\n",
    "one/a/other.py": "",
    "one/b.py": "from one.a.deep import thing\n",
}


@pytest.mark.parametrize(
    ("planted", "cycle"),
    [
        ({}, None),
        ({"one/low.py": "def f():\n    from one.b import x\n"}, ["a", "b", "low"]),
        ({"one/a/other.py": "from ..b import x\n"}, ["a", "b"]),
        ({"one/a/other.py": "import one.b\n"}, ["a", "b"]),
        ({"one/a/other.py": "from one import b\n"}, ["a", "b"]),
    ],
    ids=str,
)
def test_a_cycle_of_rooms_is_found(tmp_path, planted, cycle):
    package = written(tmp_path, {**BASE, **planted}) / "one"
    arrows = python_imports.arrows(package)
    rooms = graph.folded(arrows, [(name, python_imports.room(name)) for name in arrows])
    assert graph.cycles(rooms) == ([] if cycle is None else [cycle])


def test_imports_for_type_checkers_count_where_asked(tmp_path):
    hidden = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from one.b import x\n"
    package = written(tmp_path, {**BASE, "one/a/other.py": hidden}) / "one"
    assert "one.b" not in python_imports.arrows(package)["one.a.other"]
    assert "one.b" in python_imports.arrows(package, types=True)["one.a.other"]


def test_a_function_imports_large_packages_alone(tmp_path):
    late = (
        "from one import b\n\n\ndef f():\n    import os\n    from one.a import deep\n"
        "    import torch.distributed\n    from . import low\n    import_module('json')\n"
    )
    package = written(tmp_path, {**BASE, "one/late.py": late, "one/autoload.py": late}) / "one"
    assert list(python_imports.in_functions(package)) == [
        ("one.late", "os"),
        ("one.late", "one.a"),
        ("one.late", "one"),
        ("one.late", "import_module('json')"),
    ]


def test_arrows_lead_to_modules_and_not_into_the_standard_library(tmp_path):
    arrows = python_imports.arrows(written(tmp_path, BASE) / "one")
    assert arrows["one.low"] == set()
    assert arrows["one.a.deep"] == {"one.a.other"}
    assert arrows["one.b"] == {"one.a.deep"}


RUST = {
    "lib.rs": "mod a;\nmod b;\nmod c;\npub use c::Shown;\n",
    "a.rs": "use crate::b::{Thing, deep::{Other as O}};\n",
    "b/mod.rs": "pub mod deep;\n",
    "b/deep.rs": "use std::fmt;\n",
    "c.rs": "pub struct Shown;\n",
}


@pytest.mark.parametrize(
    ("planted", "cycle"),
    [
        ({}, None),
        ({"b/deep.rs": "use crate::a::X;\n"}, ["a", "b::deep"]),
        ({"b/deep.rs": "fn f() { crate::a::g() }\n"}, ["a", "b::deep"]),
        ({"b/deep.rs": "use super::super::a;\n"}, ["a", "b::deep"]),
        ({"c.rs": "use crate::b::deep;\n", "b/deep.rs": "use crate::Shown;\n"}, ["b::deep", "c"]),
        ({"b/deep.rs": "// use crate::a::X;\n"}, None),
        ({"b/deep.rs": "#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n"}, None),
    ],
    ids=str,
)
def test_a_cycle_in_a_crate_is_found(tmp_path, planted, cycle):
    arrows = rust_modules.arrows(written(tmp_path, {**RUST, **planted}))
    assert graph.cycles(arrows) == ([] if cycle is None else [cycle])


HOUSE = {
    "python/allrail/__init__.py": "",
    "python/allrail/base/__init__.py": "",
    "python/allrail/base/errors.py": "",
    "python/allrail/output/__init__.py": "",
    "python/allrail/output/page.py": "from allrail.base import errors\n",
}


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({}, []),
        (
            {"python/allrail/base/low.py": "from allrail.output import page\n"},
            ["allrail.base.low imports allrail.output.page, which is above it"],
        ),
        (
            {"python/allrail/base/errors.py": "import allrail\n"},
            ["allrail.base.errors imports allrail, which is above it"],
        ),
        (
            {
                "python/allrail/output/a.py": "from allrail.output import b\n",
                "python/allrail/output/b.py": "from allrail.output import a\n",
            },
            ["Python: a cycle of 2 modules: allrail.output.a allrail.output.b"],
        ),
        (
            {"python/allrail/base/low.py": "def f():\n    import json\n"},
            ["allrail.base.low imports json in a function: put that at the top of the file"],
        ),
        (
            {"python/allrail/attic.py": ""},
            ["`attic` is not in `LAYERS` of tests/lint/layers.py"],
        ),
        (
            {
                "crates/core/src/lib.rs": "mod a;\nmod b;\n",
                "crates/core/src/a.rs": "use crate::b::B;\n",
                "crates/core/src/b.rs": "use crate::a::A;\n",
            },
            ["crates/core: a cycle of 2 modules: a b"],
        ),
    ],
    ids=str,
)
def test_what_breaks_the_layers_is_said(tmp_path, planted, said):
    assert list(layers.problems(written(tmp_path, {**HOUSE, **planted}))) == said


def test_imports_run_down_and_nothing_forms_a_cycle():
    assert list(layers.problems(ROOT)) == []


def test_what_is_called_by_name_is_there_and_in_a_room_above():
    modules = python_imports.modules(ROOT / "python" / "allrail")
    base = layers.LAYERS.index("base")
    for named in late.LATE.values():
        module, _, name = named.partition(":")
        text = modules[module].read_text(encoding="utf-8")
        assert re.search(rf"^(def|class) {name}\b", text, re.MULTILINE) or not name, named
        assert layers.LAYERS.index(python_imports.room(module)) > base


def test_pairs_and_groups_are_counted():
    arrows = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}, "e": set()}
    assert graph.cycles(arrows) == [["a", "b"], ["c", "d"]]
    assert graph.mutual(arrows) == [("a", "b"), ("c", "d")]


def test_a_banned_word_is_found_with_what_to_write():
    text = "The world is\nworld_size stays; actors, and MOST_SEEN\nwords and factors\n"
    found = list(words.hits(text, words.banned()))
    assert [(line, word) for line, word, _ in found] == [
        (1, "world"),
        (2, "actors"),
        (2, "MOST_SEEN"),
    ]
    assert found[0][2] == "network model"


def test_prose_has_no_code_and_no_targets_of_links():
    page = "one `world` [two](world.md)\n```text\nworld\n```\nworlds\n"
    assert [line for line, *_ in words.hits(words.prose(page), words.banned())] == [5]


PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")])


def name(page):
    return str(page.relative_to(ROOT))


PLANTED = (
    "`schedule.tensor.credit` `compute.device: a100` `job.yaml` `p.data` `timeouts.warn`\n"
    "`schedule.tensor.nope` `compute.nope`\n"
    "--set workload.nope=3 --each traffic.pattern=shift,incast `timeouts.nope`\n"
)


@pytest.fixture(scope="module")
def schemas():
    return [schema("scenario"), schema("job")]


def test_a_key_that_no_schema_has_is_found(schemas):
    found = [(line, key.rpartition(".")[0]) for line, key in keys.unknown(PLANTED, schemas)]
    assert found == [(2, "schedule.tensor"), (2, "compute"), (3, "timeouts"), (3, "workload")]


ELSE = {"model.compile", "model.module", "schedule.polcy"}
"""A method and an attribute in Keras and torch, and a mistake that a page shows."""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_key_that_a_page_names_is_one(page, schemas):
    found = keys.unknown(page.read_text(encoding="utf-8"), schemas)
    assert [one for one in found if one[1] not in ELSE] == []


def test_defaults_in_the_guide_to_scenarios_are_those_of_the_schema(schemas):
    """Of each row whose default is a value, not words; a quantity of nothing has any unit."""
    text = (ROOT / "docs" / "guides" / "scenario.md").read_text(encoding="utf-8")
    stated = re.findall(r"^\| `([a-z_.]+)` \| (?:`([^`|]+)`|(\d+)) \|", text, re.MULTILINE)
    checked = 0
    for name, word, number in stated:
        parts = keys.found(name.split("."), schemas[0], schemas[0])
        defaults = {str(one["default"]) for one in parts if one.get("default") is not None}
        said = word or number
        if re.match(r"0 \w", said):
            assert any(one.startswith("0 ") for one in defaults), name
        elif defaults:
            assert said in defaults, name
        checked += bool(defaults)
    assert checked > 10


CLI = ROOT / "docs" / "reference" / "cli.md"
WRITTEN = [page for page in PAGES if "reference" not in page.parts]
"""Pages that people write; those of the reference are written from the code."""


def test_help_has_no_word_that_the_glossary_replaces():
    """The page has the help of every command."""
    text = CLI.read_text(encoding="utf-8")
    assert list(words.hits(text, words.banned())) == []


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_no_page_has_a_word_that_the_glossary_replaces(page):
    """What to write instead stands in banned.yaml."""
    text = words.prose(page.read_text(encoding="utf-8"))
    assert list(words.hits(text, words.banned())) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('format!("it has {ranks} ranks")', ["{ranks} ranks"]),
        ('"they hold {} bytes, \\\n        more than {MOST} bytes"', ["{} bytes"]),
        ('"rank {rank} has {steps} \\\n steps"', ["{steps} steps"]),
        ('format!("it has {ranks}", ranks = counted(ranks, "rank"))', []),
        ('assert!(all, "{ranks} ranks");', []),
        ('// "{ranks} ranks"', []),
        ('#[cfg(test)]\nmod tests { format!("{ranks} ranks") }', []),
    ],
)
def test_a_plural_behind_any_number_is_found(text, found):
    assert list(counts.uncounted(text)) == found


def test_the_crates_count_one_as_one():
    """`allrail_core::counted` and `either` say `1 rank`."""
    assert counts.findings(ROOT / "crates") == []


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("import torch\nn = torch._C.f()\n", ["`torch._C`"]),
        ("from torch.overrides import _pop_mode\n", ["`torch.overrides._pop_mode`"]),
        ("import torch.utils._pytree as p\n", ["`torch.utils._pytree`"]),
        ("def f(m):\n    return m._parameters\n", ["`m._parameters`"]),
        ("def f(m):\n    m._opt_called = True\n", ["`m._opt_called`"]),
        ("def f(m):\n    return hasattr(m, '_hooks')\n", ["`hasattr(m, '_hooks')`"]),
        ("class A:\n    def f(self):\n        return self._set_name()\n", ["`self._set_name`"]),
        ("class A:\n    def __init__(self):\n        self._x = 1\n\ndef f(a):\n    a._x\n", []),
        ("import sys\nsys._getframe(1)\n", []),
        ("from allrail.base import _thing\n", []),
    ],
    ids=str,
)
def test_a_private_name_of_another_package_is_found(tmp_path, planted, found):
    package = written(tmp_path, {"p/use.py": planted, "p/private.py": "import torch._C\n"}) / "p"
    uses = private_names.foreign(package, "private.py")
    assert [use.partition(": ")[2] for use in uses] == found


def test_private_names_of_torch_stand_in_one_file():
    """private.py looks each up when allrail.torch is imported."""
    assert private_names.foreign(ROOT / "python" / "allrail" / "torch", "private.py") == []


def test_a_long_file_and_a_long_function_are_found(tmp_path):
    body = "    x = 1\n"
    short = f"def short():\n{body * (sizes.MAX_FUNCTION_LINES - 1)}"
    long = f"class A:\n    def long(self):\n{('    ' + body) * sizes.MAX_FUNCTION_LINES}"
    folder = written(tmp_path, {"short.py": short, "long.py": long + "x = 1\n" * 500})
    paths = sorted(folder.glob("*.py"))
    assert [path.name for _, path in sizes.files(paths)] == ["long.py"]
    assert [(count, name) for count, _, name in sizes.functions(paths)] == [
        (sizes.MAX_FUNCTION_LINES + 1, "long")
    ]
