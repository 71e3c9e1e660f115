"""What commands print and how they end: columns, estimates, help, stdin, Ctrl-C, plugins, hints."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import allrail
from allrail.base.installed import install, installer, packages
from allrail.cli.columns import aligned, folded
from allrail.cli.output import joined
from allrail.cli.progress import Rate
from allrail.cli.verbs import VERBS
from allrail.simulation.plugins import forget, loaded, only_here
from computing import cpu_s, cpu_s_of_ended, wait_until_computing

ROOT = Path(__file__).parents[2]
SCENARIO = {
    "schema_version": 1,
    "fabric": "3D-SW_SW_SW_homo",
    "collective": {"kind": "all_reduce", "size": "10 MB"},
    "schedule": {"chunks": 4},
}
HEADER = ["layout", "recompute", "step_s", "tokens_per_s_per_npu", "vs_best_%", "GB", "loses_by"]
ROW = ["tp8_cp1_pp4_dp8_zero1_v2", "none", "1.234", "11300", "-0.5", "78", "tensor exposed 3 %"]


class TestColumns:
    def test_in_a_pipe_only_the_last_column_has_spaces(self):
        cells = joined(["a b", "c", "tensor exposed 3 %, dim2 busy 40 %"])
        assert cells == ["a_b", "c", "tensor exposed 3 %, dim2 busy 40 %"]

    def test_a_table_that_fits_is_one_line_a_row(self):
        assert len(folded(HEADER, [ROW], width=200, bold=False)) == 2

    @pytest.mark.parametrize("width", [40, 60, 80, 120])
    def test_no_line_is_longer_than_the_terminal(self, width):
        lines = folded(HEADER, [ROW, ROW], width=width, bold=False)
        assert max(map(len, lines)) <= width

    @given(
        st.lists(
            st.tuples(st.text("abc_ /,%", min_size=1), st.text("ab 019.,", max_size=40)),
            min_size=1,
            max_size=9,
        ),
        st.integers(30, 160),
    )
    def test_nothing_is_lost_by_folding(self, columns, width):
        header, row = [name for name, _ in columns], [cell for _, cell in columns]
        text = "".join(folded(header, [row], width=width, bold=False))
        for letter in "abc019%":
            whole = "".join(aligned(header, [row], bold=False))
            assert text.count(letter) >= whole.count(letter)


class TestEstimate:
    def test_it_is_of_the_pace_of_late(self):
        rate = Rate()
        # A hundred bounds in a second, then simulations of a second each.
        for done in range(101):
            rate.add(done / 100, done, 100)
        for done in range(11):
            rate.add(1 + done, done, 40)
        assert rate.left(11) == pytest.approx(30, rel=0.05)

    def test_time_without_news_counts(self):
        rate = Rate()
        for done in range(11):
            rate.add(done, done, 20)
        assert rate.left(30) > 2 * rate.left(10)

    @pytest.mark.parametrize("grows", [0.5, 1.0, 1.5])
    def test_it_is_within_a_factor_of_two(self, grows):
        """Of work whose pieces become longer or shorter, from a fifth of it on."""
        ends = [(k + 1) ** grows for k in range(5000)]
        rate = Rate()
        rate.add(0.0, 0, len(ends))
        for done, end in enumerate(ends, start=1):
            rate.add(end, done, len(ends))
            if len(ends) // 5 < done < len(ends) - 1:
                assert 0.5 < rate.left(end) / (ends[-1] - end) < 2.0

    def test_nothing_is_said_before_anything_is_known(self):
        rate = Rate()
        rate.add(0.0, 0, 10)
        assert rate.left(5.0) is None


class TestHelp:
    def test_it_is_the_page(self, allrail_cli):
        assert allrail_cli("help").stdout == allrail_cli("--help").stdout

    @pytest.mark.parametrize("verb", [*VERBS, "reproduce"])
    def test_of_a_verb_it_is_that_verbs(self, allrail_cli, verb):
        told = allrail_cli("help", verb)
        assert told.status == 0
        assert told.stdout == allrail_cli(verb, "--help").stdout

    def test_of_a_verb_within_a_verb(self, allrail_cli):
        told = allrail_cli("help", "fabric", "show")
        assert told.stdout == allrail_cli("fabric", "show", "--help").stdout

    def test_a_near_miss_is_named(self, allrail_cli):
        told = allrail_cli("help", "simulat")
        assert told.status == 2
        assert "simulate" in told.stderr

    def test_the_shell_completes_verbs(self):
        asked = {
            "_ALLRAIL_COMPLETE": "bash_complete",
            "COMP_WORDS": "allrail si",
            "COMP_CWORD": "1",
        }
        done = subprocess.run(
            [sys.executable, "-c", "from allrail.cli.main import main; main()"],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "plain,simulate" in done.stdout


LONG = {
    "traffic": {
        "schema_version": 1,
        "fabric": "hx2mesh-1k",
        "network_model": "packets",
        "traffic": {"pattern": "all_to_all", "size": "64 MiB"},
    },
}


def interrupted(folder, code, *words):
    """Start a command, send it SIGINT, and return its status and its words.

    It has to end within a second; a machine that is busy may take longer, but it computes no more.
    """
    before = cpu_s_of_ended()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "RAYON_NUM_THREADS": "1"},
    )
    wait_until_computing(process)
    at = cpu_s(process.pid)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert cpu_s_of_ended() - before - at < 1.5
    return process.returncode, told


class TestCtrlC:
    @pytest.mark.parametrize(
        "words",
        [
            ("simulate", "traffic.yaml"),
            ("plan", "--model", "gpt3_175b", "--fabric", "dgx-h100", "--npus", "1024"),
        ],
        ids=lambda words: words[0],
    )
    def test_a_command_ends_within_a_second(self, tmp_path, words):
        (tmp_path / "traffic.yaml").write_text(yaml.safe_dump(LONG["traffic"]))
        code = "from allrail.cli.main import main; main()"
        status, told = interrupted(tmp_path, code, *words)
        assert status == 130
        assert told.strip().endswith("interrupted")
        assert "Traceback" not in told

    def test_one_call_into_compiled_code_does_not_hold_it_up(self, tmp_path):
        """Here a derivation of a key, which takes minutes and lets go of Python's lock."""
        code = (
            "import hashlib\n"
            "from allrail.cli.interrupt import ended_by_ctrl_c\n"
            "with ended_by_ctrl_c():\n"
            "    hashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)\n"
        )
        status, told = interrupted(tmp_path, code)
        assert status == 130
        assert told.strip().endswith("interrupted")


