"""`make explore`: finds the laws by itself, and tells of a failure the seed and what repeats it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RUST = """\
#[test]
fn a_plain_test() {}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn a_law(x in 0u32..5) {
        prop_assert!(x < 5);
    }

    #[test]
    #[ignore = "slow"]
    fn another_law(x in 0u32..5) {}
}
"""


@pytest.fixture(scope="module")
def explorer(tmp_path_factory):
    # As a module, since its dataclass looks itself up in `sys.modules`.
    import importlib.util

    spec = importlib.util.spec_from_file_location("explorer", ROOT / "fuzz" / "explore.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["explorer"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["explorer"]


def test_laws_are_found_in_the_text(explorer):
    assert explorer.laws_of(RUST) == ({"a_law", "another_law"}, set())
    seeded = RUST + '\nfn seeds() -> u64 { count("LAW_SEEDS") }\n'
    assert explorer.laws_of(seeded) == ({"a_law", "another_law"}, {"a_plain_test"})


def test_every_proptest_of_the_tree_is_found(explorer):
    for path in ROOT.glob("crates/*/**/*.rs"):
        text = path.read_text(encoding="utf-8")
        assert bool(explorer.laws_of(text)[0]) == ("proptest! {\n" in text), path


def test_a_failure_has_its_seed_and_what_repeats_it(explorer, capsys):
    program = "import os, sys; print('so'); sys.exit(os.environ['PROPTEST_RNG_SEED'] == '9')"
    command = (sys.executable, "-c", program)
    law = explorer.Law("a law", command, "X=SEED run", variables={"PROPTEST_RNG_SEED": "SEED"})
    failed = explorer.explore([law], seconds=60, seed=8, step=1, jobs=1)
    told = capsys.readouterr().out
    assert failed == 1
    assert "FAILED a law with seed 9\nso\n\nrepeat: X=9 run\n" in told
    assert told.endswith("2 turns of 1 laws and fuzzers, first seed 8\n1 passed, 1 failed\n")


def test_a_program_that_runs_no_test_is_a_failure(explorer):
    law = explorer.Law("a law", (sys.executable, "-c", "print('ok. 0 passed')"), "run")
    assert explorer.turn(law, 1).endswith("it ran no test")


def test_the_fuzzers_are_listed():
    targets = runpy.run_path(str(ROOT / "fuzz" / "fuzz_readers.py"))["TARGETS"]
    assert {path.name for path in (ROOT / "fuzz" / "corpus").iterdir()} >= set(targets)
