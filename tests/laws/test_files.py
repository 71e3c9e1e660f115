"""No command harms a file that allrail did not write.

For every command with an output: whatever was in the way (plain files, empty and read-only ones,
links to files elsewhere and to the command's own inputs, folders) is there afterwards as it was,
byte for byte, and the command says so in one error. Run again, it replaces what it wrote, and only
that.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from allrail.base.errors import InputError
from allrail.base.files import check_name
from allrail.base.manifest import NAME

ROOT = Path(__file__).parents[2]

STEP = """\
schema_version: 1
fabric: {name: two, dimensions: [{kind: switch, size: 4, bandwidth: 100 Gb/s, latency: 1 us}]}
workload:
  model: {layers: [{name: a, dense: {inputs: 64, outputs: 64}}]}
  batch_per_replica: 8
  compute: {device: a100}
schedule: {policy: baseline, chunks: 4}
"""
STUDY = "schema_version: 1\nscenario: scenario.yaml\naxes: {seed: [1]}\n"
TABLE = """\
# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid  1 on  host device  0 [0x00] NVIDIA A100-SXM4-80GB
#       size         count      type   redop    root     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)
"""


def measured() -> str:
    """What nccl-tests would print of a network of 100 GB/s and 20 us."""
    rows = []
    for power in range(10, 28):
        size = 2**power
        time = 20 + size * 1.75 / 100e3
        algbw = size / time / 1e3
        rows.append(
            f"{size:12d} {size // 4:13d}     float     sum      -1 {time:8.2f} {algbw:7.2f}"
            f" {algbw * 1.75:7.2f}      0"
        )
    return TABLE + "\n".join(rows) + "\n"


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    Attributes:
        words: Its arguments; `{out}` is where it writes.
        file: Whether `{out}` is a file, of this name; else a folder.
        prepared: Commands that make what it reads.
    """

    words: str
    file: str = ""
    prepared: tuple[str, ...] = ()


WRITERS = {
    "simulate": Writer("simulate scenario.yaml --out {out}"),
    "simulate a step": Writer("simulate step.yaml --out {out}"),
    "compare": Writer("compare scenario.yaml --policy baseline,themis --out {out}"),
    "sweep": Writer("sweep study.yaml --workers 1 --out {out}"),
    "plan": Writer("plan scenario.yaml --out {out}", file="plan.json"),
    "plan a layout": Writer(
        "plan --model gpt2 --fabric dgx-a100 --npus 8 --top 1 --out {out}", file="layout.yaml"
    ),
    "plan a layout, report": Writer(
        "plan --model gpt2 --fabric dgx-a100 --npus 8 --top 1 --report {out}"
    ),
    "report": Writer(
        "report made --out {out}", file="page.html", prepared=("simulate scenario.yaml --out made",)
    ),
    "require": Writer("require step.yaml --throughput 0.5x-ideal --out {out}"),
    "apply": Writer("apply step.yaml --out {out}"),
    "import": Writer("import rank0.json -o {out}"),
    "import Chakra": Writer(
        "import made/step.0.et -o {out}", prepared=("export step.yaml --chakra made",)
    ),
    "import a model": Writer("import config.json -o {out}"),
    "export": Writer("export step.yaml --chakra {out}"),
    "export representatives": Writer("export step.yaml --chakra {out} --ranks representative"),
    "calibrate": Writer("calibrate network nccl.txt -o {out}", file="fabric.yaml"),
    "calibrate, report": Writer("calibrate network nccl.txt --report {out}"),
    "expect, report": Writer("expect dgx-h100 --measured nccl.txt --report {out}"),
    "fabric picture": Writer("fabric show hx2mesh-1k --picture {out}", file="drawn.svg"),
    "place": Writer("place --fabric hx2mesh-1k --count 2 --out {out}"),
    "run": Writer("run --trace {out} {python} record.py record.json"),
}
SCRIPT = """\
import json, pathlib, sys
from allrail.runtime import record
text = pathlib.Path(sys.argv[1]).read_text()
record.write(json.loads(text), record.folder())
"""


@pytest.fixture
def place(folder) -> Path:
    """A folder with all that the commands read."""
    (folder / "scenario.yaml").write_text(
        "schema_version: 1\nfabric: tutorial-8x8x8\ncollective: {kind: all_reduce, size: 1 MiB}\n"
    )
    (folder / "step.yaml").write_text(STEP)
    (folder / "study.yaml").write_text(STUDY)
    (folder / "nccl.txt").write_text(measured())
    shutil.copy(ROOT / "examples" / "12-import-a-trace" / "rank0.json", folder)
    model = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps(model | {"n_positions": 64}))
    (folder / "record.py").write_text(SCRIPT)
    made = ROOT / "tests" / "runtime" / "records.py"
    spec = importlib.util.spec_from_file_location("records", made)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (folder / "record.json").write_text(json.dumps(module.a_record()))
    return folder


