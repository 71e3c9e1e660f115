"""torch knows the backend `allrail` without an import, which never breaks `import torch`."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

from ports import free_port  # noqa: E402

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

RANK = """
import sys
import torch
import torch.distributed as dist

loaded = sorted(name for name in sys.modules if name.startswith("allrail"))
assert loaded in ([], ["allrail", "allrail.autoload"]), loaded
dist.init_process_group("allrail")
one = torch.ones(2)
dist.all_reduce(one)
print(one.tolist(), dist.get_backend())
dist.destroy_process_group()
"""


def started(tmp_path, code, ranks, **environment):
    """Run code on ranks with the environment that torchrun gives; return what they print."""
    (tmp_path / "script.py").write_text(code)
    known = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                **known,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                **environment,
            },
        )
        for rank in range(ranks)
    ]
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, said
    return said


def test_the_package_says_where_to_register():
    for group in ("torch.backends", "torch.distributed.backends"):
        (point,) = importlib.metadata.entry_points(group=group, name="allrail")
        assert callable(point.load())


@pytest.mark.skipif(VERSION < (2, 6), reason="the backend needs torch 2.6 or later")
def test_the_backend_needs_no_import(tmp_path):
    for said in started(tmp_path, RANK, 2):
        assert "[2.0, 2.0] allrail\n" in said


@pytest.mark.skipif(VERSION < (2, 15), reason="earlier ones do not look for backends by name")
def test_the_backend_is_found_where_nothing_is_loaded_at_import(tmp_path):
    [said] = started(tmp_path, RANK, 1, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "[1.0, 1.0] allrail\n" in said


# What is done before `import torch`, and how Python is called.
BROKEN = {
    "nothing": ("", []),
    "warnings are errors": ("", ["-W", "error"]),
    "no core": ("import sys; sys.modules['allrail._core'] = None", []),
    "no runtime": ("import sys; sys.modules['allrail.torch'] = None", []),
    "a file that is not Python": ("import sys; sys.modules['allrail.torch.backend'] = 3", []),
}


@pytest.mark.parametrize("name", BROKEN)
def test_torch_can_be_imported(name, tmp_path):
    before, options = BROKEN[name]
    tmp_path.chmod(0o500)  # nothing is written, either
    done = subprocess.run(
        [sys.executable, *options, "-c", f"{before}\nimport torch\nprint(torch.ones(1).item())"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    tmp_path.chmod(0o700)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "1.0\n"


def no_register_backend(monkeypatch):
    monkeypatch.delattr(torch.distributed.Backend, "register_backend")


def other_signature(monkeypatch):
    monkeypatch.setattr(torch.distributed.Backend, "register_backend", dict)


def no_process_groups(monkeypatch):
    monkeypatch.delattr(torch.distributed, "Backend")


def no_distributed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.distributed", None)


@pytest.mark.parametrize(
    "broken", [no_register_backend, other_signature, no_process_groups, no_distributed]
)
def test_registering_never_raises(broken, monkeypatch):
    from allrail.autoload import register

    monkeypatch.delattr(torch.distributed.Backend, "ALLRAIL", raising=False)
    broken(monkeypatch)
    register()
