"""What `make release-check` says of locked dependencies: known advisories, and licences.

The databases here are small, in the formats of RustSec's advisory-db and PyPA's advisory-database.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ("audit", "build", "check", "notices")


@pytest.fixture
def release(monkeypatch):
    """The modules of `release/`, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "release"))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: __import__(name) for name in MODULES}
    for name in MODULES:
        sys.modules.pop(name, None)


TODAY = date.today().isoformat()
RUSTSEC = """```toml
[advisory]
id = "{id}"
package = "{package}"
date = "{date}"
{more}

[versions]
{versions}
```

# {title}

Words.
"""
OSV = """id: {id}
details: Words.
affected:
- package:
    name: {package}
    ecosystem: PyPI
  ranges:
  - type: GIT
    repo: https://example.com
    events:
    - introduced: '0'
    - fixed: c45d7c49ea75133e52ab22a8e9e13173938e36ff
{affected}
aliases:
- CVE-2018-18074
modified: '{date}T00:03:24.800813Z'
{more}
"""


def rustsec(folder, versions, *, package="pyo3", more="", name="RUSTSEC-2026-0177", when=TODAY):
    path = folder / "crates" / package / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"package": package, "versions": versions, "more": more, "title": "A closure"}
    path.write_text(RUSTSEC.format(id=name, date=when, **about))


def pypa(folder, affected, *, package="requests", more="", name="PYSEC-2018-28", when=TODAY):
    path = folder / "vulns" / package / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = OSV.format(id=name, package=package, affected=affected, more=more, date=when)
    path.write_text(text)


FIXED = """  - type: ECOSYSTEM
    events:
    - introduced: '0'
    - fixed: 2.20.0"""
LISTED = """  versions:
  - 2.19.0
  - 2.9.2
  - not a version"""


@pytest.fixture
def databases(tmp_path):
    """A folder with both, and advisories that the locks of `tree` are not affected by."""
    rustsec(tmp_path / "db" / "advisory-db", 'patched = [">= 0.29.0"]')
    pypa(tmp_path / "db" / "advisory-database", FIXED)
    return tmp_path / "db"


def tree(folder, *, pyo3="0.30.1", requests="2.32.3"):
    folder.mkdir(exist_ok=True)
    (folder / "Cargo.lock").write_text(
        'version = 4\n[[package]]\nname = "allrail-core"\nversion = "0.1.0"\n[[package]]\n'
        f'name = "pyo3"\nversion = "{pyo3}"\n'
        'source = "registry+https://github.com/rust-lang/crates.io-index"\n'
    )
    (folder / "requirements.lock").write_text(
        f"--extra-index-url https://example.com\n# words\nrequests=={requests} ; "
        "python_version < '4' \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n"
        "Py_Yaml==6.0.3 \\\n    --hash=sha256:02\n"
    )
    return folder


def test_locks_without_an_advisory_are_green(release, databases, tmp_path):
    found = release["audit"].audit([databases], tree(tmp_path / "tree"))
    assert (found.affected, found.notices) == ([], [])
    assert found.said == [
        f"1 crates with 1 advisories of RustSec, the newest of {TODAY}",
        f"2 Python packages with 1 advisories of PyPA, the newest of {TODAY}",
    ]
    apart = [databases / "advisory-database", databases / "advisory-db"]
    assert release["audit"].audit(apart, tree(tmp_path / "tree")).said == found.said


def test_a_locked_version_with_an_advisory_is_named(release, databases, tmp_path):
    found = release["audit"].audit([databases], tree(tmp_path / "tree", pyo3="0.27.2"))
    assert found.affected == ["pyo3 0.27.2 in Cargo.lock: RUSTSEC-2026-0177: A closure"]
    found = release["audit"].audit([databases], tree(tmp_path / "tree", requests="2.19.1"))
    assert found.affected == [
        "requests 2.19.1 in requirements.lock: PYSEC-2018-28 (CVE-2018-18074)"
    ]
    pypa(databases / "advisory-database", LISTED, package="Py.YAML", name="PYSEC-1")
    found = release["audit"].audit([databases], tree(tmp_path / "tree"))
    assert found.affected == []
    pypa(databases / "advisory-database", "  versions: [6.0.3]", package="py-yaml", name="PYSEC-1")
    found = release["audit"].audit([databases], tree(tmp_path / "tree"))
    assert found.affected == ["py-yaml 6.0.3 in requirements.lock: PYSEC-1 (CVE-2018-18074)"]


def test_what_is_withdrawn_or_a_notice_is_no_vulnerability(release, databases, tmp_path):
    old = tree(tmp_path / "tree", pyo3="0.27.2", requests="2.19.1")
    rustsec(databases / "advisory-db", "", more='withdrawn = "2026-07-01"')
    pypa(databases / "advisory-database", FIXED, more="withdrawn: '2026-07-01T00:00:00Z'")
    found = release["audit"].audit([databases], old)
    assert (found.affected, found.notices) == ([], [])
    rustsec(databases / "advisory-db", "patched = []", more='informational = "unmaintained"')
    found = release["audit"].audit([databases], old)
    assert found.affected == []
    [notice] = found.notices
    assert "pyo3 0.27.2 in Cargo.lock: RUSTSEC-2026-0177, unmaintained" in notice


