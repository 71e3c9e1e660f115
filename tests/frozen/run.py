"""Runs cases by allrail's own command line, in worker processes that import it once."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import yaml

from frozen.cases import Case
from frozen.trees import Renames

CRASH = "crash"
"""The status of a command that ended with an exception."""
LARGEST = 4 << 20
"""Bytes of a file that a command wrote, above which it is left out."""


def settle() -> None:
    """Make this process what a worker is: alone on its core, and nobody's but the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in [name for name in os.environ if name.startswith("ALLRAIL_")]:
        del os.environ[name]
    os.environ.update(
        NO_COLOR="1", COLUMNS="80", OMP_NUM_THREADS="1", RAYON_NUM_THREADS="1", TZ="UTC"
    )


def call(arguments: Sequence[str]) -> tuple[int | str, str]:
    """Run one command in this process.

    Args:
        arguments: What stands after `allrail`.

    Returns:
        Its status, and what it printed on stdout.
    """
    from allrail.cli.main import main
    from allrail.simulation import plugins

    out, err = io.StringIO(), io.StringIO()
    status: int | str = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        except Exception as error:  # noqa: BLE001, a crash is a result too
            status = f"{CRASH}: {type(error).__name__}"
        finally:
            for name in plugins.registered():
                plugins.forget(name)
    return status, out.getvalue()


@functools.cache
def takes_json(command: tuple[str, ...]) -> bool:
    """Whether a command has an option `--json`; its help says so."""
    status, text = call([*command, "--help"])
    return status == 0 and "--json" in text


def run(case: Case) -> dict[str, Any]:
    """Run a case in an empty folder.

    Args:
        case: What to run.

    Returns:
        Its record: `case`, `made` and `steps`; `seconds` of this process beside them.
    """
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="frozen-") as scratch:
        folder = Path(scratch) / "case"
        folder.mkdir()
        case.lay_out(folder)
        os.environ["ALLRAIL_CACHE"] = str(Path(scratch) / "cache")
        back = Path.cwd()
        os.chdir(folder)
        try:
            steps = [_step(arguments, folder) for arguments in case.commands]
        finally:
            os.chdir(back)
    record = {"case": case.name, "made": dict(case.made), "steps": steps}
    return {**record, "seconds": time.process_time() - began}


def _step(arguments: tuple[str, ...], folder: Path) -> dict[str, Any]:
    before = _stamps(folder)
    verb = arguments[: 2 if len(arguments) > 1 and arguments[0] in GROUPS else 1]
    more = ["--json"] if takes_json(verb) and "--json" not in arguments else []
    status, printed = call([*arguments, *more])
    step: dict[str, Any] = {"command": " ".join(arguments), "status": status}
    with contextlib.suppress(ValueError):
        step["json"] = json.loads(printed.replace(str(folder), "."))
    after = _stamps(folder)
    written = [path for path, stamp in after.items() if before.get(path) != stamp]
    files = {str(path.relative_to(folder)): _read(path, folder) for path in sorted(written)}
    known = {name: tree for name, tree in files.items() if tree is not None}
    return {**step, "files": known} if known else step


GROUPS = frozenset({"fabric", "calibrate", "schema"})
"""Commands that have commands of their own."""


def _stamps(folder: Path) -> dict[Path, tuple[int, int]]:
    """Time and size of every file but hidden ones, which list the others with their digests."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name[0] != ".")
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def _read(path: Path, folder: Path) -> Any:
    """What a file of JSON or YAML holds; None for any other."""
    if path.suffix not in {".json", ".yaml", ".yml"} or path.stat().st_size > LARGEST:
        return None
    with contextlib.suppress(ValueError, yaml.YAMLError):
        text = path.read_text(encoding="utf-8").replace(str(folder), ".")
        if path.suffix == ".json":
            return json.loads(text)
        return json.loads(json.dumps(yaml.load(text, _Loader), default=str))
    return None


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def renamed(case: Case, renames: Renames) -> Case:
    """A case whose scenarios have the new names of keys.

    Args:
        case: What is run.
        renames: Of scenarios.
    """
    if not renames:
        return case
    made, copied = dict(case.made), case.copied
    if case.foreign:
        taken = [path for path in copied if path.suffix in {".yaml", ".yml"}]
        made |= {path.name: path.read_text(encoding="utf-8") for path in taken}
        copied = tuple(path for path in copied if path not in taken)
    for name, text in made.items():
        made[name] = yaml.safe_dump(renames.tree(yaml.safe_load(text)), sort_keys=False, width=100)
    return Case(case.name, case.commands, made, copied)


def run_all(cases: Sequence[Case], *, workers: int) -> Iterator[dict[str, Any]]:
    """Run cases on several cores; the records come as they are done.

    Args:
        cases: What to run; give those that take long first.
        workers: How many processes.

    Raises:
        BrokenProcessPool: If a worker was killed.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=settle) as pool:
        waiting = {pool.submit(run, case): case.name for case in cases}
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def room() -> Path:
    """An empty folder, for what cases copy from; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="frozen-inputs-"))


def remove(folder: Path) -> None:
    """Remove such a folder."""
    shutil.rmtree(folder, ignore_errors=True)
