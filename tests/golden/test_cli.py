"""What the command line prints, where, and with which exit status."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import allrail
from computing import wait_until_computing

ALLRAIL = [sys.executable, "-m", "allrail"]


def run(*args: str, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ALLRAIL, *args], capture_output=True, text=True, timeout=120, **more)


def test_help_is_a_page(allrail_cli):
    page = allrail_cli("--help")
    assert page.status == 0
    assert page.stderr == ""
    for part in ("Usage:", "simulate", "compare", "fabric", "reproduce", "Examples:", "schema"):
        assert part in page.stdout
    assert max(map(len, page.stdout.splitlines())) <= 100
    assert allrail_cli().stdout == page.stdout


@pytest.mark.parametrize("verb", ["simulate", "compare", "plan", "fabric", "reproduce", "schema"])
def test_every_verb_has_help(allrail_cli, verb):
    page = allrail_cli(verb, "--help")
    assert page.status == 0
    assert page.stdout.startswith(f"Usage: allrail {verb}")


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom allrail.cli.main import main\ntry: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('pydantic', 'yaml', 'polars', 'matplotlib') if n in sys.modules])"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert outcome.stdout.splitlines()[-1] == "[]"


def test_simulate_imports_no_pictures(folder):
    code = (
        "import sys\nfrom allrail.cli.main import main\ntry: main(['simulate', 'scenario.yaml'])\n"
        "except SystemExit: pass\n"
        "print([n for n in ('polars', 'matplotlib', 'numpy', 'jinja2') if n in sys.modules])"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert outcome.stdout.splitlines()[-1] == "[]"


@pytest.mark.usefixtures("folder")
class TestSimulate:
    """`allrail simulate`."""

    def test_json_is_one_object_with_the_promised_names(self, allrail_cli):
        outcome = allrail_cli("simulate", "scenario.yaml", "--json")
        assert outcome.stderr == ""
        tree = json.loads(outcome.stdout)
        assert {
            "time_us",
            "ideal_time_us",
            "bound_time_us",
            "utilisation",
            "bytes_per_npu",
            "network_model",
            "seed",
            "calibrated",
            "host",
            "dimensions",
        } <= set(tree)
        assert {"planning_ms", "wall_ms"} <= set(tree["host"])
        assert len(tree["dimensions"]) == 3
        for dimension in tree["dimensions"]:
            assert {"name", "bytes_per_npu", "utilisation", "busy_fraction"} <= set(dimension)
        assert "timeline" not in tree

    def test_is_the_same_in_python(self, allrail_cli):
        printed = json.loads(allrail_cli("simulate", "scenario.yaml", "--json").stdout)
        result = allrail.simulate("scenario.yaml").to_dict()
        for tree in (printed, result):
            del tree["host"]
        assert printed == result

    def test_repeats_to_the_byte(self, allrail_cli):
        texts = {allrail_cli("simulate", "scenario.yaml").stdout for _ in range(3)}
        assert len(texts) == 1

    def test_names_the_network_model_and_that_nobody_calibrated(self, allrail_cli):
        for network_model in ("dims", "links"):
            outcome = allrail_cli(
                "simulate",
                "scenario.yaml",
                "--set",
                "fabric=dgx2",
                "--network-model",
                network_model,
            )
            assert f"network model `{network_model}`" in outcome.stdout
            assert "uncalibrated" in outcome.stdout

    def test_set_reaches_into_presets_and_lists(self, allrail_cli):
        args = ("--set", "fabric.dimensions[2].size=2", "--set", "collective[0].size=1 MiB")
        tree = json.loads(allrail_cli("simulate", "scenario.yaml", "--json", *args).stdout)
        assert [one["size"] for one in tree["dimensions"]] == [8, 8, 2]
        assert tree["collectives"][0]["size_bytes"] == 1 << 20

    def test_the_last_set_wins(self, allrail_cli):
        args = ("--set", "schedule.policy=search", "--set", "schedule.policy=baseline")
        tree = json.loads(allrail_cli("simulate", "scenario.yaml", "--json", *args).stdout)
        assert tree["policy"] == "baseline"

    def test_a_fabric_file_is_found_beside_the_scenario(self, folder, allrail_cli):
        inner = folder / "inner"
        inner.mkdir()
        fabric = allrail_cli("fabric", "show", "dgx2", "--yaml").stdout
        (inner / "mine.yaml").write_text(fabric.replace("name: dgx2\n", ""))
        text = (folder / "scenario.yaml").read_text()
        (inner / "scenario.yaml").write_text(text.replace("tutorial-8x8x8", "mine.yaml"))
        outcome = allrail_cli("simulate", "inner/scenario.yaml")
        assert "mine (256 NPUs)" in outcome.stdout
        named = allrail_cli("simulate", "scenario.yaml", "--set", "fabric=inner/mine.yaml")
        assert named.stdout == outcome.stdout

    def test_json_scenarios_are_read(self, folder, allrail_cli):
        from allrail.scenario.text import read_file

        tree = read_file(folder / "scenario.yaml")[0]
        (folder / "scenario.json").write_text(json.dumps(tree))
        assert (
            allrail_cli("simulate", "scenario.json").stdout
            == allrail_cli("simulate", "scenario.yaml").stdout
        )

    def test_a_plan_gives_what_planning_gives(self, allrail_cli):
        more = ("--set", "schedule.policy=search", "--set", "schedule.order=planned")
        assert allrail_cli("plan", "scenario.yaml", *more, "--out", "plan.json").status == 0
        planned = allrail_cli("simulate", "scenario.yaml", *more, "--plan", "plan.json")
        assert planned.stdout == allrail_cli("simulate", "scenario.yaml", *more).stdout


@pytest.mark.usefixtures("folder")
class TestCompare:
    """`allrail compare`."""

    def test_the_three_policies_by_default(self, allrail_cli):
        lines = allrail_cli("compare", "scenario.yaml").stdout.splitlines()
        assert [line.split()[0] for line in lines] == [
            "policy",
            "baseline",
            "themis",
            "search",
            "#",  # the network model
            "#",  # what is known of the error
        ]
        assert lines[1].split()[3] == "1.000"

    def test_every_combination(self, allrail_cli):
        args = ("--fabric", "today,dgx2", "--policy", "baseline", "--policy", "themis", "--json")
        rows = json.loads(allrail_cli("compare", "scenario.yaml", *args).stdout)["rows"]
        assert [row["label"] for row in rows] == [
            "today baseline",
            "today themis",
            "dgx2 baseline",
            "dgx2 themis",
        ]
        first = rows[0]["result"]["time_us"]
        for row in rows:
            assert row["speedup"] == pytest.approx(first / row["result"]["time_us"])

    def test_a_speed_up_is_of_bytes_a_second_where_sizes_differ(self, allrail_cli):
        sizes = ("compare", "scenario.yaml", "--size", "100 MB,200 MB", "--json", "--out", "out")
        one, two = json.loads(allrail_cli(*sizes).stdout)["rows"]
        times = [row["result"]["time_us"] for row in (one, two)]
        assert times[1] > 1.5 * times[0]
        assert two["speedup"] == pytest.approx(2 * times[0] / times[1])
        assert "carry as many bytes a second" in Path("out/report.html").read_text()

    def test_columns_do_not_hold_spaces(self, allrail_cli):
        lines = allrail_cli("compare", "scenario.yaml", "--size", "1 MiB,100 MB").stdout
        table = [line.split() for line in lines.splitlines() if not line.startswith("#")]
        assert len({len(row) for row in table}) == 1


class TestStreams:
    """stdout for data, stderr for the rest, and terminals."""

    def test_pipes_have_no_colour(self, folder):
        outcome = run("compare", "scenario.yaml")
        assert "\x1b" not in outcome.stdout + outcome.stderr

    @pytest.mark.parametrize(("variables", "bold"), [({}, True), ({"NO_COLOR": "1"}, False)])
    def test_no_color_is_honoured(self, folder, variables, bold):
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", **variables}
        process = subprocess.Popen(
            [*ALLRAIL, "fabric", "list"], stdout=theirs, stderr=subprocess.PIPE, env=environment
        )
        os.close(theirs)
        text = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            text += part
        process.communicate()
        assert (b"\x1b[1m" in text) is bold

    def test_a_reader_that_leaves_is_no_error(self, folder):
        process = subprocess.Popen(
            [*ALLRAIL, "schema", "scenario"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.close()
        _, told = process.communicate(timeout=60)
        assert told == b""
        assert process.returncode == 141

    def test_errors_are_the_same_from_a_shell(self, folder):
        outcome = run("simulate", "none.yaml", "--out", "out")
        assert outcome.returncode == 2
        assert outcome.stdout == ""
        assert outcome.stderr.startswith("error: none.yaml: there is no such file\n\nhint: ")
        assert not Path("out").exists()


def test_ctrl_c_leaves_no_files(folder):
    more = ("--set", "fabric.dimensions[0].size=64", "--set", "fabric.dimensions[0].kind=switch")
    process = subprocess.Popen(
        [
            *ALLRAIL,
            *("simulate", "scenario.yaml", "--network-model", "links", "--out", "out"),
            *more,
            *("--set", "schedule.chunks=512"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until_computing(process)
    process.send_signal(signal.SIGINT)
    out, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert out == b""
    assert told == b"interrupted\n"
    assert sorted(path.name for path in folder.iterdir()) == ["scenario.yaml"]


TWO = """\
schema_version: 1
fabric: tutorial-8x8x8
collective:
- {kind: all_reduce, size: 100 MB, name: gradients}
- {kind: all_gather, size: 1 GB, start: 1 ms, name: parameters}
schedule: {policy: themis, chunks: 8}
"""


def test_several_collectives_have_a_line_each(folder, allrail_cli):
    (folder / "two.yaml").write_text(TWO)
    outcome = allrail_cli("simulate", "two.yaml", "--out", "out")
    assert outcome.status == 0, outcome.stderr
    assert "gradients" in outcome.stdout
    assert "parameters" in outcome.stdout
    assert "algbw_GBps" not in outcome.stdout
    assert "parameters" in (folder / "out" / "report.html").read_text()


def test_a_plan_keeps_its_own_order_unless_told_otherwise(folder, allrail_cli):
    base = ["two.yaml", "--set", "schedule.policy=search"]
    (folder / "two.yaml").write_text(TWO)
    assert allrail_cli("plan", *base, "--out", "plan.json").status == 0
    assert '"order":"planned"' in allrail_cli(
        "simulate", "two.yaml", "--plan", "plan.json", "--json"
    ).stdout.replace(" ", "")
    told = ["--set", "schedule.order=fifo"]
    assert '"order":"fifo"' in allrail_cli(
        "simulate", "two.yaml", "--plan", "plan.json", "--json", *told
    ).stdout.replace(" ", "")


@pytest.mark.parametrize("group", ["fabric", "reproduce"])
def test_a_group_alone_prints_its_help(allrail_cli, group):
    page = allrail_cli(group)
    assert (page.status, page.stderr) == (0, "")
    assert page.stdout.startswith(f"Usage: allrail {group}")
