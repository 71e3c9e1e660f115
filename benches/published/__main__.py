"""Compare the numbers that the five sources print with the rows of `allrail reproduce`.

    python benches/published ../shared/reference              # rows as the code makes them
    python benches/published DIR --rows out/reproduce         # rows of `reproduce --all --out`

Prints, by file, how many numbers have a row, are an input of rows, or are something else, then each
number that has none. Exits with 1 if there is one. What becomes of each number is `ledger.yaml`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    """Run the command line; 1 if a number has no row."""
    from published import ledger, rows

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    named = os.environ.get("ALLRAIL_REFERENCE")
    parser.add_argument(
        "folder", nargs=None if named is None else "?", default=named, help="$ALLRAIL_REFERENCE"
    )
    parser.add_argument("--rows", type=Path, metavar="DIR", help="what `reproduce --all` wrote")
    given = parser.parse_args()
    folder = Path(given.folder)
    if not folder.is_dir():
        parser.error(f"there is no folder `{folder}`")
    claims = rows.of_code(folder) if given.rows is None else rows.written(given.rows)
    found = ledger.compare(folder, claims, ledger.read())
    widths = "{:<28}{:>8}{:>8}{:>8}{:>8}"
    print(widths.format("file", "numbers", "rows", "inputs", "others"))
    for name, counts in found.counts.items():
        some = [counts[kind] for kind in ledger.KINDS]
        print(widths.format(name, sum(some), *some))
    missing = {case: claim.why for case, claim in claims.items() if not claim.computed}
    print(f"\nrows that need an input which no source prints: {len(missing)}")
    for case, why in missing.items():
        print(f"  {case}: {why}")
    print(f"\nnumbers without a row: {len(found.without)}")
    for text in found.without:
        print(f"  {text}")
    for text in found.wrong:
        print(f"  wrong in the ledger: {text}")
    return 0 if found.ok else 1


if __name__ == "__main__":
    sys.exit(main())
