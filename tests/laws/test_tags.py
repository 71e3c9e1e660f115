"""Nobody compares a tag outside its list: what depends on a policy, an algorithm or a topology is a
method of it. The sources of both languages are read for it.

A *tag* is a name in one of the core's lists. It may be looked up in its list, and written where one
is chosen (a default, a preset, a published study); it may not be asked for in a condition.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from allrail import _core

ROOT = Path(__file__).parents[2]

LISTS = {
    "policies": _core.policies,
    "orders": _core.orders,
    "tensor_policies": _core.tensor_policies,
    "coordinations": _core.coordinations,
    "algorithms": _core.algorithms,
    "grid_algorithms": _core.grid_algorithms,
    "topologies": _core.topologies,
    "formats": _core.formats,
}

# Each with the reason for which it may stand. Nothing else is let through.
ALLOWED = {
    "python/allrail/targets/decision.py: self.workload['compute']['launch'] == 'graph'": (
        "a way to launch kernels, which has the name of a topology"
    ),
    "python/allrail/formats/astra_sim/system.py: "
    "values.get('inter-dimension-scheduling') in BY_LOADS": (
        "these are ASTRA-sim's names of policies, in ASTRA-sim's files; one of them is ours too"
    ),
    "python/allrail/results/record.py: one.name not in _NO_KEYS": (
        "names of fields, one of which has the name of a format"
    ),
    "reproduce/allrail_reproduce/everything.py: {'themis': lambda _, progress: "
    "themis.run(progress=progress), 'themis-workloads': lambda _, progress: "
    "themis_workloads.run(progress=progress), 'astra-sim': _astra_sim, 'bytescheduler': "
    "lambda _, progress: bytescheduler.run(progress=progress), 'horovod': lambda _, "
    "progress: horovod.run(progress=progress), 'hammingmesh': lambda _, progress: "
    "hammingmesh.run(hammingmesh.Scope(), progress=progress), 'hammingmesh-workloads': "
    "lambda _, progress: workloads.run(('flows', 'packets'), progress=progress), "
    "'memory': lambda _, progress: memory.run(progress=progress), 'runs': _runs}": (
        "names of publications, some of which are names of policies or topologies"
    ),
}


@cache
def tags() -> frozenset[str]:
    """All tags of all lists; `none` is the absence of a policy, not one."""
    rows = (row for of in LISTS.values() for row in json.loads(of()))
    return frozenset(row["name"] for row in rows) - {"none"}


def without_comments(source: str) -> str:
    """Rust's code alone: without comments and without the tests at the end of a file."""
    source = re.split(r"#\[cfg\(test\)\]\s*(?:pub(?:\(\w+\))? )?mod \w+ \{", source, maxsplit=1)[0]
    return re.sub(r"//[^\n]*", "", source)


def in_rust(source: str) -> list[str]:
    """The places in a Rust source that compare a tag."""
    code = without_comments(source)
    one = r'"(?:' + "|".join(sorted(map(re.escape, tags()))) + r')"'
    const = r"(?:\w+::)*TAG\b"
    tag = rf"(?:{one}|{const})"
    # A list looks a name up in itself, and a tag of the list is equal to itself.
    code = re.sub(r"\.find\(\|(\w+)\| \1\.tag(?:\(\))? == name\)", "", code)
    code = code.replace("self.tag() == other.tag()", "")
    patterns = [
        rf"(?:==|!=)\s*&?{tag}",
        rf"{tag}\s*(?:==|!=)",
        r"\.tag\(\)\s*(?:==|!=)[^\n;{]*",
        r"(?:==|!=)\s*[\w.]+\.tag\(\)",
        # A pattern: an arm's, one of several, or within a tuple or `Some`.
        rf"{tag}\s*\)*\s*(?:=>|if )",
        rf"{tag}\s*\|(?!\|)",
        rf"(?<!\|)\|\s*{one}\s*[|)=]",
        rf"\([^()\n]*{one}[^()\n]*\)\s*=>",
        rf"matches!\([^;{{}}]*?{tag}",
        rf"if let (?:Some\()?{tag}",
        rf"\.(?:contains|eq|ne|eq_ignore_ascii_case)\(&?{tag}\)",
        rf"\[[^\[\]]*{one}[^\[\]]*\]\s*\.contains",
        r"match [^{;\n]*\.tag\(\)",
    ]
    found = []
    for pattern in patterns:
        found += [" ".join(match[0].split()) for match in re.finditer(pattern, code)]
    return found


