"""What the runtime is worth: every row beside its peer, and beside what the simulator said.

    python benches/runtime                 # all rows
    python benches/runtime vgg16 2x2-500-500 --quick

Peers take turns in the same processes, block by block, so that what else the machine does is shared
out fairly. Computing is a wait (`tests/testbed/emulated.py`); gradients, processes and links are
real. Printed are medians with 95 % intervals; `p/m` is predicted over measured. Predictions are
made from one fabric file (`fabric.py`), before the row is run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

torch.set_num_threads(1)  # OpenMP's threads do not survive a fork

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import cost  # noqa: E402
import dimensions  # noqa: E402
import engine  # noqa: E402
import exchange  # noqa: E402
import fabric as fabrics  # noqa: E402
import loop  # noqa: E402
import names  # noqa: E402
import small  # noqa: E402
import steps  # noqa: E402
import torch._dynamo  # noqa: E402 - else `DistributedDataParallel` imports it in every worker
import tune  # noqa: E402
from figures import Figure, accuracy, head, line  # noqa: E402

from testbed import why_not  # noqa: E402

OUT = Path("out/runtime")

Row = Callable[[Any, "Size"], list[Figure]]


class Size:
    """How much of everything is run.

    Args:
        quick: As little as shows that it runs.
    """

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.blocks = 2 if quick else 7
        self.steps = 2 if quick else 6
        self.rounds = 2 if quick else 5


def _backend(part: str) -> Row:
    def run(fabric: fabrics.Fabric, size: Size) -> list[Figure]:
        import backend

        if part == "training":
            return backend.training(fabric, blocks=size.blocks, steps=size.steps)
        return backend.calls(blocks=size.blocks)

    return run


def _rows() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for name, case in steps.CASES.items():
        rows[name] = lambda fabric, size, case=case: steps.run(
            case, fabric, blocks=size.blocks, steps=size.steps
        )
    for name in dimensions.CASES:
        rows[name] = lambda fabric, size, name=name: dimensions.run(
            name, fabric, blocks=size.blocks, rounds=size.rounds
        )
    for name in exchange.CASES:
        rows[name] = lambda _, size, name=name: exchange.run(
            name, blocks=size.blocks, quick=size.quick
        )
    for name in cost.CASES:
        rows[f"cost-{name}"] = lambda _, size, name=name: cost.run(
            name, blocks=size.blocks, steps=size.steps
        )
    for name in small.CASES:
        rows[f"small-{name}"] = lambda _, size, name=name: small.run(name, blocks=4 * size.blocks)
    rows["tune"] = lambda _, size: tune.run(blocks=size.blocks, steps=size.steps)
    rows["loop"] = lambda _, size: loop.run(steps=4 if size.quick else 12)
    rows["names"] = lambda _, size: names.run(quick=size.quick)
    rows["backend-ddp"] = _backend("training")
    rows["backend-calls"] = _backend("calls")
    rows["engine"] = lambda fabric, size: engine.run(fabric, steps=size.steps)
    return rows


def main() -> None:
    """Parse, run, print."""
    rows = _rows()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(rows))
    parser.add_argument("--quick", action="store_true", help="few blocks: to see that it runs")
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in rows]
    if unknown:
        parser.error(f"there is no row `{unknown[0]}`; rows are {', '.join(rows)}")
    asked = options.rows or list(rows)
    shaped = [name for name in asked if not name.startswith(("small-", "names"))]
    fabric = None
    if shaped:
        if reason := why_not():
            parser.error(reason)
        fabric = fabrics.measured(OUT)
        print(f"# {fabric}", flush=True)
    print(head(), flush=True)
    found: list[Figure] = []
    for name in asked:
        figures = rows[name](fabric, Size(quick=options.quick))
        found += figures
        for figure in figures:
            print(line(figure), flush=True)
    for figure in accuracy(found):
        print(line(figure))


if __name__ == "__main__":
    main()
