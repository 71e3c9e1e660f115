"""Figures of the code's structure and of its words; tests in test_lint.py keep words out of docs.

    make structure                       # or: python tests/lint [structure]
    make lint                            # among others: python tests/lint layers
    make words                           # or: python tests/lint words [--each FILE]

A *room* is a file or folder at the top of `python/allrail`. A *cycle* is a group of names
that all reach each other; every import counts, also those in functions and for type checkers.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from lint import graph, layers, python_imports, rust_modules, sizes, words

ROOT = Path(__file__).parents[2]
ROW = "{:<24}{:>9}{:>9}{:>9}{:>9}{:>9}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python tests/lint", description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", choices=("structure", "layers", "words"), nargs="?", default="structure"
    )
    parser.add_argument("--each", type=Path, metavar="FILE", help="of words: each hit in this file")
    given = parser.parse_args()
    if given.what == "layers":
        return check()
    return structure() if given.what == "structure" else _words(given.each)


def check(root: Path = ROOT) -> int:
    """Print cycles and arrows that run up; 1 where there is one."""
    found = list(layers.problems(root))
    print("\n".join(f"error: {one}" for one in found), end="\n" if found else "")
    return 1 if found else 0


def structure(root: Path = ROOT) -> int:
    """Print cycles of rooms, of modules, and of modules within crates."""
    modules = python_imports.arrows(root / "python" / "allrail", types=True)
    names = set(modules) | {one for needed in modules.values() for one in needed}
    rooms = graph.folded(modules, [(name, python_imports.room(name)) for name in names])
    crates = {
        f"crates/{path.parent.name}": rust_modules.arrows(path)
        for path in sorted((root / "crates").glob("*/src"))
    }
    print(f"Rooms, from the ground up: {' '.join(layers.LAYERS)}")
    print(f"Imports that run up: {len(layers.upward(modules))}")
    late = len(list(python_imports.in_functions(root / "python" / "allrail")))
    print(f"Imports in functions, of what is not large: {late}\n")
    print(ROW.format("", "names", "arrows", "cycles", "in them", "pairs"))
    for title, arrows in {"rooms": rooms, "Python modules": modules, **crates}.items():
        found = graph.cycles(arrows)
        count = sum(map(len, arrows.values()))
        pairs = len(graph.mutual(arrows))
        print(ROW.format(title, len(arrows), count, len(found), sum(map(len, found)), pairs))
    for title, arrows in {"rooms": rooms, "Python modules": modules, **crates}.items():
        for group in graph.cycles(arrows):
            print(f"\n{title}: a cycle of {len(group)}: {' '.join(group)}")
    _sizes(root)
    return 0


def _sizes(root: Path) -> None:
    packages = (root / "python" / "allrail", root / "reproduce" / "allrail_reproduce")
    paths = [path for package in packages for path in sorted(package.rglob("*.py"))]
    files, functions = sizes.files(paths), sizes.functions(paths)
    print(f"\nPython files above {sizes.MAX_FILE_LINES} lines: {len(files)}")
    for count, path in files:
        print(f"{count:>6}  {path.relative_to(root)}")
    print(f"\nPython functions above {sizes.MAX_FUNCTION_LINES} lines: {len(functions)}")
    for count, path, name in functions:
        print(f"{count:>6}  {path.relative_to(root)}: {name}")


def _words(each: Path | None) -> int:
    listed = words.banned()
    if each is not None:
        for line, found, better in words.hits(each.read_text(encoding="utf-8"), listed):
            print(f"{each}:{line}: `{found}`: {better}")
        return 0
    by_file: Counter[str] = Counter()
    by_word: Counter[str] = Counter()
    for path in words.files(ROOT):
        for _, found, _ in words.hits(path.read_text(encoding="utf-8"), listed):
            by_file[str(path.relative_to(ROOT))] += 1
            by_word[found.lower()] += 1
    for title, counts in (("word", by_word), ("file", by_file)):
        print(f"\n{'hits':>6}  {title}")
        print("\n".join(f"{count:>6}  {name}" for name, count in counts.most_common(40)))
    print(f"\n{by_file.total():,} hits in {len(by_file):,} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