def test_an_old_database_is_said_to_be_old(release, tmp_path):
    rustsec(tmp_path / "db", 'patched = [">= 0.29.0"]', when="2020-01-01")
    pypa(tmp_path / "db", FIXED, when="2020-01-01")
    found = release["audit"].audit([tmp_path / "db"], tree(tmp_path / "tree"))
    assert ["a database is old" in one for one in found.notices] == [True, True]


@pytest.mark.parametrize("kind", ["none", "no folder", "empty", "only one", "broken", "torn"])
def test_without_both_databases_nothing_is_green(release, databases, tmp_path, kind):
    folders = [databases]
    if kind == "none":
        folders = []
    elif kind == "no folder":
        folders = [tmp_path / "there is none"]
    elif kind == "empty":
        (tmp_path / "empty").mkdir()
        folders = [tmp_path / "empty"]
    elif kind == "only one":
        shutil.rmtree(databases / "advisory-database")
    elif kind == "broken":
        (databases / "advisory-db" / "crates" / "pyo3" / "RUSTSEC-1.md").write_text("words")
    else:
        pypa(databases / "advisory-database", "  ranges: [", name="PYSEC-2")
    command = [sys.executable, str(ROOT / "release" / "audit.py"), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    if kind in {"none", "empty", "only one"}:
        assert "not audited" in done.stderr
        assert "ADVISORIES" in done.stderr


def test_a_release_is_not_green_unless_it_is_audited(release, databases, monkeypatch):
    check = release["check"]
    built = check.Built(Path("a.tar.gz"), Path("a.whl"))

    def verdict(*advisories):
        [(verdict, line)] = check.lines(
            check.Release(built, built, Path(), advisories), [check.locks_are_audited]
        )
        return verdict, line

    assert verdict()[0] == "failed"
    assert "not audited" in verdict()[1]
    # Our own locks, with the advisories of `databases`.
    assert verdict(databases)[0] == "ok"
    rustsec(databases / "advisory-db", 'patched = [">= 99.0.0"]')
    assert verdict(databases)[0] == "failed"
    assert "RUSTSEC-2026-0177" in verdict(databases)[1]
    assert check.locks_are_audited in check.CHECKS


def test_our_locks_are_read_whole(release):
    """As many pins as the files have, without a parser's help."""
    audit = release["audit"]
    for lock in ROOT.glob("requirements*.lock"):
        pins = len(set(re.findall(r"^[A-Za-z0-9._-]+==\S+", lock.read_text(), re.MULTILINE)))
        assert pins == len([one for one in audit.packages(ROOT) if one.file == lock.name])
    sources = (ROOT / "Cargo.lock").read_text().count('source = "registry+')
    assert len(audit.crates(ROOT)) == sources > 50


REQUIREMENTS = [
    (">= 0.24.1", "0.24.1 0.25.0 1.0.0", "0.24.0 0.24.1-alpha.1"),
    ("< 1.2", "1.1.9 1.2.0-rc.1", "1.2.0"),
    ("> 1.2.3", "1.2.4", "1.2.3"),
    ("> 1.2", "1.3.0", "1.2.9"),
    ("<= 1.2", "1.2.9", "1.3.0"),
    ("<=1.2.3", "1.2.3", "1.2.4"),
    ("^0.3.2", "0.3.2 0.3.9", "0.3.1 0.4.0"),
    ("^0.0.3", "0.0.3", "0.0.4 0.1.0"),
    ("^0.0", "0.0.9", "0.1.0"),
    ("^0", "0.9.9", "1.0.0"),
    ("^1.2", "1.2.0 1.9.0", "1.1.9 2.0.0"),
    ("1.2.3", "1.2.3 1.9.9", "2.0.0"),
    ("~1.2.3", "1.2.3 1.2.9", "1.3.0"),
    ("~1.2", "1.2.9", "1.3.0"),
    ("~1", "1.9.0", "2.0.0"),
    ("= 1.2.3", "1.2.3 1.2.3+build", "1.2.4"),
    ("=1.2", "1.2.9", "1.3.0"),
    (">= 1.0, < 2.0", "1.5.0", "0.9.0 2.0.0"),
    (">= 1.0.0-alpha.2", "1.0.0-alpha.10 1.0.0-beta 1.0.0", "1.0.0-alpha.1"),
    ("*", "0.0.1 9.9.9", ""),
]


@pytest.mark.parametrize(("requirement", "met", "not_met"), REQUIREMENTS)
def test_requirements_of_cargo(release, requirement, met, not_met):
    audit = release["audit"]
    assert [one for one in met.split() if not audit.is_met(requirement, one)] == []
    assert [one for one in not_met.split() if audit.is_met(requirement, one)] == []
    with pytest.raises(audit.AuditError):
        audit.is_met("about 3", "1.0.0")


RANGES = [
    ("[{introduced: '0'}, {fixed: 2.0}]", "1.9 2.0rc1 0.1", "2.0 2.0.1"),
    (
        "[{introduced: 1.0}, {fixed: 1.5}, {introduced: 2.0}, {fixed: 2.5}]",
        "1.2 2.1",
        "0.9 1.7 2.5",
    ),
    ("[{fixed: 2.5}, {introduced: 2.0}]", "2.1", "1.9 2.5"),
    ("[{introduced: 1.0}, {last_affected: 1.5}]", "1.0 1.5", "1.5.1 0.9"),
    ("[{introduced: 1.0}, {fixed: 2.0}, {introduced: 2.0}]", "1.1 2.0 3.0", "0.1"),
    ("[{introduced: '0'}]", "0.0.1 9", ""),
]


@pytest.mark.parametrize(("events", "inside", "outside"), RANGES)
def test_ranges_of_osv(release, tmp_path, events, inside, outside):
    audit = release["audit"]
    rustsec(tmp_path / "db", 'patched = [">= 0.29.0"]')
    pypa(tmp_path / "db", f"  - type: ECOSYSTEM\n    events: {events}")
    for version in [*inside.split(), *outside.split()]:
        found = audit.audit([tmp_path / "db"], tree(tmp_path / "tree", requests=version))
        assert len(found.affected) == (version in inside.split()), version


# -- licences


LICENCES = {
    "MIT": ("MIT",),
    "MIT OR Apache-2.0": ("Apache-2.0",),
    "MIT/Apache-2.0": ("Apache-2.0",),
    "Unlicense OR MIT": ("MIT",),
    "Apache-2.0 AND ISC": ("Apache-2.0", "ISC"),
    "(MIT OR GPL-3.0) AND (ISC OR Zlib)": ("MIT", "ISC"),
    "Apache-2.0 WITH LLVM-exception OR GPL-3.0": ("Apache-2.0 WITH LLVM-exception",),
    "MIT AND GPL-3.0 OR BSD-3-Clause": ("BSD-3-Clause",),
}


@pytest.mark.parametrize("expression", LICENCES)
def test_of_several_licences_an_allowed_one_is_taken(release, expression):
    assert release["notices"].choose(expression) == LICENCES[expression]


@pytest.mark.parametrize(
    "expression",
    ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH Some-exception", "", "MIT OR", "(MIT", "MIT)"],
)
def test_what_is_not_allowed_or_cannot_be_read_is_refused(release, expression):
    with pytest.raises(release["notices"].LicenceError, match=re.escape(f"`{expression}`")):
        release["notices"].choose(expression)


def crate(release, folder, licence, *files):
    folder.mkdir()
    for name in files:
        (folder / name).write_text(f"text of {name}\r\n")
    return release["notices"].Crate("one", "1.0.0", licence, folder)


def test_each_crate_comes_with_the_texts_of_its_licence(release, tmp_path):
    notices = release["notices"]
    both = crate(release, tmp_path / "a", "MIT OR Apache-2.0", "LICENSE-MIT", "LICENSE-APACHE")
    assert notices.texts(both, ("Apache-2.0",)) == ["text of LICENSE-APACHE"]
    noticed = crate(release, tmp_path / "b", "Apache-2.0", "license", "NOTICE.md", "README.md")
    assert notices.texts(noticed, ("Apache-2.0",)) == ["text of NOTICE.md", "text of license"]
    other = crate(release, tmp_path / "c", "MIT OR Apache-2.0", "LICENSE-MIT")
    assert notices.texts(other, ("Apache-2.0",)) == ["text of LICENSE-MIT"]
    none = crate(release, tmp_path / "d", "MIT")
    with pytest.raises(notices.LicenceError, match="has no text of MIT"):
        notices.texts(none, ("MIT",))
    text = notices.notices([both, noticed])
    assert "one 1.0.0: Apache-2.0 (offered: MIT OR Apache-2.0)" in text
    assert "text of NOTICE.md" in text
    bad = crate(release, tmp_path / "e", "GPL-3.0", "LICENSE")
    with pytest.raises(notices.LicenceError, match=r"one 1\.0\.0: `GPL-3\.0` is not allowed"):
        notices.notices([both, bad])


def has_crates():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--offline"]
    return (
        shutil.which("cargo")
        and not subprocess.run(command, cwd=ROOT, capture_output=True).returncode
    )


def test_the_notices_are_those_of_cargo_lock(release):
    """`make notices` follows each change of Cargo.lock."""
    if not has_crates():
        pytest.skip("cargo, or the packages of Cargo.lock, are not here")
    notices = release["notices"]
    crates = notices.linked()
    assert {"pyo3", "rustls", "ring", "serde"} <= {one.name for one in crates}
    # Neither ours, nor what only builds or runs in the compiler.
    assert not {"allrail-core", "pyo3-macros", "syn", "proptest"} & {one.name for one in crates}
    assert notices.NOTICES.read_text(encoding="utf-8") == notices.notices(crates)
