"""Build what is released: of each package a source distribution, and from it a wheel; `make wheel`.

    python release/build.py --out out/dist

There are two packages: allrail, and allrail-reproduce, which is plain Python. A wheel is built from
the unpacked source distribution, so what is released can be built from what is released. allrail's
is abi3: one for every Python from 3.11. Where `ziglang` is installed, zig links it against an old
glibc, so that it runs on older systems than this one; otherwise it needs the glibc of this machine,
and its tag says so. maturin refuses a tag that the wheel's symbols do not keep.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLIBC = "manylinux_2_17"
"""The oldest that Rust's own targets for Linux support."""


NAMES = ("allrail", "allrail_reproduce")
"""The packages, as their files are named."""


@dataclass(frozen=True)
class Built:
    """The two files of a package."""

    sdist: Path
    wheel: Path


def there(folder: Path) -> list[Built]:
    """Find the files of each package in a folder.

    Args:
        folder: Where they were built.

    Raises:
        ValueError: One is not there, or more than once.
    """
    found = []
    for name in NAMES:
        [sdist], [wheel] = folder.glob(f"{name}-*.tar.gz"), folder.glob(f"{name}-*.whl")
        found.append(Built(sdist, wheel))
    return found


def maturin(*arguments: str | Path, cwd: Path) -> None:
    """Run maturin of this environment.

    Args:
        *arguments: Its command and options.
        cwd: The folder with `pyproject.toml`.

    Raises:
        subprocess.CalledProcessError: It failed; what it says went to stderr.
    """
    binaries = str(Path(sys.executable).parent)  # maturin looks for zig there
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "CARGO_TARGET_DIR": str(ROOT / "target"),  # crates of others are built once
    }
    command = [sys.executable, "-m", "maturin", *map(str, arguments)]
    subprocess.run(command, cwd=cwd, env=environment, stdout=sys.stderr, check=True)


def unpack(sdist: Path, to: Path) -> Path:
    """Unpack a source distribution; its files are as new as now, so that nothing built is older.

    Args:
        sdist: The `.tar.gz`.
        to: An empty folder.

    Returns:
        The one folder in it.
    """
    with tarfile.open(sdist) as archive:
        archive.extractall(to, filter="data")
    [tree] = to.iterdir()
    for path in tree.rglob("*"):
        path.touch()
    return tree


def flit(hook: str, out: Path, *, cwd: Path) -> None:
    """Run a hook of flit of this environment.

    Args:
        hook: `build_sdist` or `build_wheel`.
        out: Where the file is written.
        cwd: The folder with `pyproject.toml`.

    Raises:
        subprocess.CalledProcessError: It failed; what it says went to stderr.
    """
    script = f"import sys; from flit_core.buildapi import {hook}; {hook}(sys.argv[1])"
    command = [sys.executable, "-c", script, str(out)]
    subprocess.run(command, cwd=cwd, stdout=sys.stderr, check=True)


def build(out: Path) -> list[Built]:
    """Build all into a folder, in which nothing else is left.

    Args:
        out: The folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("*.tar.gz"), *out.glob("*.whl")]:
        old.unlink()
    maturin("sdist", "--out", out.resolve(), cwd=ROOT)
    [sdist] = out.glob("allrail-*.tar.gz")
    zig = importlib.util.find_spec("ziglang") is not None
    linked = ["--zig", "--compatibility", GLIBC] if zig else ["--compatibility", "pypi"]
    tree = unpack(sdist, _empty(out.parent / "sdist"))
    maturin("build", "--profile", "wheel", "--locked", *linked, "--out", out.resolve(), cwd=tree)
    build_reproduce(out)
    return there(out)


def build_reproduce(out: Path) -> None:
    """Build the package in `reproduce/`: a source distribution, and from it the wheel.

    Args:
        out: The folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    flit("build_sdist", out.resolve(), cwd=ROOT / "reproduce")
    [sdist] = out.glob("allrail_reproduce-*.tar.gz")
    tree = unpack(sdist, _empty(out.parent / "sdist-reproduce"))
    flit("build_wheel", out.resolve(), cwd=tree)


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def main() -> None:
    """Build, and print the paths."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "dist")
    for built in build(parser.parse_args().out):
        print(built.sdist)
        print(built.wheel)


if __name__ == "__main__":
    main()
