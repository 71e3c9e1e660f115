"""Drawn scenarios: from the strategies of the laws, by a fixed seed.

The laws' strategies may change: what was drawn is kept with its results and is run as it was.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from random import Random
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from frozen.cases import ROOT, Case, scenario
from frozen.presets import NETWORK_MODELS
from frozen.run import run

COUNTS = {"collective": 90, "step": 70, "traffic": 40}
SEED = 28
NAMES = [f"drawn/{kind}-{number:03}" for kind, count in COUNTS.items() for number in range(count)]


def cases() -> Iterator[Case]:
    """As many of each kind of job as `COUNTS` says, all different, each with a result."""
    for kind, strategy in _strategies().items():
        trees = _draw(strategy, 8 * COUNTS[kind])
        # What is drawn next is often drawn alike.
        Random(SEED).shuffle(trees)
        found = 0
        for tree in trees:
            case = scenario(f"drawn/{kind}-{found:03}", tree)
            if found < COUNTS[kind] and run(case)["steps"][0]["status"] == 0:
                found += 1
                yield case
        if found < COUNTS[kind]:
            raise AssertionError(f"{found} of {COUNTS[kind]} scenarios with a {kind} were drawn")


def _draw(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    found: dict[str, Any] = {}

    @seed(SEED)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(tree: Any) -> None:
        found.setdefault(json.dumps(tree, sort_keys=True), copy.deepcopy(tree))

    draw()
    return list(found.values())


def _strategies() -> dict[str, st.SearchStrategy[Any]]:
    of_scenarios, of_training, of_traffic = (
        _law(name) for name in ("test_scenarios", "test_training", "test_traffic")
    )
    models = st.sampled_from(NETWORK_MODELS)
    fabrics = st.one_of(st.none(), st.sampled_from(of_traffic.FABRICS))

    def collective(changes: dict[str, Any], model: str, fabric: Any) -> Any:
        tree = copy.deepcopy(of_scenarios.BASE)
        for path, value in changes.items():
            _set(tree, path, value)
        if fabric is not None:
            tree["fabric"] = fabric
            tree["schedule"].pop("algorithms", None)
            tree["collective"][0].pop("dimensions", None)
        return {**tree, "network_model": model}

    def step(tree: Any, model: str) -> Any:
        return {**tree, "network_model": model}

    def traffic(fabric: Any, pattern: Any, model: str, size: str, seed: int) -> Any:
        return of_traffic.scenario(fabric, {**pattern, "size": size}, seed, network_model=model)

    steps = st.one_of(of_training.scenarios, of_training.transformers)
    return {
        "collective": st.builds(collective, of_scenarios.PLAUSIBLE, models, fabrics),
        "step": st.builds(step, steps, models),
        "traffic": st.builds(
            traffic,
            st.sampled_from(of_traffic.FABRICS),
            st.sampled_from(of_traffic.PATTERNS),
            st.sampled_from(("flows", "packets")),
            st.sampled_from(("1 B", "64 KiB", "1 MiB")),
            st.integers(0, 99),
        ),
    }


def _set(tree: Any, path: str, value: Any) -> None:
    parts = [int(part) if part.isdigit() else part for part in re.findall(r"\w+", path)]
    for part in parts[:-1]:
        tree = tree[part] if isinstance(part, int) else tree.setdefault(part, {})
    tree[parts[-1]] = value


def _law(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tests" / "laws" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
