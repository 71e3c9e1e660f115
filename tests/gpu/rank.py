"""One rank of a part: `rank.py PART ANSWER gpu|rehearsal SECONDS`, started by torchrun."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from place import NotHere, Place  # isort: skip - this folder comes first on the path


def main(part: str, answer: str, where: str, seconds: str) -> None:
    """Run the part, and write what rank 0 found."""
    torch.set_num_threads(1)
    place = Place(rehearsal=where == "rehearsal", seconds=float(seconds))
    if not place.rehearsal:
        torch.cuda.set_device(0)
    torch.use_deterministic_algorithms(mode=True)
    found: dict[str, Any] = {"verdict": "ok", "why": "", "figures": {}}
    try:
        found["figures"] = importlib.import_module(f"parts.{part}").run(place, Path(answer).parent)
    except NotHere as reason:
        found |= {"verdict": "not here", "why": str(reason)}
    if int(os.environ["RANK"]) == 0:
        Path(answer).write_text(json.dumps(found))
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
