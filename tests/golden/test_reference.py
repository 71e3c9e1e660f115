"""The generated pages of docs/reference are current, and the schemas accept what we ship."""

from __future__ import annotations

import runpy
from pathlib import Path

import jsonschema
import pytest

import allrail
from allrail.output.schemas import schema
from allrail.scenario.presets import FOLDER
from allrail.scenario.text import read_file

ROOT = Path(__file__).parents[2]
SCHEMAS = ("scenario", "fabric", "plan", "job")
PAGES = (
    "cli.md",
    "algorithms.md",
    "devices.md",
    "fabrics.md",
    "topologies.md",
    "workloads.md",
    "job.md",
    "models.md",
)
NAMES = (*PAGES, *(f"{name}.schema.json" for name in SCHEMAS))


@pytest.fixture(scope="module")
def pages():
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]()


@pytest.mark.parametrize("name", NAMES)
def test_is_current(pages, name):
    assert set(pages) == set(NAMES)
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == pages[name], "run `make reference` (or `make docs`)"


@pytest.mark.parametrize("name", SCHEMAS)
def test_is_a_schema(name):
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize(
    "path",
    sorted(path for path in ROOT.glob("examples/*/*.yaml") if path.stem != "study"),
    ids=lambda p: p.parent.name,
)
def test_examples_fit_the_scenario_schema(path):
    jsonschema.validate(read_file(path)[0], schema("scenario"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_presets_fit_the_fabric_schema(path):
    jsonschema.validate(read_file(path)[0], schema("fabric"))


@pytest.mark.parametrize(
    "tree",
    [
        {"topology": "graph", "file": "mine.yaml", "planes": 2},
        {"topology": "graph", "npus": ["a", "b"], "links": [{"from": "a", "to": "b"}]},
        {"topology": "torus", "shape": [4, 4], "failed_nodes": [1], "failed_links": [[2, 3]]},
    ],
    ids=str,
)
def test_graphs_fit_the_fabric_schema(tree):
    jsonschema.validate(tree, schema("fabric"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**tree, "colour": 1}, schema("fabric"))


@pytest.mark.parametrize("policy", ["baseline", "themis", "search"])
def test_plans_fit_the_plan_schema(policy):
    plan = allrail.plan(
        ROOT / "examples/03-plan-and-reuse/scenario.yaml", sets={"schedule.policy": policy}
    )
    jsonschema.validate(plan.to_dict(), schema("plan"))


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"fabirc": "today"},
        {"network_model": "dim"},
        {"seed": -1},
        {"schedule": {"policy": "best"}},
        {"collective": {"kind": "all_reduce"}},
    ],
    ids=str,
)
def test_the_scenario_schema_refuses(change):
    tree = read_file(ROOT / "examples/01-simulate-themis/scenario.yaml")[0]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**tree, **change}, schema("scenario"))