def seen(folder: Path) -> dict[str, tuple[str, bytes | str, int]]:
    """Every entry below a folder: its kind, what it holds, its permissions."""
    found: dict[str, tuple[str, bytes | str, int]] = {}
    for entry in sorted(folder.rglob("*")):
        name = entry.relative_to(folder).as_posix()
        mode = entry.lstat().st_mode
        if entry.is_symlink():
            found[name] = ("link", str(entry.readlink()), mode)
        elif entry.is_dir():
            found[name] = ("folder", "", mode)
        else:
            found[name] = ("file", entry.read_bytes(), mode)
    return found


PRECIOUS = b"of somebody else\n"


def plain(at: Path, _: Path) -> None:
    at.write_bytes(PRECIOUS)


def empty(at: Path, _: Path) -> None:
    at.touch()


def read_only(at: Path, _: Path) -> None:
    at.write_bytes(PRECIOUS)
    at.chmod(0o444)


def link_elsewhere(at: Path, elsewhere: Path) -> None:
    at.symlink_to(elsewhere / "precious")


def dangling_link(at: Path, elsewhere: Path) -> None:
    at.symlink_to(elsewhere / "nothing")


def hard_link(at: Path, elsewhere: Path) -> None:
    at.hardlink_to(elsewhere / "precious")


def link_to_input(at: Path, elsewhere: Path) -> None:
    at.symlink_to(elsewhere.parent / "step.yaml")


def hard_link_to_input(at: Path, elsewhere: Path) -> None:
    at.hardlink_to(elsewhere.parent / "step.yaml")


def a_folder(at: Path, _: Path) -> None:
    at.mkdir()
    (at / "inner").write_bytes(PRECIOUS)


OBSTACLES: tuple[Callable[[Path, Path], None], ...] = (
    plain,
    empty,
    read_only,
    link_elsewhere,
    dangling_link,
    hard_link,
    link_to_input,
    hard_link_to_input,
    a_folder,
)


def words_of(writer: Writer, out: Path) -> list[str]:
    given = {"out": str(out / writer.file if writer.file else out), "python": sys.executable}
    return [word.format(**given) for word in writer.words.split()]


@pytest.mark.parametrize("name", WRITERS)
def test_what_others_wrote_stays(name, place, allrail_cli):
    writer = WRITERS[name]
    for words in writer.prepared:
        assert allrail_cli(*words.split()).status == 0
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(PRECIOUS)
    first = allrail_cli(*words_of(writer, place / "first"))
    assert first.status == 0, first.stderr
    made = sorted(
        entry.relative_to(place / "first").as_posix()
        for entry in (place / "first").rglob("*")
        if entry.is_file() and entry.name not in (NAME, "sweep.jsonl")
    )
    assert made
    if name == "run":  # its records are named after ranks, and other names are free
        made = ["trace.json.gz"]
    if name == "sweep":
        made.append("sweep.jsonl")
    index = sorted(WRITERS).index(name)
    rng = np.random.default_rng(index)
    # Some of them for each command, so that every one is tried with several.
    chosen = [OBSTACLES[(index + step) % len(OBSTACLES)] for step in (0, 2, 5)]
    for number, obstacle in enumerate(chosen):
        out = place / f"out{number}"
        target = out / str(rng.choice(made))
        target.parent.mkdir(parents=True)
        obstacle(target, elsewhere)
        (out / "notes.csv").write_bytes(rng.bytes(40))
        before = seen(place)
        outcome = allrail_cli(*words_of(writer, out))
        assert outcome.status == 2, (obstacle, target, outcome)
        assert outcome.stderr.startswith("error: "), (obstacle, target, outcome)
        assert "Traceback" not in outcome.stderr
        after = seen(place)
        assert after == before, (obstacle, target)


@pytest.mark.parametrize("name", WRITERS)
def test_run_again_a_command_replaces_what_it_wrote_and_nothing_else(name, place, allrail_cli):
    writer = WRITERS[name]
    for words in writer.prepared:
        assert allrail_cli(*words.split()).status == 0
    out = place / "out"
    out.mkdir()
    others = {"notes.csv": b"1,2\n", "a.0.et": b"a trace", "rank0.json.gz": b"a measured trace"}
    for other, data in others.items():
        (out / other).write_bytes(data)
    first = allrail_cli(*words_of(writer, out))
    assert first.status == 0, first.stderr
    before = seen(out)
    again = allrail_cli(*words_of(writer, out))
    assert again.status == 0, again.stderr
    after = seen(out)
    assert after.keys() == before.keys()
    assert all(after[other][1] == data for other, data in others.items())
    # What somebody has changed since is his.
    changed = next(
        one
        for one in sorted(out.rglob("*"))
        if one.is_file() and one.name not in (*others, NAME, "sweep.jsonl")
    )
    changed.write_bytes(changed.read_bytes() + b"\n# mine\n")
    before = seen(out)
    refused = allrail_cli(*words_of(writer, out))
    assert refused.status == 2, refused
    assert "was changed since allrail wrote it" in refused.stderr
    assert seen(out) == before


