"""Compare the parameters of `config.json` files with those of the classes of `transformers`.

    python benches/hugging_face [TYPE...]     # every model type of the library, or these
    python benches/hugging_face --defaults    # write the defaults of the configuration classes
    python benches/hugging_face --cases       # write counts for the core's own tests

For every model type of the library: configurations with the class's own defaults and with other
sizes and flags, saved as the library saves them, are read by allrail; the class itself is built on
the `meta` device, which has shapes and no memory. Equal means equal to the last parameter, in every
configuration. What allrail refuses is counted as refused, with its hint; a count that differs fails
the run.

Needs `transformers` and `torch`. allrail itself needs neither.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main() -> int:
    """Run the command line; 1 if a count differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", metavar="TYPE")
    parser.add_argument("--defaults", action="store_true", help="write the classes' defaults")
    parser.add_argument("--cases", action="store_true", help="write counts for the core's tests")
    given = parser.parse_args()
    if given.cases:
        import cases

        print(f"{cases.write()} is written")
        return 0
    if given.defaults:
        import defaults

        print(f"{defaults.write()} is written")
        return 0
    import judge

    return judge.report(given.types)


if __name__ == "__main__":
    sys.exit(main())
