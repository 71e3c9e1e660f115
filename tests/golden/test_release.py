"""What `make release-check` runs on a real release notices what is wrong with one."""

from __future__ import annotations

import io
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import allrail

ROOT = Path(__file__).parents[2]


@pytest.fixture
def check(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "release"))
    for name in ("audit", "build", "check", "notices"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import check

    yield check
    for name in ("audit", "build", "check", "notices"):
        sys.modules.pop(name, None)


@pytest.fixture
def release(check, tmp_path, monkeypatch):
    """Make one of so many files, in a tree of three."""
    monkeypatch.setattr(
        check, "tracked", lambda under: {one for one in TREE if under in (".", *_up(one))}
    )

    def made(sdist, wheel):
        one, other = tmp_path / "allrail-0.1.0.tar.gz", tmp_path / f"allrail-0.1.0-{TAG}.whl"
        with tarfile.open(one, "w:gz") as archive:
            for name in sdist:
                archive.addfile(tarfile.TarInfo(f"allrail-0.1.0/{name}"), io.BytesIO())
        with zipfile.ZipFile(other, "w") as archive:
            for name in wheel:
                archive.writestr(name, "Version: 0.1.0\n")
        return check.Release(check.Built(one, other), pure(), tmp_path)

    def pure(sdist=frozenset(PURE_SDIST), wheel=frozenset(PURE_WHEEL), needs="allrail==0.1.0"):
        one = tmp_path / "allrail_reproduce-0.1.0.tar.gz"
        other = tmp_path / "allrail_reproduce-0.1.0-py3-none-any.whl"
        with tarfile.open(one, "w:gz") as archive:
            for name in sdist:
                archive.addfile(tarfile.TarInfo(f"allrail_reproduce-0.1.0/{name}"), io.BytesIO())
        with zipfile.ZipFile(other, "w") as archive:
            for name in wheel:
                archive.writestr(name, f"Version: 0.1.0\nRequires-Dist: {needs}\n")
        return check.Built(one, other)

    made.pure = pure
    return made


def _up(name):
    return [str(parent) for parent in Path(name).parents]


TAG = "cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64"
TREE = {
    "Cargo.toml",
    "Cargo.lock",
    "pyproject.toml",
    "LICENSE",
    "THIRD-PARTY-NOTICES.txt",
    "README.md",
    "crates/core/Cargo.toml",
    "crates/core/src/lib.rs",
    "crates/core/tests/it/main.rs",
    "python/allrail/py.typed",
    "python/allrail/presets/fabrics/today.yaml",
    "reproduce/LICENSE",
    "reproduce/pyproject.toml",
    "reproduce/allrail_reproduce/themis.py",
    "reproduce/allrail_reproduce/runs/memory.csv",
}
SDIST = {one for one in TREE if not one.startswith("reproduce") and "tests" not in one}
SDIST |= {"PKG-INFO"}
WHEEL = {
    "allrail/py.typed",
    "allrail/presets/fabrics/today.yaml",
    "allrail/_core.abi3.so",
    "allrail-0.1.0.dist-info/licenses/LICENSE",
    "allrail-0.1.0.dist-info/licenses/THIRD-PARTY-NOTICES.txt",
    "allrail-0.1.0.dist-info/METADATA",
}
OWN = {one.removeprefix("reproduce/") for one in TREE if one.startswith("reproduce/")}
PURE_SDIST = OWN | {"PKG-INFO"}
ABOUT = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
PURE_WHEEL = {one for one in OWN if "/" in one}
PURE_WHEEL |= {f"allrail_reproduce-0.1.0.dist-info/{one}" for one in ABOUT}
FILES = (
    "versions_agree",
    "sdist_has_what_it_needs",
    "sdist_has_nothing_else",
    "wheel_is_abi3_and_manylinux",
    "wheel_has_the_package",
    "reproduce_has_its_package",
)


def verdicts(check, release):
    checks = [getattr(check, name) for name in FILES]
    return {line[9:].partition(":")[0]: verdict for verdict, line in check.lines(release, checks)}


def failed(check, release):
    return [name for name, verdict in verdicts(check, release).items() if verdict == "failed"]


def test_a_release_as_it_should_be(check, release):
    assert failed(check, release(SDIST, WHEEL)) == []


@pytest.mark.parametrize(
    ("change", "sdist", "wheel"),
    [
        ("sdist has what it needs", SDIST - {"Cargo.lock"}, WHEEL),
        ("sdist has what it needs", SDIST - {"python/allrail/py.typed"}, WHEEL),
        ("sdist has nothing else", SDIST | {"crates/core/tests/it/main.rs"}, WHEEL),
        ("sdist has nothing else", SDIST | {"python/allrail/_core.abi3.so"}, WHEEL),
        ("sdist has nothing else", SDIST | {"notes.txt"}, WHEEL),
        ("wheel has the package", SDIST, WHEEL - {"allrail/presets/fabrics/today.yaml"}),
        ("wheel has the package", SDIST, WHEEL - {"allrail/_core.abi3.so"}),
        ("wheel has the package", SDIST, WHEEL | {"tests/test_core.py"}),
        ("wheel has the package", SDIST, {one for one in WHEEL if "THIRD-PARTY" not in one}),
        ("sdist has what it needs", SDIST - {"THIRD-PARTY-NOTICES.txt"}, WHEEL),
    ],
)
def test_what_is_missing_or_too_much_is_named(check, release, change, sdist, wheel):
    assert failed(check, release(sdist, wheel)) == [change]


@pytest.mark.parametrize(
    "files",
    [
        {"sdist": PURE_SDIST - {"LICENSE"}},
        {"sdist": PURE_SDIST | {"allrail_reproduce/__pycache__/themis.pyc"}},
        {"wheel": PURE_WHEEL - {"allrail_reproduce/runs/memory.csv"}},
        {"wheel": PURE_WHEEL | {"tests/test_themis.py"}},
        {"wheel": {one for one in PURE_WHEEL if "LICENSE" not in one}},
    ],
    ids=["no licence", "built", "no table", "tests", "no licence in the wheel"],
)
def test_what_the_other_package_lacks_or_has_too_much_is_named(check, release, files):
    made = release(SDIST, WHEEL)
    release.pure(**files)
    assert failed(check, made) == ["reproduce has its package"]


def test_the_other_package_needs_this_version(check, release):
    made = release(SDIST, WHEEL)
    release.pure(needs="allrail>=0.1.0")
    assert failed(check, made) == ["versions agree"]


def test_the_other_package_has_the_version_and_the_licence_of_this_one():
    project = tomllib.loads((ROOT / "reproduce" / "pyproject.toml").read_text())["project"]
    assert project["version"] == allrail.__version__
    assert project["dependencies"] == [f"allrail=={allrail.__version__}"]
    assert (ROOT / "reproduce" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_other_package_is_built_from_its_source_distribution(check, tmp_path):
    """Every file of its folder is in both; nothing else is."""
    import build

    build.build_reproduce(tmp_path / "dist")
    [sdist], [wheel] = (tmp_path / "dist").glob("*.tar.gz"), (tmp_path / "dist").glob("*.whl")
    package = ROOT / "reproduce" / "allrail_reproduce"
    files = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    about = {f"allrail_reproduce-0.1.0.dist-info/{one}" for one in ABOUT}
    assert check.installed(wheel) == files | about
    beside = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert check.packed(sdist) == files | beside


@pytest.mark.parametrize("tag", ["cp311-cp311-manylinux_2_17_x86_64", "cp311-abi3-linux_x86_64"])
def test_a_wheel_of_one_python_or_of_one_machine_is_no_release(check, release, tag, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "TAG", tag)
    assert failed(check, release(SDIST, WHEEL)) == ["wheel is abi3 and manylinux"]


def test_a_doubt_is_no_failure_and_a_command_that_fails_is_one(check, release):
    def doubtful(_release):
        raise check.Doubt("perhaps")

    def fails(release):
        return release.run(sys.executable, "-c", "print('why'); raise SystemExit(3)")

    seen = list(check.lines(release(SDIST, WHEEL), [doubtful, fails]))
    assert [verdict for verdict, _ in seen] == ["warning", "failed"]
    assert seen[0][1] == "warning  doubtful: perhaps"
    assert seen[1][1].endswith("why")


def test_unpacked_files_are_new(check, tmp_path):
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        entry = tarfile.TarInfo("a-1/src.rs")
        entry.mtime = 1
        file.addfile(entry, io.BytesIO())
    import build

    unpacked = build.unpack(archive, tmp_path / "new")
    assert unpacked.name == "a-1"
    assert (unpacked / "src.rs").stat().st_mtime > archive.stat().st_mtime - 60