def test_import_in_place_leaves_the_measured_sources(place, allrail_cli):
    assert allrail_cli("export", "step.yaml", "--chakra", "traces", "--name", "gpt").status == 0
    traces = place / "traces"
    (traces / NAME).unlink()  # they come from another machine
    before = seen(traces)
    for words in ("gpt.0.et -o .", "gpt.0.et -o . --npus 8", "gpt -o . --name gpt"):
        os.chdir(traces)
        outcome = allrail_cli("import", *words.split())
        os.chdir(place)
        assert outcome.status == 2 or seen(traces).items() >= before.items()
        assert {name: seen(traces)[name] for name in before} == before
    # Nor where allrail wrote them: a source is never a target.
    assert allrail_cli("export", "step.yaml", "--chakra", "ours", "--name", "gpt").status == 0
    before = seen(place / "ours")
    outcome = allrail_cli("import", "ours/gpt.0.et", "--npus", "8", "-o", "ours")
    assert (outcome.status, seen(place / "ours")) == (2, before)
    assert "it is read by this command" in outcome.stderr
    os.link(place / "ours" / "gpt.0.et", place / "linked.0.et")
    outcome = allrail_cli("import", "linked.0.et", "--name", "gpt", "-o", "ours")
    assert {name: seen(place / "ours")[name] for name in before} == before


def test_a_scenario_is_not_replaced_by_what_is_made_of_it(place, allrail_cli):
    assert allrail_cli("import", "rank0.json", "-o", "out").status == 0
    before = seen(place / "out")
    for words in (
        "plan out/rank0.yaml --out out/rank0.yaml",
        "export out/rank0.yaml --chakra out --set fabric.dimensions[0].size=4",
    ):
        outcome = allrail_cli(*words.split())
        assert outcome.status == 2, words
        assert seen(place / "out") == before, words


@pytest.mark.parametrize("rank", ["4", "11", "ranks"])
def test_a_file_that_would_be_taken_for_a_rank_is_refused(rank, place, allrail_cli):
    (place / "out").mkdir()
    stray = "ranks.json" if rank == "ranks" else f"{rank}.et"
    (place / "out" / f"step.{stray}").write_bytes(PRECIOUS)
    before = seen(place / "out")
    outcome = allrail_cli("export", "step.yaml", "--chakra", "out")
    assert outcome.status == 2
    assert "would be taken for a part" in outcome.stderr
    assert seen(place / "out") == before


def test_two_traces_share_a_folder_and_neither_loses_files(place, allrail_cli):
    assert allrail_cli("export", "step.yaml", "--chakra", "out", "--name", "a").status == 0
    assert allrail_cli("export", "step.yaml", "--chakra", "out", "--name", "a.b").status == 0
    before = seen(place / "out")
    fewer = ("--set", "fabric.dimensions[0].size=2")
    outcome = allrail_cli("export", "step.yaml", "--chakra", "out", "--name", "a", *fewer)
    assert outcome.status == 2, "its process groups are the other's, too"
    assert "it belongs to `trace a.b`" in outcome.stderr
    assert seen(place / "out") == before
    # Alone, it is replaced, and ranks that are no more go.
    assert allrail_cli("export", "step.yaml", "--chakra", "one", "--name", "a").status == 0
    assert allrail_cli("export", "step.yaml", "--chakra", "one", "--name", "a", *fewer).status == 0
    names = {path.name for path in (place / "one").iterdir()}
    assert names == {NAME, "a.0.et", "a.1.et", "comm_group.json"}


OURS = '{"made_by": "allrail", "schema_version": 1, "files": %s}'

NO_NAMES = [
    *("", ".", "..", "../../escape", "a/b", "/etc/passwd", "a\\b", ".hidden", "a\nb", "a\0b"),
    *("a\x1b[2J", "x" * 300, "\u202egpj.exe", "~/../x/"),
]


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize("verb", ["import", "export"])
def test_a_name_is_a_name_and_no_path(name, verb, place, allrail_cli):
    (place / "deep" / "er").mkdir(parents=True)
    (place / "escape.0.et").write_bytes(PRECIOUS)
    before = seen(place)
    words = {
        "import": ("import", "rank0.json", "-o", "deep/er"),
        "export": ("export", "step.yaml", "--chakra", "deep/er"),
    }[verb]
    outcome = allrail_cli(*words, "--name", name)
    assert outcome.status == 2
    assert outcome.stderr.startswith("error: --name: ")
    assert seen(place) == before