def in_python(source: str) -> list[str]:
    """The places in a Python source that compare a tag, or look behaviour up by it."""

    def is_tag(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and node.value in tags()

    def among(node: ast.AST) -> bool:
        several = isinstance(node, (ast.Tuple, ast.List, ast.Set))
        return several and any(map(is_tag, node.elts))

    tree = ast.parse(source)
    listed = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and among(_unwrapped(node.value))
    }

    def named(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in listed

    def places() -> Iterator[ast.AST]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                sides = [node.left, *node.comparators]
                equal = any(isinstance(op, (ast.Eq, ast.NotEq, ast.Is)) for op in node.ops)
                within = any(among(side) or named(side) for side in node.comparators)
                if (equal and any(map(is_tag, sides))) or within:
                    yield node
            elif isinstance(node, ast.MatchValue) and is_tag(node.value):
                yield node
            elif isinstance(node, ast.Dict):
                keys = [key for key in node.keys if key is not None and is_tag(key)]
                calls = all(isinstance(value, (ast.Name, ast.Lambda)) for value in node.values)
                if len(keys) > 1 and calls:
                    yield node

    return [ast.unparse(node) for node in places()]


def _unwrapped(node: ast.expr) -> ast.expr:
    """Of `frozenset({...})` what stands inside."""
    return node.args[0] if isinstance(node, ast.Call) and node.args else node


def sources() -> Iterator[tuple[Path, list[str]]]:
    rust = sorted((ROOT / "crates").glob("*/src/**/*.rs"))
    packages = (ROOT / "python" / "allrail", ROOT / "reproduce" / "allrail_reproduce")
    python = sorted(path for package in packages for path in package.glob("**/*.py"))
    assert len(rust) > 200
    assert len(python) > 50
    for path in rust:
        yield path, in_rust(path.read_text())
    for path in python:
        yield path, in_python(path.read_text())


def test_no_source_compares_a_tag_outside_its_list():
    found = {f"{path.relative_to(ROOT)}: {place}" for path, places in sources() for place in places}
    assert sorted(found - ALLOWED.keys()) == []
    assert sorted(ALLOWED.keys() - found) == [], "they are gone: take them out of the list"


@pytest.mark.parametrize("of", LISTS)
def test_every_list_has_its_tags(of):
    rows = json.loads(LISTS[of]())
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names)) >= 2
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


@pytest.mark.parametrize(
    "planted",
    [
        'if algorithm.tag() == "direct" {',
        "if policy.tag() != agreed::TAG {",
        "if name == in_network::TAG {",
        "hammingmesh::TAG => Ok(of_mesh()),",
        'let expensive = request.policy == "themis";',
        'if "fifo" != name {',
        'match policy.as_str() { "priority" | "bytescheduler" => 1, _ => 0 }',
        'match (dimension.kind, name) { (Kind::Ring, "ring") if both => 1, _ => 0 }',
        'match (tag, operation) { ("direct", _) => 2, _ => 3 }',
        '    | (Kind::Ring, "ring" | "ring_unidirectional")',
        'match name { Some("torus") => 1, _ => 0 }',
        'matches!(name, "rings" | "torus")',
        'if let Some("dragonfly") = name {',
        '["priority", "bytescheduler"].contains(&name)',
        "match algorithm.tag() {",
        "if one.tag() == two.tag() {",
    ],
)
def test_a_planted_line_of_rust_is_found(planted):
    source = f"//! A part.\n\nfn decide() {{\n    {planted}\n}}\n"
    assert in_rust(source), planted


@pytest.mark.parametrize(
    "planted",
    [
        'if fabric.topology == "torus": pass',
        'if "themis" != policy: pass',
        'if fabric.topology in ("fat_tree", "hyperx"): pass',
        'if policy not in {"themis", "search"}: pass',
        'match topology:\n    case "mesh": pass',
        'match topology:\n    case "mesh" | "torus": pass',
        'PORTS = frozenset({"fat_tree", "hyperx"})\nif fabric.topology in PORTS: pass',
        'own = {"torus": _torus, "mesh": _mesh}.get(topology, _layers)',
    ],
)
def test_a_planted_line_of_python_is_found(planted):
    assert in_python(planted), planted


@pytest.mark.parametrize(
    "line",
    [
        'policy: "baseline".to_owned(),',
        'pub const TAG: &str = "ring";',
        "ALL.iter().copied().find(|policy| policy.tag() == name).ok_or_else(|| {",
        'let tree = algorithm::named("double_binary_tree")?;',
        '// Not `name == "ring"`: a method.',
        'known.unwrap_or_else(|| "ring")',
        '#[cfg(test)]\nmod tests {\n    fn is() { assert!(one.tag() == "ring"); }\n}',
    ],
)
def test_what_only_names_a_tag_is_let_through_in_rust(line):
    assert in_rust(line) == []


@pytest.mark.parametrize(
    "line",
    [
        'scenario = {"policy": "themis", "order": "planned"}',
        'if "priority" in row: pass',
        'names = {"halvingDoubling": "halving_doubling", "ring": "ring", "direct": "direct"}',
        'if network_model == "flows": pass',
        '"""Not `policy == "themis"`."""',
    ],
)
def test_what_only_names_a_tag_is_let_through_in_python(line):
    assert in_python(line) == []