SWEEP = (sys.executable, "-m", "allrail", "sweep", "study.yaml", "--workers", "2")
PLUGIN = """
import allrail

@allrail.chunk_scheduler("turn_round")
def turn_round(problem):
    "Chunk i starts at dimension i."
    turn = len(problem.dimensions)
    return [
        problem.visit(problem.dimensions[i % turn :] + problem.dimensions[: i % turn])
        for i in range(len(problem.chunks))
    ]
"""


class TestPlugins:
    @pytest.fixture
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "turn.py").write_text(PLUGIN)
        study = {
            "schema_version": 1,
            "scenario": SCENARIO,
            "axes": {"schedule.policy": ["baseline", "turn_round"]},
        }
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
        yield tmp_path
        forget("turn_round")

    def test_they_reach_the_workers_of_a_sweep(self, folder):
        done = subprocess.run(
            [*SWEEP, "--plugin", "turn.py", "--json"],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        assert '"failed": 0' in done.stdout

    def test_a_function_of_this_process_is_carried_out_here(self, folder):
        exec(compile(PLUGIN, "<here>", "exec"), {})
        assert "turn_round" in only_here()
        swept = allrail.sweep(yaml.safe_load((folder / "study.yaml").read_text()), folder / "out")
        assert swept.failed == 0

    def test_what_was_loaded_is_known_by_its_file(self, folder):
        allrail.load_plugin("turn.py")
        assert loaded()["turn.py"] == PLUGIN
        assert "turn_round" not in only_here()


class TestHints:
    @pytest.mark.parametrize(
        ("extra", "package"), [("tune", "optuna"), ("torch", "torch"), ("ray", "ray")]
    )
    def test_what_is_missing_is_installed_by_the_name_of_an_index(self, extra, package):
        assert any(one.startswith(package) for one in packages(extra))
        assert "allrail[" not in install(extra)

    def test_no_text_of_the_package_names_a_file_that_a_wheel_does_not_have(self):
        wrong = []
        packages = (ROOT / "python" / "allrail", ROOT / "reproduce" / "allrail_reproduce")
        for path in sorted(one for package in packages for one in package.rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            shown = {
                id(node.body[0].value)
                for node in ast.walk(tree)
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
                and node.body
                and isinstance(node.body[0], ast.Expr)
            }
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and id(node) not in shown
                    and re.search(r"\b(docs|examples|crates)/[a-z0-9]", node.value)
                    and "http" not in node.value
                ):
                    wrong.append(f"{path.name}:{node.lineno}: {node.value}")
                if id(node) not in shown and "allrail[" in str(getattr(node, "value", "")):
                    wrong.append(f"{path.name}:{node.lineno}: {node.value}")
        assert wrong == []

    def test_nor_does_a_hint_of_the_core(self):
        wrong = []
        for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                code = line.split("//")[0]
                if re.search(r'".*\bdocs/[a-z].*', code):
                    wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
        assert wrong == []


def test_asking_for_the_installer_leaves_what_is_imported_alone(monkeypatch):
    ours = ModuleType("distutils")
    monkeypatch.setitem(sys.modules, "distutils", ours)
    assert installer() in ("pip", "uv pip")
    assert sys.modules["distutils"] is ours