@pytest.mark.parametrize(
    "name", ["gpt", "gpt 2", "[x]*?", "gpt.v1", "-x", "模型", "a" * 100, "$(x)"]
)
def test_other_names_are_taken_as_they_are(name, place, allrail_cli):
    assert check_name(name) == name
    assert allrail_cli("import", "rank0.json", "-o", "out", "--name", name).status == 0
    assert (place / "out" / f"{name}.0.et").is_file()
    assert allrail_cli("simulate", f"out/{name}.yaml").status == 0
    assert allrail_cli("import", "rank0.json", "-o", "out", "--name", name).status == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[" * 100_000,
        OURS % '{"../precious": {"of": [], "sha256": []}}',
        OURS % '{"/etc/passwd": {"of": [], "sha256": []}}',
        OURS % '{"a/../../precious": {"of": [], "sha256": []}}',
        OURS % '{"a": {"of": [1], "sha256": []}}',
        OURS % '{"a": [[[]]]}',
        OURS % "[]",
        '{"made_by": "another", "schema_version": 1, "files": {}}',
        '{"made_by": "allrail", "schema_version": 2, "files": {}}',
    ],
)
def test_a_manifest_of_others_is_refused(text, place, allrail_cli):
    (place / "precious").write_bytes(PRECIOUS)
    (place / "out").mkdir()
    (place / "out" / NAME).write_text(text)
    before = seen(place)
    outcome = allrail_cli("export", "step.yaml", "--chakra", "out")
    assert outcome.status == 2
    assert NAME in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert seen(place) == before


def test_a_manifest_cannot_name_files_through_links(place, allrail_cli):
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "rank_0.json.gz").write_bytes(PRECIOUS)
    assert allrail_cli("simulate", "step.yaml", "--out", "out").status == 0
    shutil.rmtree(place / "out" / "kineto", ignore_errors=True)
    (place / "out" / "kineto").symlink_to(place / "elsewhere")
    before = seen(place)
    outcome = allrail_cli("simulate", "step.yaml", "--out", "out", "--timeline")
    assert outcome.status == 2, outcome
    assert seen(place) == before


def test_a_run_that_is_stopped_half_way_leaves_whole_files_and_may_go_on(
    place, allrail_cli, monkeypatch
):
    assert allrail_cli("export", "step.yaml", "--chakra", "out").status == 0
    before = seen(place / "out")
    replace, moved = Path.replace, []

    def stops(self, target):
        if len(moved) == 2:
            raise KeyboardInterrupt
        if Path(target).suffix == ".et":
            moved.append(target)
        return replace(self, target)

    longer = ("--set", "workload.batch_per_replica=64")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", stops)
        assert allrail_cli("export", "step.yaml", "--chakra", "out", *longer).status == 130
    stopped = seen(place / "out")
    assert stopped.keys() == before.keys()
    changed = [name for name in before if stopped[name][1] != before[name][1]]
    assert sorted(changed) == [NAME, *sorted(Path(path).name for path in moved)]
    assert allrail_cli("export", "step.yaml", "--chakra", "out", *longer).status == 0
    assert allrail_cli("export", "step.yaml", "--chakra", "fresh", *longer).status == 0
    assert seen(place / "out") == seen(place / "fresh")


def test_a_folder_may_be_a_link_and_what_it_holds_no_other_file_system(place, allrail_cli):
    (place / "real").mkdir()
    (place / "out").symlink_to(place / "real")
    for _ in range(2):
        assert allrail_cli("export", "step.yaml", "--chakra", "out").status == 0
    assert (place / "out").is_symlink()
    assert len(list((place / "real").glob("*.et"))) == 4


def test_in_a_folder_of_many_users_each_has_a_manifest(place, allrail_cli):
    (place / "tmp").mkdir()
    (place / "tmp").chmod(0o1777)
    (place / "tmp" / NAME).write_text("of another user")
    for _ in range(2):
        assert allrail_cli("plan", "scenario.yaml", "--out", "tmp/plan.json").status == 0
    assert (place / "tmp" / f".allrail-{os.getuid()}.json").is_file()
    assert (place / "tmp" / NAME).read_text() == "of another user"


@pytest.mark.parametrize("path", ["a\0b", "x" * 300])
def test_a_path_that_no_file_can_have_is_an_error(path, place, allrail_cli):
    import allrail

    before = seen(place)
    with pytest.raises(InputError):
        allrail.plan("scenario.yaml").save(path)
    with pytest.raises(InputError):
        allrail.sweep("study.yaml", path, workers=1)
    assert seen(place) == before
