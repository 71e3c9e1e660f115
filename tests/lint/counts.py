"""Sentences of the Rust crates that count: one of a thing has no plural.

`"{ranks} ranks"` says "1 ranks" of one rank. `allrail_core::counted` and `either` say it right, so
no sentence outside of tests puts the plural of a noun behind a number that it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

NOUNS = (
    "algorithms attempts blocks boards buffers bytes cables channels characters chunks collectives"
    " columns communicators connections copies cores days dimensions domains elements entries"
    " events experts files gradients groups heads hosts iterations jobs kernels layers levels lines"
    " links machines members messages microbatches nodes operations packets parts partitions"
    " phases pieces planes points ports processes programs ranks records replicas requests rounds"
    " rows samples seconds segments servers sizes stages steps switches tensors threads times"
    " tokens trees values warnings workers NPUs GPUs"
)
COUNT = re.compile(rf"(?<!\{{)\{{(\w*)\}} ({NOUNS.replace(' ', '|')})\b")
ALLOWED = {
    ("astra_sim/groups.rs", "{} NPUs"),
    ("grid/hamiltonian.rs", "{columns} NPUs"),
    ("parallelism/plan.rs", "{} layers"),
    ("runtime/src/checks.rs", "{sizes} ranks"),
}
"""What stands there is no number: a product such as `8 x 16`, or a list."""


def uncounted(text: str) -> Iterator[str]:
    """Find what counts without looking whether it is one.

    Args:
        text: Of a Rust file.
    """
    text = text.partition("#[cfg(test)]")[0]
    text = re.sub(r" *\\\n\s*", " ", text)  # a string that goes on in the next line
    for line in text.splitlines():
        code = line.strip()
        if code.startswith(("//", "assert", "debug_assert", "unreachable!", "panic!")):
            continue
        for found in COUNT.finditer(code):
            if not found[1].isupper():  # a limit, which is a constant above one
                yield found[0]


def findings(crates: Path) -> list[str]:
    """Return them all, each with its file.

    Args:
        crates: The folder of all crates.
    """
    return [
        f"{path.relative_to(crates)}: `{found}`"
        for path in sorted(crates.glob("*/src/**/*.rs"))
        for found in uncounted(path.read_text(encoding="utf-8"))
        if not any(str(path).endswith(file) and found == what for file, what in ALLOWED)
    ]
